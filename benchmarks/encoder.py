"""A linear model on features of a frozen encoder, learned from the counts of bags: CIFAR-10.

    python benchmarks/encoder_features.py FEATURES --flip --data DIR
    python benchmarks/encoder.py FEATURES/lite2-160-flip.npy results/encoder --data DIR

Training images are put into random bags of K, 2 to 1,024. A linear model is learned from their
counts by CC or DLLP, or from true labels. Of three settings it takes the one under which a tenth of
the bags, held out, is most probable (of supervised learning, a tenth of the labels); then it is
trained on all bags. Each line of runs.csv is one run; runs that are there already are not done
again. At the end table.md and the picture are made of what there is.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.networks import Standardize, linear
from bagwise.paper.datasets import load_dataset
from bagwise.training.evaluation import predict_logits
from common import COLORS, table

KEY = ("features", "method", "K", "seed")
FIELDS = (*KEY, "test_accuracy", "lr", "weight_decay", "epochs", "cpu_seconds")
METHODS = ("cc", "dllp")
SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SEEDS = (0, 1, 2)
TRIED = ((1e-3, 1.0, 10), (3e-3, 3.0, 10), (3e-3, 3.0, 30))  # rate, weight decay, epochs
TITLES = {"supervised": "with true labels", "cc": "CC", "dllp": "DLLP"}
TRAINED = 50_000
Split = tuple[torch.Tensor, torch.Tensor]


def runs() -> list[tuple[str, str, str]]:
    """All runs but for the features: one seed after the other."""
    found = []
    for seed in SEEDS:
        found += [("supervised", "", str(seed))]
        found += [(method, str(K), str(seed)) for K in SIZES for method in METHODS]
    return found


def trained(
    data: BagData, method: str, held_out: BagData | None, how: tuple[float, float, int]
) -> tuple[torch.nn.Module, float]:
    """A linear model, and its loss on held-out bags."""
    lr, decay, epochs = how
    assert isinstance(data.inputs, torch.Tensor)
    torch.manual_seed(0)
    model = torch.nn.Sequential(Standardize.of(data.inputs), linear((data.inputs.shape[1],), 10))
    torch.nn.init.zeros_(model[1][1].weight)
    options = TrainingOptions(
        epochs=epochs,
        lr=lr,
        weight_decay=decay,
        optimizer="adamw",
        schedule="one_cycle",
        batch_instances=max(512, int(data.bags.sizes.max())),
        select="last",
    )
    found = train(model, data, method, options, validation=held_out, progress=False)
    loss = found.history[-1]["val_bag_loss"] if held_out is not None else float("nan")
    return found.model, float(loss)


def measured(train_rows: Split, test: Split, method: str, K: str, seed: int) -> tuple[str, ...]:
    """The test accuracy of a run, with the settings that held-out bags prefer."""
    size = int(K) if K else 1
    n = TRAINED // size
    order = torch.randperm(TRAINED, generator=torch.Generator().manual_seed(seed))[: n * size]
    inputs, labels = (rows[order] for rows in train_rows)
    cut = (n - max(n // 10, 2)) * size

    def bags(part: slice) -> BagData:
        own = labels[part]
        return BagData(
            inputs[part], Bags.from_labels(own, [size] * (len(own) // size), n_classes=10), own
        )

    started = time.process_time()
    kept, held_out = bags(slice(0, cut)), bags(slice(cut, None))
    best = min(TRIED, key=lambda how: trained(kept, method, held_out, how)[1])
    model, _ = trained(bags(slice(None)), method, None, best)
    right = (predict_logits(model, test[0]).argmax(1) == test[1]).float().mean()
    seconds = time.process_time() - started
    return (f"{float(right):.4f}", *map(str, best), f"{seconds:.0f}")


def accuracies(rows: list[dict[str, str]]) -> dict[tuple[str, str, str], list[float]]:
    """Test accuracies in percent by features, method and K; a value a seed."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        key = (row["features"], row["method"], row["K"])
        found.setdefault(key, []).append(100 * float(row["test_accuracy"]))
    return found


def lines(rows: list[dict[str, str]]) -> list[tuple[str, ...]]:
    """Those of the table: a line for each method and kind of features."""
    found = accuracies(rows)

    def cell(features: str, method: str, K: str) -> str:
        values = found.get((features, method, K), [])
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
        return f"{mean(values):.1f}{spread}" if values else ""

    return [
        (features, TITLES[method], cell(features, "supervised", ""), *cells)
        for features in dict.fromkeys(row["features"] for row in rows)
        for method in METHODS
        if any(cells := [cell(features, method, str(K)) for K in SIZES])
    ]


def picture(rows: list[dict[str, str]], path: Path) -> None:
    """Test accuracy by bag size; the lines are named where they end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = accuracies(rows)
    figure, axis = plt.subplots(figsize=(6.4, 3.8))
    for color, method in zip(COLORS, METHODS, strict=False):
        for features in dict.fromkeys(row["features"] for row in rows):
            points = [(K, mean(v)) for K in SIZES if (v := found.get((features, method, str(K))))]
            axis.plot(*zip(*points, strict=True), "o-", color=color)
            axis.annotate(
                TITLES[method], points[-1], (6, -3), textcoords="offset points", color=color
            )
    for (_, method, _), values in found.items():
        if method == "supervised":
            axis.axhline(mean(values), color="0.5", linewidth=1)
            axis.annotate(
                f"{TITLES[method]}: {mean(values):.1f}%",
                (SIZES[0], mean(values) + 0.6),
                color="0.4",
            )
    axis.set(xscale="log", xlabel="images in a bag", ylabel="test accuracy, %")
    axis.set_xticks(SIZES, [f"{K:,}" for K in SIZES])
    axis.minorticks_off()
    axis.margins(x=0.1)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path, help="file of encoder_features.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many of them")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "runs.csv"
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open() as file:
        done = {tuple(row[field] for field in KEY) for row in csv.DictReader(file)}
    data = load_dataset("cifar10-raw", options.data)
    inputs = torch.from_numpy(np.load(options.features).astype(np.float32))
    rows = (inputs[:TRAINED], data.train_labels), (inputs[TRAINED:], data.test_labels)
    for method, K, seed in runs():
        run = (options.features.stem, method, K, seed)
        if run in done or int(seed) >= options.seeds:
            continue
        line = ",".join((*run, *measured(*rows, method, K, int(seed))))
        print(line, flush=True)
        with path.open("a") as file:
            file.write(line + "\n")
    with path.open() as file:
        known = list(csv.DictReader(file))
    columns = ("features", "method", "true labels", *(f"K = {K}" for K in SIZES))
    (options.folder / "table.md").write_text(table(columns, lines(known)))
    picture(known, options.folder / "encoder.png")


if __name__ == "__main__":
    main()
