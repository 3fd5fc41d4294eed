"""What further groupings of the same rows are worth, learned from one by one or jointly.

    python benchmarks/grouped_training.py FOLDER [--data DIR] [--only digits|kmnist]

Random groupings of the training rows into bags of K, 1, 2 or 4 of them. The method is cc, the
epoch the last one, and every run makes the same number of steps: the passes over the rows are
shared by the groupings. Each line of FOLDER/runs.csv is one run; runs that are there already are
not done again, so that a stopped one goes on. At the end table.md and groupings.png are made of
what there is.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch

from bagwise import BagData, Groupings, TrainingOptions, bag_posterior, train
from bagwise.networks import Standardize, make_model
from bagwise.paper.datasets import Dataset, load_dataset
from bagwise.training.evaluation import predict_logits
from common import COLORS, table
from groupings import grouped

FIELDS = ("dataset", "model", "K", "groupings", "learns", "seed")
MEASURED = ("test_accuracy", "labeled_right", "cpu_seconds", "settled")
PASSES = {"digits": 200, "kmnist": 8}
SEEDS = {"digits": 3, "kmnist": 1}
MODELS = {"digits": ("linear", "mlp"), "kmnist": ("linear",)}
RATES = {("digits", "linear"): 0.01}
LEARNS = ("alone", "composite", "joint")
MOST_ROUNDS = 30


def runs() -> Iterator[tuple[str, ...]]:
    """All runs, one seed after the other."""
    for dataset in PASSES:
        for seed, model, K in itertools.product(range(SEEDS[dataset]), MODELS[dataset], (64, 128)):
            yield dataset, model, str(K), "1", "alone", str(seed)
            for G, learns in itertools.product((2, 4), LEARNS[1:]):
                yield dataset, model, str(K), str(G), learns, str(seed)


def measured(run: tuple[str, ...], data: Dataset) -> tuple[str, ...]:
    """Train, and label the rows that were counted by the joint posterior."""
    dataset, model, K, G, learns, seed = run
    rng, labels = np.random.default_rng(int(seed)), data.train_labels
    last = len(labels) // int(K) - 1  # the bag that takes the rows left over
    bags_of_rows = {
        str(g): np.minimum(rng.permutation(len(labels)) // int(K), last) for g in range(int(G))
    }
    groupings = grouped(labels.numpy(), data.n_classes, bags_of_rows)
    inputs = data.train_inputs.flatten(1)
    training = BagData.of_groupings(inputs, groupings, joint=learns == "joint")
    torch.manual_seed(int(seed))
    network: torch.nn.Module = torch.nn.Sequential(
        Standardize.of(inputs), make_model(model, tuple(inputs.shape[1:]), data.n_classes)
    )
    options = TrainingOptions(
        epochs=PASSES[dataset] // int(G),
        lr=RATES.get((dataset, model), 1e-3),
        weight_decay=1 / len(labels),
        schedule="one_cycle",
        batch_bags=8,
        seed=int(seed),
    )
    started = time.process_time()
    network = train(network, training, "cc", options, progress=False).model
    seconds = time.process_time() - started
    right = predict_logits(network, data.test_inputs.flatten(1)).argmax(1) == data.test_labels
    share, settled = labeled_right(network, data, groupings)
    return f"{right.float().mean():.4f}", f"{share:.4f}", f"{seconds:.1f}", str(settled)


def labeled_right(
    network: torch.nn.Module, data: Dataset, groupings: Groupings
) -> tuple[float, bool]:
    """The share of the counted rows, and whether messages settled."""
    log_p = predict_logits(network, data.train_inputs.flatten(1)).double().log_softmax(-1).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = bag_posterior(log_p, groupings, max_rounds=MOST_ROUNDS)
    right = found.weights.argmax(axis=1) == data.train_labels.numpy()
    return float(right.mean()), found.converged


def place(row: dict[str, str]) -> tuple[object, ...]:
    """Where a run is in the table."""
    return (
        row["dataset"],
        row["model"],
        int(row["K"]),
        int(row["groupings"]),
        LEARNS.index(row["learns"]),
        int(row["seed"]),
    )


def summary(rows: list[dict[str, str]]) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """The runs that differ by seed alone."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(tuple(row[field] for field in FIELDS[:-1]), []).append(row)
    return found


def lines(rows: list[dict[str, str]]) -> Iterator[tuple[str, ...]]:
    """Those of the table."""

    def percent(some: list[dict[str, str]], name: str) -> str:
        values = [100 * float(row[name]) for row in some]
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
        return f"{mean(values):.1f}{spread}"

    for key, some in summary(rows).items():
        seconds = mean(float(row["cpu_seconds"]) for row in some)
        settled = sum(row["settled"] == "True" for row in some)
        yield (
            *key,
            percent(some, "test_accuracy"),
            percent(some, "labeled_right"),
            f"{settled} of {len(some)}",
            f"{seconds:.1f}",
        )


def picture(rows: list[dict[str, str]], path: Path) -> None:
    """Test accuracy by the number of groupings."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = sorted({(row["dataset"], row["model"]) for row in rows})
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.2), squeeze=False)
    found = summary(rows)
    for axis, (dataset, model) in zip(axes[0], panels, strict=True):
        for (K, style), (learns, color) in itertools.product(
            (("64", "-"), ("128", "--")), zip(LEARNS[1:], COLORS, strict=False)
        ):
            points = []
            for G in ("1", "2", "4"):
                key = (dataset, model, K, G, "alone" if G == "1" else learns)
                if key in found:
                    values = [100 * float(row["test_accuracy"]) for row in found[key]]
                    points.append((int(G), mean(values)))
            marker = "o" if learns == "joint" else "s"
            axis.plot(
                *zip(*points, strict=True),
                style,
                marker=marker,
                color=color,
                label=f"{learns}, bags of {K}",
            )
        axis.set(title=f"{dataset}, {model}", xlabel="groupings", xticks=(1, 2, 4))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test accuracy, %")
    axes[0][len(panels) // 2].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default=None, help="folder of the data sets")
    parser.add_argument("--only", default=None, help="one of the data sets")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "runs.csv"
    if not path.exists():
        path.write_text(",".join(FIELDS + MEASURED) + "\n")
    with path.open() as file:
        done = {tuple(row[field] for field in FIELDS) for row in csv.DictReader(file)}
    data: dict[str, Dataset] = {}
    for run in runs():
        if run in done or arguments.only not in (None, run[0]):
            continue
        if run[0] not in data:
            data[run[0]] = load_dataset(run[0], arguments.data)
        line = ",".join(run + measured(run, data[run[0]]))
        print(line, flush=True)
        with path.open("a") as file:
            file.write(line + "\n")
    with path.open() as file:
        rows = sorted(csv.DictReader(file), key=place)
    heads = ("data", "model", "K", "groupings", "learns from", "test accuracy, %")
    heads += ("counted rows labeled right, %", "settled", "CPU s")
    (arguments.folder / "table.md").write_text(table(heads, lines(rows)))
    picture(rows, arguments.folder / "groupings.png")


if __name__ == "__main__":
    main()
