"""What is known of the bags, in the forms people have it, into one table of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import FloatArray, IntArray, bags_of_other_rows
from bagwise.bags.arrays import without_torch
from bagwise.errors import BagwiseWarning, InputError, Option, naming, warn_user
from bagwise.labels.counts_or_shares import if_they_are_counts, with_rest
from bagwise.labels.label_spec import LabelSpec

Proportions = Any
"""Counts or proportions of the labels of each bag:

- a mapping id -> {class: number} or id -> [number of each class];
- a data frame indexed by id with a column for each class;
- an array (B, C) in the order of the sorted ids. It has no ids of its own, so they must leave no
  doubt: whole numbers without a gap (0 .. B-1), or numbers that ascend from row to row.

Proportions may be percentages, if those of every bag sum to 100.

With two classes one number a bag is enough, that of the second class: a mapping id -> number, a
series indexed by id, or an array (B,). Whole numbers are counts if one of them is above 1, other
numbers are shares; where all are 0 or 1 and both readings differ, it is an error.
"""

_GIVEN = Option("proportions")  # what this is called by functions that take it
_CUT = (
    " It has as many bags as there are rows, and scikit-learn's cross-validation cuts such a table "
    "like the rows; leave out the bags that have no rows."
)
_REMEDY = "Use a mapping {id: numbers} or a data frame indexed by id"


def read_proportions(
    ids: npt.NDArray[Any],
    sizes: IntArray,
    ascending: bool,
    proportions: Proportions,
    classes: npt.ArrayLike | None = None,
    spec: LabelSpec | None = None,
) -> tuple[npt.NDArray[Any], FloatArray]:
    """Class labels (C,) and a row of numbers (B, C) for each of the sorted ids.

    Args:
        ids: (B,) sorted bag ids.
        sizes: (B,) their rows.
        ascending: whether the ids first appear in this order.
        proportions: what is known of these bags, and maybe of others.
        classes: the classes to expect, where a model already knows them.
        spec: what the numbers are.

    >>> read_proportions(np.array(["a"]), np.array([4]), True, {"a": 0.25})
    (array([0, 1]), array([[0.75, 0.25]]))
    """
    proportions, spec = without_torch(proportions), spec or LabelSpec()
    if isinstance(proportions, Mapping):
        return _from_mapping(ids, sizes, proportions, classes, spec)
    if hasattr(proportions, "columns"):
        return _from_frame(ids, sizes, proportions, classes)
    if hasattr(proportions, "to_dict"):
        _check_index(ids, sizes, proportions.index)
        return _from_mapping(ids, sizes, proportions.to_dict(), classes, spec)
    return _from_array(ids, sizes, ascending, proportions, classes, spec)


def _from_frame(
    ids: npt.NDArray[Any], sizes: IntArray, frame: Any, classes: npt.ArrayLike | None
) -> tuple[npt.NDArray[Any], FloatArray]:
    if not hasattr(frame, "index"):
        raise InputError(
            _GIVEN,
            f" is a {type(frame).__name__}, which has no index to find a bag by; give a "
            "mapping {id: numbers}, or a pandas frame: .to_pandas().set_index(...).",
        )
    columns = list(frame.columns)
    for column, kind in zip(columns, frame.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "biuf" and not _holds_numbers(frame[column]):
            raise InputError(
                f"column {column!r} of ",
                _GIVEN,
                " does not hold numbers; a column for each class "
                f"is expected. If it holds the bag ids, use set_index({column!r}).",
            )
    _check_index(ids, sizes, frame.index)
    if len(columns) == 1:
        raise InputError(
            _GIVEN,
            f" has the column {columns[0]!r} alone; give one for each class, or, for "
            f"two classes, the series of the second class: ",
            _GIVEN,
            f"[{columns[0]!r}].",
        )
    names = _class_names(columns, classes)
    table = frame.loc[ids.tolist(), columns].to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = np.zeros((len(ids), len(names)))
    numbers[:, [names.tolist().index(name) for name in columns]] = table
    return names, numbers


def _holds_numbers(column: Any) -> bool:
    try:
        column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return False
    return not any(isinstance(value, str) for value in column)


def _check_index(ids: npt.NDArray[Any], sizes: IntArray, index: Any) -> None:
    if index.nlevels > 1:
        raise InputError(
            _GIVEN,
            f" has an index of {index.nlevels} levels; one, the bag id, is expected. A "
            "series of counts by bag and label becomes a frame by .unstack(fill_value=0).",
        )
    if not index.is_unique:
        repeated = index[index.duplicated()].tolist()[0]
        raise InputError(_GIVEN, f" has more than one row for bag {repeated!r}; one is expected.")
    default = type(index).__name__ == "RangeIndex" and index.start == 0
    _check_known(ids, sizes, set(index.tolist()), default)


def _from_mapping(
    ids: npt.NDArray[Any],
    sizes: IntArray,
    mapping: Mapping[Any, Any],
    classes: npt.ArrayLike | None,
    spec: LabelSpec,
) -> tuple[npt.NDArray[Any], FloatArray]:
    _check_known(ids, sizes, set(mapping))
    mapping = {k: row.to_dict() if hasattr(row, "to_dict") else row for k, row in mapping.items()}
    kinds = {_kind(key, row): key for key, row in mapping.items()}
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise InputError(
            _GIVEN,
            f" has {one} for bag {first!r} and {other} for bag {second!r}; "
            "use one form for all bags.",
        )
    rows = [mapping[key] for key in ids.tolist()]
    if "one number" in kinds:
        values = np.array([float(row) for row in rows])
        known = np.array([float(row) for row in mapping.values()])
        return _of_second_class(sizes, values, known, classes, spec)
    if "numbers by class" in kinds:
        return _from_dicts(ids, rows, mapping, classes)
    if len({len(row) for row in rows}) > 1:
        raise InputError(_GIVEN, " has bags with different numbers of classes; give all of them.")
    return _checked_table(_float_array(rows), classes)


def _kind(key: Any, row: Any) -> str:
    if isinstance(row, Mapping):
        return "numbers by class"
    if np.ndim(row) == 1 and not isinstance(row, str):
        return "a list of numbers"
    if _is_number(row):
        return "one number"
    raise InputError(
        _GIVEN,
        f" has {row!r} for bag {key!r}; a number for each class is expected, "
        "or, with two classes, the number of the second.",
    )


def _from_dicts(
    ids: npt.NDArray[Any],
    rows: list[Mapping[Any, Any]],
    mapping: Mapping[Any, Any],
    classes: npt.ArrayLike | None,
) -> tuple[npt.NDArray[Any], FloatArray]:
    seen: dict[Hashable, None] = {}
    for row in mapping.values() if classes is None else rows:
        seen.update(dict.fromkeys(row))
    names = _class_names(list(seen), classes)
    places = {name: c for c, name in enumerate(names.tolist())}
    numbers = np.zeros((len(rows), len(names)))
    for b, row in enumerate(rows):
        for name, number in row.items():
            if not _is_number(number):
                raise InputError(
                    _GIVEN,
                    f" has {number!r} for class {name!r} of bag {ids.tolist()[b]!r}; "
                    "a number is expected.",
                )
            numbers[b, places[name]] = number
    return names, numbers


def _from_array(
    ids: npt.NDArray[Any],
    sizes: IntArray,
    ascending: bool,
    proportions: npt.ArrayLike,
    classes: npt.ArrayLike | None,
    spec: LabelSpec,
) -> tuple[npt.NDArray[Any], FloatArray]:
    table = _float_array(proportions)
    if table.ndim not in (1, 2) or len(table) != len(ids):
        hint = ""
        if len(ids) < sizes.sum() == len(np.atleast_1d(table)):
            hint = (
                _CUT
                if table.ndim == 2
                else (
                    " There is a number for each row: are these bag ids? The order is fit(X, bags, "
                    "proportions)."
                )
            )
        raise InputError(
            _GIVEN,
            f" has shape {table.shape}, but the rows have {len(ids)} bags; one row for "
            f"each, in the order of the sorted ids, is expected. {_REMEDY} if it has more bags "
            f"than the rows.{hint}",
        )
    _check_order_is_plain(ids, ascending)
    if table.ndim == 1:
        return _of_second_class(sizes, table, table, classes, spec)
    return _checked_table(table, classes)


def _check_order_is_plain(ids: npt.NDArray[Any], ascending: bool) -> None:
    """The rows of an array have no ids: no two ways of putting the bags into order may differ."""
    if any(isinstance(key, str | bytes) for key in ids.tolist()):
        raise InputError(
            f"the bag ids are text ({_listed(ids, 3)}), and an array of numbers does not say "
            "which row is whose: sorted as text, 'w10' comes before 'w2'. "
            f"{_REMEDY}; dict(zip(names, array)) makes one."
        )
    gapless = ids.dtype.kind in "biuf" and np.array_equal(ids, ids[0] + np.arange(len(ids)))
    if not gapless and not ascending:
        raise InputError(
            f"an array of numbers does not say which row is whose, and the bag ids "
            f"({_listed(ids, 3)}) are neither whole numbers without a gap nor in ascending order. "
            f"{_REMEDY}; dict(zip(np.unique(bags), array)) makes one of an array in the order of "
            "the sorted ids."
        )


def _float_array(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        example = next(
            value for value in np.asarray(values, dtype=object).ravel() if not _is_number(value)
        )
        raise InputError(
            _GIVEN,
            f" holds {example!r} where a number is expected. The order is fit(X, bags, "
            "proportions): the bag id of each row second, the counts or proportions of each bag "
            "third, as many for one bag as for another.",
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str | bytes)


def _checked_table(
    table: FloatArray, classes: npt.ArrayLike | None
) -> tuple[npt.NDArray[Any], FloatArray]:
    C = table.shape[1]
    if C == 1:
        raise InputError(
            _GIVEN,
            " has one column; give one for each class, or, for two classes, one number "
            "for each bag: shape (B,).",
        )
    names = np.arange(C) if classes is None else np.asarray(classes)
    if len(names) != C:
        raise InputError(
            _GIVEN, f" has {C} classes, but the model knows {len(names)}: {_listed(names)}."
        )
    return names, table


def _of_second_class(
    sizes: IntArray,
    values: FloatArray,
    known: FloatArray,
    classes: npt.ArrayLike | None,
    spec: LabelSpec,
) -> tuple[npt.NDArray[Any], FloatArray]:
    """Two classes, from the second's shares or counts; `known` are those of all bags given."""
    names = np.arange(2) if classes is None else np.asarray(classes)
    if len(names) != 2:
        raise InputError(
            _GIVEN,
            f" has one number for each bag, that of the second of two classes, but the "
            f"model knows {len(names)} classes: {_listed(names)}.",
        )
    numbers = np.stack([np.full(len(values), np.nan), values], axis=1)
    with naming(class_=names.tolist()):
        numbers = with_rest(numbers, spec, sizes, known, percent=False)
    counts = if_they_are_counts(values, sizes) if spec.kind == "proportions" else []
    if counts and (values > 1).any() and len(bags_of_other_rows(values[:, None] / 100, sizes)):
        what = "the numbers of one class are taken for percentages, but are none of the bags' rows."
        warn_user(BagwiseWarning(what, *counts))
    return names, numbers


def _check_known(
    ids: npt.NDArray[Any], sizes: IntArray, known: set[Any], default_index: bool = False
) -> None:
    missing = [key for key in ids.tolist() if key not in known]
    if not missing:
        return
    hint = ""
    example = next(iter(known), None)
    if default_index:
        hint = (
            " Its index is the default one, 0, 1, ...; if a column holds the ids, use "
            "set_index(column)."
        )
    elif example is not None and isinstance(example, str) != isinstance(missing[0], str):
        hint = (
            f" The ids there are of type {_type_name(example)}, those of the rows "
            f"{_type_name(missing[0])}."
        )
    elif len(known) == sizes.sum():
        hint = _CUT
    raise InputError(
        _GIVEN,
        f" does not know bag {_listed(missing)}; give the label counts of every bag "
        f"that has rows, or leave its rows out.{hint}",
    )


def _type_name(key: Any) -> str:
    return type(key.item() if isinstance(key, np.generic) else key).__name__


def _class_names(names: list[Any], classes: npt.ArrayLike | None) -> npt.NDArray[Any]:
    """The class labels as a sorted array, checked for clashes and against those known."""
    texts = [str(name) for name in names]
    for position, text in enumerate(texts):
        if text in texts[:position]:
            raise InputError(
                f"two classes are called {text!r}; labels must differ, also when written as text."
            )
    if classes is None:
        if len({isinstance(name, str) for name in names}) > 1:
            raise InputError(
                f"some class labels are text and some are numbers: {_listed(names)}; use one kind."
            )
        return np.array(sorted(names))
    known = np.asarray(classes)
    new = [name for name in names if name not in known.tolist()]
    if new:
        raise InputError(
            _GIVEN,
            f" has the class {_listed(new)}, which the model has not seen; "
            f"it knows {_listed(known)}.",
        )
    return known


def _listed(values: Any, most: int = 5) -> str:
    values = np.asarray(values, dtype=object).tolist()
    shown = [repr(value) for value in values[:most]]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
