"""All methods on scikit-learn's digits, in bags: `python -m bagwise.demo`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

from bagwise.bags import Bags
from bagwise.data import BagData
from bagwise.extras import require
from bagwise.methods import PAPER_METHODS
from bagwise.networks import Standardize, mlp
from bagwise.training import Row, TrainingOptions, train

BAG_SIZES = (4, 16, 64)
SHOWN_SIZE = 16
EPOCHS = 30
N_TEST = 360

History = list[Row]


def digits_in_bags(K: int, seed: int = 0) -> tuple[BagData, BagData]:
    """Training digits in random bags of K, and 360 test digits."""
    X, y = load_digits(return_X_y=True)
    inputs, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    test, rest = order[:N_TEST], order[N_TEST:]
    rest = rest[: len(rest) // K * K]

    def bagged(rows: torch.Tensor, size: int) -> BagData:
        bags = Bags.from_labels(labels[rows], [size] * (len(rows) // size), n_classes=10)
        return BagData(inputs[rows], bags, labels[rows])

    return bagged(rest, K), bagged(test, 1)


def run(
    method: str, K: int, seed: int = 0, options: TrainingOptions | None = None
) -> tuple[History, float]:
    """Train the perceptron; returns its history and the seconds it took."""
    options = replace(options or TrainingOptions(epochs=EPOCHS), select="last", seed=seed)
    data, test = digits_in_bags(K, seed)
    torch.manual_seed(seed)
    model = nn.Sequential(Standardize.of(data.inputs), mlp((64,), 10))
    started = time.perf_counter()
    result = train(model, data, method, options, test=test, progress=False)
    return result.history, time.perf_counter() - started


def draw(histories: dict[tuple[str, int], History], path: Path) -> None:
    """Accuracy by epoch at one bag size, and at the end by bag size."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    sizes = sorted({K for _, K in histories})
    epochs = max(len(history) for history in histories.values())
    figure, (by_epoch, by_size) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for method, cls in PAPER_METHODS.items():
        style = {"color": cls.color, "linestyle": cls.line, "label": cls.title}
        history = histories[method, SHOWN_SIZE]
        accuracies = [100 * row["test_accuracy"] for row in history]
        by_epoch.plot([row["epoch"] for row in history], accuracies, **style)
        ends = [100 * histories[method, K][-1]["test_accuracy"] for K in sizes]
        by_size.plot(sizes, ends, marker="o", **style)
    by_epoch.set(xlabel="epoch", ylabel="test accuracy, %", title=f"Digits, bags of {SHOWN_SIZE}")
    by_size.set(xlabel="bag size", title=f"Digits, after {epochs} epochs", xscale="log")
    by_size.set_xticks(sizes, [str(K) for K in sizes])
    by_size.minorticks_off()
    for axes in (by_epoch, by_size):
        axes.grid(alpha=0.3)
        axes.set_ylim(0, 100)
    by_size.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(
    path: Path = Path("demo/digits.png"),
    sizes: Sequence[int] = BAG_SIZES,
    epochs: int = EPOCHS,
) -> None:
    """Run all methods with bags of these sizes and of 16, print the table, draw the picture."""
    require("matplotlib", "plots")
    console = Console()
    console.print(
        "Handwritten digits in bags: only the number of each digit in a bag is known. A perceptron "
        "learns to tell single digits apart. Kernels are compiled before the first run.\n"
    )
    jobs = [(method, K) for K in (SHOWN_SIZE, *sizes) for method in PAPER_METHODS]
    jobs = list(dict.fromkeys(jobs))
    histories: dict[tuple[str, int], History] = {}
    took: dict[tuple[str, int], float] = {}
    with Progress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("compiling kernels", total=len(jobs))
        for method in PAPER_METHODS:  # so that no method's seconds are those of a compiler
            run(method, SHOWN_SIZE, options=TrainingOptions(epochs=1))
        for method, K in jobs:
            bar.update(task, description=f"{PAPER_METHODS[method].title}, bags of {K}")
            if PAPER_METHODS[method].needs_labels and K != SHOWN_SIZE:  # bags play no part
                histories[method, K] = histories[method, SHOWN_SIZE]
            else:
                options = TrainingOptions(epochs=epochs)
                histories[method, K], took[method, K] = run(method, K, options=options)
            bar.advance(task)

    table = Table(title=f"Test accuracy on {N_TEST} digits after {epochs} epochs")
    table.add_column("method")
    for K in sizes:
        table.add_column(f"K = {K}", justify="right")
    table.add_column(f"seconds (K = {SHOWN_SIZE})", justify="right")
    for method, cls in PAPER_METHODS.items():
        cells = [f"{histories[method, K][-1]['test_accuracy']:.1%}" for K in sizes]
        table.add_row(
            cls.title, *cells, f"{took[method, SHOWN_SIZE]:.1f}", end_section=cls.needs_labels
        )
    console.print(table)
    draw(histories, path)
    console.print(f"Accuracy by epoch and by bag size: {path}")


if __name__ == "__main__":
    main()
