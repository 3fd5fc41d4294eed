"""Time of a training step of each method as a multiple of a supervised step.

A step is what `bagwise.train` does for a batch: the perceptron 784-300-300-300-300-10 on 256
instances, loss, backward pass, Adam. Methods and supervised learning are timed in turn, in one run.
"""

from __future__ import annotations

import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.networks import mlp

METHODS = ("rc", "cc", "rc_approx", "cc_approx", "dllp", "ot", "llpfc", "pll")
AT_MOST = {"rc": 1.3, "cc": 1.3}
ROUNDS = 7
BATCHES = 20


def seconds_a_step(method: str, data: BagData) -> float:
    model = mlp((784,), 10)
    started = time.perf_counter()
    train(model, data, method, TrainingOptions(epochs=1), progress=False)
    return (time.perf_counter() - started) / BATCHES


def main() -> None:
    torch.manual_seed(0)
    sizes = (2, 8, 16, 32, 64, 128)
    table = Table(title="Time of a training step / time of a supervised step (median of rounds)")
    table.add_column("method")
    for K in sizes:
        table.add_column(f"K = {K}", justify="right")
    cells: dict[tuple[str, int], float] = {}
    for K in sizes:
        labels = torch.randint(10, (256 * BATCHES,))
        inputs = torch.randn(len(labels), 784) + labels[:, None] / 10
        bags = Bags.from_labels(labels, [K] * (len(labels) // K), n_classes=10)
        data = BagData(inputs, bags, labels)
        rounds = [
            {method: seconds_a_step(method, data) for method in ("supervised", *METHODS)}
            for _ in range(1 + ROUNDS)
        ][1:]  # the first one warms up
        for method in METHODS:
            cells[method, K] = statistics.median(r[method] / r["supervised"] for r in rounds)
    for method in METHODS:
        most = AT_MOST.get(method)
        shown = []
        for K in sizes:
            missed = most is not None and K != 32 and cells[method, K] > most
            shown.append(f"{cells[method, K]:.2f}{' MISSED' if missed else ''}")
        table.add_row(method, *shown)
    Console().print(table)
    Console().print("At most 1.3 is asked of rc and cc for K <= 16 and K >= 64.")


if __name__ == "__main__":
    main()
