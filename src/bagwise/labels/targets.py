"""Bag ids of rows and proportions of bags, in the forms people have them, into `Bags`."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray, Noise, bags_of_other_rows, rounding_slack
from bagwise.bags.arrays import first
from bagwise.errors import InputError
from bagwise.labels.kinds import NumbersAre, Rounded, check_kind, inexact_bags
from bagwise.labels.proportions import Proportions, read_proportions

__all__ = [
    "BagTargets",
    "NumbersAre",
    "bag_targets",
    "ids_or_none",
    "label_targets",
    "sorted_by_bag",
    "to_bags",
]

_INEXACT = ("rounded", "sample", "ranges")


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

    def with_labels(self, labels: npt.NDArray[Any], has_bag: npt.NDArray[np.bool_]) -> BagTargets:
        """The same with labels (rows,) of some rows; those without a bag become bags of one."""
        if labels.shape != has_bag.shape:
            raise InputError(
                f"labels has shape {labels.shape}; one for each of the {len(has_bag)} rows is "
                "expected, None or NaN where it is not known."
            )
        places = {name: place for place, name in enumerate(self.classes.tolist())}
        known = np.full(len(labels), -1)
        for row, label in enumerate(labels.tolist()):
            if _is_missing(label):
                continue
            if label not in places:
                raise InputError(
                    f"row {row} has the label {label!r}; the classes are {self.classes.tolist()}."
                )
            known[row] = places[label]
        alone = np.flatnonzero(~has_bag)
        if (bad := first(known[alone] < 0)) is not None:
            raise InputError(f"row {alone[bad]} has neither a bag nor a label; leave it out.")
        return self.with_codes(known, alone, np.full(len(alone), None))

    def with_codes(
        self, known: IntArray, alone: IntArray, names: npt.NDArray[Any], first_row: int = 0
    ) -> BagTargets:
        """The same with labels (rows,) that are numbers of classes, -1 where not known.

        Args:
            known: the labels.
            alone: labelled rows without a bag, which become bags of one.
            names: of these bags.
            first_row: how messages number the first row.
        """
        bags = self.bags
        if len(alone):
            ones = np.ones(len(alone), dtype=np.int64)
            single = Bags.from_labels(known[alone], ones, n_classes=len(self.classes))
            bags = Bags.join([bags, single])
        order = np.concatenate([self.order, alone])
        ids = np.concatenate([self.ids.astype(object), names])
        try:
            bags = bags.with_labels(known[order])
        except InputError as error:
            text = _in_own_words(str(error), order + first_row, ids, self.classes)
            raise InputError(text) from None
        return BagTargets(order, bags, ids if len(alone) else self.ids, self.classes, self.rounding)


def ids_or_none(bags: Any) -> Any:
    """Bag ids (N,) with None where there is none, which is NaN or NA in a column of numbers."""
    found = np.asarray(bags)
    if found.ndim != 1 or found.dtype.kind not in "fO":
        return bags
    missing = np.fromiter((_is_missing(name) for name in found.tolist()), bool, len(found))
    if not missing.any():
        return bags
    found = found.astype(object)
    found[missing] = None
    return found


def _in_own_words(
    text: str, order: IntArray, ids: npt.NDArray[Any], classes: npt.NDArray[Any]
) -> str:
    """An error of `Bags` with rows as they were given, and bags and classes by name."""
    text = re.sub(r"\brow (\d+)\b", lambda m: f"row {order[int(m[1])]}", text)
    text = re.sub(
        r"\blabelled (\d+)\b", lambda m: f"labelled {classes.tolist()[int(m[1])]!r}", text
    )
    return re.sub(r"\bbag (\d+)\b", lambda m: f"bag {ids.tolist()[int(m[1])]!r}", text)


def sorted_by_bag(
    bag_of_row: IntArray,
    ids: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    numbers: FloatArray,
    numbers_are: NumbersAre = "auto",
) -> BagTargets:
    """Put rows into the order of their bags; nothing else decides on that order.

    Args:
        bag_of_row: (rows,) where in `ids` each row's bag is, -1 for none.
        ids: (B,) names of bags; those without rows are left out.
        classes: (C,) class labels.
        numbers: (B, C) counts or proportions, see `to_bags`; (B, C, 2) bounds of ranges.
        numbers_are: what these are.

    >>> counts = np.array([[0., 1.], [1., 1.]])
    >>> found = sorted_by_bag(
    ...     np.array([1, -1, 0, 1]), np.array(["a", "b"]), np.array(["no", "yes"]), counts)
    >>> found.order, found.bags.sizes
    (array([2, 0, 3]), array([1, 2]))
    >>> found.in_order_given()
    (array([0, 2, 3]), array(['b', 'a', 'b'], dtype='<U1'))
    """
    rows = np.flatnonzero(bag_of_row >= 0)
    sizes = np.bincount(bag_of_row[rows], minlength=len(ids))
    used = np.flatnonzero(sizes)
    bags, rounding = to_bags(ids[used], sizes[used], numbers[used], numbers_are, classes)
    order = rows[np.argsort(bag_of_row[rows], kind="stable")]
    return BagTargets(order, bags, ids[used], classes, rounding)


def bag_targets(
    bag_ids: npt.ArrayLike,
    proportions: Proportions,
    classes: npt.ArrayLike | None = None,
    numbers_are: NumbersAre = "auto",
    labels: npt.ArrayLike | None = None,
) -> BagTargets:
    """Match the rows' bag ids with the bags' proportions or counts.

    Ids that only `proportions` has are passed over, so that a table of all bags serves a part of
    the rows. Rows of numbers that sum to their bag's size are counts; rows that sum to 1 are
    proportions, and are turned into counts by largest remainder.

    Args:
        bag_ids: (N,) the bag of each row, integers or strings, in any order.
        proportions: what is known of each bag, see `bagwise.labels.proportions.Proportions`.
        classes: the classes to expect, where a model already knows them.
        numbers_are: what the numbers of a bag are; for "ranges", `proportions` is a pair of lower
            and upper bounds.
        labels: (N,) labels of rows that are known, None or NaN for the others. A row without a bag
            id needs one: it is a bag of its own.

    >>> targets = bag_targets(["b", "a", "b"], {"a": {"no": 1}, "b": {"no": 1, "yes": 1}})
    >>> targets.classes, targets.bags.counts
    (array(['no', 'yes'], dtype='<U3'), array([[1, 0],
           [1, 1]]))
    >>> targets.order
    array([1, 0, 2])
    """
    check_kind(numbers_are)
    ids_of_rows = np.asarray(bag_ids)
    if ids_of_rows.ndim != 1:
        raise InputError(
            f"bags has shape {ids_of_rows.shape}; one bag id for each row is expected."
        )
    has_bag = np.ones(len(ids_of_rows), dtype=np.bool_)
    if ids_of_rows.dtype.kind in "Of":
        has_bag = np.array([not _is_missing(key) for key in ids_of_rows.tolist()], dtype=np.bool_)
        _check_kinds(ids_of_rows[has_bag].tolist())
    if not has_bag.all() and labels is None:
        row = int(np.argmin(has_bag))
        raise InputError(f"the bag of row {row} is missing; give every row a bag id.")
    ids, begins, inverse = np.unique(ids_of_rows[has_bag], return_index=True, return_inverse=True)
    bag_of_row = np.full(len(ids_of_rows), -1)
    bag_of_row[has_bag] = inverse
    sizes = np.bincount(inverse, minlength=len(ids))
    ascending = bool((np.diff(begins) > 0).all())
    said = not isinstance(numbers_are, str) or numbers_are in ("counts", *_INEXACT)
    if isinstance(numbers_are, str) and numbers_are == "ranges":
        if not isinstance(proportions, tuple | list) or len(proportions) != 2:
            raise InputError("ranges are a pair of bounds: proportions=(low, high).")
        both = [
            read_proportions(ids, sizes, ascending, bound, classes, rest_is_unknown=said)
            for bound in proportions
        ]
        if both[0][0].tolist() != both[1][0].tolist():
            raise InputError(
                f"the lower bounds are of the classes {both[0][0].tolist()}, the upper ones of "
                f"{both[1][0].tolist()}; they must be the same."
            )
        names, numbers = both[0][0], np.stack([both[0][1], both[1][1]], axis=-1)
    else:
        names, numbers = read_proportions(ids, sizes, ascending, proportions, classes, said)
    targets = sorted_by_bag(bag_of_row, ids, names, numbers, numbers_are)
    return targets if labels is None else targets.with_labels(np.asarray(labels), has_bag)


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


def to_bags(
    ids: npt.NDArray[Any],
    sizes: IntArray,
    numbers: FloatArray,
    numbers_are: NumbersAre = "auto",
    classes: npt.NDArray[Any] | None = None,
) -> tuple[Bags, float]:
    """Bags from counts or proportions, and the largest difference that rounding has made.

    Args:
        ids: (B,) the bags' names, for messages.
        sizes: (B,) how many instances they have.
        numbers: (B, C) counts or proportions.
        numbers_are: see `bagwise.labels.kinds.NumbersAre`. Proportions that all sum to 100
            are percentages; "auto" asks where they may as well be the counts of bags of 100.
        classes: (C,) the class labels, for messages.

    >>> to_bags(np.array(["a"]), np.array([4]), np.array([[0.25, 0.75]]))[0].counts
    array([[1, 3]])
    """
    with_gaps = np.isnan(numbers).any() and isinstance(numbers_are, str) and numbers_are == "counts"
    inexact = isinstance(numbers_are, Noise | Rounded) or numbers_are in _INEXACT or with_gaps
    if inexact:
        return inexact_bags(ids, sizes, numbers, numbers_are, classes), 0.0
    for bad, what in ((~np.isfinite(numbers), "no number"), (numbers < 0, "a negative number")):
        if bad.any():
            bag = int(np.argmax(bad.any(axis=1)))
            raise InputError(
                f"bag {ids.tolist()[bag]!r} has {what} for a class: {numbers[bag].tolist()}; "
                "give a count or proportion of 0 or more for each. Counts that nobody made may be "
                'left out (NaN) with numbers_are="counts", and noise may make them negative with '
                "numbers_are=Laplace(4)."
            )
    totals = numbers.sum(axis=1)
    if numbers_are == "relative" and len(sizes) > 2:
        for c in np.flatnonzero((numbers == sizes[:, None]).all(axis=0)).tolist():
            name = repr(classes.tolist()[c]) if classes is not None else f"number {c + 1}"
            warnings.warn(
                f"every bag has as many of class {name} as it has rows: is it a total, and no "
                "class? Leave it out then.",
                UserWarning,
                stacklevel=5,
            )
    if numbers_are == "relative":
        if not totals.all():
            bag = int(np.argmin(totals))
            raise InputError(f"bag {ids.tolist()[bag]!r} has 0 for every class.")
        numbers, totals = numbers / totals[:, None], np.ones(len(totals))
    whole = (numbers == np.rint(numbers)).all(axis=1)
    are_counts = whole & (totals == sizes) & (numbers_are in ("auto", "counts"))
    if are_counts.all():
        return Bags(sizes, numbers), 0.0
    if _are_percentages(numbers, totals) and _may_be_shares(are_counts, numbers_are):
        numbers, totals = numbers / 100, totals / 100
        are_counts = np.zeros(len(totals), dtype=bool)
    are_shares = (np.abs(totals - 1) <= rounding_slack(numbers)) & (numbers_are != "counts")
    if not are_shares.all():
        neither = ~are_shares & ~are_counts
        bag = int(np.argmax(neither if neither.any() else ~are_shares))
        raise InputError(
            f"the numbers of bag {ids.tolist()[bag]!r} sum to {totals[bag]:g}: "
            f"{numbers[bag].tolist()}; proportions must sum to 1 (all to 100, if in percent), and "
            f"counts to the bag's {sizes[bag]} rows. Is one of the numbers a total, or no class? "
            'If they are of a larger or smaller group, say numbers_are="relative" if the bag has '
            'its shares, numbers_are="sample" if it is a random sample of it. Noise, rounded '
            'shares and ranges are numbers_are=Laplace(4), numbers_are="rounded" and '
            'numbers_are="ranges".'
        )
    bags = Bags.from_proportions(numbers, sizes, rounding="nearest")
    differences = np.abs(bags.proportions - numbers / totals[:, None]).max(axis=1)
    bag = int(np.argmax(differences))
    odd = bags_of_other_rows(numbers, sizes) if numbers_are == "auto" else ()
    if numbers_are == "auto" and (differences[bag] > 0.011 or len(odd)):  # not two decimals
        others = f", and so in {len(odd)} of {len(ids)} bags" if len(odd) > 1 else ""
        warnings.warn(
            f"the proportions {[round(x, 6) for x in numbers[bag].tolist()]} of bag "
            f"{ids.tolist()[bag]!r} are not those of its {sizes[bag]} rows"
            f"; {bags.counts[bag].tolist()} is taken{others}. They should be shares of classes in "
            "a larger group, not means or the like.",
            UserWarning,
            stacklevel=5,  # whoever called `fit` or `read_bags`
        )
    return bags, float(differences[bag])


def _are_percentages(numbers: FloatArray, totals: FloatArray) -> bool:
    return bool((np.abs(totals / 100 - 1) <= rounding_slack(numbers)).all())


def _may_be_shares(are_counts: npt.NDArray[np.bool_], numbers_are: NumbersAre) -> bool:
    """In doubt, the counts of bags of 100, a few of which have lost a row, are a mistake."""
    if numbers_are == "auto":
        return bool(2 * are_counts.sum() <= len(are_counts))
    return numbers_are == "proportions"
