"""The inverse of the second derivative of the penalized likelihood, observed or expected."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from bagwise.bags import FloatArray
from bagwise.likelihood._information import expected_information
from bagwise.likelihood._observed import is_carried, observed_information, observed_steps
from bagwise.likelihood._optimize import Point, Problem
from bagwise.likelihood.objective import BagLikelihood

_STEP = 1e-4  # of differences, in standard errors
_INTERCEPT_SPREAD = 2.0
_LEAST = 0.3  # least ratio of observed to expected information that is believed


def inverse_information(
    likelihood: BagLikelihood, problem: Problem, point: Point, most_steps: float
) -> FloatArray:
    """(P, P) the inverse of the information at a point, the penalty included: the observed one if
    that is exact and takes no more elementary steps than these, else the expected one.
    """
    expected = expected_information(likelihood, point.theta, point.found, point.tau)
    expected = with_penalty(expected, problem.penalty)
    if can_be_observed(likelihood, point.theta.size, most_steps):
        return inverse_observed(problem, point, expected)
    return inverse_of(expected)


def can_be_observed(likelihood: BagLikelihood, n_parameters: int, most_steps: float) -> bool:
    """Whether likelihoods are exact, and their second derivative takes no more steps."""
    return likelihood.exact and observed_steps(likelihood.bags, n_parameters) <= most_steps


def with_penalty(information: FloatArray, penalty: FloatArray) -> FloatArray:
    """(P, P) information with the penalty (d, D), and a little so that it has an inverse."""
    found: FloatArray = information + np.diag(penalty.ravel())
    found[np.diag_indices(len(found))] += 1e-9 * np.diagonal(found).max()
    return found


def inverse_of(information: FloatArray) -> FloatArray:
    """The inverse of a positive definite matrix."""
    inverse: FloatArray = cho_solve(cho_factor(information), np.eye(len(information)))
    return inverse


def with_bounded_intercepts(inverse: FloatArray, n: int) -> FloatArray:
    """The inverse of an information (P, P) with some more about the last n coefficients: that
    intercepts are within two or so of their mode.

    Of a class that bags hardly have, the likelihood is flat below its intercept, and steep above.
    A normal distribution as wide as it is flat would make every other draw one of that class alone.
    """
    part = np.diag(np.full(n, _INTERCEPT_SPREAD**2)) + inverse[-n:, -n:]
    found: FloatArray = inverse - inverse[:, -n:] @ np.linalg.solve(part, inverse[-n:])
    return found


def inverse_observed(problem: Problem, point: Point, expected: FloatArray) -> FloatArray:
    """The inverse of the second derivative.

    Where it is much smaller than the expected information, or negative, as it can be by chance with
    few bags, a share of that takes its place.
    """
    lower = cholesky(expected, lower=True)
    half = solve_triangular(lower, _second_derivative(problem, point, expected), lower=True)
    values, vectors = np.linalg.eigh(solve_triangular(lower, half.T, lower=True))
    root = solve_triangular(lower, vectors, lower=True, trans="T")
    inverse: FloatArray = (root / np.maximum(values, _LEAST)) @ root.T
    return inverse


def _second_derivative(problem: Problem, point: Point, expected: FloatArray) -> FloatArray:
    """(P, P) of minus the penalized log-likelihood; by differences of the gradient with bag
    effects, over which it is integrated, and of very large lattices.
    """
    theta, P = point.theta, point.theta.size
    likelihood = problem.likelihood
    analytic = point.tau == 0 and is_carried(likelihood.bags)
    if analytic and isinstance(likelihood, BagLikelihood):
        found: FloatArray = observed_information(likelihood, theta, point.found)
        found[np.diag_indices(P)] += problem.penalty.ravel()
        return found
    second = np.empty((P, P))
    for i, size in enumerate(_STEP / np.sqrt(np.diagonal(expected))):
        step = np.zeros(P)
        step[i] = size
        moved = problem.at(theta + step.reshape(theta.shape), point.tau).gradient
        second[i] = (moved - point.gradient).ravel() / size
    both: FloatArray = (second + second.T) / 2
    return both
