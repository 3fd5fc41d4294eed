"""What a step costs by bag size, and along a training: the loss beside a supervised step.

All times are processor time on one thread, so that another program on the same cores hardly
matters. A step is that of the perceptron d-300-300-300-300-C on 256 instances: forward, loss,
backward, Adam. That of a method is a supervised one with another loss; both losses, forward and
backward, are timed on the same logits.

python benchmarks/steps.py
python benchmarks/steps.py --against ../older/src   # beside another version, which takes as long
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from bagwise import BagData, Bags, TrainingOptions, cc_loss, rc_loss, train
from bagwise.networks import mlp
from common import generated, table

BATCH = 256
METHODS = ("rc", "cc")
CLASSES = (2, 10, 30, 100)
SIZES = (2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 22, 24, 28, 32, 48, 64, 96, 128)
SURENESS = 2.0
EPOCHS = (0, 1, 3, 10, 30)
TRAINED_SIZES = (8, 16, 32, 64, 128)
BATCHES = 6
ROUNDS = 5

HERE = Path(__file__).parent
Batch = tuple[torch.Tensor, Bags]  # logits and bags


class Cost(NamedTuple):
    """Milliseconds of the losses of a batch, without those of cross-entropy, and of a step."""

    rc: float
    cc: float
    step: float

    @property
    def ratios(self) -> tuple[float, float]:
        """The step of RC and of CC by a supervised one."""
        return 1 + self.rc / self.step, 1 + self.cc / self.step


Costs = tuple[list[tuple[int, int, Cost]], list[tuple[int, int, Cost]]]


def milliseconds(call: Callable[[int], object], n: int, rounds: int) -> float:
    """Median over rounds of the processor time of a call, after one round that warms up."""
    found = []
    for _ in range(1 + rounds):
        started = time.thread_time()
        for i in range(n):
            call(i)
        found.append((time.thread_time() - started) / n)
    return 1e3 * statistics.median(found[1:])


def supervised_step(n_features: int, C: int, rounds: int) -> float:
    """Milliseconds of a supervised step."""
    model = mlp((n_features,), C)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    inputs, labels = torch.randn(BATCH, n_features), torch.randint(C, (BATCH,))

    def step(_: int) -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return milliseconds(step, 10, rounds)


def cost(batches: list[Batch], step: float, rounds: int) -> Cost:
    """What RC and CC cost on these batches, RC with the same logits stored."""
    leaves = [logits.detach().clone().requires_grad_() for logits, _ in batches]
    stored = [leaf.detach().log_softmax(-1) for leaf in leaves]
    labels = [logits.argmax(1) for logits, _ in batches]
    bags = [bags for _, bags in batches]
    known: dict[str, Callable[[int], torch.Tensor]] = {
        "supervised": lambda i: cross_entropy(leaves[i], labels[i]),
        "rc": lambda i: rc_loss(leaves[i], bags[i], stored[i]),
        "cc": lambda i: cc_loss(leaves[i], bags[i]),
    }
    found = {
        name: milliseconds(lambda i, loss=loss: loss(i).backward(), len(batches), rounds)  # type: ignore[misc]
        for name, loss in known.items()
    }
    return Cost(found["rc"] - found["supervised"], found["cc"] - found["supervised"], step)


def by_size(C: int, sizes: tuple[int, ...], rounds: int) -> Iterator[tuple[int, Cost]]:
    """The costs of generated bags of each size."""
    step = supervised_step(784, C, rounds)
    for K in sizes:
        batches = [generated([K] * (BATCH // K), C, SURENESS) for _ in range(BATCHES)]
        yield K, cost(batches, step, rounds)


def along_training(K: int, epochs: tuple[int, ...], rounds: int) -> Iterator[tuple[int, Cost]]:
    """The costs with a perceptron that has learned handwritten digits by CC for some epochs."""
    inputs, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    inputs = ((inputs - inputs.mean()) / inputs.std()).float()
    n = len(labels) // BATCH * BATCH
    order = torch.randperm(len(labels))[:n]
    inputs, labels = inputs[order], labels[order]
    bags = Bags.from_labels(labels, [K] * (n // K), n_classes=10)
    each = BATCH // K
    parts = [bags.select(range(b * each, (b + 1) * each)) for b in range(n // BATCH)]
    step = supervised_step(inputs.shape[1], 10, rounds)
    model: nn.Module = mlp((inputs.shape[1],), 10)
    done = 0
    for epoch in epochs:
        if epoch > done:
            options = TrainingOptions(epochs=epoch - done, lr=1e-3, seed=epoch)
            model = train(model, BagData(inputs, bags), "cc", options, progress=False).model
            done = epoch
        with torch.no_grad():
            logits = copy.deepcopy(model).train()(inputs)
        yield epoch, cost(list(zip(logits.split(BATCH), parts, strict=True)), step, rounds)


def costs_of(tiny: bool) -> Costs:
    """All that the two tables are made of: (C, K, cost), and (K, epochs, cost)."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rounds = 1 if tiny else ROUNDS
    sizes, epochs = ((2, 4), (0, 1)) if tiny else (SIZES, EPOCHS)
    return (
        [(C, K, x) for C in ((3,) if tiny else CLASSES) for K, x in by_size(C, sizes, rounds)],
        [
            (K, epoch, x)
            for K in ((16,) if tiny else TRAINED_SIZES)
            for epoch, x in along_training(K, epochs, rounds)
        ],
    )


def measured(source: Path, tiny: bool) -> Costs:
    """The costs by the code of a source folder, in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--costs", *(["--tiny"] if tiny else [])]
    environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    by_sizes, of_training = json.loads(done.stdout.rsplit("FOUND", 1)[1])
    return (
        [(C, K, Cost(*x)) for C, K, x in by_sizes],
        [(K, epoch, Cost(*x)) for K, epoch, x in of_training],
    )


def by_neighbors(costs: list[Cost]) -> list[tuple[float, float]]:
    """The step of CC, and its loss alone, by that of the cheaper neighbor in size."""
    steps = [x.step + x.cc for x in costs]
    losses = [x.cc for x in costs]

    def ratio(of: list[float], i: int) -> float:
        return of[i] / min(of[j] for j in (i - 1, i + 1) if 0 <= j < len(of))

    return [(ratio(steps, i), ratio(losses, i)) for i in range(len(costs))]


def cells(x: Cost, *more: float) -> list[str]:
    """A cost in a table."""
    return [f"{number:.2f}" for number in (x.rc, x.cc, *x.ratios, *more)]


def rows_by_size(costs: Costs) -> Iterator[tuple[str, ...]]:
    """Lines of the first table."""
    for C in dict.fromkeys(C for C, _, _ in costs[0]):
        found = [(K, x) for of, K, x in costs[0] if of == C]
        for (K, x), more in zip(found, by_neighbors([x for _, x in found]), strict=True):
            yield str(C), str(K), *cells(x, *more)


def rows_of_training(costs: Costs) -> Iterator[tuple[str, ...]]:
    """Lines of the second table."""
    for K, epoch, x in costs[1]:
        yield str(K), str(epoch), *cells(x)


def largest(costs: Costs) -> str:
    """The worst of all rows."""
    neighbors = max(float(row[-2]) for row in rows_by_size(costs))
    step, C, K = max((x.ratios[1], C, K) for C, K, x in costs[0])
    of_training, size, epoch = max((x.ratios[1], K, epoch) for K, epoch, x in costs[1])
    return (
        f"at most {step:.2f} supervised steps (C = {C}, K = {K}) and {neighbors:.2f} times a "
        f"neighbor;\nalong a training at most {of_training:.2f} (K = {size}, epoch {epoch})"
    )


COLUMNS_BY_SIZE = ("C", "K", "RC, ms", "CC, ms", "RC, step", "CC, step", "step / neighbor", "loss")
COLUMNS_OF_TRAINING = ("K", "epochs", "RC, ms", "CC, ms", "RC, step", "CC, step")
BEFORE = ("before: RC, step", "before: CC, step")


def section(pictures: Path, tiny: bool, against: Path | None = None) -> str:
    """The part of docs/benchmarks.md; another version's steps stand in two columns more."""
    del pictures  # it has none
    found = measured(HERE.parent / "src", tiny)
    by_sizes, of_training = list(rows_by_size(found)), list(rows_of_training(found))
    more: tuple[str, ...] = ()
    summary = f"A step of CC takes {largest(found)}.\n"
    if against is not None:
        before, more = measured(against, tiny), BEFORE
        summary += f"Before: {largest(before)}.\n"
        for lines, of in zip((by_sizes, of_training), before, strict=True):
            lines[:] = [
                (*line, *(f"{ratio:.2f}" for ratio in x.ratios))
                for line, (*_, x) in zip(lines, of, strict=True)
            ]
    return (
        "## A step by bag size, and along a training\n\nWhat the loss of 256 instances takes, "
        "forward and backward, beyond cross-entropy (CPU ms, one thread), and a\nstep as a "
        "multiple of a supervised one of the perceptron d-300-300-300-300-C.\n\n"
        f"{summary}\nFirst with generated log-probabilities (s = {SURENESS:g}); then come a step "
        "of CC, and its loss alone, as multiples of the\ncheaper of the two neighbors' in the "
        "table:\n\n"
        + table((*COLUMNS_BY_SIZE, *more), by_sizes)
        + "\nThen with the logits of a perceptron after some epochs of CC on scikit-learn's "
        "handwritten digits (64 pixels, 7 batches an epoch):\n\n"
        + table((*COLUMNS_OF_TRAINING, *more), of_training)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds, to test it")
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--costs", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.costs:
        print("FOUND", json.dumps(costs_of(options.tiny)))
        return
    print(section(Path(), options.tiny, options.against))


if __name__ == "__main__":
    main()
