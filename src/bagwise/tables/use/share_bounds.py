"""Bounds of the shares of classes in groups of rows, by the counts of bags alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.tables.match.bag_table import MatchedRows

if TYPE_CHECKING:
    from bagwise.likelihood.counted_shares import ByRow

_CELLS = 4_000_000  # numbers that are held at a time


def share_bounds(rows: MatchedRows, groups: ByRow, n_groups: int) -> FloatArray:
    """(G, C, 2) least and largest share of each class in each group that all counts allow.

    What a grouping says is about the rows that are in its bags; others may have any label.

    Args:
        rows: with their bags.
        groups: (N,) the group of each row, in the order of the bags; with several groupings, in
            that of the table.
        n_groups: G.
    """
    if rows.groupings is None:
        return duncan_davis(groups, n_groups, rows.targets.bags)
    used = groups[:]
    total = sums_of_groups(rows.groupings.copies, used, n_groups)
    bounds = []
    for g in rows.groupings:
        there = sums_of_groups(g.bags.copies, used[g.rows], n_groups)[:, None, None]
        own = duncan_davis(used[g.rows], n_groups, g.bags) * there
        own[..., 1:] += total[:, None, None] - there
        bounds.append(own / np.maximum(total, 1)[:, None, None])
    low, high = np.max(bounds, axis=0)[..., 0], np.min(bounds, axis=0)[..., 1]
    return np.stack([low, high], axis=-1)


def duncan_davis(group: ByRow, n_groups: int, bags: Bags) -> FloatArray:
    """(G, C, 2) least and largest share of each class in each group that the bags' counts allow.

    Of the m rows of a group in a bag of K, of which n have a class, at least max(0, n - (K - m))
    and at most min(m, n) have it; summed over bags. Where a count is not exact, the least n it can
    be makes the lower bound, the largest one the upper bound; noise rules out next to nothing.

    Args:
        group: (N,) the group of each row, in the order of the bags: an array, or a file that gives
            rows as one does.
        n_groups: G.
        bags: sizes and counts.

    >>> duncan_davis(np.array([0, 0, 0, 1]), 2, Bags([4], [[3, 1]]))[0]
    array([[0.66666667, 1.        ],
           [0.        , 0.33333333]])
    """
    total = np.zeros(n_groups, dtype=np.int64)
    least, most = (np.zeros((n_groups, bags.n_classes)) for _ in range(2))
    at_once = max(_CELLS // (n_groups * bags.n_classes), 1)  # bags
    for part in bags.batches(_CELLS):
        for first in range(0, len(part), at_once):
            index = part[first : first + at_once]
            some = bags.select(index)
            m = np.zeros((len(index), n_groups), dtype=np.int64)
            np.add.at(m, (some.bag_of_row, group[bags.rows(index)]), some.copies)
            total += m.sum(axis=0)
            m = m[:, :, None]
            others = some.totals[:, None, None] - m
            least += np.maximum(0, some.min_counts[:, None, :] - others).sum(axis=0)
            most += np.minimum(m, some.max_counts[:, None, :]).sum(axis=0)
    shares: FloatArray = np.stack([least, most], axis=-1) / np.maximum(total, 1)[:, None, None]
    return shares


def sums_of_groups(copies: IntArray, group: IntArray, n_groups: int) -> IntArray:
    """(G,) sums of whole numbers (N,) over the rows of each group."""
    sums = np.zeros(n_groups, dtype=np.int64)
    np.add.at(sums, group, copies)
    return sums
