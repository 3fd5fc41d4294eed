"""The likelihood of bags under a linear model, and its derivatives by the rows' logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.errors import InputError, InputTypeError
from bagwise.likelihood._curvature import Curvature, Scale, information_rows
from bagwise.likelihood._effects import integrate, integrate_weighted
from bagwise.likelihood.coordinates import contrasts
from bagwise.posterior._kernels import kernel, over_bags
from bagwise.posterior.auto import AUTO_STATES, fill_auto, is_small

_SOFTMAX = 20  # steps that an exponential counts as


def log_likelihoods_with_effects(z: FloatArray, bags: Bags, tau: FloatArray) -> FloatArray:
    """(B,) log P(S|X) of bags with an effect of their own, integrated over.

    Args:
        z: (N, C) logits for an effect of zero.
        tau: (B,) the standard deviation of the effect.

    >>> bags = Bags([2], [[1, 1]])
    >>> log_likelihoods_with_effects(np.zeros((2, 2)), bags, np.array([1.])).round(3)
    array([-1.013])
    """
    logits: FloatArray = np.ascontiguousarray(z, dtype=np.float64)
    found, _ = _unnormalized(logits, bags)
    counts = bags.counts.astype(np.float64)
    basis = contrasts(bags.n_classes)
    copies = bags.copies.astype(np.float64)
    values, *_ = integrate_weighted(logits, copies, bags.offsets, counts, basis, tau)
    return found + values


@dataclass(frozen=True)
class Evaluation:
    """The likelihood at some parameters.

    Attributes:
        log_likelihood: (B,) log P(S|X) of each bag.
        residuals: (N, C) its derivative by the logits, w - p, as often as the row's weight says.
        probabilities: (N, C) p; with bag effects, their mean given the bag's counts.
        effects: (B, C - 1) with bag effects, their mean given the counts.
        squares: (B,) with bag effects, the mean of their square given the counts.
    """

    log_likelihood: FloatArray
    residuals: FloatArray
    probabilities: FloatArray
    effects: FloatArray | None = None
    squares: FloatArray | None = None


class BagLikelihood:
    """log P(S|X) of bags as a function of a linear model's parameters.

    Parameters are theta (d + 1, C - 1), the last row of which is the intercept; logits are
    [X, 1] theta Q' with Q = `contrasts(C)`, so that they sum to zero.

    Args:
        X: (N, d) features, sorted by bag.
        bag_weights: (B,) how often each bag counts; None for once.

    >>> likelihood = BagLikelihood(np.zeros((3, 1)), Bags([2, 1], [[1, 1], [1, 0]]))
    >>> likelihood.evaluate(np.zeros((2, 1))).log_likelihood
    array([-0.69314718, -0.69314718])
    """

    def __init__(self, X: FloatArray, bags: Bags, bag_weights: FloatArray | None = None) -> None:
        self.X1 = np.concatenate([X, np.ones((len(X), 1))], axis=1)
        self.bags = bags
        self.bag_weights = bag_weights
        self.basis = contrasts(bags.n_classes)
        self.shape, self.instances = self.X1.shape, bags.total
        self.exact = is_exact(bags)
        self.evaluations = 0

    def evaluate(self, theta: FloatArray, tau: float = 0.0) -> Evaluation:
        """The likelihood and its derivatives; with tau > 0, its mean over bag effects."""
        self.evaluations += 1
        z: FloatArray = self.X1 @ theta @ self.basis.T  # in this order: of two classes a column
        if tau == 0:
            return evaluation(z, self.bags)
        log_likelihood, weights = _unnormalized(z, self.bags)
        values, p, effects, squares = integrate(z, self.bags, self.basis, tau)
        residuals = _of_all_copies(weights - p, self.bags)
        return Evaluation(log_likelihood + values, residuals, p, effects, squares)

    def total(self, found: Evaluation) -> tuple[float, FloatArray]:
        """The log-likelihood of all bags, and its gradient (d + 1, C - 1)."""
        residuals = found.residuals @ self.basis
        if self.bag_weights is None:
            return float(found.log_likelihood.sum()), self.X1.T @ residuals
        of_rows = self.bag_weights[self.bags.bag_of_row]
        gradient: FloatArray = self.X1.T @ (of_rows[:, None] * residuals)
        return float(self.bag_weights @ found.log_likelihood), gradient

    def scale(self, found: Evaluation, penalty: FloatArray, tau: float = 0.0) -> Scale:
        """Coordinates in which the likelihood with this penalty (P,) is easy to maximize."""

        def information() -> Iterator[FloatArray]:
            for part, rows in information_rows(
                self.X1, found.probabilities, self.bags.offsets, self.bags.copies, self.basis, tau
            ):
                if self.bag_weights is not None:
                    rows *= np.sqrt(self.bag_weights[part])[:, None, None]
                yield rows

        curvature = Curvature(len(self.bags) * self.basis.shape[1], penalty)
        return Scale(curvature.with_rows(information()))

    def mean_level(self, coefficients: FloatArray) -> float:
        """The mean over rows of log sum exp of the logits that (d + 1, C) coefficients give."""
        of_rows = logsumexp(self.X1 @ coefficients, axis=1)
        return float(self.bags.copies @ of_rows) / self.bags.total


def evaluation(z: FloatArray, bags: Bags) -> Evaluation:
    """The likelihood of bags, and its derivatives, by the logits (N, C) of their rows."""
    log_likelihood, weights = _unnormalized(z, bags)
    p = np.empty(z.shape)
    over_bags(
        lambda index: _normalize(index, z, bags.offsets, bags.copies, p, log_likelihood),
        np.arange(len(bags)),
        bags.sizes * float(_SOFTMAX * bags.n_classes),
    )
    return Evaluation(log_likelihood, _of_all_copies(weights - p, bags), p)


def is_exact(bags: Bags) -> bool:
    """Whether all are small enough for exact likelihoods."""
    return bool(is_small(bags, AUTO_STATES).all())


def _of_all_copies(of_rows: FloatArray, bags: Bags) -> FloatArray:
    return of_rows if bags.weights is None else bags.weights[:, None] * of_rows


def _unnormalized(z: FloatArray, bags: Bags) -> tuple[FloatArray, FloatArray]:
    """(B,) the logarithm of the sum of exp(z) over labelings, and (N, C) the weights."""
    log_likelihood, weights = np.empty(len(bags)), np.empty(z.shape)
    fill_auto(bags.others_impossible(z), bags, log_likelihood, weights, AUTO_STATES)
    return log_likelihood, weights


@kernel
def _normalize(
    index: IntArray,
    z: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    p: FloatArray,
    log_likelihood: FloatArray,
) -> None:
    """Of some bags: fill p with softmax(z), and take log sum exp of each row, as often as it
    counts, from the bag's log-likelihood.
    """
    C = z.shape[1]
    for b in index:
        for k in range(offsets[b], offsets[b + 1]):
            top, total = z[k, 0], 0.0
            for c in range(1, C):
                top = max(top, z[k, c])
            for c in range(C):
                p[k, c] = np.exp(z[k, c] - top)
                total += p[k, c]
            for c in range(C):
                p[k, c] /= total
            log_likelihood[b] -= copies[k] * (top + np.log(total))


def checked_features(X: npt.ArrayLike, bags: Bags) -> FloatArray:
    """X as a double-precision array, if it can be the features of the instances of these bags."""
    if not isinstance(bags, Bags):
        raise InputTypeError(f"bags is a {type(bags).__name__}; bagwise.Bags is expected.")
    features: FloatArray = np.ascontiguousarray(X, dtype=np.float64)
    if features.ndim != 2 or len(features) != bags.n_instances:
        raise InputError(
            f"X has shape {features.shape}, but these bags have {bags.n_instances} instances; "
            f"({bags.n_instances}, features) is expected, sorted by bag."
        )
    if not np.isfinite(features).all():
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise InputError(
            f"X[{row}, {column}] is {features[row, column]}; finite numbers are needed."
        )
    return features
