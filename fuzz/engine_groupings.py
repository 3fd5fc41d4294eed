"""The joint posterior of rows that are counted in several ways. One input is one bag of a grouping.

Groupings that are true of a labeling must never be called contradictory. Rows sum to 1, possible
labels alone have weight, and the columns of the weights are the counts where messages have settled.
One grouping gives what its engine gives, and nested groupings of few rows the sum over labelings.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import numpy.typing as npt
from bag_kinds import KINDS, of_kind
from scipy.special import logsumexp

from bagwise import Bags, Groupings, bag_posterior

TOLERATED = ("the messages between groupings", "belief propagation did not", "the weights of ")
FEW = 7  # rows, of which all labelings are written out


def step(seed: int) -> int:
    """One set of groupings and its posterior."""
    rng = np.random.default_rng(seed)
    C = int(rng.integers(2, 5))
    N = int(rng.choice([3, 6, FEW, 20, 60]))
    labels = rng.integers(C, size=N)
    log_p = rng.choice([0.0, 0.5, 2.0, 8.0]) * rng.standard_normal((N, C))
    log_p -= logsumexp(log_p, axis=1, keepdims=True)
    nested = rng.random() < 0.4
    given: dict[str, tuple[npt.NDArray[np.int64], Bags]] = {}
    coarse = rng.integers(max(N // 4, 1), size=N)
    for place in range(int(rng.integers(1, 4))):
        of_row = coarse // 2**place if nested else rng.integers(max(N // 4, 1), size=N)
        if not nested and rng.random() < 0.2:
            of_row = np.where(rng.random(N) < 0.3, -1, of_row)
        names, numbers = np.unique(of_row[of_row >= 0], return_inverse=True)
        if not len(names):
            continue
        bag_of_row = np.full(N, -1)
        bag_of_row[of_row >= 0] = numbers
        sizes = np.bincount(numbers)
        counts = np.zeros((len(sizes), C), np.int64)
        np.add.at(counts, (numbers, labels[of_row >= 0]), 1)
        kind = "exact" if nested else str(rng.choice(KINDS))
        given[f"by {place}"] = bag_of_row, of_kind(rng, kind, counts, sizes, None)
    if not given:
        return 0
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        check(log_p, Groupings(given), nested)
    for warning in noted:
        if not str(warning.message).startswith(TOLERATED):
            raise AssertionError(f"warning: {warning.message}")
    return sum(len(bags) for _, bags in given.values())


def check(log_p: npt.NDArray[np.float64], groupings: Groupings, nested: bool) -> None:
    """What holds of the joint posterior."""
    post = bag_posterior(log_p, groupings, max_rounds=500)
    assert np.isfinite(post.weights).all(), "weights are not finite"
    assert np.isfinite(post.log_likelihood), "log P is not finite"
    assert (post.weights >= 0).all(), "negative weights"
    assert np.abs(post.weights.sum(1) - 1).max() < 1e-9, "rows do not sum to 1"
    assert (post.weights[~groupings.possible] < 1e-12).all(), "weight on an impossible label"
    if post.converged:
        for grouping in groupings:
            bags = grouping.bags
            columns = np.add.reduceat(post.weights[grouping.rows], bags.offsets[:-1], axis=0)
            slack = 0.01 + 2e-3 * bags.totals[:, None]
            off = np.maximum(bags.min_counts - columns, columns - bags.max_counts) - slack
            assert off.max() <= 0, f"columns are {off.max():.3g} outside of the counts"
    if len(groupings) == 1:
        (one,) = groupings
        alone = bag_posterior(log_p[one.rows], one.bags)
        off = np.abs(alone.weights - post.weights[one.rows]).max()
        assert off < 1e-6, f"weights of one grouping are {off:.3g} apart"
        off = abs(alone.log_likelihood.sum() - post.log_likelihood)
        assert off < 1e-6 * (1 + abs(post.log_likelihood)), f"log P is {off:.3g} apart"
    if nested and len(log_p) <= FEW:
        value, weights = over_labelings(log_p, groupings)
        off = np.abs(weights - post.weights).max()
        assert off < 1e-3, f"weights are {off:.3g} from the sum over labelings"
        off = abs(value - post.log_likelihood)
        assert off < 1e-3, f"log P is {off:.3g} from the sum over labelings"


def over_labelings(
    log_p: npt.NDArray[np.float64], groupings: Groupings
) -> tuple[float, npt.NDArray[np.float64]]:
    """log P and the weights of exact counts, over all labelings."""
    N, C = log_p.shape
    labels = np.array(list(itertools.product(range(C), repeat=N)))
    scores = log_p[np.arange(N), labels].sum(axis=1)
    for grouping in groupings:
        for b, counts in enumerate(grouping.bags.min_counts):
            inside = labels[:, grouping.bag_of_row == b]
            for c in range(C):
                scores[(inside == c).sum(axis=1) != counts[c]] = -np.inf
    value = float(logsumexp(scores))
    share = np.exp(scores - value)
    return value, np.stack([share @ (labels == c) for c in range(C)], axis=1)


MAKE = {"groupings": lambda _: step}
