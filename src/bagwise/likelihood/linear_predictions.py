"""Log-probabilities of rows by a linear model, or their mean over draws of its coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_ROWS = 1024  # that are predicted at a time
_TINY = 1e-300
_LARGE = 700.0  # a logit whose odds are still a number
_FEW = 32  # rows below which matrix products are rounded differently, according to their number


def linear_log_probs(inputs: npt.NDArray[Any], weights: Floats, intercept: Floats) -> Floats:
    """(N, C) log softmax(x W + b) of rows x (N, d), in double precision.

    A few rows are filled up with zeros, so that what is said of a row alone is what is said of it
    among others, to the last digit.
    """
    found = np.empty((len(inputs), len(intercept)))
    for first in range(0, len(inputs), _ROWS):
        z = _products(inputs[first : first + _ROWS], weights) + intercept
        z -= z.max(axis=1, keepdims=True)
        found[first : first + _ROWS] = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return found


def mean_log_probs(inputs: npt.NDArray[Any], draws: Floats) -> Floats:
    """(N, C) log of the mean of softmax(x W + b) over draws (S, d + 1, C) of W and, last, b.

    >>> mean_log_probs(np.ones((1, 1)), np.zeros((2, 2, 2))).round(3)
    array([[-0.693, -0.693]])
    """
    S, d, C = len(draws), draws.shape[1] - 1, draws.shape[2]
    if C == 2:
        return _mean_of_two(inputs, draws[..., 1] - draws[..., 0])
    weights = np.ascontiguousarray(draws[:, :-1].transpose(1, 0, 2)).reshape(d, S * C)
    found = np.empty((len(inputs), C))
    for first in range(0, len(inputs), _ROWS):
        z = _products(inputs[first : first + _ROWS], weights).reshape(-1, S, C) + draws[:, -1]
        z -= z.max(axis=2, keepdims=True)
        p = np.exp(z)
        p /= p.sum(axis=2, keepdims=True)
        # Ends of long tails can be 0 in all draws.
        found[first : first + _ROWS] = np.log(np.maximum(p.mean(axis=1), _TINY))
    return found


def _mean_of_two(inputs: npt.NDArray[Any], draws: Floats) -> Floats:
    """The same of two classes, from differences (S, d + 1) of their coefficients."""
    weights = np.ascontiguousarray(draws[:, :-1].T)
    found = np.empty((len(inputs), 2))
    for first in range(0, len(inputs), _ROWS):
        z = _products(inputs[first : first + _ROWS], weights)
        z += draws[:, -1]
        odds = np.exp(np.minimum(z, _LARGE, out=z), out=z)
        rest = 1.0 / (1.0 + odds)
        rest.mean(axis=1, out=found[first : first + _ROWS, 0])
        odds *= rest
        odds.mean(axis=1, out=found[first : first + _ROWS, 1])
    np.maximum(found, _TINY, out=found)  # ends of long tails can be 0 in all draws
    np.log(found, out=found)
    return found


def _products(inputs: npt.NDArray[Any], weights: Floats) -> Floats:
    """Rows times weights, in double precision; a few rows are filled up with zeros."""
    rows = np.asarray(inputs, dtype=np.float64)
    added = np.zeros((max(_FEW - len(rows), 0), rows.shape[1]))
    found: Floats = (np.concatenate([rows, added]) @ weights)[: len(rows)]
    return found
