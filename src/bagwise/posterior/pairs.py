"""Bags of two classes, exactly, in time that grows with their size alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._kernels import kernel, over_bags
from bagwise.posterior.fourier import leave_one_out, tilted_odds

_LEAST = 16  # instances from which it is faster than the lattice by half or more


def is_pair(bags: Bags) -> npt.NDArray[np.bool_]:
    """(B,) whether two classes occur, in so many instances that `fill_pairs` is worth it."""
    found: npt.NDArray[np.bool_] = bags.totals >= _LEAST
    if found.any():
        found = found & ((bags.max_counts > 0).sum(axis=1) == 2)
    return found


def fill_pairs(
    index: IntArray, log_p: FloatArray, bags: Bags, log_likelihood: FloatArray, weights: FloatArray
) -> None:
    """Compute the bags in `index`, which have sharp counts of two classes.

    With N the number of instances of the first class, tilted so that its mean is its count n,

        w[k, 0] ~ yes_k P(N_-k = n - 1) / P(N_-k = n),     w[k, 1] ~ no_k

    The errors of the weights are about 1e-13 (see `fourier`).
    """

    def run(part: IntArray) -> None:
        _pairs(part, log_p, bags.offsets, bags.copies, bags.min_counts, log_likelihood, weights)

    over_bags(run, index, 100.0 * bags.sizes[index])


@kernel
def _pairs(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    log_likelihood: FloatArray,
    weights: FloatArray,
) -> None:
    for bag in index:
        log_p = log_probs[offsets[bag] : offsets[bag + 1]]
        w = weights[offsets[bag] : offsets[bag + 1]]
        one, two = -1, -1
        for c in range(counts.shape[1]):
            if counts[bag, c] > 0:
                one, two = (c, two) if one < 0 else (one, c)
        n, K = counts[bag, one], len(log_p)
        logits, yes, no = np.empty(K), np.empty(K), np.empty(K)
        for k in range(K):
            logits[k] = log_p[k, one] - log_p[k, two]
        m = copies[offsets[bag] : offsets[bag + 1]]
        x, variance = tilted_odds(logits, m, n, yes, no)
        ratio = np.empty(K)
        value = np.log(leave_one_out(yes, no, m, n, variance, ratio))
        w[:] = 0.0
        hot = 0  # instances rather of the first class
        for k in range(len(logits)):
            if logits[k] + x > 0.0:
                hot += m[k]
                value += m[k] * (log_p[k, one] - np.log(yes[k]))
            else:
                value += m[k] * (log_p[k, two] - np.log(no[k]))
            first, second = yes[k] * ratio[k], no[k]
            w[k, one] = first / (first + second)
            w[k, two] = second / (first + second)
        log_likelihood[bag] = value + (hot - n) * x
