"""Whether a linear model misses something: squares, cubes and products of its columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.linear_fit import occurring
from bagwise.likelihood.objective import BagLikelihood, checked_features

_BAGS_PER_SCORE = 5  # bags for each coefficient, below which nothing can be said
_MOST_COLUMNS = 200
_CLIPPED = 3.0  # standard deviations
_LARGE = 5.0  # standard deviations of one score, or of the sum of all their squares
_SURE = 0.01  # probability of such scores where a model is linear
_ALIKE = 1e-6  # share of a score's squares below which the linear ones say it all


def nonlinearity_scores(X: npt.ArrayLike, bags: Bags, fit: LinearFit) -> FloatArray | None:
    """How far each square, cube and product of columns would make the bags more probable.

    For a function h of a row, h = x_i x_j or x_i^3, the slope of log P(S|X) by its coefficient at
    zero is a sum over bags of

        s_b = sum_k h(x_k) (w_k - p_k)

    and so are the slopes by the coefficients of the model, g_b, which sum to about zero. With the
    part of s_b that goes along with g_b taken off, e_b = s_b - a' g_b by least squares over bags,

        score = sum_b e_b / sqrt(sum_b e_b^2)

    is about standard normal where the logits are linear in X (the score test by outer products). It
    costs about as much as one evaluation of the likelihood for every four columns. Values are
    clipped at three standard deviations.

    Args:
        X: (N, d) standardized features, sorted by bag.
        fit: a model without bag effects, fitted to these bags, or to more of them.

    Returns:
        One score for each function and coordinate of the classes; functions that say nothing new
        are left out. None where that cannot be told: with fewer than five bags for each
        coefficient, or more than 200 columns.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2))
    >>> y = (X[:, 0] * X[:, 1] + 0.3 * rng.logistic(size=4000) > 0).astype(int)
    >>> bags = Bags.from_labels(y, [5] * 800)
    >>> from bagwise.likelihood import fit_linear
    >>> scores = nonlinearity_scores(X, bags, fit_linear(X, bags))
    >>> scores.shape, bool(np.abs(scores).max() > 10)
    ((5,), True)
    """
    features = checked_features(X, bags)
    part, classes = occurring(bags)
    D = len(classes) - 1
    d = features.shape[1]
    if D == 0 or d > _MOST_COLUMNS or len(bags) < _BAGS_PER_SCORE * (d + 1) * D:
        return None
    likelihood = BagLikelihood(features, part)
    residuals = likelihood.evaluate(fit.theta(classes)).residuals @ likelihood.basis
    starts = part.offsets[:-1]

    def of_bags(h: FloatArray) -> FloatArray:
        """(B, functions * D) scores of functions (N, functions)."""
        sums = [np.add.reduceat(h * residuals[:, e, None], starts, axis=0) for e in range(D)]
        return np.concatenate(sums, axis=1)

    linear, _ = np.linalg.qr(of_bags(likelihood.X1))
    clipped = np.clip(features, -_CLIPPED, _CLIPPED)
    found = []
    for i in range(d):
        h = clipped[:, i, None] * np.column_stack([clipped[:, i:], clipped[:, i] ** 2])
        s = of_bags(h)
        e = s - linear @ (linear.T @ s)
        squares = (e**2).sum(axis=0)
        new = squares > _ALIKE * (s**2).sum(axis=0)
        found.append(e.sum(axis=0)[new] / np.sqrt(squares[new]))
    return np.concatenate(found)


def is_nonlinear(scores: FloatArray | None) -> bool:
    """Whether a score is larger than chance would make the largest of so many in one of a hundred
    tables (Bonferroni); False where they are not known.

    >>> is_nonlinear(np.array([0.3, -2.7])), is_nonlinear(np.array([0.3, -3.1]))
    (False, True)
    """
    if scores is None or not len(scores):
        return False
    return bool(2 * len(scores) * ndtr(-np.abs(scores).max()) < _SURE)


def may_be_nonlinear(scores: FloatArray | None) -> bool:
    """Whether scores speak against a linear model, one of them or all together; True where they
    are not known.

    One does if it is beyond five standard deviations: what it stands for would make all bags
    together more probable by a factor of exp(12), next to nothing for a large table. All together
    do if the sum of their squares is larger by as much than that of independent standard normal
    numbers.

    >>> may_be_nonlinear(np.array([0.3, -3.1])), may_be_nonlinear(np.array([0.3, -5.1]))
    (False, True)
    """
    if scores is None:
        return True
    n = len(scores)
    squares = float((scores**2).sum())
    return bool((np.abs(scores) > _LARGE).any() or squares > n + _LARGE * np.sqrt(2 * n))
