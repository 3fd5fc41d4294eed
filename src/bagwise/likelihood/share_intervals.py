"""Intervals of the shares of classes in groups of rows, by draws of coefficients and labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, softmax

from bagwise.bags import FloatArray, IntArray
from bagwise.likelihood.coefficient_covariance import Covariance

_REPEATED = 8  # labels that are drawn for each draw of coefficients
_ROWS = 16_384  # whose probabilities are held at a time
_NORMAL = 1.959963984540054
_LEAST = 1e-6  # share whose logit is taken


def share_intervals(
    covariance: Covariance,
    X: npt.ArrayLike,
    groups: IntArray,
    n_groups: int,
    copies: IntArray,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The share of each class in groups of rows, and the ends of its interval: (G, C) each.

    Coefficients are drawn from their posterior; a share is the mean over draws. Where bags disagree
    by more than the posterior says, draws are moved away from their median, on the scale of logits,
    by as much more; likewise for Student's t, which few bags ask for. Labels of the very rows are
    added, to whole rows: a group of three rows has no share of .4. Ends are quantiles.

    Args:
        covariance: of a fit without bag effects.
        X: (N, d) features, standardized as those of the fit.
        groups: (N,) the group of each row.
        n_groups: G. A group without rows gets NaN.
        copies: (N,) how many identical rows each row stands for.
        level: of the interval.

    >>> from bagwise import Bags
    >>> from bagwise.likelihood import covariance, fit_linear
    >>> X = np.random.default_rng(0).normal(size=(60, 1))
    >>> bags = Bags.from_labels((X[:, 0] > 0).astype(int), [3] * 20)
    >>> known = covariance(X, bags, fit_linear(X, bags))
    >>> rows = np.zeros(3, dtype=int)
    >>> share, low, high = share_intervals(known, np.ones((3, 1)), rows, 1, rows + 1)
    >>> np.round([3 * low[0, 1], 3 * high[0, 1]]).tolist()
    [2.0, 3.0]
    """
    features = np.asarray(X, dtype=np.float64)
    _, gradient = covariance.group_slopes(features, groups, n_groups, copies)
    stretch = covariance.stretch_of(gradient) * covariance.quantile(level) / _NORMAL
    order = np.argsort(groups, kind="stable")
    drawn, of_labels, rows = _drawn(
        covariance.draws(seed=seed), features, groups, n_groups, copies, order
    )
    z = logit(np.clip(drawn, _LEAST, 1 - _LEAST))
    median = np.median(z, axis=0)
    stretched = expit(median + stretch * (z - median))
    noise = np.random.default_rng(seed + 1).standard_normal((_REPEATED, *stretched.shape))
    counts = np.round(stretched * rows + np.sqrt(of_labels) * noise)
    counts = np.clip(counts, 0.0, rows).reshape(-1, *drawn.shape[1:])
    tail = (1.0 - level) / 2
    low, high = np.quantile(counts, [tail, 1.0 - tail], axis=0, method="closest_observation")
    return drawn.mean(axis=0), low / rows, high / rows


def _drawn(
    draws: FloatArray, X: FloatArray, groups: IntArray, G: int, copies: IntArray, order: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of each draw (S, G, C), the variance of the number of labels (G, C), and the number
    of instances (G, 1), NaN where there are none.
    """
    S, C = len(draws), draws.shape[2]
    sums, variances = np.zeros((S, G, C)), np.zeros((G, C))
    for first in range(0, len(order), _ROWS):
        some = order[first : first + _ROWS]
        own, times = groups[some], copies[some, None].astype(np.float64)
        present, starts = np.unique(own, return_index=True)
        rows = X[some]
        for place, coefficients in enumerate(draws):
            p = softmax(rows @ coefficients[:-1] + coefficients[-1], axis=1)
            sums[place, present] += np.add.reduceat(times * p, starts)
            variances[present] += np.add.reduceat(times * p * (1.0 - p), starts) / S
    rows_of = np.bincount(groups, copies, minlength=G)[:, None]
    rows_of[rows_of == 0] = np.nan
    return sums / rows_of, variances, rows_of
