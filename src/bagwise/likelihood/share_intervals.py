"""Intervals of the shares of classes in groups of rows, by draws of coefficients and labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_softmax, logit

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood._information import count_covariances
from bagwise.likelihood.coefficient_covariance import Covariance
from bagwise.likelihood.linear_fit import occurring
from bagwise.likelihood.objective import BagLikelihood
from bagwise.posterior import bag_posterior
from bagwise.posterior.proved import prove

_REPEATED = 8  # labels that are drawn for each draw of coefficients
_PAIRS_COUNTED = 32  # of draws of coefficients whose posteriors given counts are computed
_ROWS = 16_384  # whose probabilities are held at a time
_NORMAL = 1.959963984540054
_CELLS = 4_000_000  # numbers that are held at a time
_LEAST = 1e-6  # share whose logit is taken
_EXPLAINED = 1e-4  # of the squares of a group's scores, which must be left by the coefficients'


class GroupShares(NamedTuple):
    """The share of each class in groups of rows, and how sure it is; (G, C) each.

    Attributes:
        shares: NaN of a group without rows.
        low: of the interval.
        high: of the interval.
        contrasts: the standard error of logit(share) - logit(share of all rows), without the chance
            in the labels of the very rows.
        misfits: among rows that were counted, how far the counts contradict the model about the
            group, see `counted_share_intervals`; None of new rows.
        approximate: (G,) rows of bags whose posterior is approximated rather than proved; None of
            new rows.
    """

    shares: FloatArray
    low: FloatArray
    high: FloatArray
    contrasts: FloatArray
    misfits: FloatArray | None = None
    approximate: IntArray | None = None


def share_intervals(
    covariance: Covariance,
    X: npt.ArrayLike,
    groups: IntArray,
    n_groups: int,
    copies: IntArray,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> GroupShares:
    """The share of each class in groups of rows, and the ends of its interval.

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
    >>> found = share_intervals(known, np.ones((3, 1)), rows, 1, rows + 1)
    >>> np.round([3 * found.low[0, 1], 3 * found.high[0, 1]]).tolist()
    [2.0, 3.0]
    """
    features = np.asarray(X, dtype=np.float64)
    drawn, variances, rows = _drawn(covariance.draws(seed=seed), features, groups, n_groups, copies)
    stretch = _stretch(covariance, features, groups, n_groups, copies, level)
    ends = _ends(drawn, stretch, variances, rows, level, seed)
    errors = _contrasts(drawn, stretch, rows, covariance.quantile(level) / _NORMAL)
    return GroupShares(drawn.mean(axis=0), *ends, errors)


def counted_share_intervals(
    covariance: Covariance,
    X: npt.ArrayLike,
    bags: Bags,
    groups: IntArray,
    n_groups: int,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> GroupShares:
    """Likewise among rows that were counted: given the counts of their bags.

    For each draw of coefficients, probabilities are those given the counts. So is the variance of
    labels: of the rows A of a group in a bag, with all other rows B, it is

        v_A v_B / (v_A + v_B) n / (n - 1)

    where v is a sum of w (1 - w) and n the square of that sum over the bag, divided by the sum of
    squares: the number of rows that are in doubt. It is exact for rows that are alike. Where a
    count is not exact, its own variance is added. Posteriors are proved where a longer computation
    can (`posterior.proved`), at the fit's coefficients: the difference is added to all draws.

    The counts also say whether the model is right about a group. The derivative of the
    log-likelihood by an intercept for its rows alone is U = sum_k w_k - p_k, a sum over bags; the
    misfit is what the coefficients leave of U, divided by its standard error over bags. Where the
    model is right, that is about standard normal.

    Args:
        covariance: of a fit without bag effects.
        X: (N, d) features, sorted by bag.
        bags: what is known of the counts.
        groups: (N,) the group of each row.
        n_groups: G. A group without rows gets NaN.
        level: of the interval.

    >>> from bagwise.likelihood import covariance, fit_linear
    >>> X = np.random.default_rng(0).normal(size=(60, 1))
    >>> bags = Bags.from_labels((X[:, 0] > 0).astype(int), [3] * 20)
    >>> known = covariance(X, bags, fit_linear(X, bags))
    >>> everything = np.zeros(60, dtype=int)
    >>> found = counted_share_intervals(known, X, bags, everything, 1)
    >>> shares = found.shares[0, 1], found.low[0, 1], found.high[0, 1], (X > 0).mean()
    >>> np.round(shares, 6).tolist()
    [0.533333, 0.533333, 0.533333, 0.533333]
    """
    features = np.asarray(X, dtype=np.float64)
    stretch = _stretch(covariance, features, groups, n_groups, bags.copies, level)
    rows = _rows_of(groups, n_groups, bags.copies)
    shares = []
    mean = np.zeros((len(features), bags.n_classes))
    draws = covariance.draws(_PAIRS_COUNTED, seed)
    for coefficients in draws:
        w = bag_posterior(_log_probs(features, coefficients), bags).weights
        mean += w / len(draws)
        shares.append(_sums(bags.copies[:, None] * w, groups, n_groups) / rows)
    misfits, gained, approximate = _at_the_fit(covariance, features, bags, groups, n_groups)
    drawn = np.clip(np.array(shares) + gained / rows, 0.0, 1.0)
    variances = _given_counts(mean, bags, groups, n_groups)
    if not bags.is_sharp.all():
        variances += _of_counts(covariance, features, mean, bags, groups, n_groups)
    ends = _ends(drawn, stretch, variances, rows, level, seed)
    errors = _contrasts(drawn, stretch, rows, covariance.quantile(level) / _NORMAL)
    return GroupShares(drawn.mean(axis=0), *ends, errors, misfits, approximate)


def _at_the_fit(
    covariance: Covariance, X: FloatArray, bags: Bags, groups: IntArray, G: int
) -> tuple[FloatArray, FloatArray, IntArray]:
    """What is computed at the fit's coefficients alone: misfits (G, C), what proofs add to the
    numbers of labels (G, C), and how many rows' posteriors are not proved (G,).
    """
    log_p: FloatArray = log_softmax(covariance.fit.logits(X), axis=1)
    found = bag_posterior(log_p, bags)
    assert found.bound is not None
    w, bound = found.weights.copy(), found.bound.copy()
    for rows, weights in prove(log_p, bags, bound):
        w[rows] = weights
    times = bags.copies[:, None]
    gained = _sums(times * (w - found.weights), groups, G)
    misfits = _misfits(times * (w - np.exp(log_p)), X, bags, groups, G)
    unknown = bags.copies * (bound == np.inf)[bags.bag_of_row]
    return misfits, gained, np.bincount(groups, unknown, minlength=G).astype(np.int64)


def _misfits(scores: FloatArray, X: FloatArray, bags: Bags, groups: IntArray, G: int) -> FloatArray:
    """(G, C) sums of the scores (N, C) of rows over groups, divided by their standard errors.

    What bags' scores for the coefficients explain of their scores for a group is taken away: the
    fit has made the sum of the former zero, but for the prior. Where there are too many
    coefficients for that, only the intercepts are taken away.
    """
    B, C = len(bags), scores.shape[1]
    pairs, bag, group, pair = _pairs(bags, groups, G)
    parts = _sums(scores, pair, len(pairs))
    start = bags.offsets[:-1]
    X1 = np.column_stack([X, np.ones(len(X))])
    if 4 * X1.shape[1] * C > B:
        X1 = X1[:, -1:]
    found = np.empty((G, C))
    for c in range(C):
        known = np.add.reduceat(X1 * scores[:, c : c + 1], start)
        basis = np.linalg.svd(known, full_matrices=False)[0]
        size = max(_CELLS // B, 1)  # groups whose scores are held at a time
        for first in range(0, G, size):
            own = (group >= first) & (group < first + size)
            n = min(size, G - first)
            of_bags = np.zeros((B, n))
            of_bags[bag[own], group[own] - first] = parts[own, c]
            rest = of_bags - basis @ (basis.T @ of_bags)
            squares = (rest**2).sum(axis=0)
            # Of a group that is a column of the model, nothing but rounding is left.
            told = squares > _EXPLAINED * (of_bags**2).sum(axis=0)
            spread = np.sqrt(np.where(told, squares, 1.0) * B / max(B - basis.shape[1], 1))
            found[first : first + n, c] = np.where(told, rest.sum(axis=0) / spread, 0.0)
    return found


def _contrasts(
    drawn: FloatArray, stretch: FloatArray, rows: FloatArray, student: float
) -> FloatArray:
    """(G, C) the standard error of logit(share) - logit(share of all rows), from drawn shares."""
    total = np.nansum(drawn * rows, axis=1, keepdims=True) / np.nansum(rows)
    z, overall = (logit(np.clip(x, _LEAST, 1 - _LEAST)) for x in (drawn, total))
    errors: FloatArray = (z - overall).std(axis=0) * stretch / student
    return errors


def _stretch(
    covariance: Covariance, X: FloatArray, groups: IntArray, G: int, copies: IntArray, level: float
) -> FloatArray:
    """(G, C) by how much draws of shares are stretched: for bags that disagree, and Student's t."""
    d, C = covariance.matrix.shape[:2]
    order = np.argsort(groups, kind="stable")
    found = np.empty((G, C))
    size = max(_CELLS // (d * C * C), 1)  # groups whose derivatives are held at a time
    for first in range(0, G, size):
        n = min(size, G - first)
        begin, end = np.searchsorted(groups, [first, first + n], sorter=order)
        some = order[begin:end]
        _, slopes = covariance.group_slopes(X[some], groups[some] - first, n, copies[some])
        found[first : first + n] = covariance.stretch_of(slopes)
    return found * (covariance.quantile(level) / _NORMAL)


def _ends(
    drawn: FloatArray,
    stretch: FloatArray,
    variances: FloatArray,
    rows: FloatArray,
    level: float,
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """The ends of intervals (G, C) from drawn shares (S, G, C), by how much these are stretched,
    and the variance of labels.
    """
    S, G, C = drawn.shape
    tail, rng = (1.0 - level) / 2, np.random.default_rng(seed + 1)
    low, high = np.empty((G, C)), np.empty((G, C))
    size = max(_CELLS // (_REPEATED * S * C), 1)  # groups whose labels are drawn at a time
    for first in range(0, G, size):
        some = slice(first, first + size)
        z = logit(np.clip(drawn[:, some], _LEAST, 1 - _LEAST))
        median = np.median(z, axis=0)
        stretched = expit(median + stretch[some] * (z - median))
        noise = rng.standard_normal((_REPEATED, *stretched.shape))
        counts = np.round(stretched * rows[some] + np.sqrt(variances[some]) * noise)
        counts = np.clip(counts, 0.0, rows[some]).reshape(-1, *z.shape[1:])
        ends = np.quantile(counts, [tail, 1.0 - tail], axis=0, method="closest_observation")
        low[some], high[some] = ends / rows[some]
    return low, high


def _given_counts(w: FloatArray, bags: Bags, groups: IntArray, G: int) -> FloatArray:
    """(G, C) the variance of the number of labels in groups, given exact counts of bags."""
    v = w * (1.0 - w)
    start = bags.offsets[:-1]
    of_bag = np.add.reduceat(bags.copies[:, None] * v, start)
    squares = np.add.reduceat(bags.copies[:, None] * v**2, start)
    # Rows that are sure leave the others fewer to change places with.
    n = np.maximum(of_bag**2 / np.maximum(squares, 1e-300), 1.0)
    factor = np.minimum(n / np.maximum(n - 1.0, 1e-9), 2.0)
    pairs, bag, group, pair = _pairs(bags, groups, G)
    own = _sums(bags.copies[:, None] * v, pair, len(pairs))
    others = np.maximum(of_bag[bag] - own, 0.0)
    variances = factor[bag] * own * others / np.maximum(of_bag[bag], 1e-300)
    return _sums(variances, group, G)


def _of_counts(
    covariance: Covariance, X: FloatArray, w: FloatArray, bags: Bags, groups: IntArray, G: int
) -> FloatArray:
    """(G, C) what the counts themselves add where they are not exact: a group's part in them."""
    part, classes = occurring(bags)
    likelihood = BagLikelihood(X, part)
    spread = count_covariances(likelihood, covariance.fit.theta(classes))
    of_class = np.zeros((len(bags), bags.n_classes))
    basis = likelihood.basis
    of_class[:, classes] = np.einsum("ce,bef,cf->bc", basis, spread, basis, optimize=True)
    of_class[bags.is_sharp] = 0.0
    v = bags.copies[:, None] * w * (1.0 - w)
    of_bag = np.add.reduceat(v, bags.offsets[:-1])
    pairs, bag, group, pair = _pairs(bags, groups, G)
    part_of = _sums(v, pair, len(pairs)) / np.maximum(of_bag[bag], 1e-300)
    return _sums(part_of**2 * np.maximum(of_class[bag], 0.0), group, G)


def _pairs(bags: Bags, groups: IntArray, G: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """The pairs of a bag and a group that have rows, the bag and the group of each, and (N,) the
    pair of each row.
    """
    pairs, pair = np.unique(bags.bag_of_row * G + groups, return_inverse=True)
    return pairs, pairs // G, pairs % G, pair.ravel()


def _drawn(
    draws: FloatArray, X: FloatArray, groups: IntArray, G: int, copies: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of each draw (S, G, C), the variance of the number of labels (G, C), and the number
    of instances (G, 1), NaN where there are none.
    """
    S, C = len(draws), draws.shape[2]
    sums, variances = np.zeros((S, G, C)), np.zeros((G, C))
    order = np.argsort(groups, kind="stable")
    for first in range(0, len(order), _ROWS):
        some = order[first : first + _ROWS]
        times = copies[some, None].astype(np.float64)
        present, starts = np.unique(groups[some], return_index=True)
        rows = X[some]
        for place, coefficients in enumerate(draws):
            p = np.exp(_log_probs(rows, coefficients))
            sums[place, present] += np.add.reduceat(times * p, starts)
            variances[present] += np.add.reduceat(times * p * (1.0 - p), starts) / S
    rows_of = _rows_of(groups, G, copies)
    return sums / rows_of, variances, rows_of


def _log_probs(X: FloatArray, coefficients: FloatArray) -> FloatArray:
    """(N, C) by coefficients (d + 1, C), the intercept last."""
    found: FloatArray = log_softmax(X @ coefficients[:-1] + coefficients[-1], axis=1)
    return found


def _rows_of(groups: IntArray, G: int, copies: IntArray) -> FloatArray:
    """(G, 1) the number of instances of groups, NaN where there are none."""
    rows = np.bincount(groups, copies, minlength=G).astype(np.float64)[:, None]
    rows[rows == 0] = np.nan
    return rows


def _sums(values: FloatArray, place: IntArray, n: int) -> FloatArray:
    """(n, C) sums of values (N, C) over the rows of each place."""
    return np.stack([np.bincount(place, v, minlength=n) for v in values.T], axis=1)
