"""How wrong shares of groups could be: hidden differences, bags that say little, a wrong model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit, ndtri

from bagwise.bags import FloatArray, IntArray
from bagwise.tables.encode.columns import Columns

if TYPE_CHECKING:
    from bagwise.likelihood import Covariance

_LEAST = 1e-6  # share whose logit is taken
_MOST_GROUPS = 60  # the largest, whose strongest column is looked for
_TOLD = 0.5  # of the prior's variance that bags must take away
_FALSE = 0.01  # how often counts are said to contradict a model that is right
_NEAR = 0.5  # standard deviations of the prior, in log-odds, that do not matter


def robustness_of(
    shares: FloatArray,
    contrasts: FloatArray,
    rows: IntArray,
    bounds: FloatArray | None,
    n_bags: int,
) -> FloatArray:
    """(G, C) how strong a hidden difference between bags must be to make a group's share that of
    all rows; 1 where the counts alone rule that out.

    Args:
        shares: (G, C) of groups.
        contrasts: (G, C) standard errors of logit(share) - logit(share of all rows).
        rows: (G,) of groups.
        bounds: (G, C, 2) by counts alone, if they are known.
        n_bags: of the fit.
    """
    from bagwise.likelihood.confounding import robustness

    there = rows > 0
    overall = (rows[there, None] * shares[there]).sum(axis=0) / rows.sum()
    z, of_all = (logit(np.clip(x, _LEAST, 1 - _LEAST)) for x in (shares, overall))
    found = robustness(z - of_all, contrasts, n_bags)
    if bounds is not None:
        found[(overall < bounds[..., 0]) | (overall > bounds[..., 1])] = 1.0
    return found


class Sensitivity:
    """Sums over rows of what the sensitivity of shares follows from.

    Args:
        covariance: of the model's coefficients.
        columns: of the table.
        by: those that make the groups; they are not examples of a hidden difference.
        rows: (G,) of groups.
    """

    def __init__(
        self, covariance: Covariance, columns: Columns, by: Sequence[str], rows: IntArray
    ) -> None:
        from bagwise.likelihood.coefficient_covariance import SlopeSums

        self._covariance, self._rows = covariance, rows
        ends = np.cumsum([len(column.encoded) for column in columns.columns]).tolist()
        self._places = [
            (column.name, list(range(end - len(column.encoded), end)))
            for column, end in zip(columns.columns, ends, strict=True)
            if column.name not in by
        ]
        largest = np.argsort(-rows, kind="stable")[:_MOST_GROUPS]
        self._largest = np.sort(largest[rows[largest] > 0])
        # Groups that are not looked at are one more: they are part of all rows.
        self._number = np.full(len(rows), len(self._largest))
        self._number[self._largest] = np.arange(len(self._largest))
        self._slopes = SlopeSums(covariance, len(self._largest) + 1)
        self._sums = np.zeros((len(rows), covariance.matrix.shape[0] - 1))

    def add(self, inputs: npt.NDArray[Any], group: IntArray, copies: IntArray) -> None:
        """Take more rows (N, d) into account."""
        if self._places:
            self._slopes.add(inputs, self._number[group], copies)
        np.add.at(self._sums, group, copies[:, None] * inputs.astype(np.float64))

    def strongest_columns(self) -> dict[tuple[int, int], tuple[str, float]]:
        """The column that would be the strongest hidden difference, by group and class, and how
        strong.
        """
        from bagwise.likelihood.confounding import column_strengths, contrast_slopes

        if not self._places:
            return {}
        n, slopes = len(self._largest), self._slopes
        there = slopes.rows > 0
        gradient = contrast_slopes(slopes.shares[there], slopes.gradient[there], slopes.rows[there])
        encoded = [columns for _, columns in self._places]
        found = column_strengths(self._covariance, gradient[:n], encoded)
        best = found.argmax(axis=-1)
        return {
            (int(g), c): (self._places[best[place, c]][0], float(found[place, c, best[place, c]]))
            for place, g in enumerate(self._largest)
            for c in range(best.shape[1])
        }

    def hardly_told(self) -> npt.NDArray[np.bool_]:
        """(G,) whether what the bags say leaves more than half of the prior's variance of the
        difference, in log-odds, between a group's mean row and that of all rows.
        """
        covariance, rows, sums = self._covariance, self._rows, self._sums
        G, C, ridge = len(rows), covariance.matrix.shape[1], covariance.fit.ridge
        if covariance.posterior is None or ridge <= 0:
            return np.zeros(G, dtype=np.bool_)
        distance = sums / np.maximum(rows, 1)[:, None] - sums.sum(axis=0) / rows.sum()
        of_prior = (1.0 - 1.0 / C) / ridge * (distance**2).sum(axis=1)
        left = [
            np.einsum("gi,ij,gj->g", distance, covariance.posterior[:-1, c, :-1, c], distance)
            for c in range(C)
        ]
        untold = np.max(left, axis=0) > (1.0 - _TOLD) * of_prior
        found: npt.NDArray[np.bool_] = untold & (of_prior > _NEAR**2) & (rows > 0)
        return found


def contradicted(misfits: FloatArray, rows: IntArray) -> npt.NDArray[np.bool_]:
    """(G, C) whether the counts contradict the model about a group: where it is right, one table in
    a hundred has any such.

    Args:
        misfits: (G, C), about standard normal.
        rows: (G,) of groups.
    """
    compared = max(int((rows > 0).sum()) * misfits.shape[1], 1)
    found: npt.NDArray[np.bool_] = np.abs(misfits) > ndtri(1.0 - _FALSE / (2 * compared))
    return found & (rows > 0)[:, None]
