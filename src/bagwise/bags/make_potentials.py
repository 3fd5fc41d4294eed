"""Potentials from what is known of bags: noisy counts, ranges, rounded shares, samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bagwise.bags.arrays import FloatArray, IntArray, first, shown_row
from bagwise.bags.noise import Noise
from bagwise.bags.potentials import Potentials, begins_of
from bagwise.errors import InputError, Option, Place


def of_ranges(low: FloatArray, high: FloatArray, sizes: IntArray) -> Potentials:
    """f = 1 from low to high; NaN knows no bound."""
    low = np.where(np.isnan(low), 0.0, low)
    high = np.where(np.isnan(high), sizes[:, None], high)
    if (bad := first(((low < 0) | (high < 0)).any(axis=1))) is not None:
        raise InputError(
            Place("bag", bad),
            f" has a negative count: from {shown_row(low[bad])} to {shown_row(high[bad])}; counts "
            "must be 0 or more.",
        )
    if (bad := first((low > high).any(axis=1))) is not None:
        c = int(np.argmax(low[bad] > high[bad]))
        raise InputError(
            Place("bag", bad),
            f" has at least {low[bad, c]:g} and at most {high[bad, c]:g} instances of ",
            Place("class", c),
            "; the lower bound must not be above the upper one.",
        )
    if (bad := first((low > sizes[:, None]).any(axis=1))) is not None:
        c = int(np.argmax(low[bad] > sizes[bad]))
        raise InputError(
            Place("bag", bad),
            f" has at least {low[bad, c]:g} instances of ",
            Place("class", c),
            f", but only {sizes[bad]} instances in all; correct the range or the rows.",
        )
    return _over_windows(low, high, sizes, lambda cell, m: np.zeros(len(m)))


def of_noisy_counts(observed: FloatArray, sizes: IntArray, noise: Noise) -> Potentials:
    """f(m) = the noise's probability of observed - m; NaN knows nothing of the class.

    Densities are divided by their largest value, so that no likelihood is above 1.
    """
    if noise.clipped and (bad := first((observed < 0).any(axis=1))) is not None:
        raise InputError(
            Place("bag", bad),
            f" has a count below 0, {shown_row(observed[bad])}, though counts were clipped at 0; "
            "leave ",
            Option("clipped", True),
            " out.",
        )
    width = noise.widths((observed.shape[0], observed.shape[1]))
    K = sizes[:, None].astype(np.float64)
    unknown = np.isnan(observed)
    nearest = np.clip(np.where(unknown, 0.0, observed), 0.0, K)
    # The counts sum to the size: in the worst case, one class makes up for all that they are off.
    off = nearest.sum(axis=1, keepdims=True) - K
    off = np.where(unknown.any(axis=1, keepdims=True), np.maximum(off, 0.0), np.abs(off))
    reach = np.where(unknown, K, np.minimum(noise.reach(width) + off, K))
    low, high = np.floor(nearest - reach), np.ceil(nearest + reach)

    def log_f(cell: IntArray, m: FloatArray) -> FloatArray:
        o, w = observed.ravel()[cell], width.ravel()[cell]
        found = np.zeros(len(m))
        known = ~np.isnan(o)
        found[known] = noise.log_prob(o[known] - m[known], w[known])
        if not noise.whole:  # a density: relative to its largest value
            found[known] -= noise.log_prob(np.zeros(1), w[known])
        at_zero = noise.clipped & (o == 0)
        found[at_zero] = noise.log_cdf(-m[at_zero], w[at_zero])
        return found

    return _over_windows(low, high, sizes, log_f)


def of_population(population: IntArray, sizes: IntArray) -> Potentials:
    """f(m) = binomial(population, m): the K rows are a random sample of the population."""
    totals = population.sum(axis=1)
    if (bad := first(totals < sizes)) is not None:
        raise InputError(
            "the population counts of ",
            Place("bag", bad),
            f" sum to {totals[bad]}, but it has {sizes[bad]} instances: "
            f"{shown_row(population[bad])}; a sample is no larger than what it is from.",
        )

    def log_f(cell: IntArray, m: FloatArray) -> FloatArray:
        n = population.ravel()[cell].astype(np.float64)
        found: FloatArray = _log_binomial(n, m) - np.repeat(shared, population.shape[1])[cell]
        return found

    # So that the product over classes is a probability: that of the hypergeometric distribution.
    # Classes that cannot occur have no factor.
    shared = _log_binomial(totals, sizes) / (population > 0).sum(axis=1)
    left = (totals - sizes)[:, None]
    found = _over_windows(population - left, population, sizes, log_f)
    return replace(found, given=sizes[:, None] * (population / totals[:, None]))


def _log_binomial(n: FloatArray | IntArray, m: FloatArray | IntArray) -> FloatArray:
    from scipy.special import gammaln  # takes long to import, and is seldom needed

    found: FloatArray = gammaln(n + 1.0) - gammaln(m + 1.0) - gammaln(n - m + 1.0)
    return found


def of_rounded_shares(shares: FloatArray, sizes: IntArray, decimals: int) -> Potentials:
    """The counts whose shares round to these."""
    if not isinstance(decimals, int) or not 0 <= decimals <= 15:
        raise InputError(f"decimals is {decimals!r}; a whole number from 0 to 15 is expected.")
    K = sizes[:, None]
    slack = K * (0.5 * 10.0**-decimals + 1e-9)
    low, high = np.ceil(np.maximum(shares * K - slack, 0)), np.floor(shares * K + slack)
    if (bad := first((low > high).any(axis=1))) is not None:
        c = int(np.argmax(low[bad] > high[bad]))
        raise InputError(
            f"no count of the {sizes[bad]} instances of ",
            Place("bag", bad),
            f" is a share of {shares[bad, c]:g} (",
            Place("class", c),
            f"), rounded to {decimals} decimals; give fewer decimals, or the counts if the share "
            "is that of a larger group.",
        )
    return of_ranges(low, high, sizes)


def _over_windows(
    low: npt.NDArray[np.number],
    high: npt.NDArray[np.number],
    sizes: IntArray,
    log_f: Callable[[IntArray, FloatArray], FloatArray],
) -> Potentials:
    """Potentials from log_f(cell b C + c, m), over the counts that the bag's size leaves."""
    K = sizes[:, None].astype(np.float64)
    low, high = np.maximum(low, 0), np.clip(high, 0, K)
    # What the bounds of the other classes leave; a second look finds no more than the first.
    least, most = low.sum(axis=1, keepdims=True), high.sum(axis=1, keepdims=True)
    if (bad := first((least > K)[:, 0] | (most < K)[:, 0])) is not None:
        raise InputError(
            Place("bag", bad),
            f" has {sizes[bad]} instances, but its classes have at least {least[bad, 0]:g} and at "
            f"most {most[bad, 0]:g} together: from {shown_row(low[bad])} to "
            f"{shown_row(high[bad])}; every instance carries one label.",
        )
    low, high = np.maximum(low, K - (most - high)), np.minimum(high, K - (least - low))
    low_ = low.astype(np.int64)
    widths = (high.astype(np.int64) - low_ + 1).ravel()
    cell = np.repeat(np.arange(low.size), widths)
    begins = begins_of(widths)
    m = (np.repeat(low_.ravel() - begins[:-1], widths) + np.arange(begins[-1])).astype(np.float64)
    # One possible count says nothing by its potential: a constant factor of P(S|X).
    values = np.where(widths[cell] == 1, 0.0, log_f(cell, m))
    return Potentials(sizes, low_, begins, values)
