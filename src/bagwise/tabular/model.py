"""A model fitted to a table, and its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bagwise.estimator import LLPClassifier
from bagwise.storage import model_folder as archive
from bagwise.tabular.columns import Columns, Inputs
from bagwise.training.evaluation import predict_logits

FORMAT = 1


@dataclass(frozen=True)
class TableModel:
    """A classifier, what the columns of its table mean, and how it was fitted.

    Attributes:
        classifier: of encoded rows.
        columns: how rows are encoded.
        facts: what `fit` found, for the report; JSON.
    """

    classifier: LLPClassifier
    columns: Columns
    facts: dict[str, Any]

    @property
    def classes(self) -> list[str]:
        """The class labels."""
        return [str(label) for label in self.classifier.classes_]

    def log_probs(self, inputs: Inputs) -> torch.Tensor:
        """(N, C) log-probabilities of encoded rows."""
        # PyTorch warns of arrays that may not be written, for instance memory-mapped ones.
        own = np.require(inputs, np.float32, ["C", "W"])
        return log_probs_by(self.classifier, torch.from_numpy(own))

    def save(self, path: Path) -> None:
        """Write the model folder, in one step; where a symbolic link leads, if `path` is one."""
        content = {archive.COLUMNS: self.columns.to_json(), archive.FIT: self.facts}
        archive.save(self.classifier, Path(os.path.realpath(path)), content)

    @classmethod
    def load(cls, path: Path) -> TableModel:
        """Read a model folder; what is missing, damaged or too new is a ValueError."""
        archive.recover(path)
        if not path.is_dir():
            raise ValueError(f"there is no folder {path}; give the --out folder of bagwise fit.")
        classifier = LLPClassifier.load(path)
        found = {name: _read(path / name) for name in (archive.COLUMNS, archive.FIT)}
        try:
            columns = Columns.from_json(found[archive.COLUMNS])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path / archive.COLUMNS} is damaged: {error}.") from error
        width = len(columns.encoded_names)
        if classifier.shape_in_ != (width,):
            raise ValueError(
                f"{path / archive.COLUMNS} makes {width} features, but the model in "
                f"{archive.CONFIG} has {classifier.shape_in_}; the folder is damaged."
            )
        return cls(classifier, columns, found[archive.FIT])


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(
            f"{path.parent} has no {path.name}; it is incomplete, or not from bagwise fit."
        )
    return archive.read_json(path, FORMAT)


def log_probs_by(classifier: LLPClassifier, inputs: torch.Tensor) -> torch.Tensor:
    """(N, C) log-probabilities of encoded rows."""
    return predict_logits(classifier.model_, inputs).log_softmax(-1)
