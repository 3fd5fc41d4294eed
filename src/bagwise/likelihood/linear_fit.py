"""A linear model fitted to bags by maximum likelihood."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import number, whole
from bagwise.errors import InputError
from bagwise.likelihood._optimize import LOWEST_TAU, Point, Problem, solve
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.objective import BagLikelihood, checked_features

if TYPE_CHECKING:
    from bagwise.likelihood._optimize import Likelihood

TOLERANCE = 0.01
MAX_EVALUATIONS = 500


def fit_linear(
    X: npt.ArrayLike,
    bags: Bags,
    ridge: float = 1.0,
    *,
    bag_effects: float = 0.0,
    start: LinearFit | None = None,
    bag_weights: npt.ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
) -> LinearFit:
    """Fit logits X W + b to the label counts of bags.

    Minimized, by L-BFGS over all bags at a time, is

        - sum_b log P(S_b | X_b; W, b) + ridge / 2 ||W||^2

    with P(S|X) of the engine `auto`. The intercepts b are not penalized. The same vector added to
    the weights of all classes changes no probability; the penalty is least where each row of W sums
    to 0, and b is taken to sum to 0 too. So the answer is unique as far as the likelihood has one
    optimum, no class is singled out, and their order does not matter. (With two classes the
    difference of their weights, beta, is penalized by ridge / 4 beta^2.)

    The likelihood of bags is not concave: what is found is the optimum next to `start`, or to zero
    weights and the overall shares. Optimization takes place in coordinates in which a step of one
    is about one standard error (see `_curvature.information_rows`), chosen anew now and then.

    A class that no bag has gets zero weights and a share of half an instance of all. Without it the
    likelihood would be largest at an intercept of minus infinity.

    Args:
        X: (N, d) standardized features, sorted by bag.
        bags: what is known of the counts. A row of weight m counts as m rows like it.
        ridge: strength of the penalty, 0 or more; 1 / ridge is the variance of a normal prior.
        bag_effects: tau; each bag has its own intercept b + u_b, normal with variance tau^2 in each
            class, and P(S|X) is its mean over u (see `choose_bag_effects`).
        bag_weights: (B,) how often each bag counts; once if not given.
        tolerance: the fit ends where no coordinate's slope is larger, that is, where the optimum is
            nearer than about so many standard errors in every direction. Where bags are too large
            for exact likelihoods, it is .1 at least.
        max_evaluations: of the likelihood. Where they do not suffice there is a warning.

    >>> X = np.array([[-1.], [1.], [-1.], [-1.], [1.], [1.]])
    >>> fit = fit_linear(X, Bags([2, 2, 2], [[1, 1], [2, 0], [0, 2]]))
    >>> int(fit.probabilities([[2.]]).argmax())
    1
    """
    features = checked_features(X, bags)
    number(0)(bag_effects, "bag_effects")
    weights = _checked_weights(bag_weights, bags)
    if weights is not None and not weights.all():
        used = np.flatnonzero(weights)
        fit = fit_linear(
            features[bags.rows(used)],
            bags.select(used),
            ridge,
            bag_effects=bag_effects,
            start=start,
            bag_weights=weights[used],
            tolerance=tolerance,
            max_evaluations=max_evaluations,
        )
        return fit if fit.effects is None else _with_all_effects(fit, used, len(bags))
    part, classes = occurring(bags)
    return fit_to(
        BagLikelihood(features, part, weights),
        classes,
        bags,
        ridge,
        tau=bag_effects,
        start=start,
        tolerance=tolerance,
        max_evaluations=max_evaluations,
    )


def fit_with_variance(
    X: npt.ArrayLike,
    bags: Bags,
    ridge: float = 1.0,
    *,
    start: LinearFit | None = None,
    tolerance: float = TOLERANCE,
) -> LinearFit:
    """`fit_linear` with bag effects whose tau maximizes the likelihood too, from .001 to 20."""
    features = checked_features(X, bags)
    part, classes = occurring(bags)
    tau = 0.5 if start is None or start.bag_effects <= LOWEST_TAU else start.bag_effects
    return fit_to(
        BagLikelihood(features, part),
        classes,
        bags,
        ridge,
        tau=tau,
        fits_tau=True,
        start=start,
        tolerance=tolerance,
    )


def fit_to(
    likelihood: Likelihood,
    classes: IntArray,
    bags: Bags,
    ridge: float,
    *,
    tau: float = 0.0,
    fits_tau: bool = False,
    start: LinearFit | None,
    tolerance: float,
    max_evaluations: int = MAX_EVALUATIONS,
) -> LinearFit:
    """The optimum of a likelihood of those classes that these bags have."""
    number(0)(ridge, "ridge")
    number(above=0)(tolerance, "tolerance")
    whole(1, 2**31)(max_evaluations, "max_evaluations")
    theta = starting_point(start, classes, likelihood, bags.n_classes)
    before = likelihood.evaluations
    if len(classes) == 1:
        found: Any = likelihood.evaluate(theta)
        value = -likelihood.total(found)[0]
        point, converged, message = Point(theta, 0.0, found, value, 0.0 * theta), True, "one class"
    else:
        point, converged, message = solve(
            Problem(likelihood, ridge), theta, tau, fits_tau, tolerance, max_evaluations
        )
    evaluations = likelihood.evaluations - before
    if not converged:
        warnings.warn(
            f"the fit with ridge {ridge:g} did not converge in {evaluations} "
            f"evaluations: {message}. Raise max_evaluations, ridge or tolerance.",
            RuntimeWarning,
            stacklevel=3,
        )
    fit = fit_at(likelihood, point, classes, bags, ridge)
    return replace(fit, evaluations=evaluations, converged=converged, message=message)


def fit_at(
    likelihood: Likelihood, point: Point, classes: IntArray, bags: Bags, ridge: float
) -> LinearFit:
    """The fit that a point is, of all classes of these bags."""
    found, tau = point.found, point.tau
    coefficients = _all_classes(likelihood, point.theta, classes, bags.n_classes)
    effects = spreads = None
    if tau > 0:
        effects = np.zeros((len(bags), bags.n_classes))
        effects[:, classes] = found.effects @ likelihood.basis.T
        spreads = spread_of(found.effects, found.squares)
    return LinearFit(
        weights=coefficients[:-1],
        intercept=coefficients[-1],
        ridge=float(ridge),
        bag_effects=float(tau),
        effects=effects,
        log_likelihood=0.5 * ridge * float((point.theta[:-1] ** 2).sum()) - point.value,
        evaluations=0,
        converged=True,
        message="",
        spreads=spreads,
    )


def spread_of(means: FloatArray, squares: FloatArray) -> FloatArray:
    """(B,) the standard deviation of a coordinate, from means (B, D) and mean squares (B,)."""
    variances = (squares - (means**2).sum(axis=1)) / means.shape[1]
    spreads: FloatArray = np.sqrt(np.maximum(variances, 0.0))
    return spreads


def starting_point(
    start: LinearFit | None, classes: IntArray, likelihood: Likelihood, n_classes: int
) -> FloatArray:
    """(d + 1, C - 1) parameters to begin at, of the classes that occur."""
    n_features = likelihood.shape[1] - 1
    if start is not None:
        if start.weights.shape != (n_features, n_classes):
            raise InputError(
                f"start has {start.weights.shape[0]} features and {start.weights.shape[1]} "
                f"classes, the bags {n_features} and {n_classes}; give a fit of the same features "
                "and classes."
            )
        return start.theta(classes)
    coefficients = np.zeros((n_features + 1, len(classes)))
    coefficients[-1] = np.log(likelihood.bags.expected_counts.sum(axis=0))
    theta: FloatArray = coefficients @ contrasts(len(classes))
    return theta


def _all_classes(
    likelihood: Likelihood, theta: FloatArray, classes: IntArray, n_classes: int
) -> FloatArray:
    """(d + 1, C) coefficients of all classes, those that do not occur included."""
    found = theta @ likelihood.basis.T
    if len(classes) == n_classes:
        return found
    coefficients = np.zeros((len(theta), n_classes))
    coefficients[:, classes] = found
    absent = np.setdiff1d(np.arange(n_classes), classes)
    level = likelihood.mean_level(found)
    coefficients[-1, absent] = level + np.log(0.5 / likelihood.instances)
    centred: FloatArray = coefficients - coefficients.mean(axis=1, keepdims=True)
    return centred


def occurring(bags: Bags) -> tuple[Bags, IntArray]:
    """The bags without classes that none of them has, and the numbers of those that they have.

    >>> occurring(Bags([2], [[1, 0, 1]]))
    (Bags(1 bag, 2 instances, 2 classes, all of size 2), array([0, 2]))
    """
    classes = np.flatnonzero(bags.max_counts.sum(axis=0))
    return (bags if len(classes) == bags.n_classes else bags.of_classes(classes)), classes


def _with_all_effects(fit: LinearFit, used: IntArray, n_bags: int) -> LinearFit:
    """The same fit with the effects of new bags for those that were not used."""
    assert fit.effects is not None
    assert fit.spreads is not None
    effects = np.zeros((n_bags, fit.effects.shape[1]))
    effects[used] = fit.effects
    spreads = np.full(n_bags, fit.bag_effects)
    spreads[used] = fit.spreads
    return replace(fit, effects=effects, spreads=spreads)


def _checked_weights(bag_weights: npt.ArrayLike | None, bags: Bags) -> FloatArray | None:
    if bag_weights is None:
        return None
    weights: FloatArray = np.asarray(bag_weights, dtype=np.float64)
    if weights.shape != (len(bags),):
        raise InputError(
            f"bag_weights has shape {weights.shape}, but there are {len(bags)} bags; "
            "give one number for each."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise InputError(
            "bag_weights has a number that is negative or not finite, or nothing but zeros; "
            "give each bag the number of times it counts."
        )
    return weights
