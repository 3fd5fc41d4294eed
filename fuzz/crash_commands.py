"""Commands that write, each on inputs so small that it takes a fraction of a second."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bagwise.methods import METHODS

CLUSTER = "HOST:PORT"  # of a cluster that is started when it is needed
COUNTS = ("--bag", "bag", "--labels", "bags.csv")
FIT = ("fit", "rows.csv", *COUNTS)
TRAIN = ("train", "--dataset", "digits", "--model", "linear", "--bag-size", "8", "--lr", "0.01")
SWEEP = """datasets = ["digits"]
models = ["linear"]
methods = ["cc"]
bag_sizes = [8]
seeds = [0, 1]
lrs = [1e-2]
epochs = 1
"""
MODELS = (
    (*FIT, "--model", "linear", "--out", "model"),
    (*FIT, "--model", "mlp", "--lr", "0.03", "--epochs", "1", "--out", "network"),
)
RUNS = tuple((*TRAIN, "--epochs", "1", "--seed", seed, "--out", f"runs/{seed}") for seed in "01")


@dataclass(frozen=True)
class Command:
    """A command line; files that are there before it stand in the folder `made`.

    Attributes:
        before: a command line that is given before, so that there is an output already.
        stdin: a file for standard input.
        states: parts of names of files that it keeps to go on from.
    """

    name: str
    arguments: tuple[str, ...]
    before: tuple[str, ...] = ()
    stdin: str | None = None
    states: tuple[str, ...] = ()


def write_inputs(folder: Path) -> None:
    """Ten bags of six rows, their counts, and a sweep."""
    draw = random.Random(0)
    rows = [f"B{i % 10},{draw.gauss(0, 1):.3f},{'uv'[i % 2]}" for i in range(60)]
    (folder / "rows.csv").write_text("\n".join(["bag,x,kind", *rows]) + "\n")
    counts = [f"B{b},{b % 5 + 1},{5 - b % 5}" for b in range(10)]
    (folder / "bags.csv").write_text("\n".join(["bag,no,yes", *counts]) + "\n")
    (folder / "sweep.toml").write_text(SWEEP)


def commands() -> Iterator[Command]:
    """All of them."""
    linear = (*FIT, "--model", "linear")
    perceptron = (*FIT, "--lr", "0.03", "--epochs", "2")
    memory = ("--memory", "1GB")
    kept = ("checkpoint.safetensors",)
    yield Command("fit, linear", (*linear, "--out", "new/m"))
    yield Command("fit, linear, over a model", (*linear, "--seed", "1", "--out", "model"))
    yield Command("fit, with a perceptron", (*perceptron, "--out", "m"))
    yield Command("fit --memory, linear", (*linear, *memory, "--out", "m"))
    yield Command(
        "fit --memory, with a perceptron, over a model",
        (*perceptron, "--model", "mlp", *memory, "--out", "model"),
    )
    yield Command(
        "fit --memory --store", (*linear, *memory, "--store", "s", "--out", "m"), states=("s/",)
    )
    yield Command(
        "fit, of standard input", ("fit", "-", *linear[2:], "--out", "m"), stdin="rows.csv"
    )
    ray = ("--ray-address", CLUSTER, "--workers", "1", "--store", "s")
    yield Command("fit --ray, linear", (*linear, *ray, "--out", "m"))
    for ending in ("csv", "parquet"):
        predict = ("predict", "model", "rows.csv", "--out", f"new/p.{ending}")
        yield Command(f"predict, {ending}", predict)
    yield Command("predict, over a file", predict, before=predict)
    yield Command("predict, network", ("predict", "network", "rows.csv", "--out", "p.csv"))
    label = ("label", "model", "rows.csv", *COUNTS)
    yield Command("label", (*label, "--out", "new/l.csv"))
    yield Command(
        "label, over a file", (*label, "--out", "l.parquet"), (*label, "--out", "l.parquet")
    )
    estimate = (
        "estimate",
        "model",
        "rows.csv",
        "--by",
        "kind",
        "--out",
        "s.csv",
        "--figure",
        "s.png",
    )
    yield Command("estimate", estimate)
    yield Command("estimate, over files", estimate, before=estimate)
    yield Command("estimate --memory", (*estimate, *COUNTS, *memory))
    explain = ("explain", "model", "--out", "e.csv")
    yield Command("explain", explain)
    yield Command("explain, over a file", explain, before=explain)
    yield Command(
        "explain --memory", ("explain", "model", "rows.csv", *COUNTS, *memory, "--out", "e.csv")
    )
    report = ("report", "model", "--out", "new/r.html")
    yield Command("report of a model", report)
    yield Command("report of a model, over a file", report, before=report)
    yield Command("report of runs", ("report", "runs", "--out", "r.html"))
    export = ("export", "runs", "--out", "new/x")
    yield Command("export", export)
    yield Command("export, over files", export, before=("export", "runs/0", "--out", "new/x"))
    figures = ("figures", "runs", "--out", "new")
    yield Command("figures", figures)
    yield Command("figures, over files", figures, before=figures)
    for method in METHODS:
        augment = ("--augment", "weak") if method == "two_views" else ()
        train = (*TRAIN, "--method", method, *augment, "--epochs", "2", "--out", "new/t")
        yield Command(f"train, {method}", train, states=kept)
    download = ("train", "--dataset", "kmnist", *TRAIN[3:], "--epochs", "1", "--out", "t")
    yield Command("train, with a download", download, states=kept)
    yield Command(
        "sweep",
        ("sweep", "sweep.toml", "--processes", "1", "--out", "w"),
        states=(*kept, "error.txt"),
    )
    yield Command("datasets", ("datasets",))
