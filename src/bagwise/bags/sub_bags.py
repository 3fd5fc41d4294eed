"""Parts of a bag: what the counts of the whole say about some of its instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bagwise.bags.arrays import FloatArray, IntArray, first, numbers
from bagwise.bags.potentials import Potentials, begins_of
from bagwise.bags.row_labels import weighted_bincount
from bagwise.errors import InputError

if TYPE_CHECKING:
    from bagwise.bags.bags import Bags

_SPREADS = 12.0  # standard deviations of the rest's counts that are looked at
_TINY = 1e-250  # sums that may have lost terms below the smallest numbers
_AT_ONCE = 2**20  # terms of sums of logarithms


def known_of_part(bag: Bags, rows: IntArray, shares: ArrayLike) -> Potentials:
    """What `Bags.part` knows of some rows of the only bag."""
    shares_, C = numbers(shares, "shares", ndim=1), bag.n_classes
    _check_part(rows, bag.n_instances, shares_, C)
    K = int(bag.copies[rows].sum())
    rest, low, expected = bag.total - K, bag.min_counts[0], bag.expected_counts[0]
    windows = [np.zeros(1)] * C
    if bag.potentials is not None:
        windows = np.split(bag.potentials.log_f, bag.potentials.begins[1:-1])
    inside = np.zeros(C, dtype=np.int64)
    if bag.row_labels is not None:
        others = weighted_bincount(bag.row_labels + 1, bag.copies, C + 1)[1:]
        inside = weighted_bincount(bag.row_labels[rows] + 1, bag.copies[rows], C + 1)[1:]
        others -= inside
        rest -= int(others.sum())
        expected = expected - inside - others
        beyond = np.maximum(others - low, 0)  # counts that the others have already
        windows = [w[b:] for w, b in zip(windows, beyond, strict=True)]
        low = np.maximum(low - others, 0)
    unknown = K - inside.sum()  # has its share of what is expected of all without a label
    expected = inside + expected * (unknown / max(unknown + rest, 1))
    return potentials_of_part(low, windows, K, rest, shares_, expected)


def _check_part(rows: IntArray, size: int, shares: FloatArray, n_classes: int) -> None:
    """Refuse rows that a bag of that size does not have, and what are not shares of classes."""
    if len(rows) == 0:
        raise InputError("rows selects no instance; a part has at least one.")
    if (bad := first((rows < 0) | (rows >= size))) is not None:
        raise InputError(f"rows[{bad}] is {rows[bad]}; the bag has instances 0 to {size - 1}.")
    found, times = np.unique(rows, return_counts=True)
    if (bad := first(times > 1)) is not None:
        raise InputError(f"row {found[bad]} is given {times[bad]} times; give each row once.")
    if len(shares) != n_classes:
        raise InputError(
            f"there are {len(shares)} shares for {n_classes} classes; give one for each class."
        )
    if (bad := first(shares < 0)) is not None:
        raise InputError(f"shares[{bad}] is {shares[bad]:g}; shares must be 0 or more.")


def potentials_of_part(
    low: IntArray,
    windows: list[FloatArray],
    size: int,
    rest: int,
    shares: FloatArray,
    expected: FloatArray,
) -> Potentials:
    """What is known of `size` instances of a bag whose other instances are `rest` in number.

    Their labels are taken as independent with probabilities `shares` (C,). If the whole bag has n_c
    instances of class c, then m of them are in the part with

        f_c(m) = shares_c^(n_c - m) / (n_c - m)!          (the multinomial of the rest)

    and if only potentials of n_c are known, with the sum of those over n_c.

    Args:
        low: (C,) the least counts of the whole bag.
        windows: C arrays, log f of the whole bag from there on; [0.0] for a sharp count.
        size: instances of the part, K.
        rest: the others.
        shares: (C,) class probabilities of the others, which need not be normalized.
        expected: (C,) expected counts of the part.
    """
    if rest == 0:
        return _one_bag(size, low, windows, expected)
    shares = np.maximum(shares, 1e-12) / np.maximum(shares, 1e-12).sum()
    lows, found = np.empty_like(low), []
    for c, window in enumerate(windows):
        # With sharp counts all sum to the same, and a Poisson's exp(-rate) is a constant.
        lows[c], log_f = _class_of_part(int(low[c]), window, size, rest, rest * shares[c])
        found.append(log_f)
    return _one_bag(size, lows, found, expected)


def _class_of_part(
    low: int, window: FloatArray, size: int, rest: int, rate: float
) -> tuple[int, FloatArray]:
    """The least count in the part, and log f from there on: for every count that is possible.

    Nothing is cut, however improbable: where the model is far off, no other counts sum to the size.
    """
    high = low + len(window) - 1
    m = np.arange(max(low - rest, 0), min(high, size) + 1)
    if len(window) == 1:
        log_f = _poisson(low - m, rate)
    else:
        least, most = max(low - size, 0), min(high, rest)
        reach = _SPREADS * np.sqrt(rate + 1.0) + _SPREADS**2 + size
        middle = min(max(rate, least), most)
        others = np.arange(max(int(middle - reach), least), min(int(middle + reach), most) + 1)
        log_f = _summed(low, window, m, others, _poisson(others, rate))
    return int(m[0]), log_f - log_f.max()


def _summed(
    low: int, window: FloatArray, m: IntArray, others: IntArray, log_q: FloatArray
) -> FloatArray:
    """log sum_r f(m + r) q(r) over the counts r of the others, f being 0 beyond its window."""
    place = np.arange(m[0] + others[0], m[-1] + others[-1] + 1) - low
    inside = (place >= 0) & (place < len(window))
    values = np.where(inside, window[np.clip(place, 0, len(window) - 1)], -np.inf)
    top, top_q = values.max(), log_q.max()
    sums = np.correlate(np.exp(values - top), np.exp(log_q - top_q), mode="valid")
    lost = np.flatnonzero(sums < _TINY)  # to rounding
    sums[lost] = 1.0
    found: FloatArray = np.log(sums) + (top + top_q)
    columns = np.arange(len(others))
    from scipy.special import logsumexp  # takes long to import, and is seldom needed

    for some in np.array_split(lost, -(-len(lost) * len(others) // _AT_ONCE) or 1):
        found[some] = logsumexp(values[some[:, None] + columns] + log_q, axis=1)
    return found


def _poisson(r: IntArray | FloatArray, rate: float) -> FloatArray:
    from scipy.special import gammaln, xlogy

    found: FloatArray = xlogy(r, rate) - rate - gammaln(r + 1.0)
    return found


def _one_bag(
    size: int, low: IntArray, windows: list[FloatArray], expected: FloatArray
) -> Potentials:
    begins = begins_of(np.array([len(window) for window in windows]))
    log_f = np.concatenate(windows)
    return Potentials(np.array([size]), low[None].copy(), begins, log_f, expected[None])
