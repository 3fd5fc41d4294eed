"""Models of tables that PyTorch trains: what `bagwise.tables` asks for by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bagwise.bags import FloatArray
from bagwise.data import BagData
from bagwise.errors import DamagedError
from bagwise.estimator.classifier import LLPClassifier
from bagwise.estimator.network_candidates import Search, most_epochs, patience, variant
from bagwise.estimator.parameters import new_method
from bagwise.estimator.saving import files_of, load
from bagwise.estimator.spread_training import train_all_on_a_worker, train_together
from bagwise.likelihood.splits import Split
from bagwise.progress import WorkProgress
from bagwise.storage.model_folder import Write
from bagwise.tables.model.linear_model import LinearModel
from bagwise.tables.search.candidate import Trial
from bagwise.tables.search.step_by_step import StepByStep, Trained
from bagwise.training.divide_logits import divide_logits
from bagwise.training.evaluation import predict_logits
from bagwise.training.run_state import OtherRunError

VERSION = str(torch.__version__)


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A network that classifies encoded rows, as `bagwise.tables.model.LinearModel` does."""

    classifier: LLPClassifier

    @property
    def classes(self) -> tuple[str, ...]:
        """(C,) the class labels."""
        return tuple(map(str, self.classifier.classes_))

    @property
    def temperature(self) -> float:
        """By which the logits are divided."""
        return self.classifier.temperature_

    def log_probs(self, inputs: npt.NDArray[Any]) -> FloatArray:
        """(N, C) log-probabilities of encoded rows (N, d)."""
        # PyTorch warns of arrays that may not be written, for instance memory-mapped ones.
        rows = torch.from_numpy(np.require(inputs, np.float32, ["C", "W"]))
        found: FloatArray = (
            predict_logits(self.classifier.model_, rows).log_softmax(-1).double().numpy()
        )
        return found

    def divided(self, temperature: float) -> NetworkModel:
        """The same, with logits that are divided by a temperature from now on."""
        divide_logits(self.classifier.model_, temperature)
        self.classifier.temperature_ *= temperature
        return self

    def files(self) -> dict[str, Write]:
        """What writes its files, by name, see `model_folder.save_folder`."""
        return files_of(self.classifier)


def read_network(path: Path) -> NetworkModel:
    """The network of a table's model folder."""
    return NetworkModel(load(LLPClassifier, path))


def is_likelihood(steps: StepByStep) -> bool:
    """Whether a method maximizes the likelihood of the bags; contradictions are ValueErrors."""
    return new_method(steps.method, steps.engine, dict(steps.options)).is_likelihood


class Networks(Search):
    """Trains models of a table step by step: candidates, then the one that was chosen."""

    def fit(self, chosen: Trial) -> Trained:
        """Train the model that was chosen: on all bags where each was held out once, otherwise on
        all but the held-out ones, until these are most probable.
        """
        split = self.all_splits[0] if len(self.all_splits) == 1 else None
        if split is None:
            assert chosen.epochs is not None
            classifier = self._variant(chosen, chosen.epochs)
        else:
            most = self.epochs or most_epochs(len(self.data))
            waits = patience(most) if self.epochs is None else None
            classifier = self._variant(chosen, most, waits)
        if self.spread is not None:
            with WorkProgress(f"training {chosen.model}", "", 1, self.progress):
                if split is None:
                    trained = train_all_on_a_worker(self.spread, classifier, self.classes)
                else:
                    trained = train_together(self.spread, classifier, split, self.classes)
        else:
            assert self.tensors is not None
            trained = self._trained(classifier, self.tensors, split)
        model = linear_of(trained) if chosen.model == "linear" else NetworkModel(trained)
        assert trained.best_epoch_ is not None
        return Trained(model, trained.best_epoch_, trained.history_)

    def _variant(self, chosen: Trial, epochs: int, waits: int | None = None) -> LLPClassifier:
        assert chosen.lr is not None
        return variant(self.base, chosen.model, chosen.lr, epochs, waits, verbose=self.progress)

    def _trained(
        self, classifier: LLPClassifier, data: BagData, split: Split | None
    ) -> LLPClassifier:
        """Go on from the last epoch that was kept; from the beginning if that is damaged."""
        held_out = None
        if split is not None:
            data, held_out = (data.select(index) for index in split)
        try:
            return classifier.fit_bags(data, self.classes, held_out, self.work.checkpoint)
        except (DamagedError, OtherRunError):
            self.work.forget_checkpoint()
            return classifier.fit_bags(data, self.classes, held_out, self.work.checkpoint)


def linear_of(classifier: LLPClassifier) -> LinearModel:
    """The model of a classifier whose network is "linear", in the units of its inputs."""
    weights, intercept = classifier.linear_layer()
    classes, temperature = tuple(map(str, classifier.classes_)), classifier.temperature_
    return LinearModel(classes, weights.T.copy(), intercept, temperature)
