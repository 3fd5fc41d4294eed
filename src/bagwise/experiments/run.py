"""One run of the paper's protocol, from data set to result file."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bagwise
from bagwise.bags import Bags
from bagwise.checkpoint import save_tensors, write_atomically
from bagwise.data import BagData
from bagwise.datasets import Dataset, load_dataset
from bagwise.experiments.settings import RunSettings
from bagwise.models import make_model
from bagwise.run_state import CHECKPOINT
from bagwise.training import Row, train

RESULT = "result.json"
MODEL = "model.safetensors"
VALIDATION_SHARE = 0.1
FORMAT = 1


@dataclass(frozen=True)
class RunResult:
    """What a run found.

    Attributes:
        settings: of the run.
        history: one row an epoch.
        seconds: of training.
        versions: of what matters for the numbers.
    """

    settings: RunSettings
    history: list[Row]
    seconds: float
    versions: dict[str, str]

    def best_row(self, select: str = "accuracy") -> Row:
        """The epoch with the best validation `accuracy` (the paper) or `bag_loss` (no labels)."""
        sign = {"accuracy": 1, "bag_loss": -1}[select]
        return max(self.history, key=lambda row: sign * row[f"val_{select}"])


def protocol_data(data: Dataset, bag_size: int, seed: int) -> tuple[BagData, BagData, BagData]:
    """Training and validation bags drawn at random, and the test set as bags of one.

    10 % of the training set are held out for validation. What does not fill a bag is left out.
    """
    order = torch.randperm(
        len(data.train_labels), generator=torch.Generator().manual_seed(1_000_003 + seed)
    )
    n_held_out = round(VALIDATION_SHARE * len(order))

    def bagged(
        rows: torch.Tensor, size: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> BagData:
        if len(rows) < size:
            raise ValueError(
                f"{len(rows)} instances of {data.name} do not fill a bag of {size}; "
                "use smaller bags."
            )
        rows = rows[: len(rows) // size * size]
        sizes = np.full(len(rows) // size, size)
        bags = Bags.from_labels(labels[rows], sizes, n_classes=data.n_classes)
        return BagData(inputs[rows], bags, labels[rows])

    train_part = bagged(order[n_held_out:], bag_size, data.train_inputs, data.train_labels)
    held_out = bagged(order[:n_held_out], bag_size, data.train_inputs, data.train_labels)
    everything = torch.arange(len(data.test_labels))
    return train_part, held_out, bagged(everything, 1, data.test_inputs, data.test_labels)


def execute(
    settings: RunSettings,
    folder: Path | None = None,
    data_dir: str | None = None,
    keep_model: bool = False,
    progress: bool = False,
) -> RunResult:
    """Do a run, or read its result where it is done.

    With a folder, a run that was stopped goes on from its checkpoint, and its result appears there
    whole or not at all.
    """
    if folder is not None and (folder / RESULT).exists():
        return read_result(folder / RESULT)
    data = _loaded(settings.dataset, data_dir)
    training, held_out, test = protocol_data(data, settings.bag_size, settings.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = make_model(settings.model, tuple(data.train_inputs.shape[1:]), data.n_classes)
    started = time.perf_counter()
    trained = train(
        model,
        training,
        settings.new_method(),
        settings.options(),
        validation=held_out,
        test=test,
        checkpoint=folder,
        progress=progress,
    )
    result = RunResult(settings, trained.history, time.perf_counter() - started, versions())
    if folder is not None:
        if keep_model:
            save_tensors(folder / MODEL, model.state_dict(), {"settings": asdict(settings)})
        write_result(folder / RESULT, result)
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return result


@lru_cache(maxsize=2)
def _loaded(name: str, data_dir: str | None) -> Dataset:
    return load_dataset(name, data_dir)


def versions() -> dict[str, str]:
    """Versions that matter for the numbers of a run."""
    return {
        "bagwise": bagwise.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def write_result(path: Path, result: RunResult) -> None:
    """Write a result file, in one step."""
    content: dict[str, Any] = {"format": FORMAT, **asdict(result)}
    write_atomically(path, json.dumps(content).encode())


def read_result(path: Path) -> RunResult:
    """Read a result file; what is not one is a ValueError that names it."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT}")
        settings = RunSettings.from_dict(content["settings"])
        return RunResult(settings, content["history"], content["seconds"], content["versions"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result of Bagwise ({error}); delete it.") from error


def read_results(folder: Path) -> list[RunResult]:
    """All results below a folder, in the order of their names."""
    return [read_result(path) for path in sorted(folder.rglob(RESULT))]
