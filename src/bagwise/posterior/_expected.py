"""Counts to be expected of bags whose counts are not exact, given what their instances rule out."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray


def likely_counts(log_p: FloatArray, bags: Bags) -> IntArray | FloatArray:
    """(B, C) the counts, or where they are not exact the expected ones.

    An instance whose log-probabilities are -inf for all classes but one has a known label. Expected
    counts that ignore it may ask for more of a class than the instances can give.
    """
    if bags.potentials is None:
        return bags.min_counts
    possible = log_p > -np.inf
    if possible.all():
        return bags.expected_counts
    certain = possible & (possible.sum(axis=1, keepdims=True) == 1)
    copies = bags.copies[:, None]
    least = np.add.reduceat(certain * copies, bags.offsets[:-1], dtype=np.int64)
    most = np.add.reduceat(possible * copies, bags.offsets[:-1], dtype=np.int64)
    return bags.potentials.expected_within(least, most)
