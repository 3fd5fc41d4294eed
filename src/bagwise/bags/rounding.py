"""Counts from proportions."""

from __future__ import annotations

import numpy as np

from bagwise.bags.arrays import FloatArray, IntArray, first, shown_row
from bagwise.errors import InputError, Place

# A count is read off a proportion when size * proportion is this close to a whole number. It allows
# for proportions held in single precision in bags of thousands.
_COUNT_TOLERANCE = 1e-3


def counts_of_shares(shares: FloatArray, sizes: IntArray, rounding: str) -> IntArray:
    """(B, C) counts from shares, which must be whole ("exact") or are rounded ("nearest")."""
    totals = shares.sum(axis=1)
    slack = 1e-4 if rounding == "exact" else rounding_slack(shares)
    if (bad := first(np.abs(totals - 1) > slack)) is not None:
        raise InputError(
            "the proportions of ",
            Place("bag", bad),
            f" sum to {totals[bad]:.6g}: {shown_row(shares[bad])}; "
            "they must sum to 1 (if these are counts, use Bags(sizes, counts)).",
        )
    expected = shares * sizes[:, None]
    if rounding == "nearest":
        return _largest_remainder(expected / totals[:, None], sizes)
    counts = np.rint(expected)
    off = np.abs(counts - expected).max(axis=1, initial=0)
    if (bad := first(off > _COUNT_TOLERANCE)) is not None:
        raise InputError(
            "the proportions of ",
            Place("bag", bad),
            f" times its size {sizes[bad]} are not whole numbers: {shown_row(expected[bad])}; use "
            'rounding="nearest" if they were rounded.',
        )
    return counts.astype(np.int64)


def rounding_slack(shares: FloatArray) -> float:
    """How far from 1 the row sums may be if the shares were rounded to two decimals: at most .05.

    Every share counts: one of 0 may have been rounded too.

    >>> round(rounding_slack(np.array([[.33, .33, .33], [0, 0, .99]])), 3)
    0.015
    """
    return float(min(0.005 * shares.shape[1], 0.05) + 1e-6)


def bags_of_other_rows(shares: FloatArray, sizes: IntArray) -> IntArray:
    """The bags with a share that no count of their rows gives, if they are too many for a mistake.

    A share of K rows is m / K, rounded or cut off; of three classes or more, the last decimal may
    have been adjusted. Bags so large that half of all numbers with as many decimals would be such
    shares tell nothing. Three of the others at least, and more than a third of them, must have
    shares that no count gives.

    Args:
        shares: (B, C) numbers from 0 to 1; of two classes, one may be enough.
        sizes: (B,) rows of each bag.

    >>> bags_of_other_rows(np.array([[0.25], [0.5], [0.33]]), np.array([4, 2, 3]))
    array([], dtype=int64)
    >>> bags_of_other_rows(np.array([[0.21], [0.56], [0.39]]), np.array([4, 2, 3]))
    array([0, 1, 2])
    """
    decimals = next((d for d in range(6) if np.allclose(shares, shares.round(d), 0, 1e-9)), 6)
    unit, K, slack = 10.0**-decimals, sizes[:, None], 1e-6
    off = np.abs(np.rint(shares * K) / K - shares)  # from the nearest
    if shares.shape[1] > 2:
        explained, width = [(off <= unit + slack).all(axis=1)], 2 * unit
    else:
        above = np.ceil((shares - slack) * K) / K - shares  # what may have been cut off
        explained, width = [(off <= unit / 2 + slack).any(1), (above < unit + slack).any(1)], unit
    tells = (sizes + 1) * width <= 0.5
    odd = min((np.flatnonzero(tells & ~known) for known in explained), key=len)
    return odd if len(odd) >= 3 and 3 * len(odd) > tells.sum() else odd[:0]


def _largest_remainder(expected: FloatArray, sizes: IntArray) -> IntArray:
    counts = np.floor(expected + 1e-9)
    left_over = sizes - counts.sum(axis=1)
    rank = np.argsort(np.argsort(counts - expected, axis=1, kind="stable"), axis=1, kind="stable")
    rounded: IntArray = (counts + (rank < left_over[:, None])).astype(np.int64)
    return rounded
