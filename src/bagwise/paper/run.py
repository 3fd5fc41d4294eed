"""One run of the paper's protocol, from data set to result file."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import bagwise
from bagwise.bags import Bags
from bagwise.checks import any_number, anything, list_of, number, record, text, whole, wrong
from bagwise.data import BagData
from bagwise.errors import DamagedError, InputError
from bagwise.networks import make_model
from bagwise.paper.datasets import Dataset, load_dataset
from bagwise.paper.settings import RunSettings
from bagwise.storage.files import remove_leftovers, write_atomically
from bagwise.storage.json_file import read_json
from bagwise.training import Callback, Row, train
from bagwise.training.best import best_row
from bagwise.training.distributed import workers_of
from bagwise.training.memory import keep_freed
from bagwise.training.run_state import CHECKPOINT
from bagwise.training.tensor_files import save_tensors

RESULT = "result.json"
MODEL = "model.safetensors"
VALIDATION_SHARE = 0.1
FORMAT = 1
VERSIONS = ("bagwise", "torch", "numpy", "python")

_bag_loss = number(0, float("inf"))  # infinite where the model's output is
_ROW = record(
    {
        "epoch": number(1),
        "train_loss": number(),
        "lr": number(0),
        "train_accuracy": number(0, 1),
        "seconds": number(0),
        "val_bag_loss": _bag_loss,
        "val_accuracy": number(0, 1),
        "test_bag_loss": _bag_loss,
        "test_accuracy": number(0, 1),
    },
    {"weight_distance": number(0)},
    others=any_number,  # what a method of the user's measures
)
_RESULT = record(
    {
        "format": whole(FORMAT, FORMAT),
        "settings": record({}, others=anything),  # RunSettings knows them
        "history": list_of(_ROW, 1),
        "seconds": number(0),
        "versions": record(dict.fromkeys(VERSIONS, text), others=text),
    }
)


@dataclass(frozen=True)
class RunResult:
    """What a run found.

    Attributes:
        seconds: of training and evaluation, the sum over epochs: time that a run was stopped, or
            spent on an epoch in which it was killed, does not count.
        versions: of what matters for the numbers.
    """

    settings: RunSettings
    history: list[Row]
    seconds: float
    versions: dict[str, str]

    def best_row(self, select: str = "accuracy") -> Row:
        """The epoch with the best validation `accuracy` (the paper) or `bag_loss` (no labels)."""
        return best_row(self.history, select)


def protocol_data(data: Dataset, bag_size: int, seed: int) -> tuple[BagData, BagData, BagData]:
    """Training and validation bags drawn at random, and the test set as bags of one.

    10% of the training set are held out for validation. What does not fill a bag is left out.
    """
    order = torch.randperm(
        len(data.train_labels), generator=torch.Generator().manual_seed(1_000_003 + seed)
    )
    n_held_out = round(VALIDATION_SHARE * len(order))

    def bagged(
        rows: torch.Tensor, size: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> BagData:
        if len(rows) < size:
            raise InputError(
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
    device: str = "cpu",
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """Do a run, or read its result where it is done.

    With a folder, a run that was stopped goes on from its checkpoint, and its result appears there
    whole or not at all. The workers of a process group do it together; the first one writes. From
    then on, the process keeps memory that it frees.
    """
    if folder is not None:
        remove_leftovers(folder)
        if (folder / RESULT).exists():
            done = read_result(folder / RESULT)
            if done.settings == settings:  # killed between the two, it left its checkpoint
                (folder / CHECKPOINT).unlink(missing_ok=True)
            return done
    settings.require_known()
    keep_freed()
    group = workers_of(torch.device("cpu"))
    group.first_does(partial(_loaded, settings.dataset, data_dir))  # it may be a download
    data = _loaded(settings.dataset, data_dir)
    training, held_out, test = protocol_data(data, settings.bag_size, settings.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = make_model(settings.model, tuple(data.train_inputs.shape[1:]), data.n_classes)
    trained = train(
        model,
        training,
        settings.new_method(),
        settings.options(),
        validation=held_out,
        test=test,
        checkpoint=folder,
        device=device,
        callbacks=callbacks,
        progress=progress,
    )
    seconds = sum(row["seconds"] for row in trained.history)
    result = RunResult(settings, trained.history, seconds, versions())
    if folder is not None:
        group.first_does(partial(_keep, folder, result, model if keep_model else None))
    return result


def _keep(folder: Path, result: RunResult, model: nn.Module | None) -> None:
    """Write what a finished run leaves."""
    if model is not None:
        save_tensors(
            folder / MODEL, model.cpu().state_dict(), {"settings": asdict(result.settings)}
        )
    write_result(folder / RESULT, result)
    (folder / CHECKPOINT).unlink(missing_ok=True)


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
    """Read a result file; what is not one is a ValueError that names it and the field at fault.

    Data set, model and method need not be known here.
    """
    content = read_json(path)
    try:
        _RESULT(content, "")
        settings = RunSettings.from_dict(content["settings"], check_names=False)
        check_history(content["history"], settings.epochs)
    except InputError as error:
        raise DamagedError(
            f"{path} is not a result that this version of Bagwise can read: {error} "
            "Restore it from a copy, or do the run again in another folder."
        ) from error
    return RunResult(settings, content["history"], content["seconds"], content["versions"])


def check_history(history: list[Row], epochs: int) -> None:
    """A finished run has every epoch once, in order, each with all that is measured."""
    list_of(_ROW, 1)(history, "history")
    for index, row in enumerate(history):
        if row["epoch"] != index + 1:
            raise wrong(row["epoch"], f"history[{index}].epoch", f"{index + 1}")
    if len(history) != epochs:
        raise InputError(f"history has {len(history)} epochs; {epochs} are expected.")


def read_results(folder: Path) -> list[RunResult]:
    """All results below a folder, in the order of their names."""
    return without_copies((path, read_result(path)) for path in sorted(folder.rglob(RESULT)))


def without_copies(results: Iterable[tuple[object, RunResult]]) -> list[RunResult]:
    """One result for each run: a copy is left out, two that differ are a ValueError."""
    found: dict[RunSettings, tuple[object, RunResult]] = {}
    for place, result in results:
        first, other = found.setdefault(result.settings, (place, result))
        if _measured(other) != _measured(result):
            raise InputError(
                f"{first} and {place} are both results of the run {result.settings.name}, and "
                "they differ; keep one of them."
            )
    return [result for _, result in found.values()]


def _measured(result: RunResult) -> str:
    """All numbers of a history but times, with the digits of an export; NaN is equal to NaN."""
    rows = ({k: f"{v:.8g}" for k, v in row.items() if k != "seconds"} for row in result.history)
    return repr([sorted(row.items()) for row in rows])
