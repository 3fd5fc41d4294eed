"""Bounds of the shares of classes in groups of rows, by the counts of bags alone."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.tables.match.bag_table import MatchedRows


def share_bounds(rows: MatchedRows, codes: IntArray, n_groups: int) -> FloatArray:
    """(G, C, 2) least and largest share of each class in each group that all counts allow.

    What a grouping says is about the rows that are in its bags; others may have any label.

    Args:
        rows: with their bags.
        codes: (rows of the table,) the group of each.
        n_groups: G.
    """
    if rows.groupings is None:
        return duncan_davis(codes[rows.targets.order], n_groups, rows.targets.bags)
    used = codes[np.unique(rows.targets.order)]
    total = sums_of_groups(rows.groupings.copies, used, n_groups)
    bounds = []
    for g in rows.groupings:
        there = sums_of_groups(g.bags.copies, used[g.rows], n_groups)[:, None, None]
        own = duncan_davis(used[g.rows], n_groups, g.bags) * there
        own[..., 1:] += total[:, None, None] - there
        bounds.append(own / np.maximum(total, 1)[:, None, None])
    low, high = np.max(bounds, axis=0)[..., 0], np.min(bounds, axis=0)[..., 1]
    return np.stack([low, high], axis=-1)


def duncan_davis(group: IntArray, n_groups: int, bags: Bags) -> FloatArray:
    """(G, C, 2) least and largest share of each class in each group that the bags' counts allow.

    Of the m rows of a group in a bag of K, of which n have a class, at least max(0, n - (K - m))
    and at most min(m, n) have it; summed over bags. Where a count is not exact, the least n it can
    be makes the lower bound, the largest one the upper bound; noise rules out next to nothing.

    Args:
        group: (N,) the group of each row, in the order of the bags.
        n_groups: G.
        bags: sizes and counts.

    >>> duncan_davis(np.array([0, 0, 0, 1]), 2, Bags([4], [[3, 1]]))[0]
    array([[0.66666667, 1.        ],
           [0.        , 0.33333333]])
    """
    m = np.zeros((len(bags), n_groups), dtype=np.int64)
    np.add.at(m, (bags.bag_of_row, group), bags.copies)
    m = m[:, :, None]
    others = bags.totals[:, None, None] - m
    least = np.maximum(0, bags.min_counts[:, None, :] - others).sum(axis=0)
    most = np.minimum(m, bags.max_counts[:, None, :]).sum(axis=0)
    shares: FloatArray = np.stack([least, most], axis=-1) / np.maximum(m.sum(axis=0), 1)[..., None]
    return shares


def sums_of_groups(copies: IntArray, group: IntArray, n_groups: int) -> IntArray:
    """(G,) sums of whole numbers (N,) over the rows of each group."""
    sums = np.zeros(n_groups, dtype=np.int64)
    np.add.at(sums, group, copies)
    return sums
