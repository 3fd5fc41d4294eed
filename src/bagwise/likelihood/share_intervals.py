"""Intervals of the shares of classes in groups of rows, by draws of coefficients and labels.

Rows may come in parts: what the shares follow from are sums over rows. `counted_shares` has those
of rows that were counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_softmax, logit

from bagwise.bags import FloatArray, IntArray
from bagwise.likelihood.coefficient_covariance import Covariance, SlopeSums

_REPEATED = 8  # labels that are drawn for each draw of coefficients
_ROWS = 16_384  # whose probabilities are held at a time
_NORMAL = 1.959963984540054
_CELLS = 4_000_000  # labels that are drawn at a time
_SLOPES = 4_000_000  # derivatives of shares that are held at a time
_LEAST = 1e-6  # share whose logit is taken

Part = tuple[npt.NDArray[Any], IntArray, IntArray]
"""Rows (N, d), the group of each, and how many identical rows each stands for."""


class GroupShares(NamedTuple):
    """The share of each class in groups of rows, and how sure it is; (G, C) each.

    Attributes:
        shares: NaN of a group without rows.
        low: of the interval.
        high: of the interval.
        contrasts: the standard error of logit(share) - logit(share of all rows), without the chance
            in the labels of the very rows.
        misfits: among rows that were counted, how far the counts contradict the model about the
            group, see `counted_shares`; None of new rows.
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
    rows = np.asarray(X)

    def parts() -> Iterator[Part]:
        yield rows, groups, copies

    return share_intervals_in_parts(covariance, parts, n_groups, level=level, seed=seed)


def share_intervals_in_parts(
    covariance: Covariance,
    parts: Callable[[], Iterator[Part]],
    n_groups: int,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> GroupShares:
    """The same of rows that come in parts.

    Args:
        covariance: of a fit without bag effects.
        parts: gives all rows. It is called more than once where there are many groups.
        n_groups: G.
        level: of the interval.
        seed: of the draws.
    """
    draws = DrawSums(covariance.draws(seed=seed), n_groups)
    stretch = Stretch(covariance, n_groups)
    for is_first, wanted in stretch.turns():
        for X, groups, copies in parts():
            if is_first:
                draws.add(X, groups, copies)
            stretch.add(wanted, X, groups, copies)
        stretch.finish(wanted)
    return draws.intervals(stretch.factors(level), covariance.quantile(level), level, seed)


class DrawSums:
    """Sums over rows of what the shares of groups are by each draw of coefficients.

    Args:
        draws: (S, d + 1, C) coefficients.
        n_groups: G.

    Attributes:
        sums: (S, G, C) of probabilities.
        variances: (G, C) of the number of labels.
        rows: (G, 1) instances.
    """

    def __init__(self, draws: FloatArray, n_groups: int) -> None:
        self._draws, C = draws, draws.shape[2]
        self.sums = np.zeros((len(draws), n_groups, C))
        self.variances, self.rows = np.zeros((n_groups, C)), np.zeros((n_groups, 1))

    def add(self, X: npt.NDArray[Any], groups: IntArray, copies: IntArray) -> None:
        """Take more rows (N, d) into account."""
        order = np.argsort(groups, kind="stable")
        np.add.at(self.rows[:, 0], groups, copies)
        for first in range(0, len(order), _ROWS):
            some = order[first : first + _ROWS]
            times = copies[some, None].astype(np.float64)
            present, starts = np.unique(groups[some], return_index=True)
            rows = X[some].astype(np.float64)
            for place, coefficients in enumerate(self._draws):
                p = np.exp(log_probs_by(rows, coefficients))
                self.sums[place, present] += np.add.reduceat(times * p, starts)
                varied = np.add.reduceat(times * p * (1.0 - p), starts)
                self.variances[present] += varied / len(self._draws)

    def intervals(
        self, stretch: FloatArray, quantile: float, level: float, seed: int
    ) -> GroupShares:
        """Shares and their intervals.

        Args:
            stretch: (G, C) by how much draws are stretched.
            quantile: of Student's t.
            level: of the interval.
            seed: of the labels that are drawn.
        """
        rows = np.where(self.rows == 0, np.nan, self.rows)
        drawn = np.clip(self.sums / rows, 0.0, 1.0)
        low, high = _ends(drawn, stretch, self.variances, rows, level, seed)
        errors = _contrasts(drawn, stretch, rows, quantile / _NORMAL)
        return GroupShares(drawn.mean(axis=0), low, high, errors)


class Stretch:
    """By how much draws of shares are stretched: for bags that disagree, and Student's t.

    Derivatives of many groups are more than memory holds: they take turns, each over all rows.
    """

    def __init__(self, covariance: Covariance, n_groups: int) -> None:
        size, C = covariance.matrix.shape[:2]
        self._covariance, self._groups = covariance, n_groups
        self._at_once = max(_SLOPES // (size * C * C), 1)
        self._found = np.empty((n_groups, C))
        self._sums: SlopeSums | None = None

    def turns(self) -> Iterator[tuple[bool, range]]:
        """Whether it is the first turn, and the groups of each."""
        for first in range(0, self._groups, self._at_once):
            wanted = range(first, min(first + self._at_once, self._groups))
            self._sums = SlopeSums(self._covariance, len(wanted))
            yield first == 0, wanted

    def add(self, wanted: range, X: npt.NDArray[Any], groups: IntArray, copies: IntArray) -> None:
        """Take more rows into account in this turn."""
        assert self._sums is not None
        if len(wanted) < self._groups:
            there = (groups >= wanted.start) & (groups < wanted.stop)
            X, groups, copies = X[there], groups[there] - wanted.start, copies[there]
        self._sums.add(X, groups, copies)

    def finish(self, wanted: range) -> None:
        """End the turn."""
        assert self._sums is not None
        found = self._covariance.stretch_of(self._sums.gradient)
        self._found[wanted.start : wanted.stop] = found
        self._sums = None

    def factors(self, level: float) -> FloatArray:
        """(G, C)."""
        found: FloatArray = self._found * (self._covariance.quantile(level) / _NORMAL)
        return found


def _contrasts(
    drawn: FloatArray, stretch: FloatArray, rows: FloatArray, student: float
) -> FloatArray:
    """(G, C) the standard error of logit(share) - logit(share of all rows), from drawn shares."""
    total = np.nansum(drawn * rows, axis=1, keepdims=True) / np.nansum(rows)
    z, overall = (logit(np.clip(x, _LEAST, 1 - _LEAST)) for x in (drawn, total))
    errors: FloatArray = (z - overall).std(axis=0) * stretch / student
    return errors


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


def log_probs_by(X: FloatArray, coefficients: FloatArray) -> FloatArray:
    """(N, C) by coefficients (d + 1, C), the intercept last."""
    found: FloatArray = log_softmax(X @ coefficients[:-1] + coefficients[-1], axis=1)
    return found
