"""Rows that are counted in several ways, as bags one grouping after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, Groupings, IntArray
from bagwise.errors import InputError, Option, naming
from bagwise.labels.targets import BagTargets
from bagwise.tables.labels.label_file import LabelTable
from bagwise.tables.labels.row_label_column import with_row_labels

LABELED = "row labels"  # the grouping of rows that are in no bag, and of which the label is known


def stacked(
    tables: Sequence[LabelTable],
    parts: Sequence[BagTargets],
    known: IntArray | None,
    alone: IntArray,
    weights: IntArray | None,
) -> tuple[BagTargets, Groupings]:
    """The rows of each grouping, one after the other, with bags named `ward=A`; and the groupings
    of the rows that are in any of them, in the order of the table.

    Args:
        tables: of labels, one for each grouping.
        parts: the rows of each grouping, sorted by its bags.
        known: (N,) the class of each row of the table, -1 where it is not known; or None.
        alone: labeled rows that are in no bag.
        weights: (N,) how many identical rows each row of the table stands for; None for one.
    """
    _refuse_other_classes(tables)
    names = [table.grouping for table in tables]
    none = np.empty(0, dtype=np.int64)
    if known is not None:
        parts = [with_row_labels(part, known, none) for part in parts]
        if len(alone):
            ones, C = np.ones(len(alone), dtype=np.int64), len(parts[0].classes)
            of_alone = None if weights is None else weights[alone]
            bags = Bags.from_labels(known[alone], ones, C, of_alone).with_labels(known[alone])
            ids = np.array([f"row {row + 1}" for row in alone.tolist()], dtype=object)
            parts = [*parts, BagTargets(alone, bags, ids, parts[0].classes, 0.0)]
            names = [*names, LABELED]
    used = np.unique(np.concatenate([part.order for part in parts]))
    of_rows = {}
    for name, part in zip(names, parts, strict=True):
        bag_of_row = np.full(len(used), -1)
        bag_of_row[np.searchsorted(used, part.order)] = part.bags.bag_of_row
        of_rows[name] = (bag_of_row, part.bags)
    classes = parts[0].classes
    bag_names = {name: part.ids.tolist() for name, part in zip(names, parts, strict=True)}
    with naming(row=(used + 1).tolist(), class_=classes.tolist()):
        groupings = Groupings(of_rows, bag_names=bag_names)
    rows, bags = groupings.stacked()
    ids = np.array(
        [
            bag if name == LABELED else f"{name}={bag}"
            for name, part in zip(names, parts, strict=True)
            for bag in part.ids.tolist()
        ],
        dtype=object,
    )
    rounding = max(part.rounding for part in parts)
    return BagTargets(used[rows], bags, ids, classes, rounding), groupings


@contextmanager
def naming_grouping(name: str) -> Iterator[None]:
    """Have errors that arise here begin with the name of a grouping, unless it is empty."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{name}: " if name else "", *error.args) from None


def of_classes(groupings: Groupings, classes: IntArray) -> Groupings:
    """The same with these classes only; the others must not occur."""
    return Groupings({g.name: (g.bag_of_row, g.bags.of_classes(classes)) for g in groupings})


def held_out_together(groupings: Groupings) -> IntArray:
    """(B,) a number for each bag of `Groupings.stacked`, the same for those that belong together:
    where every bag of a grouping lies within one of another (wards in counties), the outer bag and
    those within it. The counts of the ones say too much about those of the others. Large bags, see
    `are_large`, do not count.

    >>> ward, county = [0, 0, 1, 2], [0, 0, 1, 1]
    >>> held_out_together(Groupings({
    ...     "ward": (ward, Bags([2, 1, 1], [[1, 1], [1, 0], [0, 1]])),
    ...     "county": (county, Bags([2, 2], [[1, 1], [1, 1]])),
    ... }))
    array([0, 1, 1, 0, 1])
    """
    begins = np.cumsum([0, *(len(g.bags) for g in groupings)])
    B, large = int(begins[-1]), are_large(groupings)
    ones, others = [], []
    for (i, inner), (j, outer) in permutations(enumerate(groupings), 2):
        around = outer.bag_of_row[inner.rows[inner.bags.offsets[:-1]]]
        if (outer.bag_of_row[inner.rows] == around[inner.bags.bag_of_row]).all():
            inside = np.flatnonzero((around >= 0) & ~large[begins[j] + around])
            ones.append(begins[i] + inside)
            others.append(begins[j] + around[inside])
    if not ones:
        return np.arange(B)
    from scipy.sparse import coo_array  # takes long to import, and is seldom needed
    from scipy.sparse.csgraph import connected_components

    edges = np.concatenate(ones), np.concatenate(others)
    together = coo_array((np.ones(len(edges[0])), edges), shape=(B, B))
    number: IntArray = connected_components(together, directed=False)[1].astype(np.int64)
    return number


def are_large(groupings: Groupings) -> npt.NDArray[np.bool_]:
    """(B,) whether a bag of `Groupings.stacked` has more than half of all rows."""
    totals = np.concatenate([g.bags.totals for g in groupings])
    large: npt.NDArray[np.bool_] = totals > groupings.copies.sum() / 2
    return large


def _refuse_other_classes(tables: Sequence[LabelTable]) -> None:
    one = tables[0]
    for other in tables[1:]:
        if other.classes != one.classes:
            raise InputError(
                f"the classes of {one.grouping!r} are {', '.join(one.classes)}, those of "
                f"{other.grouping!r} {', '.join(other.classes)}; all groupings must have the same. "
                "Name them with ",
                Option("classes"),
                ".",
            )
