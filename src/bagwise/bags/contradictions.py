"""Whether some labels of the rows give the counts of all groupings together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bagwise.bags.arrays import FloatArray, IntArray
from bagwise.bags.row_labels import weighted_bincount
from bagwise.errors import InputError

if TYPE_CHECKING:
    from bagwise.bags.groupings import Grouping

MOST_CELLS = 5_000  # times classes, up to which it is looked at: some tens of milliseconds


def refuse_joint_contradictions(
    groupings: Sequence[Grouping], copies: IntArray, labels: IntArray | None
) -> None:
    """Refuse counts of several groupings that no labels of the rows give together.

    A cell is the rows that share their bags in all groupings. With x[cell, c] instances of a class,
    real numbers of 0 or more, each cell has all its instances, and each bag between the least and
    the most that it may have. If the smallest sum of excesses over that is above 0, which a linear
    program finds, no labels exist. Where whole numbers alone contradict, it is not noticed.

    Args:
        groupings: of the same N rows.
        copies: (N,) how many rows each row stands for.
        labels: (N,) known labels, -1 elsewhere; None if none is known.
    """
    C = groupings[0].bags.n_classes
    of_rows = [g.bag_of_row for g in groupings] + ([] if labels is None else [labels])
    cells, place = np.unique(np.stack(of_rows), axis=1, return_inverse=True)
    n_cells = cells.shape[1]
    if len(groupings) < 2 or n_cells * C > MOST_CELLS:
        return
    from scipy.optimize import linprog  # takes long to import, and is seldom needed
    from scipy.sparse import coo_array, eye_array, hstack, vstack

    instances = weighted_bincount(place.ravel(), copies, n_cells)
    variable = np.arange(n_cells * C).reshape(n_cells, C)
    sums, least, most = [], [], []
    for g, bag in zip(groupings, cells, strict=False):
        there = np.flatnonzero(bag >= 0)
        rows = bag[there, None] * C + np.arange(C)
        ones, shape = np.ones(rows.size), (len(g.bags) * C, n_cells * C)
        sums.append(coo_array((ones, (rows.ravel(), variable[there].ravel())), shape=shape))
        least.append(g.bags.min_counts.ravel())
        most.append(g.bags.max_counts.ravel())
    A, low, high = vstack(sums), np.concatenate(least), np.concatenate(most)
    excess = eye_array(A.shape[0])
    none = coo_array((n_cells, 2 * A.shape[0]))
    whole = coo_array(
        (np.ones(variable.size), (np.repeat(np.arange(n_cells), C), variable.ravel()))
    )
    upper = np.full((n_cells, C), np.inf)
    if labels is not None:
        known = cells[-1]
        upper[(known >= 0)[:, None] & (known[:, None] != np.arange(C))] = 0.0
    zeros = coo_array(excess.shape)
    found = linprog(
        np.concatenate([np.zeros(variable.size), np.ones(2 * A.shape[0])]),
        A_ub=vstack([hstack([A, -excess, zeros]), hstack([-A, zeros, -excess])]).tocsr(),
        b_ub=np.concatenate([high, -low]),
        A_eq=hstack([whole, none]).tocsr(),
        b_eq=instances,
        bounds=[(0.0, top) for top in (*upper.ravel(), *[np.inf] * (2 * A.shape[0]))],
    )
    if found.status == 0 and found.fun > 1e-6:
        over, under = found.x[variable.size :].reshape(2, -1)
        _refuse(groupings, over - under, C)


def _refuse(groupings: Sequence[Grouping], off: FloatArray, C: int) -> None:
    """Name the counts whose change would make all agree."""
    bags = [(g.name, b) for g in groupings for b in range(len(g.bags))]
    changes = []
    for entry in np.flatnonzero(np.abs(off) > 1e-6)[:4].tolist():
        name, b = bags[entry // C]
        changes.append(f"{off[entry]:+.3g} for class {entry % C} of bag {b} of {name!r}")
    raise InputError(
        f"the counts of {', '.join(repr(g.name) for g in groupings)} contradict each other: no "
        f"labels of the rows give all of them. A change that would do: {', '.join(changes)}. "
        "Correct the counts, or say that they are not exact (Bags.from_noisy_counts, "
        "Bags.from_ranges)."
    )
