"""How wrong shares of groups could be: hidden differences, bags that say little, a wrong model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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


def strongest_columns(
    covariance: Covariance,
    columns: Columns,
    by: Sequence[str],
    X: FloatArray,
    group: IntArray,
    rows: IntArray,
    copies: IntArray,
) -> dict[tuple[int, int], tuple[str, float]]:
    """The column that would be the strongest hidden difference, by group and class, and how strong.

    Columns that make the groups are not examples of a hidden one.
    """
    from bagwise.likelihood.confounding import column_strengths, contrast_slopes

    ends = np.cumsum([len(column.encoded) for column in columns.columns]).tolist()
    places = [
        (column.name, list(range(end - len(column.encoded), end)))
        for column, end in zip(columns.columns, ends, strict=True)
        if column.name not in by
    ]
    if not places:
        return {}
    largest = np.argsort(-rows, kind="stable")[:_MOST_GROUPS]
    largest = np.sort(largest[rows[largest] > 0])
    # Groups that are not looked at are one more: they are part of all rows.
    number = np.full(len(rows), len(largest))
    number[largest] = np.arange(len(largest))
    own = number[group]
    of_own = np.bincount(own, copies, minlength=len(largest) + 1)
    shares, slopes = covariance.group_slopes(X, own, len(of_own), copies)
    there = of_own > 0
    gradient = contrast_slopes(shares[there], slopes[there], of_own[there])[: len(largest)]
    found = column_strengths(covariance, gradient, [encoded for _, encoded in places])
    best = found.argmax(axis=-1)
    return {
        (int(g), c): (places[best[place, c]][0], float(found[place, c, best[place, c]]))
        for place, g in enumerate(largest)
        for c in range(shares.shape[1])
    }


def hardly_told(
    covariance: Covariance, X: FloatArray, group: IntArray, rows: IntArray, copies: IntArray
) -> npt.NDArray[np.bool_]:
    """(G,) whether what the bags say leaves more than half of the prior's variance of the
    difference, in log-odds, between a group's mean row and that of all rows.
    """
    G, C, ridge = len(rows), covariance.matrix.shape[1], covariance.fit.ridge
    if covariance.posterior is None or ridge <= 0:
        return np.zeros(G, dtype=np.bool_)
    sums = np.zeros((G, X.shape[1]))
    np.add.at(sums, group, copies[:, None] * X)
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
