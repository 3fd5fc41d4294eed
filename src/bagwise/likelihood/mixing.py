"""What logits say where a bag's own intercept is known only as far as a normal distribution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.coordinates import contrasts, normal_draws, normal_nodes
from bagwise.posterior._kernels import inline, kernel, over_bags

_DRAWS = 1024  # of a bag's counts


def mean_softmax(
    z: FloatArray, which: npt.NDArray[np.integer], means: FloatArray, spreads: FloatArray
) -> FloatArray:
    """(N, C) the mean of softmax(z + u) over normal u, for each row.

    u has a mean and, in every direction that sums to zero, a standard deviation.

    Args:
        z: (N, C) logits.
        which: (N,) which of the effects is a row's.
        means: (E, C) of the effects.
        spreads: (E,) of the effects, 0 or more.

    >>> mean_softmax(np.array([[0., 2.]]), np.array([0]), np.zeros((1, 2)), np.zeros(1)).round(3)
    array([[0.119, 0.881]])
    >>> mean_softmax(np.array([[0., 2.]]), np.array([0]), np.zeros((1, 2)), np.ones(1)).round(3)
    array([[0.184, 0.816]])
    """
    C = z.shape[1]
    p = np.ones((len(z), C))
    if C > 1:
        nodes, weights = normal_nodes(C - 1)
        shifts = nodes @ contrasts(C).T
        logits = np.ascontiguousarray(z, dtype=np.float64)
        _mean_softmax(logits, np.asarray(which, np.int64), means, spreads, shifts, weights, p)
    return p


@kernel
def _mean_softmax(
    z: FloatArray,
    which: IntArray,
    means: FloatArray,
    spreads: FloatArray,
    shifts: FloatArray,
    weights: FloatArray,
    p: FloatArray,
) -> None:
    C = z.shape[1]
    q = np.empty(C)
    for k in range(len(z)):
        e = which[k]
        p[k] = 0.0
        for r in range(len(weights)):
            _shifted(z[k], means[e], spreads[e], shifts[r], q)
            for c in range(C):
                p[k, c] += weights[r] * q[c]


@inline
def _shifted(
    z: FloatArray, mean: FloatArray, spread: float, shift: FloatArray, q: FloatArray
) -> None:
    """q = softmax(z + mean + spread * shift)."""
    top, total = -np.inf, 0.0
    for c in range(len(q)):
        q[c] = z[c] + mean[c] + spread * shift[c]
        top = max(top, q[c])
    for c in range(len(q)):
        q[c] = np.exp(q[c] - top)
        total += q[c]
    for c in range(len(q)):
        q[c] /= total


def drawn_counts(
    z: FloatArray, bags: Bags, tau: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Where the counts of new bags lie among those to be expected of them, by 1024 draws a bag.

    With an effect of its own, the rows of a bag are not independent, and their count has no
    distribution that is cheap to compute. The draws are the same for the same bag at every call.

    Args:
        z: (N, C) logits for an effect of zero, sorted by bag.
        tau: (B,) standard deviation of the effect.

    Returns:
        (B, C) each: the shares of draws below the count and at it, and the ends of the central
        95% interval.
    """
    C = bags.n_classes
    shifts = normal_draws(C - 1, _DRAWS) @ contrasts(C).T
    below, at = np.empty(bags.counts.shape), np.empty(bags.counts.shape)
    low, high = np.empty_like(bags.counts), np.empty_like(bags.counts)
    first = int(np.floor(0.025 * _DRAWS))
    ends = np.array([first, _DRAWS - 1 - first])
    logits = np.ascontiguousarray(z, dtype=np.float64)

    def run(part: IntArray) -> None:
        _drawn_counts(
            part, logits, bags.offsets, bags.copies, bags.counts, tau, shifts, ends,
            below, at, low, high,
        )  # fmt: skip

    over_bags(run, np.arange(len(bags)), 10.0 * bags.sizes * C * _DRAWS)
    return below, at, low, high


@kernel
def _drawn_counts(
    index: IntArray,
    z: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    tau: FloatArray,
    shifts: FloatArray,
    ends: IntArray,
    below: FloatArray,
    at: FloatArray,
    low: IntArray,
    high: IntArray,
) -> None:
    R, C = shifts.shape
    q = np.empty(C)
    zero = np.zeros(C)
    drawn = np.empty((C, R), np.int64)
    for bag in index:
        np.random.seed(bag)  # noqa: NPY002  # numba's own, of this thread
        drawn[:] = 0
        for r in range(R):
            for k in range(offsets[bag], offsets[bag + 1]):
                _shifted(z[k], zero, tau[bag], shifts[r], q)
                if copies[k] > 1:
                    _draw_copies(copies[k], q, drawn[:, r])
                    continue
                left, c = np.random.random(), 0  # noqa: NPY002
                while c < C - 1 and left >= q[c]:
                    left -= q[c]
                    c += 1
                drawn[c, r] += 1
        for c in range(C):
            own = np.sort(drawn[c])
            below[bag, c] = (own < counts[bag, c]).mean()
            at[bag, c] = (own == counts[bag, c]).mean()
            low[bag, c], high[bag, c] = own[ends[0]], own[ends[1]]


@inline
def _draw_copies(copies: int, q: FloatArray, drawn: IntArray) -> None:
    """Add the labels of so many instances with the same probabilities q, class by class."""
    left, share, C = copies, 1.0, len(q)
    for c in range(C - 1):
        n = 0
        if left > 0 and share > 0:
            n = np.random.binomial(left, min(q[c] / share, 1.0))  # noqa: NPY002
        drawn[c] += n
        left -= n
        share -= q[c]
    drawn[C - 1] += left
