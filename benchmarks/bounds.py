"""What the pruned lattice proves, and how often `auto` needs it.

First, 10,000 generated bags, of 2 to 16 instances and 2 to 8 classes, of classifiers from ignorant
to confident: the bound of each, with cuts from fine to coarse, must contain the exact answer.

Then, with --kmnist, bags of 64 of Kuzushiji-MNIST and a perceptron trained on them by CC: how many
of 50 training bags and 50 test bags `auto` computes with a proof, by `max_states`, in what time,
and how far the weights of others, which are left to `bethe`, are from exact ones.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from bagwise import BagData, Bags, Posterior, TrainingOptions, bag_posterior, train
from bagwise.networks import mlp
from bagwise.paper.datasets import find, load_dataset
from bagwise.posterior.pruned import HOPE, fill_pruned
from common import table

CUTS = (1e-10, 1e-6, 1e-4, 1e-3, 1e-2)
BAGS = 10_000
EPOCHS = (1, 10)
LIMITS = (2**16, 2**20, 2**23)  # of `auto`, the first its own
WIDEST = 2**27  # for the exact answer to which bethe's is compared, of a few bags
REFERENCES = 4
COLUMNS = (
    "epochs",
    "bags",
    "2^16: proved, CPU ms a bag",
    "2^20",
    "2^23",
    "bethe's L1 distance: most, mean",
)


def pruned(
    log_probs: torch.Tensor, bags: Bags, most: int, cut: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """log P(S|X), weights, bounds, and the bags that were done."""
    log_likelihood, bound = np.empty(len(bags)), np.full(len(bags), np.inf)
    weights = np.empty(log_probs.shape)
    index, log_p = np.arange(len(bags)), log_probs.double().numpy()
    limit = np.full(len(bags), float(most))
    fill_pruned(index, log_p, bags, log_likelihood, weights, bound, limit, HOPE, cut, tolerance)
    return log_likelihood, weights, bound, np.flatnonzero(bound < np.inf)


def generated_bags(n_bags: int) -> str:
    """How often the exact answer is outside of its bound."""
    rng = np.random.default_rng(0)
    outside, checked, tightest, lost = 0, 0, 0.0, 0
    while checked < n_bags:
        C, s = int(rng.integers(2, 9)), float(rng.choice([0.3, 1, 3, 8, 20]))
        sizes = rng.integers(2, 17, size=10)
        labels = rng.integers(C, size=sizes.sum())
        noise = rng.standard_normal((len(labels), C))
        log_probs = torch.from_numpy(s * np.eye(C)[labels] + s**0.5 * noise)
        bags = Bags.from_labels(labels, sizes, n_classes=C)
        exact = bag_posterior(log_probs, bags, "exact")
        cut = float(rng.choice(CUTS))
        log_likelihood, weights, bound, done = pruned(log_probs, bags, 2**16, cut, 1e9)
        off = np.expm1(exact.log_likelihood.numpy() - log_likelihood)
        distance = np.abs(weights - exact.weights.numpy()).sum(1)
        worst = np.maximum.reduceat(distance, bags.offsets[:-1])
        inside = (off >= -1e-10) & (off <= bound + 1e-10) & (worst <= 2 * bound + 1e-10)
        checked += len(done)
        outside += int((~inside[done]).sum())
        lost += int((off[done] > 1e-9).sum())
        shows = done[off[done] > 1e-9]
        tightest = max(tightest, float((off[shows] / bound[shows]).max(initial=0.0)))
    return (
        f"{checked:,} generated bags: the exact answer is outside of the bound of {outside}. "
        f"{lost:,} lost more\nthan 1e-9 of P(S|X), at most {tightest:.0%} of their bound."
    )


def trained(epochs: int) -> Iterator[tuple[str, torch.Tensor, Bags]]:
    """50 training bags and 50 test bags of 64, and what a perceptron trained by CC says of them."""
    torch.manual_seed(0)
    data = load_dataset("kmnist", progress=False)
    inputs, labels = data.train_inputs, data.train_labels
    order = torch.randperm(len(labels))[: len(labels) // 256 * 256]  # whole batches
    bags = Bags.from_labels(labels[order], [64] * (len(order) // 64), n_classes=10)
    torch.manual_seed(1)
    model = mlp((784,), 10)
    train(model, BagData(inputs[order], bags), "cc", TrainingOptions(epochs=epochs), progress=False)
    test = Bags.from_labels(data.test_labels[:3200], [64] * 50, n_classes=10)
    parts = (
        ("training", inputs[order[:3200]], bags.select(range(50))),
        ("test", data.test_inputs[:3200], test),
    )
    model.eval()
    for name, part, of_part in parts:
        with torch.no_grad():
            yield name, model(part).double().log_softmax(-1), of_part


def proved(log_probs: torch.Tensor, bags: Bags, max_states: int) -> tuple[int, float, Posterior]:
    """Bags that `auto` proves to 1e-6, CPU milliseconds a bag, and its answer."""
    started = time.process_time()
    post = bag_posterior(log_probs, bags, max_states=max_states)
    took = time.process_time() - started
    assert post.bound is not None
    return int((post.bound < torch.inf).sum()), 1e3 * took / len(bags), post


def kmnist() -> Iterator[tuple[str, ...]]:
    """Cells of a row for each part of the data."""
    for epochs in EPOCHS:
        for name, log_probs, bags in trained(epochs):
            proved(log_probs[:64], bags.select([0]), LIMITS[0])  # compiles
            answers = [proved(log_probs, bags, states) for states in LIMITS]
            cells = [f"{n} of {len(bags)}, {took:.2g} ms" for n, took, _ in answers]
            left = np.flatnonzero(answers[0][2].bound.numpy() == np.inf)[:REFERENCES]
            distance = [
                (answers[0][2].weights[rows] - wide.weights).abs().sum(1)
                for b in left
                for rows in [slice(bags.offsets[b], bags.offsets[b + 1])]
                for n, _, wide in [proved(log_probs[rows], bags.select([b]), WIDEST)]
                if n
            ]
            checked = f"not known, more than 2^{WIDEST.bit_length() - 4} states are needed"
            if distance:
                off = torch.cat(distance)
                checked = f"{off.max():.1e}, {off.mean():.1e} of {len(distance)} bags"
            yield f"{epochs}", name, *cells, checked


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    text = "## What is proved\n\n" + generated_bags(100 if tiny else BAGS) + "\n"
    if tiny:
        return text
    if find("kmnist") is None:
        return f"{text}\nKuzushiji-MNIST is not measured: it is not on this machine.\n"
    return (
        f"{text}\nBags of 64 of Kuzushiji-MNIST (10 classes), a perceptron trained by CC: of how "
        "many `auto` proves that\nweights are within 1e-6 (L1) of exact ones, and its time, by "
        "`max_states`. The others are `bethe`'s:\nthe last column says how far its weights are "
        f"from exact ones, of the first {REFERENCES} bags left to it.\n\n"
        + table(COLUMNS, kmnist())
    )


def main() -> None:
    print(generated_bags(BAGS))
    if "--kmnist" in sys.argv[1:]:
        print(*COLUMNS, sep="; ")
        for row in kmnist():
            print(*row, sep="; ", flush=True)


if __name__ == "__main__":
    main()
