"""A temperature for the probabilities of a model, fitted to held-out bags."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.posterior import bag_posterior, log_likelihoods

HOTTEST = 10.0  # and its inverse is the coldest
_CHUNK = 500_000  # instances of bags whose posterior is computed at a time
_SUSPICIOUS = 2.0  # standard errors of the slope from which a temperature is looked for
_CLEARLY = 2.0  # standard errors of what is gained from which it is kept


def fit_temperature(log_probs: FloatArray, bags: Bags, shares: FloatArray | None = None) -> float:
    """The temperature under which bags are most probable, if they clearly are; else 1.

    At temperature T, class probabilities are softmax(log p / T). Above 1, the model was too sure of
    itself; below, not sure enough. "Clearly" is by two standard errors, over bags, of what is
    gained.

    It is looked for only where the slope at 1, sum_k (w - p)'log p over the rows of each bag, is
    larger than two of its own standard errors over bags: one posterior says so.

    Args:
        log_probs: (N, C) of rows of bags that the model has not seen.
        shares: (C,) probabilities p0 towards which a hot model goes: at temperature T the class
            probabilities are then softmax(log p0 + (log p - log p0) / T), with T from 1 to 100. It
            is not below 1: few held-out bags, all of them right, would make the model as sure as
            can be, and two mistakes in a bag that cancel do not show.

    >>> bags = Bags([2] * 50, [[2, 0], [1, 1], [1, 1], [0, 2], [1, 1]] * 10)
    >>> sure = np.tile(log_softmax([[9., 0.], [0., 9.]], axis=-1), (50, 1))
    >>> fit_temperature(sure, bags) > 2
    True
    >>> fit_temperature(np.full((100, 2), np.log(0.5)), bags)
    1.0
    """
    slopes = _slopes(log_probs, bags, shares)
    if len(bags) < 2 or abs(slopes.sum()) <= _SUSPICIOUS * math.sqrt((slopes**2).sum()):
        return 1.0
    middle = np.zeros(1) if shares is None else np.log(shares)

    def at(T: float) -> FloatArray:
        return log_likelihoods(middle + (log_probs - middle) / T, bags)

    end = math.log(HOTTEST)
    found = minimize_scalar(
        lambda log_T: -float(at(math.exp(log_T)).sum()),
        bounds=(-end, end) if shares is None else (0.0, 2 * end),
        method="bounded",
        options={"xatol": 0.01},
    )
    T = math.exp(found.x)
    mean, error = mean_per_instance(at(T) - at(1.0), bags)
    return round(T, 4) if mean > _CLEARLY * error else 1.0


def _slopes(log_probs: FloatArray, bags: Bags, shares: FloatArray | None) -> FloatArray:
    """(B,) the derivative of log P(S|X) by 1 / T, at 1."""
    found = np.empty(len(bags))
    middle = np.zeros(1) if shares is None else np.log(shares)
    for index in bags.batches(_CHUNK):
        some = bags.select(index)
        own = log_probs[bags.rows(index)].astype(np.float64)
        weights = bag_posterior(own, some).weights
        of_rows = ((weights - np.exp(own)) * np.maximum(own - middle, -1e6)).sum(axis=-1)
        found[index] = np.add.reduceat(some.copies * of_rows, some.offsets[:-1])
    return found


def tempered(log_probs: FloatArray, temperature: float) -> FloatArray:
    """(N, C) the log-probabilities at a temperature.

    >>> np.exp(tempered(np.log([[.8, .2]]), 2.0)).round(4)
    array([[0.6667, 0.3333]])
    """
    if temperature == 1:
        return log_probs
    found: FloatArray = log_softmax(log_probs / temperature, axis=-1)
    return found
