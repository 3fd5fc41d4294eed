"""Damaged files of other kinds: results, exports, states of runs, sweeps and images. One input is
one file that is read.

A command must succeed, or end with a message of one line that names the file.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import torch
from damage import damaged
from torch import nn
from typer.testing import CliRunner

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.cli import app
from bagwise.paper.datasets import load_dataset
from bagwise.paper.run import execute
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep_file import read_sweep
from bagwise.training import DivergedError
from bagwise.training.run_state import CHECKPOINT

_SWEEP = Path(__file__).parent.parent / "results" / "linear" / "sweep.toml"
_ARCHIVE = "cifar-10-binary.tar.gz"


class DefectError(Exception):
    """Neither success nor an error that a user can use."""


@dataclass(frozen=True)
class Kind:
    """A kind of file: where a sound one is, and what reads it."""

    file: Path
    read: Callable[[Random], None]


def command(*arguments: object) -> None:
    """Call bagwise; an error for the user becomes a ValueError, anything else is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code == 0:
        return
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Note: ")]
    if result.exit_code not in (2, 3) or len(lines) != 1 or not lines[0].startswith("Error: "):
        raise DefectError(f"exit code {result.exit_code}, {result.output}")
    raise ValueError(lines[0])


def runs(folder: Path) -> dict[str, Kind]:
    """Results, and the files that they are exported to."""
    run = RunSettings("digits", "linear", "rc", 8, 1e-2, 2, 0)
    for one in (run, replace(run, bag_size=16), replace(run, method="dllp", bag_size=16)):
        execute(one, folder / "runs" / one.name)
    command("export", folder / "runs", "--out", folder / "exported")

    def read(place: Path) -> Callable[[Random], None]:
        def go(rng: Random) -> None:
            which = rng.random()
            select = ("--select", rng.choice(("accuracy", "bag_loss")))
            if which < 0.02:
                command("report", place, "--out", folder / "report.html")
            elif which < 0.05:
                command("figures", place, "--out", folder / "figures", *select)
            elif which < 0.2:
                command("export", place, "--out", folder / "again")
            else:
                style = rng.choice(("text", "markdown", "latex", "csv"))
                command("table", place, "--paper", "--format", style, *select)

        return go

    return {
        "result": Kind(folder / "runs" / run.name / "result.json", read(folder / "runs")),
        "runs": Kind(folder / "exported" / "runs.csv", read(folder / "exported")),
        "epochs": Kind(folder / "exported" / "epochs.csv", read(folder / "exported")),
    }


def training(folder: Path) -> dict[str, Kind]:
    """The state of a run that goes on."""
    labels = torch.randint(3, (60,), generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(1)) + labels[:, None]
    data = BagData(inputs, Bags.from_labels(labels, [5] * 12), labels)

    def go(method: str, epochs: int) -> None:
        torch.manual_seed(0)
        body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        train(
            body,
            data,
            method,
            TrainingOptions(epochs=epochs, average=0.9 if method == "cc" else None),
            validation=data,
            test=data,
            checkpoint=folder / method,
            progress=False,
        )

    kinds = {}
    for method in ("cc", "rc", "llpfc"):
        go(method, 2)
        kinds[f"state of {method}"] = Kind(
            folder / method / CHECKPOINT, lambda _, method=method: go(method, 3)
        )
    return kinds


def sweep(folder: Path) -> dict[str, Kind]:
    """A sweep file."""
    path = folder / "sweep.toml"
    path.write_bytes(_SWEEP.read_bytes())

    def read(_: Random) -> None:
        found = read_sweep(path)
        if found.pilot is not None:
            found.pilot_runs(0, found.rates())

    return {"sweep": Kind(path, read)}


def datasets(folder: Path) -> dict[str, Kind]:
    """Images and labels."""
    rng = np.random.default_rng(0)
    place = folder / "mnist"
    place.mkdir()
    for prefix in ("train", "t10k"):
        for kind, array in (
            ("images-idx3", rng.integers(256, size=(20, 28, 28))),
            ("labels-idx1", rng.integers(10, size=20)),
        ):
            header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
            content = gzip.compress(header + array.astype(np.uint8).tobytes())
            (place / f"{prefix}-{kind}-ubyte.gz").write_bytes(content)
    cifar = folder / "cifar10" / _ARCHIVE
    cifar.parent.mkdir()
    with tarfile.open(cifar, "w:gz") as archive:
        for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
            rows = rng.integers(256, size=(2, 3073))
            rows[:, 0] %= 10
            member = tarfile.TarInfo(name)
            member.size = rows.size
            archive.addfile(member, io.BytesIO(rows.astype(np.uint8).tobytes()))
    return {
        "idx": Kind(
            place / "train-images-idx3-ubyte.gz", lambda _: _unused(load_dataset("mnist", folder))
        ),
        "cifar": Kind(cifar, lambda _: _unused(load_dataset("cifar10", folder))),
    }


def _unused(_: object) -> None:
    """What is read is thrown away."""


def damaged_file(content: bytes, file: Path, rng: Random) -> bytes:
    """Damage of what the file holds; of packed files, of what is packed."""
    if file.suffix == ".gz" and rng.random() < 0.7:
        return gzip.compress(damaged(gzip.decompress(content), "", rng), 1)
    return damaged(content, file.suffix, rng)


def outcome(kind: Kind, content: bytes, rng: Random) -> str:
    """Read a damaged file: "read", or "refused" by an error that names it."""
    kind.file.write_bytes(damaged_file(content, kind.file, rng))
    try:
        kind.read(rng)
    except DivergedError:
        return "refused"
    except (ValueError, OSError) as error:
        # A column that is called otherwise is what the table lacks; without a result there is none.
        if not any(name in str(error) for name in (kind.file.name, "has no column", "no result")):
            raise DefectError(f"the message does not name {kind.file.name}: {error}") from error
        return "refused"
    return "read"


def make(folder: Path) -> Callable[[int], int]:
    """The files, which are damaged in turn."""
    torch.set_num_threads(1)
    makers = (runs, training, sweep, datasets)
    kinds = {name: kind for maker in makers for name, kind in maker(folder).items()}
    sound = {name: kind.file.read_bytes() for name, kind in kinds.items()}
    for kind in kinds.values():
        kind.read(Random(0))  # the sound file is read without an error

    def step(seed: int) -> int:
        rng = Random(f"other files {seed}")
        name = rng.choice(sorted(kinds))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that are too large, on the way to an error
            try:
                outcome(kinds[name], sound[name], rng)
            finally:
                kinds[name].file.write_bytes(sound[name])
        return 1

    return step


MAKE = {"other files": make}
