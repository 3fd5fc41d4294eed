"""A linear model averaged over what bags leave open: its coefficients and their prior's variance.

Counts cannot tell that a model is too sure within bags. So nothing here is chosen on held-out bags:
the prior is weighted by how probable it makes the counts, and predictions are means over draws of
the coefficients. Those that the bags do not determine are drawn from the prior, and cancel. Where
bags differ by more than the model expects, each of them counts less.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import whole
from bagwise.likelihood._information import expected_information, leveraged_scores
from bagwise.likelihood._optimize import Problem
from bagwise.likelihood._second_derivative import (
    inverse_information,
    inverse_of,
    with_bounded_intercepts,
    with_penalty,
)
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts, orthogonal_normals
from bagwise.likelihood.linear_fit import fit_linear, occurring
from bagwise.likelihood.objective import BagLikelihood, checked_features
from bagwise.likelihood.ridge import FOLD_TOLERANCE
from bagwise.limits import LIMITS, Limits

# Variances of logits, of a row at random, that the prior is tried with,
VARIANCES = 10.0 ** np.arange(-2.5, 1.6, 0.5)
# and what is known of them beforehand: a normal distribution of their logarithm.
_CENTER, _SPREAD = np.log(0.3), 1.15
MOST_AVERAGED = 1000  # free coefficients of a model that is averaged
_LEAST_WEIGHT = 0.02  # of a variance that is kept
# In what order it is seen how far bags differ: the first ones tell most of the time.
_LOOKED_AT = sorted(VARIANCES.tolist(), key=lambda variance: abs(np.log(variance) - _CENTER))


@dataclass(frozen=True)
class Component:
    """The coefficients' posterior with one variance of the prior, by Laplace's approximation.

    Attributes:
        fit: its mode.
        classes: the numbers of those that bags have; the coefficients of others are fixed.
        root: (P, P) R, so that R R' is the covariance in the coordinates of `contrasts`.
        log_evidence: log P(S|X) of all bags, a mean over the prior.
        weight: of this variance among all.
    """

    fit: LinearFit
    classes: IntArray
    root: FloatArray
    log_evidence: float
    weight: float

    def drawn(self, normal: FloatArray) -> FloatArray:
        """(S, d + 1, C) coefficients, the intercept last, from standard normal numbers (S, P)."""
        d, C = len(self.fit.weights), len(self.classes)
        shift = (normal @ self.root.T).reshape(len(normal), d + 1, C - 1)
        center = np.vstack([self.fit.weights, self.fit.intercept])
        found = np.repeat(center[None], len(normal), axis=0)
        found[:, :, self.classes] += shift @ contrasts(C).T
        return found


@dataclass(frozen=True)
class PosteriorOfPriors:
    """Posteriors of the coefficients for several variances of the prior, with their weights.

    Attributes:
        components: those that matter, the strongest prior first; weights sum to 1.
        dispersion: by which the log-likelihood was divided, see `fit_by_evidence`.
        path: (ridge, log evidence) of all that were tried, in that order; what is known of the
            prior beforehand is part of it.
    """

    components: tuple[Component, ...]
    dispersion: float
    path: tuple[tuple[float, float], ...]

    @property
    def best(self) -> Component:
        """The one of the largest weight."""
        return max(self.components, key=lambda component: component.weight)

    def draws(self, pairs: int = 64, seed: int = 0) -> FloatArray:
        """(2 pairs, d + 1, C) coefficients, in pairs on opposite sides of a mode.

        As many of each component as its weight says.
        """
        whole(1, 2**20)(pairs, "pairs")
        rng = np.random.default_rng(seed)
        weights = np.array([component.weight for component in self.components])
        ends = np.round(np.cumsum(weights) * pairs).astype(int)
        drawn = []
        for component, n in zip(self.components, np.diff(ends, prepend=0), strict=True):
            normal = orthogonal_normals(rng, int(n), len(component.root))
            drawn.append(component.drawn(np.concatenate([normal, -normal])))
        return np.concatenate(drawn)


def fit_by_evidence(
    X: npt.ArrayLike,
    bags: Bags,
    *,
    limits: Limits = LIMITS,
    watch: Callable[[], None] | None = None,
) -> PosteriorOfPriors:
    """Fit a linear model with a normal prior of its weights, averaged over the prior's variance.

    The prior is N(0, 1 / ridge) for each weight. What is tried is not a ridge but the variance v
    that the prior gives the logits of a row at random, ridge = (sum of the columns' variances) / v:
    so it does not matter how many columns there are. Beforehand, log v is normal around log .3 with
    a standard deviation of 1.15. Without that, a few large bags, which many coefficients explain
    to the last instance, would call for a prior without bounds.

    Bags that differ for other reasons than their rows say less than the likelihood takes them to.
    By how much shows in their scores, which then vary by more than the information. The
    log-likelihood is divided by that ratio, if it is above 1, with the variance for which it is
    least. A ridge is that of the undivided likelihood.

    Args:
        X: (N, d) standardized features, sorted by bag.
        limits: how long the observed information may take.
        watch: called after each fit.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> bags = Bags.from_labels((X[:, 0] + rng.logistic(size=300) > 0).astype(int), [10] * 30)
    >>> found = fit_by_evidence(X, bags)
    >>> slopes = found.draws()[:, :, 1] - found.draws()[:, :, 0]
    >>> bool(abs(slopes.mean(axis=0)[0] - 1) < 3 * slopes.std(axis=0)[0])
    True
    """
    features = checked_features(X, bags)
    spread = _spread_of_columns(features, bags)
    dispersion = _dispersion(features, bags, spread)
    found: list[Component] = []
    start = None
    for variance in VARIANCES.tolist():
        ridge = _ridge(dispersion * spread, variance)
        component = _component(features, bags, ridge, dispersion, start, limits)
        log_prior = -0.5 * ((np.log(variance) - _CENTER) / _SPREAD) ** 2
        found.append(replace(component, log_evidence=component.log_evidence + log_prior))
        start = component.fit
        if watch is not None:
            watch()
        if spread == 0 or len(component.root) == 0:
            break  # there is nothing to choose
    return _weighted(found, dispersion)


def refit(
    posterior: PosteriorOfPriors, X: FloatArray, bags: Bags, limits: Limits = LIMITS
) -> PosteriorOfPriors:
    """The same priors with the same weights, fitted to some of the bags (rows X)."""
    again = [
        replace(
            _component(X, bags, old.fit.ridge, posterior.dispersion, old.fit, limits),
            weight=old.weight,
        )
        for old in posterior.components
    ]
    return replace(posterior, components=tuple(again))


def _spread_of_columns(X: FloatArray, bags: Bags) -> float:
    """The sum of the variances of columns (N, d)."""
    share = bags.copies / bags.total
    return float((share @ (X - share @ X) ** 2).sum())


def _ridge(spread: float, variance: float) -> float:
    """Rounded, so that it does not depend on the order of rows."""
    return float(f"{spread / variance:.9g}") if spread > 0 else 1.0


def _dispersion(X: FloatArray, bags: Bags, spread: float) -> float:
    """The least ratio, 1 or more, of the variation of bags' scores to what the information says."""
    part, classes = occurring(bags)
    if len(classes) == 1 or spread == 0:
        return 1.0
    likelihood = BagLikelihood(X, part)
    least, start = np.inf, None
    for variance in _LOOKED_AT:
        problem = Problem(likelihood, _ridge(spread, variance))
        start = _mode(X, bags, _ridge(spread, variance), start)
        theta = start.theta(classes)
        found = problem.at(theta, 0.0).found
        information = expected_information(likelihood, theta, found, 0.0)
        inverse = inverse_of(with_penalty(information, problem.penalty))
        scores = leveraged_scores(likelihood, theta, found, 0.0, inverse)
        ratio = ((scores @ inverse) * scores).sum() / (inverse * information).sum()
        least = min(least, float(ratio))
        if least <= 1:
            return 1.0
    return least


def _mode(X: FloatArray, bags: Bags, ridge: float, start: LinearFit | None) -> LinearFit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a fit that is hard to end
        return fit_linear(X, bags, ridge, start=start, tolerance=FOLD_TOLERANCE)


def _component(
    X: FloatArray,
    bags: Bags,
    ridge: float,
    dispersion: float,
    start: LinearFit | None,
    limits: Limits,
) -> Component:
    """The posterior with this ridge and the likelihood divided by the dispersion, of weight 1.

    Its mode is that of the undivided likelihood with this ridge. The prior's precision is
    ridge / dispersion, and the covariance that of the undivided likelihood times the dispersion.
    """
    fit = _mode(X, bags, ridge, start)
    part, classes = occurring(bags)
    if len(classes) == 1:
        return Component(fit, classes, np.zeros((0, 0)), fit.log_likelihood, 1.0)
    likelihood = BagLikelihood(X, part)
    problem = Problem(likelihood, ridge)
    point = problem.at(fit.theta(classes), 0.0)
    inverse = inverse_information(likelihood, problem, point, limits.evidence_steps)
    inverse = with_bounded_intercepts(dispersion * inverse, len(classes) - 1)
    values, vectors = np.linalg.eigh((inverse + inverse.T) / 2)
    values = np.maximum(values, 1e-12 * values.max())
    precisions = X.shape[1] * (len(classes) - 1) * np.log(ridge / dispersion)
    log_evidence = 0.5 * float(np.log(values).sum() + precisions) - point.value / dispersion
    # The symmetric root: draws must not depend on the signs of eigenvectors, which are chance.
    root = (vectors * np.sqrt(values)) @ vectors.T
    return Component(fit, classes, root, log_evidence, 1.0)


def _weighted(found: Sequence[Component], dispersion: float) -> PosteriorOfPriors:
    """With weights by evidence, without components of next to none."""
    evidence = np.array([component.log_evidence for component in found])
    weights = np.exp(evidence - evidence.max())
    weights[weights < _LEAST_WEIGHT * weights.sum()] = 0.0
    weights /= weights.sum()
    kept = tuple(
        replace(component, weight=weight)
        for component, weight in zip(found, weights.tolist(), strict=True)
        if weight > 0
    )
    path = tuple((component.fit.ridge, component.log_evidence) for component in found)
    return PosteriorOfPriors(kept, dispersion, path)
