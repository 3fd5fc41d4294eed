"""Time of a training step of each method as a multiple of a supervised step.

A step is what `bagwise.train` does for a batch: the perceptron 784-300-300-300-300-C on 256
instances, loss, backward pass, Adam. Methods and supervised learning are timed in turn, in one run
of a few minutes, and each row is printed as soon as it is known. Another program on the same cores
disturbs wall time; the ratio of processor time, which it disturbs less, is shown beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from bagwise import BagData, Bags, TrainingOptions, bag_posterior, cc_loss, train
from bagwise.networks import mlp
from bagwise.posterior.auto import BY_TIME, fill_auto
from common import picture, table

METHODS = ("rc", "cc", "rc_approx", "cc_approx", "dllp", "ot", "llpfc", "pll")
PROPOSED = METHODS[:2]
SIZES = (2, 4, 8, 16, 32, 64, 128)
CLASSES = {2: (8, 64, 128), 5: (8, 16, 64), 30: (8, 16, 64), 100: (8, 64)}  # and their sizes
ALL_METHODS_AT = (16, 64)
PROFILED = ((10, 16), (30, 16), (30, 64), (100, 16), (100, 128))  # C, K of the dearest steps
TARGET = 1.15


class Step(NamedTuple):
    """A step of a method: its time by that of a supervised step, on the clock and in the CPU."""

    C: int
    K: int
    method: str
    ratio: float
    processor: float
    milliseconds: float

    @property
    def met(self) -> str:
        """Whether the aim is met, where there is one."""
        if self.method not in PROPOSED or self.C != 10 or self.K == 32:
            return ""
        return f"{TARGET}" if self.ratio <= TARGET else f"{TARGET} MISSED"


def milliseconds_a_step(method: str, data: BagData, batches: int) -> tuple[float, float]:
    """Wall time and processor time."""
    model = mlp((784,), data.bags.n_classes)
    wall, processor = time.perf_counter(), time.process_time()
    train(model, data, method, TrainingOptions(epochs=1), progress=False)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return 1e3 * wall / batches, 1e3 * processor / batches


def generated(K: int, C: int, batches: int) -> BagData:
    labels = torch.randint(C, (256 * batches,))
    inputs = torch.randn(len(labels), 784) + labels[:, None] / C
    bags = Bags.from_labels(labels, [K] * (len(labels) // K), n_classes=C)
    return BagData(inputs, bags, labels)


def steps(
    C: int, K: int, methods: tuple[str, ...], rounds: int = 5, batches: int = 16
) -> Iterator[Step]:
    """Each method's step, the median of rounds after one that warms up."""
    data = generated(K, C, batches)
    found = [
        [milliseconds_a_step(method, data, batches) for method in ("supervised", *methods)]
        for _ in range(1 + rounds)
    ][1:]
    for i, method in enumerate(methods, start=1):
        ratio, processor = (statistics.median(x[i][j] / x[0][j] for x in found) for j in (0, 1))
        yield Step(C, K, method, ratio, processor, statistics.median(x[i][0] for x in found))


def all_steps(tiny: bool) -> Iterator[Step]:
    torch.manual_seed(0)
    if tiny:
        yield from steps(3, 4, PROPOSED, rounds=1, batches=1)
        return
    for K in SIZES:
        yield from steps(10, K, METHODS if K in ALL_METHODS_AT else PROPOSED)
    for C, sizes in CLASSES.items():
        for K in sizes:
            yield from steps(C, K, PROPOSED)


def profile(C: int, K: int, repeats: int = 20) -> list[tuple[str, float]]:
    """Where the time of a CC step goes that a supervised one does not need: CPU milliseconds."""
    torch.manual_seed(0)
    batches = 20
    data = generated(K, C, batches)
    assert data.labels is not None
    logits = torch.randn(batches, 256, C)
    each = 256 // K
    labels = data.labels.reshape(batches, 256)
    bags = [data.bags.select(range(b * each, (b + 1) * each)) for b in range(batches)]
    arrays = [x.log_softmax(-1).double().numpy() for x in logits]
    leaves = [x.clone().requires_grad_() for x in logits]
    found = np.empty(each), np.empty((256, C))
    parts: dict[str, Callable[[int], object]] = {
        "the kernels": lambda b: fill_auto(arrays[b], bags[b], *found, BY_TIME),
        "`bag_posterior`, checks and copies included": lambda b: bag_posterior(logits[b], bags[b]),
        "`cc_loss`, forward and backward": lambda b: cc_loss(leaves[b], bags[b]).backward(),
        "the same with cutting the batch's bags": lambda b: cc_loss(
            leaves[b], data.bags.select(range(b * each, (b + 1) * each))
        ).backward(),
        "cross-entropy, forward and backward": lambda b: cross_entropy(
            leaves[b], labels[b]
        ).backward(),
    }
    return [(name, 1e3 * _cpu(call, batches, repeats)) for name, call in parts.items()]


def _cpu(call: Callable[[int], object], batches: int, repeats: int) -> float:
    """Median CPU seconds of a call, over batches that take turns."""
    found = []
    for _ in range(1 + repeats):
        started = time.process_time()
        for b in range(batches):
            call(b)
        found.append((time.process_time() - started) / batches)
    return statistics.median(found[1:])


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    found = list(all_steps(tiny))
    lines: dict[str, list[tuple[float, float]]] = {}
    for x in found:
        if x.method in PROPOSED and x.C in (2, 3, 10, 30):
            lines.setdefault(f"{x.method.upper()}, C = {x.C}", []).append((x.K, x.ratio))
    profiled = PROFILED[:1] if tiny else PROFILED
    of_each = [profile(C, K, 1 if tiny else 20) for C, K in profiled]
    parts = [(rows[0][0], *(f"{ms:.2f}" for _, ms in rows)) for rows in zip(*of_each, strict=True)]
    columns = ("C", "K", "method", "ratio", "CPU ratio", "ms a step", "aim: at most")
    rows = [
        (x.C, x.K, x.method, f"{x.ratio:.2f}", f"{x.processor:.2f}", f"{x.milliseconds:.1f}", x.met)
        for x in found
    ]
    return (
        "## A training step\n\nThe time of a step divided by that of a supervised step of the same "
        "network on the same\ninstances: the perceptron 784-300-300-300-300-C, 256 instances, "
        "Adam, timed in turn, medians.\n\n"
        + picture(
            pictures / "steps.png",
            lines,
            ("instances of a bag, K", "time / time of a supervised step"),
            "A training step, as a multiple of a supervised step",
            at_most=TARGET,
            log="x",
        )
        + "\n"
        + table(columns, rows)
        + "\nWhat a step of CC has and a supervised one has not, CPU milliseconds. Beyond the "
        "kernels it takes much the same for all bags:\n\n"
        + table(("part", *(f"C = {C}, K = {K}" for C, K in profiled)), parts)
    )


def main() -> None:
    print("Time of a training step / time of a supervised step, median of rounds")
    print(f"{'C':>4} {'K':>4} {'method':>12} {'ratio':>7} {'processor':>10} {'ms a step':>10}")
    for x in all_steps(tiny=False):
        print(
            f"{x.C:4} {x.K:4} {x.method:>12} {x.ratio:7.2f} {x.processor:10.2f} "
            f"{x.milliseconds:10.1f} {x.met}",
            flush=True,
        )


if __name__ == "__main__":
    main()
