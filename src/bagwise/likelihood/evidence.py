"""A linear model averaged over what bags leave open: its coefficients and their prior's variance.

Counts cannot tell that a model is too sure within bags. So nothing here is chosen on held-out bags:
the prior is weighted by how probable it makes the counts, and predictions are means over draws of
the coefficients. Those that the bags do not determine are drawn from the prior, and cancel. Where
bags differ by more than the model expects, each of them counts less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import whole
from bagwise.likelihood._information import expected_information, leveraged_scores
from bagwise.likelihood._optimize import Point, Problem, solve
from bagwise.likelihood._second_derivative import (
    inverse_information,
    inverse_of,
    with_bounded_intercepts,
    with_penalty,
)
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts, orthogonal_normals
from bagwise.likelihood.linear_fit import MAX_EVALUATIONS, fit_at, occurring, starting_point
from bagwise.likelihood.objective import BagLikelihood, checked_features
from bagwise.likelihood.ridge import FOLD_TOLERANCE
from bagwise.limits import LIMITS, Limits

# Variances of logits, of a row at random, that the prior is tried with,
VARIANCES = 10.0 ** np.arange(-2.5, 1.6, 0.5)
# and what is known of them beforehand: a normal distribution of their logarithm.
_CENTER, _SPREAD = np.log(0.3), 1.15
MOST_AVERAGED = 1000  # free coefficients of a model that is averaged
_ROWS = 8192  # that are squared at a time
_LEAST_WEIGHT = 0.02  # of a variance that is kept
_HOPELESS = 8.0  # of log evidence below the best: variances beyond such a one are not tried


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
    posteriors = _Posteriors(features, bags, limits)
    if len(posteriors.classes) == 1 or spread == 0:  # there is nothing to choose
        ridge = _ridge(spread, float(VARIANCES[0]))
        return _weighted([posteriors.component(posteriors.mode(ridge), 1.0)], 1.0)
    dispersion, center = posteriors.dispersion(spread)
    found: dict[int, Component] = {}

    def is_hopeless(place: int) -> bool:
        """Whether a neighbor is so much worse than the best that none beyond it matters."""
        beside = [found[near].log_evidence for near in (place - 1, place + 1) if near in found]
        return beside[0] < max(one.log_evidence for one in found.values()) - _HOPELESS

    middle = _nearest_to_center()
    for places in (range(middle, len(VARIANCES)), range(middle - 1, -1, -1)):
        start = center
        for place in places:
            if found and is_hopeless(place):
                break
            variance = float(VARIANCES[place])
            start = posteriors.mode(_ridge(dispersion * spread, variance), start)
            component = posteriors.component(start, dispersion)
            log_prior = -0.5 * ((np.log(variance) - _CENTER) / _SPREAD) ** 2
            log_evidence = component.log_evidence + log_prior
            found[place] = replace(component, log_evidence=log_evidence)
            if watch is not None:
                watch()
    return _weighted([found[place] for place in sorted(found)], dispersion)


def refit(
    posterior: PosteriorOfPriors, X: FloatArray, bags: Bags, limits: Limits = LIMITS
) -> PosteriorOfPriors:
    """The same priors with the same weights, fitted to some of the bags (rows X)."""
    posteriors = _Posteriors(X, bags, limits)
    again = []
    for old in posterior.components:
        theta = old.fit.theta(posteriors.classes)
        mode = posteriors.mode(old.fit.ridge, theta)
        again.append(replace(posteriors.component(mode, posterior.dispersion), weight=old.weight))
    return replace(posterior, components=tuple(again))


def _spread_of_columns(X: FloatArray, bags: Bags) -> float:
    """The sum of the variances of columns (N, d)."""
    share = bags.copies / bags.total
    mean, found = share @ X, 0.0
    for begin in range(0, len(X), _ROWS):
        part = X[begin : begin + _ROWS] - mean
        part *= part
        found += float((share[begin : begin + _ROWS] @ part).sum())
    return found


def _ridge(spread: float, variance: float) -> float:
    """Rounded, so that it does not depend on the order of rows."""
    return float(f"{spread / variance:.9g}") if spread > 0 else 1.0


def _nearest_to_center() -> int:
    """The place of the variance that is the most probable one beforehand."""
    return int(np.abs(np.log(VARIANCES) - _CENTER).argmin())


@dataclass
class _Mode:
    """The optimum with a ridge, and the inverse of the information there, the penalty included;
    it is filled in when it is known.
    """

    point: Point
    ridge: float
    inverse: FloatArray | None = None

    def towards(self, ridge: float) -> FloatArray:
        """About where the optimum with another ridge is: a step of Newton's."""
        theta = self.point.theta
        if self.inverse is None:
            return theta
        change = np.full(theta.shape, ridge - self.ridge)
        change[-1] = 0.0
        both = np.eye(theta.size) + self.inverse * change.ravel()
        step = np.linalg.solve(both, self.inverse @ (change * theta).ravel())
        found: FloatArray = theta - step.reshape(theta.shape)
        return found


class _Posteriors:
    """Posteriors of the coefficients given some bags (rows X), for one ridge after the other."""

    def __init__(self, X: FloatArray, bags: Bags, limits: Limits) -> None:
        self.bags, self.limits = bags, limits
        part, self.classes = occurring(bags)
        self.likelihood = BagLikelihood(X, part)

    def mode(self, ridge: float, start: _Mode | FloatArray | None = None) -> _Mode:
        """The optimum next to a start: another one's, coefficients, or the overall shares."""
        if isinstance(start, _Mode):
            start = start.towards(ridge)
        if start is None:
            start = starting_point(None, self.classes, self.likelihood, self.bags.n_classes)
        problem = Problem(self.likelihood, ridge)
        if len(self.classes) == 1:
            return _Mode(problem.at(start, 0.0), ridge)
        point, *_ = solve(problem, start, 0.0, False, FOLD_TOLERANCE, MAX_EVALUATIONS)
        return _Mode(point, ridge)

    def dispersion(self, spread: float) -> tuple[float, _Mode]:
        """The least ratio, 1 or more, of the variation of bags' scores to what the information
        says; and the mode of the variance that is the most probable one beforehand.
        """
        middle = _nearest_to_center()
        center, least = self._variation(_ridge(spread, float(VARIANCES[middle])), None)
        for places in (range(middle + 1, len(VARIANCES)), range(middle - 1, -1, -1)):
            mode, last = center, np.inf
            for place in places:
                if least <= 1:
                    return 1.0, center
                mode, ratio = self._variation(_ridge(spread, float(VARIANCES[place])), mode)
                least = min(least, ratio)
                if ratio > last:
                    break
                last = ratio
        return max(least, 1.0), center

    def _variation(self, ridge: float, start: _Mode | None) -> tuple[_Mode, float]:
        mode = self.mode(ridge, start)
        problem, point = Problem(self.likelihood, ridge), mode.point
        at = self.likelihood, point.theta, point.found, 0.0
        information = expected_information(*at)
        inverse = inverse_of(with_penalty(information, problem.penalty))
        scores = leveraged_scores(*at, inverse)
        mode.inverse = inverse
        return mode, float(((scores @ inverse) * scores).sum() / (inverse * information).sum())

    def component(self, mode: _Mode, dispersion: float) -> Component:
        """The posterior with this ridge and the likelihood divided by the dispersion, of weight 1.

        Its mode is that of the undivided likelihood with this ridge. The prior's precision is
        ridge / dispersion, and the covariance that of the undivided likelihood times the
        dispersion.
        """
        ridge, point, classes = mode.ridge, mode.point, self.classes
        fit = fit_at(self.likelihood, point, classes, self.bags, ridge)
        if len(classes) == 1:
            return Component(fit, classes, np.zeros((0, 0)), fit.log_likelihood, 1.0)
        problem = Problem(self.likelihood, ridge)
        inverse = inverse_information(self.likelihood, problem, point, self.limits.evidence_steps)
        mode.inverse = inverse
        inverse = with_bounded_intercepts(dispersion * inverse, len(classes) - 1)
        values, vectors = np.linalg.eigh((inverse + inverse.T) / 2)
        values = np.maximum(values, 1e-12 * values.max())
        precisions = len(fit.weights) * (len(classes) - 1) * np.log(ridge / dispersion)
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
