"""The optimum of the penalized likelihood, by L-BFGS in coordinates that suit it."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from bagwise.bags import FloatArray

if TYPE_CHECKING:
    from bagwise.likelihood.in_pieces import SummedLikelihood
    from bagwise.likelihood.joint_fit import JointLikelihood
    from bagwise.likelihood.objective import BagLikelihood

    Likelihood: TypeAlias = BagLikelihood | JointLikelihood | SummedLikelihood

LOWEST_TAU, HIGHEST_TAU = 1e-3, 20.0  # of a fitted standard deviation of bag effects
_ITERATIONS = 15  # after which coordinates are chosen anew
# Where bags are computed by `bethe`, the likelihood has steps of about .1, and gradients are those
# of its value up to a few percent. Gains and slopes below these are not looked for there.
_ROUGH, _ROUGH_SLOPE = 0.02, 0.1
_SMALL = 1_000_000  # cells of X, below which threads are not worth waiting for each other
_LINE_SEARCH = 6  # evaluations along a line; where that is not enough, the likelihood is rough


@dataclass(frozen=True)
class Point:
    """Parameters and what was found there.

    Attributes:
        theta: (d + 1, C - 1) parameters.
        value: minus the log-likelihood, plus the penalty.
        gradient: (d + 1, C - 1) its derivative by theta.
    """

    theta: FloatArray
    tau: float
    found: Any
    value: float
    gradient: FloatArray


class Problem:
    """The penalized likelihood as a function of theta and tau.

    Args:
        ridge: penalty of the weights, not of the intercepts.
    """

    def __init__(self, likelihood: Likelihood, ridge: float) -> None:
        self.likelihood = likelihood
        self.shape = (likelihood.shape[1], likelihood.basis.shape[1])
        self.penalty = np.full(self.shape, float(ridge))
        self.penalty[-1] = 0.0
        # Where the penalty is small or absent, coordinates are scaled as if there were a little.
        self.floor = np.maximum(self.penalty, 1e-7 * likelihood.instances).ravel()

    def at(self, theta: FloatArray, tau: float) -> Point:
        """Value and gradient."""
        found: Any = self.likelihood.evaluate(theta, tau)
        total, gradient = self.likelihood.total(found)
        penalized = self.penalty * theta
        value = 0.5 * float((penalized * theta).sum()) - total
        return Point(theta, tau, found, value, penalized - gradient)


class _Coordinates:
    """theta and the logarithm of tau around a point, as functions of phi (P,) or (P + 1,)."""

    def __init__(self, problem: Problem, centre: Point, fits_tau: bool) -> None:
        self.problem = problem
        self.centre = self.lowest = centre
        self.fits_tau = fits_tau
        self.scale = problem.likelihood.scale(centre.found, problem.floor, centre.tau)
        # The information about log tau is at most two for each bag and coordinate.
        effects = len(problem.likelihood.bags) * problem.shape[1]
        self.step = 1.0 / np.sqrt(2.0 * effects)
        self.phi = np.zeros(centre.theta.size + fits_tau)

    def bounds(self) -> list[tuple[float | None, float | None]]:
        free: list[tuple[float | None, float | None]] = [(None, None)] * self.centre.theta.size
        if self.fits_tau:
            low, high = (np.log(tau / self.centre.tau) for tau in (LOWEST_TAU, HIGHEST_TAU))
            free.append((low / self.step, high / self.step))
        return free

    def objective(self, phi: FloatArray) -> tuple[float, FloatArray]:
        P = self.centre.theta.size
        theta = self.centre.theta + self.scale.apply(phi[:P]).reshape(self.problem.shape)
        tau = self.centre.tau
        if self.fits_tau:
            tau *= float(np.exp(self.step * phi[P]))
        point = self.problem.at(theta, tau)
        if point.value < self.lowest.value:
            self.lowest = point
        return point.value, self.gradient(point)

    def gradient(self, point: Point) -> FloatArray:
        by_phi = self.scale.transpose(point.gradient.ravel())
        if not self.fits_tau:
            return by_phi
        squares = point.found.squares
        assert squares is not None
        by_log_tau = len(squares) * self.problem.shape[1] - squares.sum() / point.tau**2
        return np.append(by_phi, self.step * by_log_tau)


def solve(
    problem: Problem,
    theta: FloatArray,
    tau: float,
    fits_tau: bool,
    tolerance: float,
    max_evaluations: int,
) -> tuple[Point, bool, str]:
    """The optimum next to theta (and tau, where it is fitted): (point, converged, message)."""
    with _threads_for(math.prod(problem.likelihood.shape)):
        likelihood = problem.likelihood
        most = likelihood.evaluations + max_evaluations
        least_gain = 0.01 * tolerance**2
        if not likelihood.exact:
            least_gain, tolerance = max(least_gain, _ROUGH), max(tolerance, _ROUGH_SLOPE)
        point = problem.at(theta, tau)
        while True:
            coordinates = _Coordinates(problem, point, fits_tau)
            left = most - likelihood.evaluations
            if np.abs(coordinates.gradient(point)).max() <= tolerance:
                return point, True, "converged"
            if left <= 0:
                return point, False, "too few evaluations were allowed"
            result = minimize(
                coordinates.objective,
                coordinates.phi,
                jac=True,
                method="L-BFGS-B",
                bounds=coordinates.bounds(),
                options={
                    "gtol": tolerance,
                    "ftol": least_gain / max(abs(point.value), 1.0),
                    "maxiter": _ITERATIONS,
                    "maxfun": left,
                    "maxls": _LINE_SEARCH,
                    "maxcor": 2 * _ITERATIONS,
                },
            )
            gain = point.value - coordinates.lowest.value
            point = coordinates.lowest
            if result.status == 0:
                return point, True, "converged"
            if result.status == 2 and gain <= least_gain:
                # No step along the gradient is a gain any more, if only by rounding errors.
                return point, True, "converged as far as the likelihood is exact"


def _threads_for(cells: int) -> AbstractContextManager[object]:
    """One thread of BLAS for a small problem; as many as there were for a large one.

    L-BFGS works on a few dozen coefficients between evaluations. Threads that wait for each other
    there by spinning take longer than the rest of a fit, and many times that on a busy machine.
    """
    if cells >= _SMALL:
        return nullcontext()
    limited: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
