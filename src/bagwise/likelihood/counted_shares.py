"""Intervals of the shares of classes in groups of rows that were counted: given their counts.

Bags are taken some at a time: what the shares follow from are sums over bags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.special import log_softmax

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood._information import count_covariances
from bagwise.likelihood.coefficient_covariance import Covariance
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.objective import BagLikelihood
from bagwise.likelihood.share_intervals import DrawSums, GroupShares, Stretch, log_probs_by
from bagwise.posterior import bag_posterior
from bagwise.posterior.proved import prove

_PAIRS = 32  # of draws of coefficients whose posteriors given counts are computed
_CELLS = 1_000_000  # numbers of rows that are held at a time
_EXPLAINED = 1e-4  # of the squares of a group's scores, which must be left by the coefficients'
_RANK = 1e-10  # of the largest eigenvalue, below which there is nothing but rounding


class ByRow(Protocol):
    """An array, or a file that gives rows as one does."""

    def __getitem__(self, rows: Any, /) -> Any:
        """These rows."""


def counted_share_intervals(
    covariance: Covariance,
    X: ByRow,
    bags: Bags,
    groups: ByRow,
    n_groups: int,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> GroupShares:
    """The share of each class in groups of counted rows, and the ends of its interval.

    As `share_intervals`, but for each draw of coefficients, probabilities are those given the
    counts. So is the variance of labels: of the rows A of a group in a bag, with all other rows B,
    it is

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
        X: (N, d) features, sorted by bag, in memory or in a file.
        bags: what is known of the counts.
        groups: (N,) the group of each row.
        n_groups: G. A group without rows gets NaN.
        level: of the interval.
        seed: of the draws.

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
    sums = _CountedSums(covariance, len(bags), bags.n_classes, n_groups, seed)
    classes = np.flatnonzero(bags.max_counts.sum(axis=0))
    stretch = Stretch(covariance, n_groups)
    size = max(_CELLS // covariance.matrix.shape[0], 1)
    for is_first, wanted in stretch.turns():
        for index in bags.batches(size):
            own, some = bags.rows(index), bags.select(index)
            rows, group = X[own].astype(np.float64), np.asarray(groups[own])
            if is_first:
                sums.add(rows, some, group, index, classes)
            stretch.add(wanted, rows, group, some.copies)
        stretch.finish(wanted)
    sums.prove(X, bags, groups)
    factors = stretch.factors(level)
    found = sums.draws.intervals(factors, covariance.quantile(level), level, seed)
    return found._replace(misfits=sums.scores.misfits(), approximate=sums.approximate)


class _CountedSums:
    """Sums over bags.

    Attributes:
        draws: of probabilities given the counts.
        scores: at the fit's coefficients.
        approximate: (G,) rows whose posterior is not proved.
    """

    def __init__(self, covariance: Covariance, B: int, C: int, G: int, seed: int) -> None:
        self._fit, self._coefficients = covariance.fit, covariance.draws(_PAIRS, seed)
        self.draws = DrawSums(self._coefficients, G)
        size = covariance.matrix.shape[0]
        self.scores = _Scores(B, G, C, size if 4 * size * C <= B else 1)
        self.approximate = np.zeros(G, dtype=np.int64)
        self._bound = np.zeros(B)

    def add(
        self, X: FloatArray, bags: Bags, groups: IntArray, index: IntArray, classes: IntArray
    ) -> None:
        """Take more bags into account.

        Args:
            X: (n, d) rows of these bags.
            bags: some.
            groups: (n,) of the rows.
            index: of the bags among all.
            classes: that any bag has.
        """
        G = len(self.approximate)
        np.add.at(self.draws.rows[:, 0], groups, bags.copies)
        mean = np.zeros((len(X), bags.n_classes))
        for place, coefficients in enumerate(self._coefficients):
            w = bag_posterior(log_probs_by(X, coefficients), bags).weights
            mean += w / len(self._coefficients)
            self.draws.sums[place] += _sums(bags.copies[:, None] * w, groups, G)
        variances = given_counts(mean, bags, groups, G)
        if not bags.is_sharp.all():
            variances += _of_counts(self._fit, X, mean, bags, groups, G, classes)
        self.draws.variances += variances
        log_p: FloatArray = log_softmax(self._fit.logits(X), axis=1)
        found = bag_posterior(log_p, bags)
        assert found.bound is not None
        self._bound[index] = found.bound
        self.scores.add(bags.copies[:, None] * (found.weights - np.exp(log_p)), X, bags, groups)

    def prove(self, X: ByRow, bags: Bags, groups: ByRow) -> None:
        """Replace what is not proved, where it can be."""
        fit = self._fit
        log_probs: Any = _LogProbs(fit, X)
        for own, weights in prove(log_probs, bags, self._bound):
            index = _in_order(np.searchsorted(bags.offsets, own, side="right") - 1)
            some, log_p = bags.select(index), log_probs[own]
            rows, group = X[own].astype(np.float64), np.asarray(groups[own])
            before = bag_posterior(log_p, some).weights
            times, p = some.copies[:, None], np.exp(log_p)
            self.draws.sums += _sums(times * (weights - before), group, len(self.approximate))
            self.scores.add(times * (before - p), rows, some, group, sign=-1)
            self.scores.add(times * (weights - p), rows, some, group)
        left = np.flatnonzero(self._bound == np.inf)
        for part in _parts_of(left, bags):
            some = bags.select(part)
            np.add.at(self.approximate, np.asarray(groups[bags.rows(part)]), some.copies)


class _LogProbs:
    """(N, C) log-probabilities of rows, computed when they are asked for."""

    def __init__(self, fit: LinearFit, X: ByRow) -> None:
        self._fit, self._X = fit, X

    def __getitem__(self, rows: Any) -> FloatArray:
        found: FloatArray = log_softmax(self._fit.logits(self._X[rows]), axis=1)
        return found


class _Scores:
    """Sums over bags of what their scores tell of groups, see `counted_share_intervals`.

    What bags' scores for the coefficients explain of their scores for a group is taken away: the
    fit has made the sum of the former zero, but for the prior. Where there are too many
    coefficients for that, only the intercepts are taken away.

    Args:
        n_bags: B.
        n_groups: G.
        n_classes: C.
        width: the number of coefficients of a class, the intercept's last, that are taken away.
    """

    def __init__(self, n_bags: int, n_groups: int, n_classes: int, width: int) -> None:
        self._bags = n_bags
        self._known = np.zeros((n_classes, width))
        self._squares_known = np.zeros((n_classes, width, width))
        self._both = np.zeros((n_classes, n_groups, width))
        self._total, self._squares = (np.zeros((n_groups, n_classes)) for _ in range(2))

    def add(
        self, scores: FloatArray, X: FloatArray, bags: Bags, groups: IntArray, sign: int = 1
    ) -> None:
        """Take bags into account, or take them away again.

        Args:
            scores: (n, C) of the rows of these bags.
            X: (n, d) the rows.
            bags: of the rows.
            groups: (n,) of the rows.
            sign: 1, or -1 to take them away.
        """
        (G, C), width = self._total.shape, self._known.shape[1]
        pairs, bag, group, pair = _pairs(bags, groups, G)
        parts = _sums(scores, pair, len(pairs))
        self._total += sign * _sums(parts, group, G)
        self._squares += sign * _sums(parts**2, group, G)
        X1 = np.column_stack([X, np.ones(len(X))])[:, -width:]
        for c in range(C):
            known = np.add.reduceat(X1 * scores[:, c : c + 1], bags.offsets[:-1])
            self._known[c] += sign * known.sum(axis=0)
            self._squares_known[c] += sign * known.T @ known
            of_groups = csr_matrix((parts[:, c], (group, bag)), (G, len(bags)))
            self._both[c] += sign * (of_groups @ known)

    def misfits(self) -> FloatArray:
        """(G, C) sums of scores over groups, divided by their standard errors."""
        found = np.empty(self._total.shape)
        for c in range(found.shape[1]):
            values, vectors = np.linalg.eigh(self._squares_known[c])
            used = values > _RANK * max(values[-1], 1e-300)
            basis = vectors[:, used] / np.sqrt(values[used])
            own = self._both[c] @ basis
            rest = self._total[:, c] - own @ (self._known[c] @ basis)
            squares = np.maximum(self._squares[:, c] - (own**2).sum(axis=1), 0.0)
            # Of a group that is a column of the model, nothing but rounding is left.
            told = squares > _EXPLAINED * self._squares[:, c]
            free = max(self._bags - int(used.sum()), 1)
            spread = np.sqrt(np.where(told, squares, 1.0) * self._bags / free)
            found[:, c] = np.where(told, rest / spread, 0.0)
        return found


def given_counts(w: FloatArray, bags: Bags, groups: IntArray, G: int) -> FloatArray:
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
    fit: LinearFit,
    X: FloatArray,
    w: FloatArray,
    bags: Bags,
    groups: IntArray,
    G: int,
    classes: IntArray,
) -> FloatArray:
    """(G, C) what the counts themselves add where they are not exact: a group's part in them."""
    part = bags if len(classes) == bags.n_classes else bags.of_classes(classes)
    likelihood = BagLikelihood(X, part)
    spread = count_covariances(likelihood, fit.theta(classes))
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
    """The pairs of a bag and a group that have rows, the bag and the group of each, and (n,) the
    pair of each row.
    """
    pairs, pair = np.unique(bags.bag_of_row * G + groups, return_inverse=True)
    return pairs, pairs // G, pairs % G, pair.ravel()


def _in_order(numbers: IntArray) -> IntArray:
    """Numbers without those that follow themselves."""
    return numbers[np.flatnonzero(np.diff(numbers, prepend=-1))]


def _parts_of(index: IntArray, bags: Bags) -> Iterator[IntArray]:
    return bags.batches(_CELLS, index) if len(index) else iter(())


def _sums(values: FloatArray, place: npt.NDArray[Any], n: int) -> FloatArray:
    """(n, C) sums of values (N, C) over the rows of each place."""
    return np.stack([np.bincount(place, v, minlength=n) for v in values.T], axis=1)
