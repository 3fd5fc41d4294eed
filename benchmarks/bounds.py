"""What the pruned lattice proves, and how often `auto` needs it.

First, 10,000 generated bags, of 2 to 16 instances and 2 to 8 classes, of classifiers from ignorant
to confident: the bound of each, with cuts from fine to coarse, must contain the exact answer.

Then, with --kmnist, bags of 64 of Kuzushiji-MNIST and a perceptron trained on them by CC: how many
of 50 training bags and 50 test bags `auto` computes with a proof, and how far its weights are
from a lattice that loses less than 1e-9 of P(S|X), where that has at most 2^20 states.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from bagwise import BagData, Bags, TrainingOptions, bag_posterior, train
from bagwise.experiments.datasets import load_dataset
from bagwise.networks import mlp
from bagwise.posterior.pruned import fill_pruned

CUTS = (1e-10, 1e-6, 1e-4, 1e-3, 1e-2)
BAGS = 10_000


def pruned(
    log_probs: torch.Tensor, bags: Bags, most: int, cut: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """log P(S|X), weights, bounds, and the bags that were done."""
    log_likelihood, bound = np.empty(len(bags)), np.full(len(bags), np.inf)
    weights = np.empty(log_probs.shape)
    index, log_p = np.arange(len(bags)), log_probs.double().numpy()
    fill_pruned(index, log_p, bags, log_likelihood, weights, bound, most, cut, tolerance)
    return log_likelihood, weights, bound, np.flatnonzero(bound < np.inf)


def generated_bags() -> None:
    rng = np.random.default_rng(0)
    outside, checked, tightest, lost = 0, 0, 0.0, 0
    while checked < BAGS:
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
    print(
        f"{checked} generated bags: the exact answer is outside of the bound of {outside}. "
        f"{lost} lost more than 1e-9 of P(S|X), at most {tightest:.0%} of their bound."
    )


def kmnist() -> None:
    torch.manual_seed(0)
    data = load_dataset("kmnist", progress=False)
    inputs, labels = data.train_inputs, data.train_labels
    order = torch.randperm(len(labels))[: len(labels) // 256 * 256]  # whole batches
    bags = Bags.from_labels(labels[order], [64] * (len(order) // 64), n_classes=10)
    print("epochs  bags of  exact or proved  by bethe  checked  largest L1 distance of weights")
    for epochs in (1, 10):
        torch.manual_seed(1)
        model = mlp((784,), 10)
        options = TrainingOptions(epochs=epochs)
        train(model, BagData(inputs[order], bags), "cc", options)
        model.eval()
        chosen = bags.select(range(50))
        test = Bags.from_labels(data.test_labels[:3200], [64] * 50, n_classes=10)
        parts = (("train", inputs[order[:3200]], chosen), ("test", data.test_inputs[:3200], test))
        for name, part, of_part in parts:
            with torch.no_grad():
                log_probs = model(part).double().log_softmax(-1)
            post = bag_posterior(log_probs, of_part)
            proved = np.array([engine != "bethe" for engine in post.engine])
            _, weights, _, done = pruned(log_probs, of_part, 2**20, 1e-14, 1e-9)
            distance = np.abs(weights - post.weights.numpy()).sum(1)
            worst = np.maximum.reduceat(distance, of_part.offsets[:-1])[done]
            of_proved, of_others = worst[proved[done]], worst[~proved[done]]
            print(
                f"{epochs:6}  {name:7}  {proved.sum():15}  {(~proved).sum():8}  {len(done):7}  "
                f"{of_proved.max(initial=0):.1e} of those proved, "
                f"{of_others.max(initial=0):.1e} of {len(of_others)} by bethe",
                flush=True,
            )


if __name__ == "__main__":
    generated_bags()
    if "--kmnist" in sys.argv[1:]:
        kmnist()
