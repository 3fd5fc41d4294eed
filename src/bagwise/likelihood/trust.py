"""How far held-out bags trust a model, rather than the overall shares."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.posterior import log_likelihoods

_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the model, that are tried
_RESAMPLED = 400  # times that bags are weighted at random


def trust_of(log_probs: FloatArray, bags: Bags, shares: FloatArray) -> float:
    """The weight, 0 to 1, of a model in a mixture with the overall shares.

    Few bags may say one thing, and their rows another. So bags are weighted at random (the Bayesian
    bootstrap), and each time the mixture is found that makes them most probable. The mean weight of
    the model is doubled, up to 1: a model that bags prefer more often than not is left as it is.

    Args:
        log_probs: (N, C) by models that have not seen the bags.
        bags: what is known of their counts.
        shares: (B, C) overall shares, by what these models have seen.

    >>> bags = Bags([3] * 4, [[3, 0], [0, 3]] * 2)
    >>> right = np.log([[0.8, 0.2]] * 3 + [[0.2, 0.8]] * 3)
    >>> half = np.full((4, 2), 0.5)
    >>> [trust_of(np.tile(p, (2, 1)), bags, half) for p in (right, right[::-1])]
    [1.0, 0.0]
    """
    same = np.log(np.maximum(shares, 1e-12))[bags.bag_of_row]
    ends = [log_likelihoods(same, bags), log_likelihoods(log_probs, bags)]
    gain, error = mean_per_instance(ends[1] - ends[0], bags)
    if gain > 2 * error:
        return 1.0
    between = [log_likelihoods(mixed(log_probs, same, a), bags) for a in _WEIGHTS[1:-1]]
    of_bags = np.array([ends[0], *between, ends[1]])
    rng = np.random.default_rng(0)
    best = [
        int((of_bags @ rng.standard_exponential(len(bags))).argmax()) for _ in range(_RESAMPLED)
    ]
    return min(2.0 * float(np.array(_WEIGHTS)[best].mean()), 1.0)


def mixed(log_probs: FloatArray, others: FloatArray, weight: float) -> FloatArray:
    """(N, C) log of weight p + (1 - weight) q."""
    if weight >= 1:
        return log_probs
    found: FloatArray = np.logaddexp(
        np.log(max(weight, 1e-300)) + log_probs, np.log1p(-weight) + others
    )
    return found
