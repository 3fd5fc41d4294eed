"""Bag ids of rows and proportions of bags, in the forms people have them, into `Bags`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.bags.arrays import first
from bagwise.errors import InputError, Option, naming
from bagwise.labels.counts_or_shares import to_bags
from bagwise.labels.label_spec import LabelsAre, LabelSpec
from bagwise.labels.proportions import Proportions, read_proportions


@dataclass(frozen=True)
class BagTargets:
    """Rows sorted by bag, and what is known of the bags.

    Attributes:
        order: (N,) the rows as given, in the order in which `bags` has them; those of no bag are
            not among them.
        bags: sizes and counts, in the order of `ids`.
        ids: (B,) bag ids.
        classes: (C,) class labels, in the order of the counts' columns.
        rounding: largest difference between a proportion as given and one of the counts.
    """

    order: IntArray
    bags: Bags
    ids: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    rounding: float

    def in_order_given(self) -> tuple[IntArray, npt.NDArray[Any]]:
        """(N,) the rows that have a bag, as they were given, and (N,) the id of each one's bag."""
        place = np.argsort(self.order)
        return self.order[place], self.ids[self.bags.bag_of_row[place]]

    def with_labels(
        self,
        labels: npt.NDArray[Any],
        has_bag: npt.NDArray[np.bool_],
        weights: IntArray | None = None,
    ) -> BagTargets:
        """The same with labels (rows,) of some rows; those without a bag become bags of one."""
        known = label_codes(labels, self.classes, len(has_bag))
        alone = np.flatnonzero(~has_bag)
        if (bad := first(known[alone] < 0)) is not None:
            raise InputError(f"row {alone[bad]} has neither a bag nor a label; leave it out.")
        return self.with_codes(known, alone, np.full(len(alone), None), weights=weights)

    def with_codes(
        self,
        known: IntArray,
        alone: IntArray,
        names: npt.NDArray[Any],
        first_row: int = 0,
        weights: IntArray | None = None,
    ) -> BagTargets:
        """The same with labels (rows,) that are numbers of classes, -1 where not known.

        Args:
            known: the labels.
            alone: labeled rows without a bag, which become bags of one.
            names: of these bags.
            first_row: how messages number the first row.
            weights: (rows,) how many identical rows each stands for; None for one.
        """
        bags = self.bags
        if len(alone):
            ones = np.ones(len(alone), dtype=np.int64)
            of_alone = None if weights is None else weights[alone]
            single = Bags.from_labels(known[alone], ones, len(self.classes), of_alone)
            bags = Bags.join([bags, single])
        order = np.concatenate([self.order, alone])
        ids = np.concatenate([self.ids.astype(object), names])
        with naming(ids.tolist(), (order + first_row).tolist(), self.classes.tolist()):
            bags = bags.with_labels(known[order])
        return BagTargets(order, bags, ids if len(alone) else self.ids, self.classes, self.rounding)


def ids_or_none(bags: Any) -> Any:
    """Bag ids (N,) with None where there is none, which is NaN or NA in a column of numbers."""
    found = np.asarray(bags)
    if found.ndim != 1 or found.dtype.kind not in "fO":
        return bags
    none = missing(found)
    if not none.any():
        return bags
    found = found.astype(object)
    found[none] = None
    return found


def missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """(N,) where there is nothing: None, NaN or NA."""
    if values.dtype.kind not in "fO":
        return np.zeros(len(values), dtype=np.bool_)
    return np.fromiter((_is_missing(value) for value in values.tolist()), bool, len(values))


def label_codes(
    labels: npt.NDArray[Any], classes: npt.NDArray[Any], n_rows: int
) -> npt.NDArray[np.int64]:
    """(N,) the number of each row's class, -1 where its label is missing."""
    if labels.shape != (n_rows,):
        raise InputError(
            f"row_labels has shape {labels.shape}; one for each of the {n_rows} rows is expected, "
            "None or NaN where it is not known."
        )
    places = {name: place for place, name in enumerate(classes.tolist())}
    known, values = np.full(n_rows, -1), labels.tolist()
    for row in np.flatnonzero(~missing(labels)).tolist():
        if values[row] not in places:
            raise InputError(
                f"row {row} has the label {values[row]!r}; the classes are {classes.tolist()}."
            )
        known[row] = places[values[row]]
    return known


def sorted_by_bag(
    bag_of_row: IntArray,
    ids: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    numbers: FloatArray,
    spec: LabelSpec,
    weights: IntArray | None = None,
) -> BagTargets:
    """Put rows into the order of their bags; nothing else decides on that order.

    Args:
        bag_of_row: (rows,) where in `ids` each row's bag is, -1 for none.
        ids: (B,) names of bags; those without rows are left out.
        classes: (C,) class labels.
        numbers: (B, C) counts or proportions, see `to_bags`; (B, C, 2) bounds of ranges.
        spec: what these are.
        weights: (rows,) how many identical rows each stands for; None if each stands for itself.

    >>> counts = np.array([[0., 1.], [1., 1.]])
    >>> found = sorted_by_bag(
    ...     np.array([1, -1, 0, 1]), np.array(["a", "b"]), np.array(["no", "yes"]), counts,
    ...     LabelSpec())
    >>> found.order, found.bags.sizes
    (array([2, 0, 3]), array([1, 2]))
    >>> found.in_order_given()
    (array([0, 2, 3]), array(['b', 'a', 'b'], dtype='<U1'))
    """
    rows = np.flatnonzero(bag_of_row >= 0)
    sizes = np.bincount(bag_of_row[rows], minlength=len(ids))
    used = np.flatnonzero(sizes)
    order = rows[np.argsort(bag_of_row[rows], kind="stable")]
    of_rows = None if weights is None else weights[order]
    bags, rounding = to_bags(ids[used], sizes[used], numbers[used], spec, classes, of_rows)
    return BagTargets(order, bags, ids[used], classes, rounding)


def bag_targets(
    bag_ids: npt.ArrayLike,
    proportions: Proportions,
    classes: npt.ArrayLike | None = None,
    labels_are: LabelsAre = "auto",
    row_labels: npt.ArrayLike | None = None,
    weights: IntArray | None = None,
) -> BagTargets:
    """Match the rows' bag ids with the bags' proportions or counts.

    Ids that only `proportions` has are passed over, so that a table of all bags serves a part of
    the rows. Rows of numbers that sum to their bag's size are counts; rows that sum to 1 are
    proportions, and are turned into counts by largest remainder.

    Args:
        bag_ids: (N,) the bag of each row, integers or strings, in any order.
        proportions: what is known of each bag, see `bagwise.labels.proportions.Proportions`.
        classes: the classes to expect, where a model already knows them.
        labels_are: what the numbers of a bag are; for "ranges", `proportions` is a pair of lower
            and upper bounds.
        row_labels: (N,) labels of rows that are known, None or NaN for the others. A row without a
            bag id needs one: it is a bag of its own.
        weights: (N,) how many identical rows each stands for; None if each stands for itself.

    >>> targets = bag_targets(["b", "a", "b"], {"a": {"no": 1}, "b": {"no": 1, "yes": 1}})
    >>> targets.classes, targets.bags.counts
    (array(['no', 'yes'], dtype='<U3'), array([[1, 0],
           [1, 1]]))
    >>> targets.order
    array([1, 0, 2])
    """
    spec = LabelSpec.of(labels_are)
    ids_of_rows = np.asarray(bag_ids)
    if ids_of_rows.ndim != 1:
        raise InputError(
            Option("bags"),
            f" has shape {ids_of_rows.shape}; one bag id for each row is expected.",
        )
    if len(ids_of_rows) == 0:
        raise InputError(Option("bags"), " is empty; give the bag id of each row.")
    has_bag = np.ones(len(ids_of_rows), dtype=np.bool_)
    if ids_of_rows.dtype.kind in "Of":
        has_bag = ~missing(ids_of_rows)
        _check_kinds(ids_of_rows[has_bag].tolist())
    if not has_bag.all() and row_labels is None:
        row = int(np.argmin(has_bag))
        raise InputError(f"the bag of row {row} is missing; give every row a bag id.")
    ids, begins, inverse = np.unique(ids_of_rows[has_bag], return_index=True, return_inverse=True)
    bag_of_row = np.full(len(ids_of_rows), -1)
    bag_of_row[has_bag] = inverse
    times = np.ones(len(ids_of_rows)) if weights is None else weights
    sizes = np.bincount(inverse, times[has_bag], minlength=len(ids)).astype(np.int64)
    ascending = bool((np.diff(begins) > 0).all())
    bounds = [proportions]
    if spec.kind == "ranges":
        if not isinstance(proportions, tuple | list) or len(proportions) != 2:
            raise InputError(
                "ranges are a pair of bounds; give ", Option("proportions"), "=(low, high)."
            )
        bounds = list(proportions)
    with naming(bag=ids.tolist()):
        read = [read_proportions(ids, sizes, ascending, x, classes, spec) for x in bounds]
    if read[0][0].tolist() != read[-1][0].tolist():
        raise InputError(
            f"the lower bounds are of the classes {read[0][0].tolist()}, the upper ones of "
            f"{read[1][0].tolist()}; they must be the same."
        )
    numbers = read[0][1] if len(read) == 1 else np.stack([x for _, x in read], axis=-1)
    targets = sorted_by_bag(bag_of_row, ids, read[0][0], numbers, spec, weights)
    if row_labels is None:
        return targets
    return targets.with_labels(np.asarray(row_labels), has_bag, weights)


def label_targets(labels: npt.NDArray[Any], classes: npt.NDArray[Any] | None = None) -> BagTargets:
    """Every row a bag of one: learning from labels as learning from bags."""
    if classes is None:
        classes = np.unique(labels)
    position = np.searchsorted(classes, labels)
    ones = np.ones(len(labels), dtype=np.int64)
    bags = Bags.from_labels(position, ones, n_classes=len(classes))
    rows = np.arange(len(labels))
    return BagTargets(rows, bags, rows, classes, 0.0)


def _is_missing(key: Any) -> bool:
    return bool(key is None or type(key).__name__ == "NAType" or key != key)  # NA cannot compare


def _check_kinds(keys: list[Any]) -> None:
    if len({isinstance(key, str) for key in keys}) > 1:
        raise InputError("some bag ids are text and some are numbers; use one kind.")
