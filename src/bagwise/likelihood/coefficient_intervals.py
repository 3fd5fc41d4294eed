"""How sure a linear model's coefficients are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import whole
from bagwise.errors import InputError
from bagwise.likelihood._information import expected_information, leveraged_scores
from bagwise.likelihood._optimize import Problem
from bagwise.likelihood._overlap import Overlap, cross_terms
from bagwise.likelihood._second_derivative import (
    can_be_observed,
    inverse_observed,
    inverse_of,
    with_bounded_intercepts,
    with_penalty,
)
from bagwise.likelihood.coefficient_covariance import MAX_PARAMETERS, Covariance
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.in_pieces import LikelihoodInPieces, Read, SummedLikelihood
from bagwise.likelihood.linear_fit import fit_linear, occurring
from bagwise.likelihood.objective import BagLikelihood, Evaluation, checked_features
from bagwise.limits import LIMITS, Limits

_WEAKER = 3.0  # a ridge of intervals, than one of predictions
_LEAST_SPREAD = 0.1  # of bags' scores, beside that of the model, that is believed


def fit_for_intervals(X: npt.ArrayLike, bags: Bags, fit: LinearFit) -> LinearFit:
    """The fit that intervals are made of: with a third of the ridge.

    The ridge of predictions shrinks coefficients by as much as their standard errors. That is good
    for predictions, but intervals around them are too short. With a weaker ridge the bias is
    smaller, and what is left of it is part of the covariance (`benchmarks/intervals.py`,
    `benchmarks/real_tables.py`).

    >>> X = np.random.default_rng(0).normal(size=(60, 1))
    >>> bags = Bags.from_labels((X[:, 0] > 0).astype(int), [3] * 20)
    >>> fit_for_intervals(X, bags, fit_linear(X, bags, ridge=6.0)).ridge
    2.0
    """
    ridge = interval_ridge(fit.ridge)
    return fit_linear(X, bags, ridge, bag_effects=fit.bag_effects, start=fit)


def interval_ridge(ridge: float) -> float:
    """The ridge of `fit_for_intervals` where predictions have this one."""
    return ridge / _WEAKER


def covariance(
    X: npt.ArrayLike,
    bags: Bags,
    fit: LinearFit,
    *,
    rows: IntArray | None = None,
    limits: Limits = LIMITS,
) -> Covariance:
    """The covariance of a fit's coefficients, by the sandwich and by the information alone.

        H^-1 (L + (B - 1) / B sum_b g_b g_b') H^-1,    g_b = (1 - H_b H^-1)^-1 X_b' (w - p)

    H is the information of the penalized likelihood, H_b a bag's part of it. The factor before a
    bag's score makes up for its pull on the fit, which makes its residual too small; with it the
    estimator is that of the jackknife over bags, whence (B - 1) / B. Without, where the pull is
    small, it would be B / (B - 1). L is the ridge, as if the coefficients had come from its prior:
    what the bags do not determine is as open as the prior says.

    H is the observed information (`_observed`) where likelihoods are exact and that takes a few
    seconds at most; else the expected one of scores that are quadratic in the counts
    (`_information`), which allows for counts that are not exact and for labels that are known. With
    bags of five the latter makes intervals up to a fifth too wide, with bags of 100 there is no
    difference. With more than four classes, bag effects, or where counts are not exact, scores are
    linear: intervals are then up to twice too wide where bags are alike. A fit's tau, if it has bag
    effects, is taken as known.

    Where bags share rows (`rows`), their scores are not independent. If there are at least 20
    groups of connected bags, these are what is sampled. Otherwise, the covariances of scores of
    bags that share rows are those that the model expects, and are added to sum_b g_b g_b'.

    Use it on `fit_for_intervals`. It cannot help where there are about as many coefficients
    (d + 1) (C - 1) as bags, or more: intervals then say little.

    Args:
        X: (N, d) features that the fit was made with.
        fit: a fit with at most 2000 free coefficients.
        rows: (N,) which row each instance is, where bags share rows: see `Groupings.stacked`.
        limits: how long the observed information may take.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 1))
    >>> bags = Bags.from_labels((X[:, 0] + rng.logistic(size=600) > 0).astype(int), [6] * 100)
    >>> fit = fit_for_intervals(X, bags, fit_linear(X, bags))
    >>> found = covariance(X, bags, fit)
    >>> slope = fit.weights[0, 1] - fit.weights[0, 0]
    >>> error = found.error_of([[-1., 1.], [0., 0.]])
    >>> bool(abs(slope - 1) < found.quantile() * error)
    True
    """
    features = checked_features(X, bags)
    part, classes = occurring(bags)
    P = (features.shape[1] + 1) * (len(classes) - 1)
    if P > MAX_PARAMETERS:
        raise InputError(
            f"{features.shape[1]} features and {len(classes)} classes have {P} free coefficients; "
            f"covariances are available up to {MAX_PARAMETERS}. Use bootstrap_bags, or fewer "
            "features."
        )
    if P == 0:
        nothing = np.zeros((0, 0))
        return _of_contrasts(fit, nothing, nothing, classes, len(bags), "expected")
    theta, tau = fit.theta(classes), fit.bag_effects
    likelihood = BagLikelihood(features, part)
    problem = Problem(likelihood, fit.ridge)
    point = problem.at(theta, tau)
    found: Evaluation = point.found
    overlap = None if rows is None else Overlap.of(rows, part)
    sampled = len(bags) if overlap is None else overlap.sampled
    expected, inverse, outer = _expected(likelihood, theta, found, problem.penalty, tau, overlap)
    if rows is not None and overlap is not None and overlap.clusters is None:
        outer = _positive(outer + cross_terms(likelihood, theta, found, rows), inverse)
    kind = "expected"
    if can_be_observed(likelihood, P, limits.observed_steps):
        kind = "observed"
        inverse = inverse_observed(problem, point, expected)
    sandwich = _sandwich(inverse, outer, sampled, problem.penalty)
    if overlap is not None:
        inverse = overlap.degree * inverse  # what several groupings say of a row is one thing
    return _of_contrasts(fit, sandwich, inverse, classes, sampled, kind)


def covariance_in_pieces(read: Read, bags: Bags, fit: LinearFit, *, most: int) -> Covariance:
    """What `covariance` says, of rows that are read piece by piece, in two passes.

    The information is the expected one. With a weaker ridge than predictions have intervals are
    better: see `fit_for_intervals`, and let `fit_in_pieces` begin at the fit of predictions.

    Args:
        read: called with two numbers of rows, gives the features of those between, (n, d).
        fit: to these bags, without bag effects.
        most: rows that are read at a time, or those of the largest bag.

    >>> X = np.random.default_rng(0).normal(size=(60, 1))
    >>> bags = Bags.from_labels((X[:, 0] > 0).astype(int), [3] * 20)
    >>> fit = fit_linear(X, bags)
    >>> found = covariance_in_pieces(lambda begin, end: X[begin:end], bags, fit, most=20)
    >>> found.matrix.shape
    (2, 2, 2, 2)
    """
    part, classes = occurring(bags)
    likelihood = LikelihoodInPieces(read, len(fit.weights), part, most)
    return covariance_of_sums(likelihood, classes, fit)


def covariance_of_sums(
    likelihood: SummedLikelihood, classes: IntArray, fit: LinearFit
) -> Covariance:
    """`covariance_in_pieces` of the likelihood of bags that have these classes."""
    theta, n_bags = fit.theta(classes), len(likelihood.bags)
    penalty = np.full(theta.shape, fit.ridge)
    penalty[-1] = 0.0  # of intercepts
    inverse = inverse_of(with_penalty(likelihood.information(theta), penalty))
    sandwich = _sandwich(inverse, likelihood.score_products(theta, inverse), n_bags, penalty)
    return _of_contrasts(fit, sandwich, inverse, classes, n_bags, "expected")


def _of_contrasts(
    fit: LinearFit,
    sandwich: FloatArray,
    inverse: FloatArray,
    classes: IntArray,
    n_bags: int,
    information: str,
) -> Covariance:
    """From covariances (P, P) in the coordinates of `contrasts`, of the classes that occur."""
    basis = contrasts(len(classes))
    d, D, C = len(fit.weights) + 1, basis.shape[1], len(fit.intercept)
    places = np.arange(d)
    if D:
        inverse = with_bounded_intercepts(inverse, D)

    def of_all(small: FloatArray) -> FloatArray:
        full = np.einsum("ce,iejf,df->icjd", basis, small.reshape(d, D, d, D), basis, optimize=True)
        matrix = np.zeros((d, C, d, C))
        matrix[np.ix_(places, classes, places, classes)] = full
        return matrix

    absent = ~np.isin(np.arange(C), classes)
    return Covariance(fit, of_all(sandwich), n_bags, information, absent, of_all(inverse))


def bootstrap_bags(
    X: npt.ArrayLike, bags: Bags, fit: LinearFit, draws: int = 200, seed: int = 0
) -> Iterator[LinearFit]:
    """Fits to samples of B bags with replacement, beginning at `fit`, with its ridge and tau.

    Their coefficients spread as those of fits to other bags would. They come one after the other,
    so that a caller can show them coming, and stop.

    Args:
        X: (N, d) features that the fit was made with.
        fit: where to begin.
        draws: how many.

    >>> X = np.random.default_rng(0).normal(size=(60, 1))
    >>> bags = Bags.from_labels((X[:, 0] > 0).astype(int), [3] * 20)
    >>> drawn = list(bootstrap_bags(X, bags, fit_linear(X, bags), draws=5))
    >>> len(drawn), drawn[0].weights.shape
    (5, (1, 2))
    """
    features = checked_features(X, bags)
    whole(1, 2**31)(draws, "draws")
    B = len(bags)
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw])
        times = np.bincount(rng.integers(B, size=B), minlength=B)
        drawn = fit_linear(
            features,
            bags,
            fit.ridge,
            bag_effects=fit.bag_effects,
            start=fit,
            bag_weights=times,
            tolerance=0.05,
        )
        yield replace(drawn, effects=None, spreads=None)


def _expected(
    likelihood: BagLikelihood,
    theta: FloatArray,
    found: Evaluation,
    penalty: FloatArray,
    tau: float,
    overlap: Overlap | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(P, P) the expected information with the penalty (d, D), its inverse, and sum_b g_b g_b'; of
    bags that share rows, a sum over clusters.
    """
    of_bags = expected_information(likelihood, theta, found, tau)
    information = with_penalty(of_bags, penalty)
    inverse = inverse_of(information)
    degree = 1.0 if overlap is None else overlap.degree
    # Without a bag, those of its rows in other groupings would pull less, too.
    scores = leveraged_scores(likelihood, theta, found, tau, degree * inverse)
    if overlap is not None and overlap.clusters is not None:
        single, scores = scores, np.zeros((overlap.sampled, scores.shape[1]))
        np.add.at(scores, overlap.clusters, single)
    return information, inverse, scores.T @ scores


def _positive(outer: FloatArray, inverse: FloatArray) -> FloatArray:
    """A covariance of scores with nothing negative or next to nothing beside the information."""
    lower = cholesky(inverse, lower=True)
    values, vectors = np.linalg.eigh(lower.T @ outer @ lower)
    root = solve_triangular(lower, vectors, lower=True, trans="T")
    found: FloatArray = (root * np.maximum(values, _LEAST_SPREAD)) @ root.T
    return found


def _sandwich(
    inverse: FloatArray, outer: FloatArray, n_bags: int, penalty: FloatArray
) -> FloatArray:
    """H^-1 (L + sum_b g_b g_b' (B - 1) / B) H^-1, with the penalty L (d, D).

    Where scores are next to nothing beside what the model says, as those of bags are that were made
    to have equal shares, it would be nothing. Then it is H^-1.
    """
    if np.sum(inverse * outer) < _LEAST_SPREAD * len(inverse):
        return inverse
    middle = np.diag(penalty.ravel()) + outer * ((n_bags - 1) / n_bags)
    found: FloatArray = inverse @ middle @ inverse
    return found
