"""How often 95% intervals of coefficients hold the truth where rows are counted by two groupings.

Labels follow a linear model of two features. Rows are counted twice, and the composite likelihood
is maximized: with intervals as if the bags of the groupings shared no rows, and as Bagwise has them
(`covariance(..., rows=...)`). Groupings are

- clustered: in each of 40 regions, rows are counted by ward and, all over again, by age group;
- nested: 80 wards of 10 rows lie in 20 counties;
- crossed: 40 wards and 40 age groups, drawn independently, so that all bags are connected.

With `weighted`, every row stands for 1 to 4 identical ones.

    python benchmarks/grouped_intervals.py [sets]
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.special import softmax

from bagwise import Bags, Groupings
from bagwise.likelihood import covariance, fit_for_intervals, fit_linear

ROWS = 800
KINDS = ("clustered", "nested", "crossed", "crossed, weighted")


def bags_of_rows(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The bags of each row in two groupings."""
    rows = np.arange(ROWS)
    if kind == "clustered":
        region, within = rows // 20, rng.permuted(np.tile(np.arange(20), (40, 1)), axis=1).ravel()
        return 2 * region + rows % 20 // 10, 2 * region + within // 10
    if kind == "nested":
        return rows // 10, rows // 40
    return rows // 20, rng.permutation(ROWS) // 20


def generated(kind: str, C: int, seed: int) -> tuple[np.ndarray, Groupings, np.ndarray]:
    """Features, groupings, and the (2, C) weights, each row of which sums to 0."""
    rng = np.random.default_rng([seed, C, KINDS.index(kind)])
    W = np.random.default_rng(C).normal(size=(2, C))
    W -= W.mean(axis=1, keepdims=True)
    by = bags_of_rows(kind, rng)
    # Bags differ in their features, or their counts would tell next to nothing.
    X = rng.normal(size=(ROWS, 2)) + sum(0.7 * rng.normal(size=(b.max() + 1, 2))[b] for b in by)
    copies = rng.integers(1, 5, size=ROWS) if "weighted" in kind else np.ones(ROWS, np.int64)
    p = np.repeat(softmax(X @ W, axis=1), copies, axis=0)
    labels = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    found = {}
    for name, of_row in zip(("first", "second"), by, strict=True):
        counts = np.zeros((of_row.max() + 1, C), np.int64)
        np.add.at(counts, (np.repeat(of_row, copies), labels), 1)
        weights = copies[np.argsort(of_row, kind="stable")]
        found[name] = (of_row, Bags(np.bincount(of_row), counts, weights=weights))
    return X, Groupings(found), W


def coverage(kind: str, C: int, sets: int) -> tuple[float, float]:
    """Shares of intervals that hold the truth: as if no rows were shared, and as they are."""
    held = []
    for seed in range(sets):
        X, groupings, W = generated(kind, C, seed)
        rows, bags = groupings.stacked()
        fit = fit_for_intervals(X[rows], bags, fit_linear(X[rows], bags))
        both = []
        for of_row in (None, rows):
            found = covariance(X[rows], bags, fit, rows=of_row)
            off = np.abs(fit.weights - W)[:, 1:]  # of two classes, one slope is minus the other
            both.append((off <= found.quantile() * found.standard_errors()[0][:, 1:]).mean())
        held.append(both)
    naive, shared = np.mean(held, axis=0)
    return float(naive), float(shared)


def report(sets: int = 200) -> str:
    """The table of docs/understand/groupings.md."""
    lines = ["| groupings | classes | rows taken as not shared | as Bagwise has them |"]
    lines.append("|---|---|---|---|")
    for kind in KINDS:
        for C in (2, 3):
            naive, shared = coverage(kind, C, sets)
            lines.append(f"| {kind} | {C} | {100 * naive:.1f}% | {100 * shared:.1f}% |")
            print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = report(*(int(sets) for sets in sys.argv[1:]))
    print(text)
