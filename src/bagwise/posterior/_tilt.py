"""The tilt: class factors under which a bag's expected label counts are its true ones.

Multiplying class c of every instance by a factor x_c multiplies each labeling with counts n by the
same prod_c x_c^n_c. So the posterior weights stay as they are, and P(S|X) changes by a known
factor. With the factors that make the columns of the normalized probabilities sum to the counts,
these counts are among the likely ones, and their probability is far from underflow.
"""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._flow import class_potentials
from bagwise.posterior._kernels import inline

_SINKHORN_STEPS = 60
# A column sum this close to its count is close enough. One that is off by one would not be: if all
# instances are certain, such counts are impossible.
_CLOSE = 0.3


@inline
def classes_by_count(counts: IntArray) -> IntArray:
    """The classes that occur, rarest first (ties in class order)."""
    # By insertion: numba takes ten seconds to compile its own sort.
    found = np.empty(len(counts), np.int64)
    n_found = 0
    for c in range(len(counts)):
        if counts[c] > 0:
            place = n_found
            while place > 0 and counts[found[place - 1]] > counts[c]:
                found[place] = found[place - 1]
                place -= 1
            found[place] = c
            n_found += 1
    return found[:n_found].copy()


@inline
def tilt(
    log_probs: FloatArray,
    counts: IntArray,
    classes: IntArray,
    copies: IntArray,
    tilted: FloatArray,
) -> float:
    """Fill `tilted` (K, A) with tilted probabilities of the occurring classes; rows sum to 1.

    `copies` (K,) are the rows' weights. Returns log P(S|X) - log P(S|tilted). Some labeling with
    these counts must be possible.
    """
    start = np.zeros(len(classes))
    offset, error = _sinkhorn(log_probs, counts, classes, copies, start, tilted)
    if error > _CLOSE:
        C = len(counts)
        class_potentials(log_probs, counts, np.arange(C + 1), np.zeros(C), classes, copies, start)
        offset, error = _sinkhorn(log_probs, counts, classes, copies, start, tilted)
    return offset


@inline
def _sinkhorn(
    log_probs: FloatArray,
    counts: IntArray,
    classes: IntArray,
    copies: IntArray,
    start: FloatArray,
    tilted: FloatArray,
) -> tuple[float, float]:
    """Sinkhorn steps from the class potentials `start`: (log scale, error of the column sums)."""
    K, A = tilted.shape
    offset = 0.0
    for k in range(K):
        top = -np.inf
        for a in range(A):
            top = max(top, log_probs[k, classes[a]] + start[a])
        offset += copies[k] * top
        for a in range(A):
            tilted[k, a] = np.exp(log_probs[k, classes[a]] + start[a] - top)
    for a in range(A):
        offset -= counts[classes[a]] * start[a]

    row = np.empty(K)
    column = np.empty(A)
    factor = np.ones(A)
    error = np.inf
    for step in range(_SINKHORN_STEPS + 1):
        column[:] = 0.0
        for k in range(K):
            total = 0.0
            for a in range(A):
                total += tilted[k, a] * factor[a]
            row[k] = 1.0 / total
            for a in range(A):
                column[a] += copies[k] * tilted[k, a] * row[k]
        error = 0.0
        for a in range(A):
            error = max(error, abs(column[a] * factor[a] - counts[classes[a]]))
        if error < _CLOSE or step == _SINKHORN_STEPS:
            break
        for a in range(A):
            factor[a] = counts[classes[a]] / column[a]
            if not 1e-100 < factor[a] < 1e100:  # sums of products could leave the range of floats
                return 0.0, np.inf
    for k in range(K):
        offset -= copies[k] * np.log(row[k])
        for a in range(A):
            tilted[k, a] *= row[k] * factor[a]
    for a in range(A):
        offset -= counts[classes[a]] * np.log(factor[a])
    return offset, error
