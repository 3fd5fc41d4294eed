"""What it is worth to say how counts are known: noise, rounding, ranges, and some labeled rows.

    python benchmarks/inexact.py FOLDER [--data DIR] [--only noise|rounding|labeled|parts]

Each line of FOLDER/runs.csv is one run; runs that are there already are not done again, so that a
stopped one goes on. At the end tables and pictures are made of what there is. Test accuracy is that
of the epoch with the most probable held-out bags, whose counts are known as those of training are;
of parts, that of the last epoch.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch

from bagwise import BagData, Bags, DiscreteLaplace, TrainingOptions, train
from bagwise.networks import make_model
from bagwise.paper.datasets import Dataset, load_dataset
from bagwise.paper.run import protocol_data
from bagwise.training.best import best_row

FIELDS = ("experiment", "dataset", "setting", "knowledge", "method", "seed", "accuracy")
SEEDS = (0, 1, 2)
Knowing = Callable[[Bags, np.random.Generator], Bags]


@dataclass(frozen=True)
class Run:
    """One line of the table.

    Attributes:
        setting: the scale of the noise, say.
        knowledge: how the counts are given to the method.
        know: makes bags as they are known from true ones.
    """

    experiment: str
    dataset: str
    bag_size: int
    setting: str
    knowledge: str
    method: str
    seed: int
    know: Knowing
    epochs: int = 8
    lr: float = 1e-3
    batch: int = 256

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from others."""
        return tuple(str(getattr(self, field)) for field in FIELDS[:-1])


def as_they_are(bags: Bags, rng: np.random.Generator) -> Bags:
    return bags


def noised(scale: float, model_noise: bool) -> Knowing:
    """Counts with discrete Laplace noise; known as such, or taken for the nearest possible ones."""

    def know(bags: Bags, rng: np.random.Generator) -> Bags:
        stop = 1 - np.exp(-1 / scale)
        noise = rng.geometric(stop, bags.counts.shape) - rng.geometric(stop, bags.counts.shape)
        noisy = bags.counts + noise
        if model_noise:
            return Bags.from_noisy_counts(noisy, bags.sizes, DiscreteLaplace(scale))
        return nearest(noisy, bags.sizes)

    return know


def nearest(counts: np.ndarray, sizes: np.ndarray) -> Bags:
    """The closest counts of 0 or more that sum to the size: all shifted alike, then rounded."""
    shifted = -np.sort(-counts, axis=1).astype(float)
    ranks = np.arange(1, counts.shape[1] + 1)
    shifts = (np.cumsum(shifted, axis=1) - sizes[:, None]) / ranks
    last = (shifted - shifts > 0).sum(axis=1) - 1
    shift = shifts[np.arange(len(counts)), last]
    shares = np.maximum(counts - shift[:, None], 0) / sizes[:, None]
    return Bags.from_proportions(shares, sizes, rounding="nearest")


def rounded(decimals: int, ranges: bool) -> Knowing:
    def know(bags: Bags, rng: np.random.Generator) -> Bags:
        shares = bags.proportions.round(decimals)
        if ranges:
            return Bags.from_proportions(shares, bags.sizes, decimals=decimals)
        total = shares.sum(axis=1, keepdims=True)
        return Bags.from_proportions(shares / total, bags.sizes, rounding="nearest")

    return know


def suppressed(below: int, ranges: bool) -> Knowing:
    """Counts from 1 to `below` - 1 are hidden: known as ranges, or guessed from the rest."""

    def know(bags: Bags, rng: np.random.Generator) -> Bags:
        hidden = (bags.counts > 0) & (bags.counts < below)
        if ranges:
            low, high = np.where(hidden, 1, bags.counts), np.where(hidden, below - 1, bags.counts)
            return Bags.from_ranges(low, high, bags.sizes)
        shown = np.where(hidden, 0, bags.counts)
        left = (bags.sizes - shown.sum(axis=1)) / np.maximum(hidden.sum(axis=1), 1)
        return nearest(np.where(hidden, left[:, None], shown), bags.sizes)

    return know


def runs() -> Iterator[Run]:
    for seed in SEEDS:
        kmnist = ("kmnist", 64)
        yield Run("noise", *kmnist, "0", "true counts", "cc", seed, as_they_are)
        for scale in (1, 2, 4):
            for method in ("cc", "dllp"):
                know = noised(scale, model_noise=False)
                yield Run("noise", *kmnist, str(scale), "nearest counts", method, seed, know)
            know = noised(scale, model_noise=True)
            yield Run("noise", *kmnist, str(scale), "noise model", "cc", seed, know)
    for seed, (name, make) in itertools.product(
        SEEDS,
        {
            "whole percent": lambda ranges: rounded(2, ranges),
            "tenths": lambda ranges: rounded(1, ranges),
            "cells under 3 hidden": lambda ranges: suppressed(3, ranges),
            "cells under 5 hidden": lambda ranges: suppressed(5, ranges),
        }.items(),
    ):
        for ranges in (False, True):
            knowledge = "ranges" if ranges else "guessed counts"
            yield Run("rounding", "digits", 32, name, knowledge, "cc", seed, make(ranges), 60, 0.01)
    for seed in SEEDS:
        yield Run(
            "rounding", "digits", 32, "exact", "true counts", "cc", seed, as_they_are, 60, 0.01
        )
    for seed, share in itertools.product(SEEDS, ("0", "0.01", "0.03", "0.1")):
        yield Run("labeled", "kmnist", 128, share, "bags and labels", "cc", seed, as_they_are)
    for seed, share in itertools.product(SEEDS, ("0.01", "0.03", "0.1")):
        yield Run("labeled", "kmnist", 128, share, "labels alone", "supervised", seed, as_they_are)
    for seed, (knowledge, batch, lr) in itertools.product(
        SEEDS,
        (
            ("whole bags", 1000, 1e-3),
            ("parts of 256", 256, 1e-3),
            ("parts of 256 at a quarter of the rate", 256, 2.5e-4),
        ),
    ):
        large = ("fashion-mnist", 1000, "1000")
        yield Run("parts", *large, knowledge, "cc", seed, as_they_are, 60, lr, batch)


def accuracy_of(run: Run, data: Dataset) -> float:
    training, held_out, test = protocol_data(data, run.bag_size, run.seed)
    rng = np.random.default_rng(run.seed)
    bags = run.know(training.bags, rng)
    labels = None
    if run.experiment == "labeled":
        assert training.labels is not None
        hidden = torch.from_numpy(rng.random(len(training)) >= float(run.setting))
        labels = training.labels.masked_fill(hidden, -1)
        if run.method == "cc":
            bags, labels = bags.with_labels(labels.numpy()), None
    training = BagData(training.inputs, bags, labels)
    held_out = BagData(held_out.inputs, run.know(held_out.bags, rng))
    torch.manual_seed(run.seed)
    model = make_model("linear", tuple(data.train_inputs.shape[1:]), data.n_classes)
    options = TrainingOptions(
        epochs=run.epochs, lr=run.lr, seed=run.seed, batch_instances=run.batch, select="bag_loss"
    )
    result = train(model, training, run.method, options, validation=held_out, test=test)
    if run.experiment == "parts":  # six held-out bags choose an epoch by chance
        return result.history[-1]["test_accuracy"]
    return best_row(result.history, "bag_loss")["test_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default=None, help="folder of the data sets")
    parser.add_argument("--only", default=None, help="one of the experiments")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "runs.csv"
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open() as file:
        done = {tuple(row[field] for field in FIELDS[:-1]) for row in csv.DictReader(file)}
    data: dict[str, Dataset] = {}
    for run in runs():
        if run.key in done or arguments.only not in (None, run.experiment):
            continue
        if run.dataset not in data:
            data = {run.dataset: load_dataset(run.dataset, arguments.data)}
        accuracy = accuracy_of(run, data[run.dataset])
        with path.open("a") as file:
            csv.writer(file, lineterminator="\n").writerow([*run.key, f"{100 * accuracy:.2f}"])
        print(*run.key, f"{100 * accuracy:.2f}", flush=True)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    write_table(rows, arguments.folder / "table.md")
    draw(rows, arguments.folder)


def cells_of(rows: list[dict[str, str]]) -> dict[tuple[str, ...], list[float]]:
    """Accuracies of the seeds, by experiment, data, setting, knowledge and method."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        key = tuple(row[field] for field in FIELDS if field not in ("seed", "accuracy"))
        cells.setdefault(key, []).append(float(row["accuracy"]))
    return cells


def write_table(rows: list[dict[str, str]], path: Path) -> None:
    """Mean and standard deviation over seeds of each setting."""
    header = "experiment", "data", "setting", "known", "method", "accuracy (%)", "seeds"
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for key, values in cells_of(rows).items():
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
        lines.append(f"| {' | '.join(key)} | {mean(values):.1f}{spread} | {len(values)} |")
    path.write_text("\n".join(lines) + "\n")


def draw(rows: list[dict[str, str]], folder: Path) -> None:
    """A picture of the noise, and one of the labeled rows."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    cells = cells_of(rows)
    texts = {
        "noise": ("scale of the discrete Laplace noise", "kmnist, linear, bags of 64"),
        "labeled": ("labeled rows (%)", "kmnist, linear, bags of 128"),
    }
    for experiment, (label, title) in texts.items():
        curves: dict[str, dict[float, list[float]]] = {}
        for (found, _, setting, knowledge, method), values in cells.items():
            if found == experiment:
                x = float(setting) * (100 if experiment == "labeled" else 1)
                curves.setdefault(f"{knowledge}, {method}", {})[x] = values
        if not curves:
            continue
        figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        for name, points in curves.items():
            xs = sorted(points)
            if len(xs) == 1:
                axes.axhline(mean(points[xs[0]]), color="0.5", linestyle=":", label=name)
                continue
            spreads = [stdev(points[x]) if len(points[x]) > 1 else 0 for x in xs]
            means = [mean(points[x]) for x in xs]
            axes.errorbar(xs, means, spreads, marker="o", capsize=3, label=name)
        axes.set(xlabel=label, ylabel="test accuracy (%)", title=title)
        axes.legend(frameon=False)
        figure.savefig(folder / f"{experiment}.png", dpi=150)
        plt.close(figure)


if __name__ == "__main__":
    main()
