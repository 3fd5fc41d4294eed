"""The auto engine: exact where the lattice is small, bethe elsewhere."""

from __future__ import annotations

import numpy as np
import torch

from bagwise.bags import Bags, FloatArray
from bagwise.posterior._result import Posterior, posterior
from bagwise.posterior.bethe import fill_bethe
from bagwise.posterior.exact import MAX_STATES, fill_exact, lattice_states

AUTO_STATES = 2**16


def auto_posterior(log_probs: torch.Tensor, bags: Bags, max_states: int = AUTO_STATES) -> Posterior:
    """`exact` for bags whose lattice, prod_c (n_c + 1), has at most `max_states`; else `bethe`.

    A bag in which only two classes occur is computed exactly up to 2^24 states (about 8000
    instances), because belief propagation would not be cheaper.

    The default of 2^16 states keeps the exact part below a millisecond a bag. With ten classes it
    takes in all bags of 16 and few of 32.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalised.
        bags: sizes and counts of the bags of these N instances.
        max_states: bags with a larger lattice go to `bethe`.

    >>> bags = Bags([2, 90], [[1, 1, 0], [30, 30, 30]])
    >>> post = auto_posterior(torch.zeros(92, 3), bags, max_states=1000)
    >>> post.weights[[0, 91]]
    tensor([[0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333]])
    """

    def compute(log_p: FloatArray, log_likelihood: FloatArray, weights: FloatArray) -> None:
        two_classes = (bags.counts > 0).sum(axis=1) <= 2
        most = np.where(two_classes, max(max_states, MAX_STATES), max_states)
        small = lattice_states(bags) <= most
        if small.any():
            fill_exact(np.flatnonzero(small), log_p, bags, log_likelihood, weights)
        if not small.all():
            fill_bethe(np.flatnonzero(~small), log_p, bags, log_likelihood, weights)

    return posterior(compute, log_probs, bags)
