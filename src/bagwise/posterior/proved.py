"""More states for bags whose posterior is only approximated: what is published should be proved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.limits import LIMITS, Limits
from bagwise.posterior.auto import auto_posterior
from bagwise.posterior.exact import lattice_states

_STATES = (2**19, 2**23)  # of a bag, in turn; at most some 20 and 400 milliseconds
_BAGS = 32  # that are computed at a time


def prove(
    log_probs: npt.NDArray[np.floating], bags: Bags, bound: FloatArray, limits: Limits = LIMITS
) -> Iterator[tuple[IntArray, FloatArray]]:
    """The posteriors of bags that `auto_posterior` has approximated, with more states.

    A training step has some microseconds for an instance; an answer that is published has longer. A
    bag that is not proved is computed with up to 2^19 states, and if that is not enough with up to
    2^23. Small lattices come first, and each turn ends after `limits.proof_states` states.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and counts of the bags of these N instances.
        bound: (B,) that of the posterior, inf where nothing is proved; is updated.

    Yields:
        Rows of bags that are proved now, and their weights (rows, C).

    >>> bags = Bags.from_labels(np.arange(150) % 3, [150])
    >>> log_probs = np.random.default_rng(0).normal(size=(150, 3))
    >>> post = auto_posterior(log_probs, bags)
    >>> bound = post.bound.copy()
    >>> bound
    array([inf])
    >>> for rows, weights in prove(log_probs, bags, bound):
    ...     print(len(rows), bool(np.abs(weights - post.weights[rows]).max() < 1e-4))
    150 True
    >>> bound
    array([0.])
    """
    states = lattice_states(bags)
    for most in _STATES:
        left = np.flatnonzero(bound == np.inf)
        left = left[np.argsort(states[left], kind="stable")]
        spent = np.cumsum(np.minimum(states[left], most))
        left = left[spent <= limits.proof_states]
        for first in range(0, len(left), _BAGS):
            index = left[first : first + _BAGS]
            part, rows = bags.select(index), bags.rows(index)
            found = auto_posterior(log_probs[rows].astype(np.float64), part, max_states=most)
            assert found.bound is not None
            bound[index] = found.bound
            proved = np.isfinite(found.bound)
            if proved.any():
                of_row = proved[part.bag_of_row]
                yield rows[of_row], found.weights[of_row]
