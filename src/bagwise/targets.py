"""Bag ids of rows and proportions of bags, in the forms people have them, into `Bags`."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray, rounding_slack

Proportions = Mapping[Any, Any] | npt.ArrayLike | Any
"""A mapping id -> {class: number} or id -> [number of each class]; an array (B, C) in the order of
the sorted ids; or a data frame indexed by id with a column for each class. The numbers are counts
or proportions."""


@dataclass(frozen=True)
class BagTargets:
    """Rows sorted by bag, and what is known of the bags.

    Attributes:
        order: (N,) the rows as given, in the order in which `bags` has them.
        bags: sizes and counts, in the order of `ids`.
        ids: (B,) sorted bag ids.
        classes: (C,) class labels, in the order of the counts' columns.
        rounding: largest difference between a proportion as given and one of the counts.
    """

    order: IntArray
    bags: Bags
    ids: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    rounding: float


def bag_targets(
    bag_ids: npt.ArrayLike, proportions: Proportions, classes: npt.ArrayLike | None = None
) -> BagTargets:
    """Match the rows' bag ids with the bags' proportions or counts.

    Ids that only `proportions` has are passed over, so that a table of all bags serves a part of
    the rows. Rows of numbers that sum to their bag's size are counts; rows that sum to 1 are
    proportions, and are turned into counts by largest remainder.

    Args:
        bag_ids: (N,) the bag of each row, integers or strings, in any order.
        proportions: what is known of each bag.
        classes: the classes to expect, where a model already knows them.

    >>> targets = bag_targets(["b", "a", "b"], {"a": {"no": 1}, "b": {"no": 1, "yes": 1}})
    >>> targets.classes, targets.bags.counts
    (array(['no', 'yes'], dtype='<U3'), array([[1, 0],
           [1, 1]]))
    >>> targets.order
    array([1, 0, 2])
    """
    ids_of_rows = np.asarray(bag_ids)
    if ids_of_rows.ndim != 1:
        raise ValueError(
            f"bags has shape {ids_of_rows.shape}; one bag id for each row is expected."
        )
    missing = np.array([key is None or key != key for key in ids_of_rows.tolist()])
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(f"the bag of row {row} is missing; give every row a bag id.")
    if len({isinstance(key, str) for key in ids_of_rows.tolist()}) > 1:
        raise ValueError("some bag ids are text and some are numbers; use one kind.")
    ids, bag_of_row = np.unique(ids_of_rows, return_inverse=True)
    sizes = np.bincount(bag_of_row, minlength=len(ids))
    names, numbers = _numbers(ids, proportions, classes)
    bags, rounding = to_bags(ids, sizes, numbers)
    return BagTargets(np.argsort(bag_of_row, kind="stable"), bags, ids, names, rounding)


def _numbers(
    ids: npt.NDArray[Any], proportions: Proportions, classes: npt.ArrayLike | None
) -> tuple[npt.NDArray[Any], FloatArray]:
    """Class labels (C,) and a row of numbers (B, C) for each of the sorted ids."""
    if hasattr(proportions, "columns") and hasattr(proportions, "index"):
        return _from_frame(ids, proportions, classes)
    if isinstance(proportions, Mapping):
        return _from_mapping(ids, proportions, classes)
    table = np.asarray(proportions, dtype=np.float64)
    if table.ndim != 2 or len(table) != len(ids):
        raise ValueError(
            f"proportions has shape {table.shape}, but the rows have {len(ids)} bags; "
            "one row for each, in the order of the sorted ids, is expected. Use a mapping or a "
            "data frame indexed by id if it has more bags than the rows."
        )
    names = np.arange(table.shape[1]) if classes is None else np.asarray(classes)
    if len(names) != table.shape[1]:
        raise ValueError(
            f"proportions has {table.shape[1]} classes, but the model knows {len(names)}: "
            f"{_listed(names)}."
        )
    return names, table


def _from_frame(
    ids: npt.NDArray[Any], frame: Any, classes: npt.ArrayLike | None
) -> tuple[npt.NDArray[Any], FloatArray]:
    columns, index = list(frame.columns), frame.index
    if not index.is_unique:
        repeated = index[index.duplicated()].tolist()[0]
        raise ValueError(
            f"proportions has more than one row for bag {repeated!r}; one is expected."
        )
    _check_known(ids, set(index.tolist()))
    names = _class_names(columns, classes)
    table = frame.loc[ids.tolist(), columns].to_numpy(dtype=np.float64)
    numbers = np.zeros((len(ids), len(names)))
    numbers[:, [names.tolist().index(name) for name in columns]] = table
    return names, numbers


def _from_mapping(
    ids: npt.NDArray[Any], mapping: Mapping[Any, Any], classes: npt.ArrayLike | None
) -> tuple[npt.NDArray[Any], FloatArray]:
    _check_known(ids, set(mapping))
    mapping = {k: row.to_dict() if hasattr(row, "to_dict") else row for k, row in mapping.items()}
    rows = [mapping[key] for key in ids.tolist()]
    for key, row in zip(ids.tolist(), rows, strict=True):
        if not hasattr(row, "__len__") or isinstance(row, str):
            raise ValueError(
                f"proportions has {row!r} for bag {key!r}; a number for each class is expected, "
                "also where there are only two."
            )
    if all(isinstance(row, Mapping) for row in rows):
        seen: dict[Hashable, None] = {}
        for row in mapping.values() if classes is None else rows:
            seen.update(dict.fromkeys(row))
        names = _class_names(list(seen), classes)
        places = {name: c for c, name in enumerate(names.tolist())}
        numbers = np.zeros((len(rows), len(names)))
        for b, row in enumerate(rows):
            for name, number in row.items():
                numbers[b, places[name]] = number
        return names, numbers
    if len({len(row) for row in rows}) > 1:
        raise ValueError(
            "proportions has bags with different numbers of classes; give all of them."
        )
    return _numbers(ids, np.asarray(rows, dtype=np.float64), classes)


def _check_known(ids: npt.NDArray[Any], known: set[Any]) -> None:
    missing = [key for key in ids.tolist() if key not in known]
    if missing:
        example = next(iter(known), None)
        hint = (
            f" The ids there are of type {type(example).__name__}, those of the rows "
            f"{type(missing[0]).__name__}."
            if example is not None and type(example) is not type(missing[0])
            else ""
        )
        raise ValueError(
            f"proportions does not know bag {_listed(missing)}; give the label counts of every bag "
            f"that has rows, or leave its rows out.{hint}"
        )


def _class_names(names: list[Any], classes: npt.ArrayLike | None) -> npt.NDArray[Any]:
    """The class labels as a sorted array, checked for clashes and against those known."""
    texts = [str(name) for name in names]
    for position, text in enumerate(texts):
        if text in texts[:position]:
            raise ValueError(
                f"two classes are called {text!r}; labels must differ, also when written as text."
            )
    if classes is None:
        if len({isinstance(name, str) for name in names}) > 1:
            raise ValueError(
                f"some class labels are text and some are numbers: {_listed(names)}; use one kind."
            )
        return np.array(sorted(names))
    known = np.asarray(classes)
    new = [name for name in names if name not in known.tolist()]
    if new:
        raise ValueError(
            f"proportions has the class {_listed(new)}, which the model has not seen; "
            f"it knows {_listed(known)}."
        )
    return known


NumbersAre = Literal["auto", "counts", "proportions", "relative"]


def to_bags(
    ids: npt.NDArray[Any], sizes: IntArray, numbers: FloatArray, numbers_are: NumbersAre = "auto"
) -> tuple[Bags, float]:
    """Bags from counts or proportions, and the largest difference that rounding has made.

    Args:
        ids: (B,) the bags' names, for messages.
        sizes: (B,) how many instances they have.
        numbers: (B, C) counts or proportions.
        numbers_are: "counts", which sum to the sizes; "proportions", which sum to 1; "relative",
            counts of some other total, of which only the proportions are used; "auto" tells counts
            from proportions by their sums.

    >>> to_bags(np.array(["a"]), np.array([4]), np.array([[0.25, 0.75]]))[0].counts
    array([[1, 3]])
    """
    for bad, what in ((~np.isfinite(numbers), "no number"), (numbers < 0, "a negative number")):
        if bad.any():
            bag = int(np.argmax(bad.any(axis=1)))
            raise ValueError(
                f"bag {ids.tolist()[bag]!r} has {what} for a class: {numbers[bag].tolist()}; "
                "give a count or proportion of 0 or more for each."
            )
    totals = numbers.sum(axis=1)
    if numbers_are == "relative":
        if not totals.all():
            bag = int(np.argmin(totals))
            raise ValueError(f"bag {ids.tolist()[bag]!r} has 0 for every class.")
        numbers, totals = numbers / totals[:, None], np.ones(len(totals))
    whole = (numbers == np.rint(numbers)).all(axis=1)
    are_counts = whole & (totals == sizes) & (numbers_are in ("auto", "counts"))
    if are_counts.all():
        return Bags(sizes, numbers), 0.0
    are_shares = (np.abs(totals - 1) <= rounding_slack(numbers)) & (numbers_are != "counts")
    if not are_shares.all():
        neither = ~are_shares & ~are_counts
        bag = int(np.argmax(neither if neither.any() else ~are_shares))
        raise ValueError(
            f"the numbers of bag {ids.tolist()[bag]!r} sum to {totals[bag]:g}: "
            f"{numbers[bag].tolist()}; proportions must sum to 1, and counts to the bag's "
            f"{sizes[bag]} rows."
        )
    bags = Bags.from_proportions(numbers, sizes, rounding="nearest")
    differences = np.abs(bags.proportions - numbers / totals[:, None]).max(axis=1)
    bag = int(np.argmax(differences))
    if numbers_are == "auto" and differences[bag] > 0.011:  # more than two decimals explain
        warnings.warn(
            f"the proportions {numbers[bag].tolist()} of bag {ids.tolist()[bag]!r} are not those "
            f"of its {sizes[bag]} rows; {bags.counts[bag].tolist()} is taken.",
            UserWarning,
            stacklevel=4,
        )
    return bags, float(differences[bag])


def _listed(values: Any, most: int = 5) -> str:
    shown = [repr(value) for value in list(np.asarray(values, dtype=object))[:most]]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
