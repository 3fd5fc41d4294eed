"""Whether a logarithm beside each column with a heavy tail makes held-out bags more probable."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood import fit_linear
from bagwise.likelihood.ridge import (
    FOLD_TOLERANCE,
    bag_folds,
    bag_log_likelihoods,
    mean_per_instance,
)
from bagwise.tables.encode.columns import Columns, Inputs
from bagwise.tables.match.bag_table import MatchedRows

NUMBERS = 2_000_000  # rows times columns that are enough to judge by
BAGS = 10  # at least
RIDGE = 1.0  # of both models that are compared


Judge = Callable[[IntArray, npt.NDArray[np.bool_], Bags, int], tuple[float, float]]
"""`log_gain` of the rows of the bags with these numbers."""


def with_useful_logs(
    rows: MatchedRows, seed: int, judge: Judge, most: int = 4 * NUMBERS
) -> Columns:
    """The columns, with the logarithms of all heavy tails, or without any.

    Two linear models are compared, with and without them, on bags that neither has seen. The
    logarithms have to be better by more than twice the standard error of the difference over bags.

    Args:
        rows: with columns that have logarithms wherever there is a heavy tail.
        seed: of the bags that are held out.
        judge: says what columns add, of the rows of some bags; see `judged_here`.
        most: rows times columns of these; where they are more, no logarithms are taken.
    """
    columns, targets = rows.columns, rows.targets
    plain = columns.without_logs()
    roles = [role for column in columns.columns for _, role in column.encoded]
    is_log = np.array([role == "log" for role in roles])
    if not is_log.any():
        return plain
    index = _some(targets.bags, len(roles), seed)
    bags = targets.bags.select(index)
    if len(bags) < BAGS or bags.n_instances * len(roles) > most:
        return plain
    mean, error = judge(index, is_log, bags, seed)
    return columns if mean > 2 * error else plain


def judged_here(encode: Callable[[IntArray], Inputs]) -> Judge:
    """`log_gain` in this process, of the encoded rows that a function gives of some bags."""
    return lambda index, *about: log_gain(encode(index).astype(np.float64), *about)


def log_gain(
    X: FloatArray, is_log: npt.NDArray[np.bool_], bags: Bags, seed: int
) -> tuple[float, float]:
    """What columns add to the mean log P(S|X) per instance of held-out bags, and its standard
    error over bags.

    Args:
        X: (N, d) all columns.
        is_log: (d,) those that may be left out.
        bags: sizes and counts.
        seed: of the folds.
    """
    folds = bag_folds(bags, seed=seed)
    gains = np.zeros(len(bags))
    with warnings.catch_warnings():
        # A fit that ends before its optimum is judged by held-out bags like any other.
        warnings.simplefilter("ignore", RuntimeWarning)
        for fold in range(int(folds.max()) + 1):
            kept, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            for sign, used in ((1, X), (-1, X[:, ~is_log])):
                seen, unseen = used[bags.rows(kept)], used[bags.rows(held_out)]
                fit = fit_linear(seen, bags.select(kept), RIDGE, tolerance=FOLD_TOLERANCE)
                gains[held_out] += sign * bag_log_likelihoods(fit, unseen, bags.select(held_out))
    return mean_per_instance(gains, bags)


def _some(bags: Bags, width: int, seed: int) -> IntArray:
    """Bags drawn at random, as many as are enough to judge by."""
    order = np.random.default_rng(seed).permutation(len(bags))
    n = int((np.cumsum(bags.sizes[order]) * width <= NUMBERS).sum())
    return np.sort(order[: max(n, BAGS)])
