"""How much faster several workers train one model than one process does.

Each has one thread. An epoch of CC in batches of 256 instances and larger ones, in bags of 16, of
random images, and of random rows for the perceptron, without evaluation. One process alone and the
workers together are timed in turn, in one run of a few minutes; the median of rounds is shown. The
speed-up needs as many idle cores as workers. Beside it is that of the first worker's processor
time, which leaves out what it waits for the others:

    python benchmarks/workers.py --workers 2
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.networks import make_model
from common import table

SHAPES = {"lenet5": (1, 28, 28), "resnet32": (3, 32, 32), "mlp": (784,)}
BATCHES = {"resnet32": {256: 2}, "lenet5": {256: 16, 2048: 2}, "mlp": {256: 32, 4096: 2}}  # size: n
BAG = 16
ROUNDS = 5
ROWS = "rows.json"


def seconds_an_epoch(name: str, batch: int) -> tuple[float, float]:
    """Of the second of two epochs: the first one warms up; and processor time, of their mean."""
    torch.manual_seed(0)
    n = batch * BATCHES[name][batch]
    labels = torch.randint(10, (n,))
    bags = Bags.from_labels(labels, [BAG] * (n // BAG), n_classes=10)
    data = BagData(torch.randn(n, *SHAPES[name]), bags)
    model = make_model(name, SHAPES[name], 10)
    options = TrainingOptions(epochs=2, batch_instances=batch)
    processor = time.process_time()
    wall = train(model, data, "cc", options, progress=False).history[-1]["seconds"]
    return wall, (time.process_time() - processor) / 2


def worker(rank: int, workers: int, folder: str, names: list[str], barrier: Any) -> None:
    """The first one is also the process that trains alone, while the others wait."""
    torch.set_num_threads(1)
    for name, batch in [(model, size) for model in names for size in BATCHES[model]]:
        times = []
        for number in range(1 + ROUNDS):
            alone = seconds_an_epoch(name, batch) if rank == 0 else (0.0, 0.0)
            barrier.wait()
            place = f"file://{Path(folder) / f'{name}-{batch}-{number}'}"
            dist.init_process_group("gloo", place, rank=rank, world_size=workers)
            times.append((alone, seconds_an_epoch(name, batch)))
            dist.destroy_process_group()
        if rank == 0:
            rounds = times[1:]  # the first one warms up
            alone_, together = (statistics.median(r[who][0] for r in rounds) for who in (0, 1))
            wall, processor = (statistics.median(a[i] / b[i] for a, b in rounds) for i in (0, 1))
            with (Path(folder) / ROWS).open("a") as file:
                file.write(json.dumps([name, batch, alone_, together, wall, processor]) + "\n")


def measure(workers: int, names: list[str]) -> list[tuple[str, int, float, float, float, float]]:
    """(model, batch, seconds alone, together, speed-up, of processor time) of each model."""
    barrier = torch.multiprocessing.get_context("spawn").Barrier(workers)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, (workers, folder, names, barrier), nprocs=workers)
        return [tuple(json.loads(row)) for row in (Path(folder) / ROWS).read_text().splitlines()]


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    rows = measure(2, ["mlp"] if tiny else list(SHAPES))
    cells = ((*row[:2], *(f"{value:.2f}" for value in row[2:])) for row in rows)
    columns = ("model", "batch", "alone, s", "two workers, s", "speed-up", "of processor time")
    return (
        f"## Two workers\n\nAn epoch of CC in bags of {BAG}, by one process of one thread and by "
        "two such workers (gloo, one machine),\nwhich exchange a message for each layer of batch "
        "normalization, there and back, and one with all\ngradients: a step that is not much "
        "longer than the messages gains nothing. The last column leaves out\nwhat the first "
        f"worker waits for the other:\n\n{table(columns, cells)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    given = parser.parse_args()
    print(f"Seconds of an epoch, 1 process and {given.workers} workers, one thread each")
    print(
        f"{'model':>10} {'batch':>6} {'alone':>9} {'together':>9} {'speed-up':>9} "
        f"{'processor':>10}",
        flush=True,
    )
    for name, batch, alone, together, wall, processor in measure(given.workers, given.models):
        print(f"{name:>10} {batch:6} {alone:9.3f} {together:9.3f} {wall:9.2f} {processor:10.2f}")


if __name__ == "__main__":
    main()
