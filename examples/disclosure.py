"""How many labels of single people published counts give away.

240 people in bags of 8, counted by one, two and four random groupings, exactly and with noise
of a privacy budget. The reader knows the classes' overall shares, and once also a model of two
columns that the counts themselves taught him.

    python examples/disclosure.py
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from bagwise import Bags, Groupings, PrivacyBudget, disclosure
from bagwise.likelihood import fit_linear

N, K, C = 240, 8, 3


def published(labels: np.ndarray, G: int, epsilon: float | None) -> Groupings:
    """Counts of G random groupings, with noise if epsilon, for all of them together, is given."""
    rng = np.random.default_rng(1)
    found = {}
    for g in range(G):
        bag_of_row = rng.permutation(N) // K
        counts = np.zeros((N // K, C), np.int64)
        np.add.at(counts, (bag_of_row, labels), 1)
        bags = Bags([K] * (N // K), counts)
        if epsilon is not None:
            noise = PrivacyBudget(epsilon, groupings=G).discrete_laplace()
            stop = 1 - np.exp(-1 / noise.width)
            drawn = rng.geometric(stop, counts.shape) - rng.geometric(stop, counts.shape)
            bags = Bags.from_noisy_counts(counts + drawn, [K] * (N // K), noise)
        found[f"grouping {g}"] = (bag_of_row, bags)
    return Groupings(found)


def main() -> None:
    """A line for each set of counts."""
    rng = np.random.default_rng(0)
    labels = rng.choice(C, size=N, p=[0.6, 0.3, 0.1])
    X = rng.normal(size=(N, 2)) + 2.0 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    print("groupings  counts     reader knows  above 99%  of these right  proved")
    for G in (1, 2, 4):
        for epsilon in (None, 4.0):
            groupings = published(labels, G, epsilon)
            rows, bags = groupings.stacked()
            fit = fit_linear(X[rows], bags)
            readers = {
                "shares": np.log([0.6, 0.3, 0.1]),
                "a model": log_softmax(X @ fit.weights + fit.intercept, axis=1),
            }
            for name, log_probs in readers.items():
                found = disclosure(log_probs, groupings)
                right = found.weights.argmax(axis=1)[found.sure] == labels[found.sure]
                counts = "exact" if epsilon is None else f"epsilon {epsilon:g}"
                share = f"{right.mean():.1%}" if len(right) else "-"
                print(
                    f"{G:9}  {counts:9}  {name:12}  {found.share_sure:9.1%}  {share:>14}  "
                    f"{found.share_proved:6.1%}"
                )


if __name__ == "__main__":
    main()
