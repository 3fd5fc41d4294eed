"""Random work in one process for as long as is asked: memory, files and threads must not grow.

    python benchmarks/soak.py --minutes 60 --log

Fits, predictions, estimates, labels, reports, short trainings, engines and commands follow one
another at random, on small tables of all shapes, some of them refused for a fault in them. After
every few pieces what the process holds is read (from /proc, so on Linux): resident memory, Python's
objects, open files, threads, children, and files in the folder for temporary ones. The first part
warms up: it imports, compiles and fills caches. After it nothing may grow. Exit code 1 if
something does.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import io
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import nn

import bagwise
from bagwise import Bags, LLPClassifier, TrainingOptions, bag_posterior, most_probable_labeling
from bagwise.cli import app
from bagwise.data import BagData
from bagwise.posterior import ENGINES
from reliability_log import write_log

PIECES = 10  # of work, after which what the process holds is read
WARM_UP = 0.3  # of the readings, in which caches fill
MEMORY_ROOM = 0.04  # what allocators may hold more at the end than after the warm-up, as a share
OBJECTS_ROOM = 0.005  # likewise of Python's objects
FOUND = [
    (
        "Each training of a network with batch normalization kept 3 MB for good: to count the "
        "memory of a step, hooks of autograd were given tensors that hold their own graph.",
        "The hooks return them without their graph.",
    )
]
METHODS = ("cc", "rc", "dllp", "ot", "llpfc", "mixbag", "pvc", "rc_approx")


class Tables:
    """A random table of rows in bags, and the counts of its bags."""

    def __init__(self, rng: np.random.Generator) -> None:
        B, C = int(rng.integers(12, 40)), int(rng.choice([2, 2, 3, 4]))
        sizes = rng.integers(3, 20, size=B)
        ward = np.repeat(np.arange(B), sizes)
        n = len(ward)
        y = rng.integers(C, size=n)
        y[:C] = np.arange(C)
        d = int(rng.integers(1, 4))
        self.numbers = [f"x{i}" for i in range(d)]
        X = rng.normal(size=(n, d)) + rng.normal(size=(C, d))[y]
        X[rng.random((n, d)) < rng.choice([0, 0.02])] = np.nan
        self.rows = pd.DataFrame(X, columns=self.numbers)
        self.rows["town"] = np.array(["north", "south", "east"])[rng.integers(3, size=n)]
        self.rows["ward"] = [f"W{w:03d}" for w in ward]
        self.classes = [f"c{i}" for i in range(C)]
        counts = Bags.from_labels(y, sizes, n_classes=C).counts
        self.labels = pd.DataFrame(np.asarray(counts), columns=self.classes)
        self.labels.insert(0, "ward", [f"W{w:03d}" for w in range(B)])
        self.y, self.ward, self.X = y, ward, np.nan_to_num(X)
        self.bags = Bags.from_labels(y, sizes, n_classes=C)
        self.is_exact = True
        if rng.random() < 0.05:  # a fault, which must be refused and leave nothing behind
            self.labels.iloc[0, 1] += 1

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write both to CSV files."""
        rows, labels = folder / "rows.csv", folder / "labels.csv"
        self.rows.to_csv(rows, index=False)
        self.labels.to_csv(labels, index=False)
        return rows, labels


def fit_linear(rng: np.random.Generator, folder: Path) -> None:
    """A linear model, sometimes with bag effects, columns of bags or noisy counts, and its use."""
    tables = Tables(rng)
    options: dict[str, Any] = {"seed": int(rng.integers(9))}
    which = rng.integers(5)
    if which == 0:
        options["bag_effects"] = True
    elif which == 1:
        options["context"] = ["mean(x0)"]
    elif which == 2:
        noise = rng.laplace(scale=2, size=(len(tables.labels), len(tables.classes)))
        tables.labels[tables.classes] = tables.labels[tables.classes] + noise
        options["labels_are"], tables.is_exact = bagwise.Laplace(2), False
    elif which == 3:
        options["out"] = folder / "m"
    rows = tables.rows if rng.random() < 0.7 else pa.Table.from_pandas(tables.rows)
    model = bagwise.fit(
        rows, "ward", tables.labels, model="linear", progress=False, keep_counts=False, **options
    )
    use(model, tables, rng, folder)


def fit_perceptron(rng: np.random.Generator, folder: Path) -> None:
    """A perceptron, trained for a moment, and its use."""
    tables = Tables(rng)
    model = bagwise.fit(
        tables.rows, "ward", tables.labels, model="mlp", lr=0.01, epochs=2, progress=False
    )
    use(model, tables, rng, folder)


def fit_beyond_memory(rng: np.random.Generator, folder: Path) -> None:
    """Rows that are sorted into a file."""
    tables = Tables(rng)
    rows, labels = tables.save(folder)
    model = bagwise.fit(
        rows, "ward", labels, model="linear", memory="100MB", out=folder / "m", progress=False
    )
    model.estimate(rows, by="town", labels=labels, memory="100MB")


def use(model: bagwise.TableModel, tables: Tables, rng: np.random.Generator, folder: Path) -> None:
    """Some of what a model is for."""
    rows, labels = tables.rows, tables.labels
    uses: list[Callable[[], object]] = [
        lambda: model.predict(rows),
        lambda: model.predict_proba(rows),
        lambda: model.predict(rows, out=folder / "predicted.csv", force=True),
        lambda: model.estimate(rows, by="town"),
        lambda: model.report(folder / "report.html"),
        lambda: model.summary() + model._repr_html_(),
        lambda: (model.save(folder / "saved"), bagwise.load(folder / "saved").predict(rows)),
    ]
    if model.facts.settings.model == "linear":
        uses.append(model.effects)
    if tables.is_exact:
        uses.append(lambda: model.label(rows, labels))
        uses.append(lambda: model.importance(rows, labels))
        uses.append(lambda: model.estimate(rows, by="town", labels=labels))
    for number in rng.choice(len(uses), size=3, replace=False):
        uses[number]()


def classifier(rng: np.random.Generator, folder: Path) -> None:
    """`LLPClassifier`, by maximum likelihood or step by step."""
    tables = Tables(rng)
    counts = dict(enumerate(np.asarray(tables.bags.counts).tolist()))
    options: dict[str, Any] = {"model": "linear"}
    if rng.random() < 0.7:
        options = {"method": str(rng.choice(METHODS[:5])), "epochs": 2, "lr": 0.01}
    model = LLPClassifier(random_state=0, **options).fit(tables.X, tables.ward, counts)
    model.predict_proba(tables.X)
    model.save(folder / "classifier")
    LLPClassifier.load(folder / "classifier").predict(tables.X)


def logistic(rng: np.random.Generator, folder: Path) -> None:
    """`BagLogisticRegression`."""
    tables = Tables(rng)
    counts = dict(enumerate(np.asarray(tables.bags.counts).tolist()))
    model = bagwise.BagLogisticRegression().fit(tables.X, tables.ward, counts)
    model.predict(tables.X)
    model.conf_int()


def engines(rng: np.random.Generator, folder: Path) -> None:
    """Posteriors with gradients, by any engine, and labelings."""
    for _ in range(10):
        tables = Tables(rng)
        logits = torch.from_numpy(rng.normal(size=(len(tables.y), len(tables.classes))))
        log_probs = logits.log_softmax(-1).requires_grad_()
        engine = str(rng.choice([*ENGINES]))
        bag_posterior(log_probs, tables.bags, engine=engine).log_likelihood.sum().backward()
        most_probable_labeling(log_probs.detach(), tables.bags)


def training(rng: np.random.Generator, folder: Path) -> None:
    """`train` with a checkpoint, stopped and gone on with."""
    tables = Tables(rng)
    inputs = torch.from_numpy(tables.X.astype(np.float32))
    data = BagData(inputs, tables.bags, torch.from_numpy(tables.y))
    method = str(rng.choice(METHODS))
    for epochs in (1, 2):
        torch.manual_seed(0)
        body = nn.Sequential(nn.Linear(inputs.shape[1], 8), nn.ReLU())
        model = nn.Sequential(body, nn.Linear(8, len(tables.classes)))
        bagwise.train(
            model,
            data,
            method,
            TrainingOptions(epochs=epochs, batch_instances=64),
            validation=data,
            checkpoint=folder / "run",
            progress=False,
        )


def commands(rng: np.random.Generator, folder: Path) -> None:
    """The command line, in this process."""
    tables = Tables(rng)
    rows, labels = tables.save(folder)
    model = folder / "m"
    bag = ("--bag", "ward", "--labels", labels)
    for line in (
        ("fit", rows, *bag, "--model", "linear", "--out", model),
        ("predict", model, rows, "--out", folder / "predicted.parquet"),
        ("label", model, rows, *bag, "--out", folder / "labels.parquet"),
        ("estimate", model, rows, "--by", "town"),
        ("explain", model),
        ("report", model, "--out", folder / "report.html"),
    ):
        code = app([str(part) for part in line], standalone_mode=False)
        if code:
            raise bagwise.InputError(f"{line[0]} ends with the code {code}")


WORK = {
    "fit, linear, and use": fit_linear,
    "fit, perceptron, and use": fit_perceptron,
    "fit beyond memory": fit_beyond_memory,
    "LLPClassifier": classifier,
    "BagLogisticRegression": logistic,
    "engines, 10 calls": engines,
    "train, stopped and resumed": training,
    "commands": commands,
}


def held(temporary: Path) -> dict[str, float]:
    """What the process holds."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # what glibc keeps for later is no leak
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    process = Path("/proc/self")
    pages = int((process / "statm").read_text().split()[1])
    children = (process / f"task/{os.getpid()}/children").read_text().split()
    return {
        "resident memory, MiB": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "Python's objects": len(gc.get_objects()),
        "open files": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "child processes": len(children),
        "temporary files": sum(1 for _ in temporary.rglob("*")),
    }


def grown(readings: list[dict[str, float]]) -> list[list[Any]]:
    """For each quantity: after the warm-up, at the end, the most of all; and whether it grew.

    After the warm-up and at the end stand for medians of a fifth of the later readings each.
    """
    later = readings[int(WARM_UP * len(readings)) :]
    fifth = max(len(later) // 5, 1)
    rows = []
    for name in readings[0]:
        values = [reading[name] for reading in later]
        first, last = np.median(values[:fifth]), np.median(values[-fifth:])
        room = {"resident memory, MiB": MEMORY_ROOM, "Python's objects": OBJECTS_ROOM}
        grew = last > first * (1 + room.get(name, 0))
        rows.append([name, float(first), float(last), float(max(values)), bool(grew)])
    return rows


def main() -> int:
    """Work, watch, and say what grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=WORK, help="only this kind of work")
    parser.add_argument("--log", action="store_true", help="write results/reliability/soak.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failed = 0
    readings: list[dict[str, float]] = []
    begin = time.monotonic()
    number = 0
    sink = io.StringIO()  # the same for all: click keeps one wrapper for each stream
    with tempfile.TemporaryDirectory() as name:
        tempfile.tempdir = name  # what Bagwise leaves there is counted
        while time.monotonic() - begin < 60 * options.minutes:
            seed = f"{options.seed} {number}"
            rng = np.random.default_rng(list(seed.encode()))
            kind = options.only or random.Random(seed).choice([*WORK])
            folder = Path(name) / "work"
            folder.mkdir()
            try:
                with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
                    WORK[kind](rng, folder)
                done[kind] += 1
            except bagwise.InputError as error:
                done[kind] += 1
                refused[str(error)[:70]] += 1
            except Exception:
                failed += 1
                print(f"{kind}, number {number}:\n{traceback.format_exc()}", flush=True)
            shutil.rmtree(folder)
            sink.seek(0)
            sink.truncate()
            number += 1
            if number % PIECES == 0:
                readings.append(held(Path(name)))
                minutes = (time.monotonic() - begin) / 60
                numbers = ", ".join(f"{value:,.0f} {what}" for what, value in readings[-1].items())
                print(f"{minutes:6.1f} min, {number:6,} done: {numbers}", flush=True)
        tempfile.tempdir = None
        left = sorted(str(path.relative_to(name)) for path in Path(name).rglob("*"))
        print(f"temporary files at the end: {left[:10]}")
    minutes = (time.monotonic() - begin) / 60
    rows = grown(readings)
    for what, first, last, most, grew in rows:
        word = "GREW" if grew else "steady"
        print(f"{what:22} {first:12,.1f} {last:12,.1f} {most:12,.1f}  {word}")
    for kind, count in sorted(done.items()):
        print(f"{count:8,} {kind}")
    for message, count in refused.most_common(5):
        print(f"{count:8,} refused: {message} ...")
    print(f"{refused.total():,} refused, {failed} failed")
    if options.log:
        log(minutes, rows, done, refused.total(), failed)
    return int(failed > 0 or any(row[-1] for row in rows))


def log(
    minutes: float, rows: list[list[Any]], done: Counter[str], refused: int, failed: int
) -> None:
    """The log of a run."""
    work = "; ".join(f"{count:,} {kind}" for kind, count in sorted(done.items()))
    text = [
        f"One process did random work for {minutes:.0f} minutes ({time.process_time() / 60:.0f} "
        f"minutes of a core), {done.total():,} pieces of it: "
        f"{work}. {refused:,} were refused for a fault in their table, and {failed} failed.",
        "Each figure is a median: of the first fifth of the work after the warm-up "
        f"({WARM_UP:.0%} of it), and of the last fifth. Nothing may grow, but for "
        f"{MEMORY_ROOM:.0%} of memory, which allocators hold, and {OBJECTS_ROOM:.1%} of objects.",
    ]
    cells = [
        [what, *(round(number) for number in numbers), "yes" if grew else "no"]
        for what, *numbers, grew in rows
    ]
    columns = ("held by the process", "after the warm-up", "at the end", "at most", "grew")
    packages = ("bagwise", "numba", "numpy", "pyarrow", "torch")
    command = "make soak MINUTES=60"
    write_log("soak", "Soak", command, text, columns, cells, FOUND, packages)


if __name__ == "__main__":
    sys.exit(main())
