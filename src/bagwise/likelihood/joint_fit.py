"""A linear model fitted to several groupings of the same rows, all of them at once."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, logsumexp

from bagwise.bags import FloatArray, Groupings
from bagwise.errors import InputTypeError
from bagwise.likelihood._curvature import Scale
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.linear_fit import TOLERANCE, fit_linear, fit_to, occurring
from bagwise.likelihood.objective import BagLikelihood, Evaluation, checked_features
from bagwise.posterior import bag_posterior

_SETTLED = 1e-3  # of messages at each evaluation; they go on from those of the last one
_ROUNDS = 30


def fit_joint(
    X: npt.ArrayLike,
    groupings: Groupings,
    ridge: float = 1.0,
    *,
    start: LinearFit | None = None,
    tolerance: float = TOLERANCE,
) -> LinearFit:
    """Fit logits X W + b to the label counts of all groupings together.

    Minimized is -log P(S_1, ..., S_G | X; W, b) + ridge / 2 ||W||^2, with the joint probability of
    all counts as belief propagation has it: see `bagwise.posterior.joint.posterior_of_groupings`.
    It begins at `start`, or at the fit of the composite likelihood, which is `fit_linear` to
    `Groupings.stacked`.

    Args:
        X: (N, d) standardized features, in the order of the rows.
        groupings: of these rows.
        ridge: see `fit_linear`, also for `tolerance`.
        start: a fit to begin at.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = (X[:, 0] + rng.logistic(size=400) > 0).astype(int)
    >>> by = {"ward": np.arange(400) // 20, "age": np.arange(400) % 20}
    >>> counts = {k: np.stack([np.bincount(b, 1 - y), np.bincount(b, y)], 1) for k, b in by.items()}
    >>> from bagwise import Bags
    >>> groupings = Groupings({k: (b, Bags([20] * 20, counts[k])) for k, b in by.items()})
    >>> fit = fit_joint(X, groupings)
    >>> bool(fit.weights[0, 1] > abs(fit.weights[1, 1]))
    True
    """
    if not isinstance(groupings, Groupings):
        raise InputTypeError(
            f"groupings is a {type(groupings).__name__}; bagwise.Groupings is expected."
        )
    rows, bags = groupings.stacked()
    features = np.ascontiguousarray(X, dtype=np.float64)
    stacked = checked_features(features[rows], bags)
    if start is None or len(groupings) == 1:
        start = fit_linear(stacked, bags, ridge, start=start, tolerance=tolerance)
    _, classes = occurring(bags)
    if len(classes) < 2 or len(groupings) == 1:
        return start
    part = groupings
    if len(classes) < bags.n_classes:
        of_classes = {g.name: (g.bag_of_row, g.bags.of_classes(classes)) for g in groupings}
        part = Groupings(of_classes)
    likelihood = JointLikelihood(features, part)
    fit = fit_to(likelihood, classes, bags, ridge, start=start, tolerance=tolerance)
    if not likelihood.settled:
        warnings.warn(
            "the messages between groupings did not settle at the end of the fit; its likelihood "
            "is approximate.",
            RuntimeWarning,
            stacklevel=2,
        )
    return fit


class JointLikelihood:
    """log P(S_1, ..., S_G|X) as a function of a linear model's parameters; see `BagLikelihood`.

    Messages are kept from one evaluation to the next.
    """

    exact = False

    def __init__(self, X: FloatArray, groupings: Groupings) -> None:
        self.groupings = groupings
        self.rows, self.bags = groupings.stacked()
        self.composite = BagLikelihood(X[self.rows], self.bags)
        self.X1 = np.concatenate([X, np.ones((len(X), 1))], axis=1)
        self.basis, self.shape = self.composite.basis, self.X1.shape
        self.instances = int(groupings.copies.sum())
        self.evaluations = 0
        self.settled = False
        self._messages = np.zeros((len(groupings), len(X), groupings.n_classes))

    def evaluate(self, theta: FloatArray, tau: float = 0.0) -> Evaluation:
        """The likelihood and its derivatives."""
        self.evaluations += 1
        log_p = log_softmax(self.X1 @ theta @ self.basis.T, axis=1)
        found = bag_posterior(
            log_p,
            self.groupings,
            messages=self._messages,
            max_rounds=_ROUNDS,
            settled=_SETTLED,
        )
        assert found.messages is not None
        self._messages, self.settled = found.messages, found.converged
        p = np.exp(log_p)
        value = np.array([float(found.log_likelihood)])
        return Evaluation(value, self.groupings.copies[:, None] * (found.weights - p), p)

    def total(self, found: Evaluation) -> tuple[float, FloatArray]:
        """The log-likelihood, and its gradient (d + 1, C - 1)."""
        gradient: FloatArray = self.X1.T @ (found.residuals @ self.basis)
        return float(found.log_likelihood.sum()), gradient

    def scale(self, found: Evaluation, penalty: FloatArray, tau: float = 0.0) -> Scale:
        """Coordinates in which the composite likelihood is easy to maximize."""
        p = np.ascontiguousarray(found.probabilities[self.rows])
        none = np.empty(0)
        return self.composite.scale(Evaluation(none, none, p), penalty, tau)

    def mean_level(self, coefficients: FloatArray) -> float:
        """The mean over rows of log sum exp of the logits that (d + 1, C) coefficients give."""
        of_rows = logsumexp(self.X1 @ coefficients, axis=1)
        return float(self.groupings.copies @ of_rows) / self.instances
