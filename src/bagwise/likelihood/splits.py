"""Which bags are held out in turn, and the linear model whose ridge is chosen on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, IntArray
from bagwise.likelihood._overlap import Overlap
from bagwise.likelihood.ridge import FOLDS, ChosenRidge, bag_folds, choose_ridge
from bagwise.limits import LIMITS, Limits

FEW_BAGS_INSTANCES = 500_000  # up to which every bag is held out once, of few bags
HELD_OUT = 0.1  # share of the bags otherwise,
MOST_HELD_OUT = 200_000  # up to so many instances
FEWEST_HELD_OUT = 10  # bags, however large

Split = tuple[IntArray, IntArray]
"""Bags to train on, bags held out."""


def splits_of(
    bags: Bags, seed: int, *, limits: Limits = LIMITS, rows: IntArray | None = None
) -> list[Split]:
    """Five folds of the bags for small tables, so that each bag is held out once; else one split.

    Folds are balanced by their instances; of fewer than ten bags each is a fold of its own.

    Bags of several groupings share rows (`rows`, see `Groupings.stacked`). If there are at least 20
    groups of connected bags, each group is held out as a whole. Otherwise bags are held out one by
    one, and their rows stay in bags of other groupings that the model is fitted to.

    >>> [len(held_out) for _, held_out in splits_of(Bags([10] * 12, [[5, 5]] * 12), seed=0)]
    [3, 3, 2, 2, 2]
    """
    if rows is not None and (clusters := Overlap.of(rows, bags).clusters) is not None:
        of_clusters = splits_of(_joined(bags, clusters), seed, limits=limits)
        return [
            (np.flatnonzero(np.isin(clusters, kept)), np.flatnonzero(np.isin(clusters, held_out)))
            for kept, held_out in of_clusters
        ]
    order = np.random.default_rng(seed).permutation(len(bags))
    few = len(bags) < limits.few_bags
    most = FEW_BAGS_INSTANCES if few else limits.cross_validated
    if bags.n_instances <= most:
        fold = bag_folds(bags, FOLDS, seed)
        parts = [np.flatnonzero(fold == number) for number in range(fold.max() + 1)]
    else:
        tenth = order[: max(round(HELD_OUT * len(bags)), 1)]
        parts = [up_to(bags, order[: -(-len(bags) // FOLDS)] if few else tenth)]
    everything = np.arange(len(bags))
    return [(np.setdiff1d(everything, part), np.sort(part)) for part in parts]


def _joined(bags: Bags, clusters: IntArray) -> Bags:
    """A bag for each cluster, with the instances of its bags."""
    totals = np.bincount(clusters, bags.totals).astype(np.int64)
    return Bags.of_arrays(totals, totals[:, None])


def some_bags(sizes: IntArray, rows: int, least: int = 0) -> IntArray:
    """Bags at random, in order, of up to so many rows together; `least` of them at least.

    >>> some_bags(np.array([2, 1]), 200)
    array([0, 1])
    """
    order = np.random.default_rng(0).permutation(len(sizes))
    n = int((np.cumsum(sizes[order]) <= rows).sum())
    return np.sort(order[: max(n, least)])


def up_to(bags: Bags, order: IntArray, instances: int = MOST_HELD_OUT) -> IntArray:
    """The first of these bags, up to so many instances; ten of them at least."""
    n = int((np.cumsum(bags.sizes[order]) <= instances).sum())
    return order[: max(n, FEWEST_HELD_OUT)]


def smaller(bags: Bags, split: Split, instances: int) -> Split:
    """Some of the bags of a split, at random, up to so many instances to train on."""
    rng = np.random.default_rng(0)
    kept, held_out = (rng.permutation(part) for part in split)
    return np.sort(up_to(bags, kept, instances)), np.sort(up_to(bags, held_out, instances // 2))


def fold_numbers(n_bags: int, splits: Sequence[Split]) -> IntArray:
    """(B,) the split in which each bag is held out, -1 if in none.

    >>> fold_numbers(3, [(np.array([0, 1]), np.array([2]))])
    array([-1, -1,  0])
    """
    folds = np.full(n_bags, -1)
    for number, (_, held_out) in enumerate(splits):
        folds[held_out] = number
    return folds


def choose_on(
    X: npt.ArrayLike, bags: Bags, folds: IntArray, watch: Callable[[int, int], None] | None = None
) -> ChosenRidge:
    """`choose_ridge` on these folds, for a caller who tells how the model did on held-out bags."""
    with warnings.catch_warnings():
        # A fit that ends before its optimum is judged by held-out bags like any other.
        warnings.simplefilter("ignore", RuntimeWarning)
        return choose_ridge(X, bags, folds=folds, watch=watch)
