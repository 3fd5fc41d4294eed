"""Which labels of rows the counts of several groupings leave possible."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, eye_array, kron, vstack

from bagwise.bags.arrays import IntArray
from bagwise.bags.groupings import Groupings
from bagwise.bags.row_labels import weighted_bincount
from bagwise.errors import InputError

_SLACK = 1e-6  # of sums that the linear program finds
BoolArray = npt.NDArray[np.bool_]
_CONTRADICTION = (
    "the counts of the groupings contradict each other: no labels of the rows have all of them. "
    "Correct the counts, or say that they are not exact (Bags.from_noisy_counts, Bags.from_ranges)."
)


class _Table(NamedTuple):
    """Rows that are in the same bags of all groupings are one cell.

    Attributes:
        cell_of_row: (N,) the cell of each row.
        sizes: (M,) instances of each cell.
        bags_of_cells: (B, M) 1 where the bag (of any grouping) has the cell.
        least: (B, C) lower bounds of the counts.
        most: (B, C) upper bounds.
        low: (M, C) lower bounds of the cells' counts, 0 unless labels are known.
        high: (M, C) upper bounds.
    """

    cell_of_row: IntArray
    sizes: IntArray
    bags_of_cells: csr_array
    least: IntArray
    most: IntArray
    low: IntArray
    high: IntArray


def possible_labels(groupings: Groupings, *, by_program: bool = True) -> BoolArray:
    """(N, C) whether the counts leave it possible that a row (an instance of it) has a label.

    What is False is proved. Rows in the same bags of all groupings are a cell, and x[i, c] of the
    instances of cell i have label c. First, bounds are drawn closer as long as that helps:

        x[i, c] <= most of a bag - sum of the least of its other cells,  likewise x[i, c] >= ...

    Then one linear program finds every x[i, c] that is 0 in all solutions of

        sum_c x[i, c] = size of cell i,    least <= sum over the cells of a bag of x[i, c] <= most

    With two classes and up to two groupings that is all that the counts tell, since solutions in
    fractions are then mixtures of whole ones. With more, some impossible labels may be missed.

    Args:
        groupings: counts that are not exact count by their bounds. Noise has hardly any.
        by_program: False leaves the linear program out.

    >>> from bagwise.bags import Bags
    >>> ward, age = [0, 0, 1, 1], [0, 1, 0, 1]
    >>> possible_labels(Groupings({
    ...     "ward": (ward, Bags([2, 2], [[1, 1], [2, 0]])),
    ...     "age": (age, Bags([2, 2], [[1, 1], [2, 0]])),
    ... }))
    array([[False,  True],
           [ True, False],
           [ True, False],
           [ True, False]])
    """
    table = _table(groupings)
    possible = _closer(table) > 0
    if by_program and (possible.sum(axis=1) > 1).any():
        possible = _positive(table, possible)
    found: BoolArray = possible[table.cell_of_row]
    return found


def _table(groupings: Groupings) -> _Table:
    N, C = groupings.n_instances, groupings.n_classes
    labels = np.full(N, -1) if groupings.row_labels is None else groupings.row_labels
    of_rows = np.stack([*(g.bag_of_row for g in groupings), labels])
    cell_of_row = np.zeros(N, np.int64)
    for of_row in of_rows:
        both = cell_of_row * (of_row.max() + 2) + of_row + 1
        _, first_row, cell_of_row = np.unique(both, return_index=True, return_inverse=True)
    cells = of_rows[:, first_row]
    M = cells.shape[1]
    sizes = weighted_bincount(cell_of_row, groupings.copies, M)
    first = np.cumsum([0, *(len(g.bags) for g in groupings)])
    there = cells[:-1] >= 0
    grouping, cell = np.nonzero(there)
    bag = first[grouping] + cells[:-1][there]
    incidence = coo_array((np.ones(len(bag)), (bag, cell)), shape=(first[-1], M)).tocsr()
    high = np.repeat(sizes[:, None], C, axis=1)
    known = cells[-1]
    high[(known[:, None] >= 0) & (known[:, None] != np.arange(C))] = 0
    low = np.where(known[:, None] == np.arange(C), high, 0)
    least = np.concatenate([g.bags.min_counts for g in groupings])
    most = np.concatenate([g.bags.max_counts for g in groupings])
    return _Table(cell_of_row, sizes, incidence, least, most, low, high)


def _closer(table: _Table) -> IntArray:
    """(M, C) upper bounds of the cells' counts, by what the bounds of the others leave."""
    inside = table.bags_of_cells
    bag, cell = inside.nonzero()
    low, high = table.low.copy(), table.high.copy()
    sizes, gaps = table.sizes[:, None], -1
    while (high - low).sum() != gaps:
        gaps = (high - low).sum()
        room = table.most - (inside @ low).astype(np.int64)
        np.minimum.at(high, cell, low[cell] + room[bag])
        np.minimum(high, low + sizes - low.sum(axis=1, keepdims=True), out=high)
        need = table.least - (inside @ high).astype(np.int64)
        np.maximum.at(low, cell, high[cell] + need[bag])
        np.maximum(low, high + sizes - high.sum(axis=1, keepdims=True), out=low)
        if (low > high).any():
            raise InputError(_CONTRADICTION)
    return high


def _positive(table: _Table, possible: BoolArray) -> BoolArray:
    """(M, C) which counts of cells are above 0 in some solution, of those that may be.

    The sum of those that no solution had above 0 so far is maximized, again and again, until it is
    below 1: counts are whole, so all of them are 0.
    """
    from scipy.optimize import linprog

    cell, label = np.nonzero(possible)
    n, (M, C) = len(cell), possible.shape
    of_cells = coo_array((np.ones(n), (cell, np.arange(n))), shape=(M, n))
    of_pairs = coo_array((np.ones(n), (label * M + cell, np.arange(n))), shape=(C * M, n))
    sums = (kron(eye_array(C), table.bags_of_cells) @ of_pairs).tocsr()
    most, least = table.most.T.ravel(), table.least.T.ravel()
    exact = most == least
    equal, right = vstack([of_cells, sums[exact]]), np.concatenate([table.sizes, most[exact]])
    bounded = vstack([sums[~exact], -sums[~exact]])
    limits = np.concatenate([most[~exact], -least[~exact]])
    is_open = np.ones(n, np.bool_)
    while is_open.any():
        solved = linprog(-1.0 * is_open, bounded, limits, equal, right, method="highs-ipm")
        if solved.status == 2:
            raise InputError(_CONTRADICTION)
        if solved.status != 0:  # nothing more is proved
            break
        if -solved.fun < 1 - _SLACK:
            possible = possible.copy()
            possible[cell[is_open], label[is_open]] = False
            break
        is_open &= solved.x <= min(_SLACK, solved.x[is_open].max() / 2)
    return possible
