"""Parts of a bag: what the counts of the whole say about some of its instances."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from bagwise.bags.arrays import FloatArray, IntArray
from bagwise.bags.noise import REACH
from bagwise.bags.potentials import Potentials, begins_of

_SPREADS = 12.0  # standard deviations of the rest's counts that are looked at


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
        shares: (C,) class probabilities of the others, which need not be normalised.
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
    """The least count in the part, and log f from there on."""
    high = low + len(window) - 1
    m = np.arange(max(low - rest, 0), min(high, size) + 1)
    if len(window) == 1:
        log_f = _poisson(low - m, rate) + window[0]
    else:
        spread = _SPREADS * np.sqrt(rate + 1.0) + _SPREADS**2
        others = np.arange(max(int(rate - spread), 0), min(int(rate + spread), rest) + 1)
        place = m[:, None] + others - low
        inside = (place >= 0) & (place < len(window))
        values = np.where(inside, window[np.clip(place, 0, len(window) - 1)], -np.inf)
        log_f = logsumexp(values + _poisson(others, rate), axis=1)
        if not (log_f > -np.inf).any():  # the model is far off: the nearest counts of the rest
            nearest = np.clip(rate, low - m, high - m)
            log_f = _poisson(nearest, rate)
    kept = np.flatnonzero(log_f > log_f.max() - REACH)
    return int(m[kept[0]]), log_f[kept[0] : kept[-1] + 1] - log_f.max()


def _poisson(r: IntArray | FloatArray, rate: float) -> FloatArray:
    found: FloatArray = xlogy(r, rate) - rate - gammaln(r + 1.0)
    return found


def _one_bag(
    size: int, low: IntArray, windows: list[FloatArray], expected: FloatArray
) -> Potentials:
    begins = begins_of(np.array([len(window) for window in windows]))
    log_f = np.concatenate(windows)
    return Potentials(np.array([size]), low[None], begins, log_f, expected[None])
