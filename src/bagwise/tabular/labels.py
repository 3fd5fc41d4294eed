"""The file with each bag's label counts or proportions, wide or long."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.bags import FloatArray, rounding_slack
from bagwise.tabular.inference import inferred
from bagwise.tabular.source import Paths, Source
from bagwise.tabular.values import category_texts, is_text, numbers_of

_TOTALS = ("total", "size", "count", "n")  # names of a column that says how many there are
JOINT = " / "  # between the parts of a bag's name, where it has several


@dataclass(frozen=True)
class LabelTable:
    """What a label file says.

    Attributes:
        ids: the bags' names.
        classes: the class labels, sorted; those of a model in its own order, where it is given.
        numbers: (B, C) as they stand there, counts or proportions; NaN for a second class that has
            no column: it has the rest of each bag.
        files: that were read.
    """

    ids: list[str]
    classes: list[str]
    numbers: FloatArray
    files: list[Path]

    @property
    def source(self) -> str:
        """Where the numbers come from, for messages."""
        return str(self.files[0])


def bag_ids(batch: pa.RecordBatch | pa.Table, key: Sequence[str]) -> pa.Array:
    """The name of each row's bag; null where a part of it is missing.

    >>> rows = pa.RecordBatch.from_pydict({"state": ["TX"], "county": [7]})
    >>> bag_ids(rows, ["state", "county"]).to_pylist()
    ['TX / 7']
    """
    parts = [category_texts(batch.column(name)) for name in key]
    if len(parts) == 1:
        return parts[0]
    for name, part in zip(key, parts, strict=True):
        if any(JOINT in (text or "") for text in part.unique().to_pylist()):
            raise ValueError(
                f"a value of {name!r} contains {JOINT!r}, which stands between the parts of a "
                "bag's name; replace it."
            )
    return pc.binary_join_element_wise(*parts, JOINT)


def read_labels(
    paths: Paths,
    key: Sequence[str],
    classes: Iterable[str] | None = None,
    known: Sequence[str] | None = None,
) -> LabelTable:
    """Read a label file.

    Wide: the bag's columns and a column of numbers for each class. Long: the bag's columns, one
    with a class and one with a number; classes are text then, or most bags have several rows.

    Args:
        paths: CSV, TSV or Parquet.
        key: names of the bag's columns.
        classes: the class columns to use of a wide file; all but the bag's if not given. Where it
            has the column of one class alone, maybe with a total, a second one has the rest.
        known: the classes of a model, which the result has then, exactly these and in this order.
            Other columns of a wide file are left out; a long one may lack a class.
    """
    if not key:
        raise ValueError("no bag column is given; name the column that says which bag a row is in.")
    source = Source(paths, typed=False)
    name = str(source.files[0])
    if known is not None and set(known) <= set(source.schema.names):
        classes = known
    source.require(key)
    batches = (pa.Table.from_batches([batch]).cast(source.schema) for batch in source.batches())
    table = pa.concat_tables([source.schema.empty_table(), *batches])
    if not table.num_rows:
        raise ValueError(f"{name} has no rows; one for each bag is expected.")
    ids = bag_ids(table, key)
    if ids.null_count:
        row = ids.is_null().index(True).as_py() + 1
        raise ValueError(f"{name} has no bag in row {row}; {', '.join(key)} must be there.")
    chosen = None if classes is None else list(classes)
    beside = [column for column in table.column_names if column not in key]
    if (pair := _with_the_rest(chosen or known, beside)) is not None:
        return _two_classes(pair, ids, table, source.files, known)
    if chosen is not None:
        source.require(chosen)
    others = chosen or beside
    if not others:
        raise ValueError(f"{name} has no class columns beside {', '.join(key)}.")
    rows_of_bags = {entry["values"]: entry["counts"] for entry in ids.value_counts().to_pylist()}
    repeated = [key for key, rows in rows_of_bags.items() if rows > 1]
    values = {column: _typed(table.column(column)) for column in others}
    texts = [column for column in others if is_text(values[column].type)]
    # Classes may be numbers; but a wide file in which a bag or two occur twice is a mistake.
    if chosen is None and len(others) == 2 and others[1] in texts:
        others.reverse()
    looks_long = others[0] in texts or len(repeated) > 0.5 * len(rows_of_bags)
    if chosen is None and len(others) == 2 and looks_long:
        texts_of_classes = category_texts(table.column(others[0]))
        found = _long(texts_of_classes, ids, others, values[others[1]], source.files)
        return found if known is None else _of_known(found, known, may_lack=True)
    _refuse_repeated(ids, name)
    if texts:
        hint = "Mend it." if chosen else "Name the class columns with --classes, or mend it."
        raise ValueError(
            f"the column {texts[0]!r} of {name} holds text; numbers are expected in class "
            f"columns. {hint}"
        )
    if len(others) - (len(others) == 2 and _total_name(others[1])) == 1 and chosen is None:
        with_total = f" (and {others[1]!r}, which may be a total)" if len(others) == 2 else ""
        raise ValueError(
            f"{name} has numbers of {others[0]!r} alone{with_total}; two classes are expected. If "
            f"all other rows are of a second class, name both: --classes {others[0]},OTHER."
        )
    columns = [_numbers(values[column], column, name) for column in others]
    if chosen is None and (total := _total(others, np.stack(columns, axis=1))) is not None:
        warnings.warn(
            f"the column {others[total]!r} of {name} is taken for a total of the others; if it is "
            "a class, name all classes with --classes.",
            UserWarning,
            stacklevel=3,
        )
        others, columns = (
            others[:total] + others[total + 1 :],
            columns[:total] + columns[total + 1 :],
        )
    order = np.argsort(others)
    numbers = np.stack(columns, axis=1)[:, order]
    found = LabelTable(ids.to_pylist(), [others[c] for c in order], numbers, source.files)
    return found if known is None else _of_known(found, known, may_lack=False)


def _refuse_repeated(ids: pa.Array, name: str) -> None:
    for entry in ids.value_counts().to_pylist():
        if entry["counts"] > 1:
            raise ValueError(
                f"{name} has more than one row for bag {entry['values']!r}; one is expected."
            )


def _total_name(column: str) -> bool:
    return column.strip().lower() in _TOTALS[:-1]  # n may be short for no


def _total(names: list[str], numbers: FloatArray) -> int | None:
    """Where a column of totals is among those of classes.

    That is one whose name says so and which is the sum of the others, or says how many rows their
    shares are of; or, by any name, one that is their sum in at least five bags.
    """
    if len(names) < 3:
        return None
    named = [c for word in _TOTALS for c, x in enumerate(names) if x.strip().lower() == word]
    order: list[int] = [*named, *range(len(names))]
    for c in order:
        rest, own = np.delete(numbers, c, axis=1), numbers[:, c]
        sums = rest.sum(axis=1)
        is_sum = bool(np.allclose(sums, own, rtol=1e-9, atol=1e-9) and own.any())
        shares = [(np.abs(sums / unit - 1) <= rounding_slack(rest)).all() for unit in (1, 100)]
        if (c in named and (is_sum or any(shares))) or (is_sum and len(own) >= 5):
            return c
    return None


def _with_the_rest(
    classes: Sequence[str] | None, columns: list[str]
) -> tuple[str, str, str | None] | None:
    """(class with a column, class without one, column of the total or None), if it is like that."""
    if classes is None or len(classes) != 2:
        return None
    own = [label for label in classes if label in columns]
    beside = [column for column in columns if column not in own]
    total = beside[0] if beside else None
    if len(own) != 1 or len(beside) > 1 or (total and total.strip().lower() not in _TOTALS):
        return None
    (other,) = (label for label in classes if label not in own)
    return own[0], other, total


def _two_classes(
    pair: tuple[str, str, str | None],
    ids: pa.Array,
    table: pa.Table,
    files: list[Path],
    known: Sequence[str] | None,
) -> LabelTable:
    """One class's numbers as they stand, and the rest for the other one."""
    one, _, total = pair
    name = str(files[0])
    _refuse_repeated(ids, name)
    own = _numbers(_typed(table.column(one)), one, name)
    rest = np.full(len(own), np.nan)
    if total is not None:
        totals = _numbers(_typed(table.column(total)), total, name)
        if ((own != np.rint(own)) | (own > totals)).any():
            raise ValueError(
                f"{name} has {one!r} and {total!r}, but {one!r} is no count up to {total!r} in "
                "every row; give counts, or leave the total out."
            )
        rest = totals - own
    classes = list(known) if known is not None else sorted(pair[:2])
    numbers = np.stack([own if label == one else rest for label in classes], axis=1)
    return LabelTable(ids.to_pylist(), classes, numbers, files)


def _long(
    classes: pa.Array,
    ids: pa.Array,
    columns: list[str],
    column: pa.ChunkedArray,
    files: list[Path],
) -> LabelTable:
    class_column, number_column = columns
    name = str(files[0])
    if classes.null_count:
        row = classes.is_null().index(True).as_py() + 1
        raise ValueError(f"{name} has no {class_column} in row {row}.")
    values = _numbers(column, number_column, name)
    found, labels = list(dict.fromkeys(ids.to_pylist())), sorted(set(classes.to_pylist()))
    places = {key: b for b, key in enumerate(found)}
    columns_of_classes = {label: c for c, label in enumerate(labels)}
    numbers = np.full((len(found), len(labels)), np.nan)
    for key, label, value in zip(ids.to_pylist(), classes.to_pylist(), values, strict=True):
        place = places[key], columns_of_classes[label]
        if not np.isnan(numbers[place]):
            raise ValueError(f"{name} has class {label!r} of bag {key!r} twice; once is expected.")
        numbers[place] = value
    return LabelTable(found, labels, np.nan_to_num(numbers, nan=0.0), files)


def _of_known(labels: LabelTable, known: Sequence[str], may_lack: bool) -> LabelTable:
    """The same numbers under exactly the known classes, 0 for one that is lacking; others may be
    there if they are 0 in all bags.
    """
    there = (labels.numbers != 0).any(axis=0)
    if unknown := [
        x for x, some in zip(labels.classes, there, strict=True) if some and x not in known
    ]:
        raise ValueError(
            f"{labels.source} has the class {unknown[0]!r}, which the model does not know; "
            f"it knows {', '.join(known)}."
        )
    missing = [label for label in known if label not in labels.classes]
    if missing and not may_lack:
        raise ValueError(
            f"{labels.source} has no column for the class {missing[0]!r}; the model knows "
            f"{', '.join(known)}."
        )
    numbers = np.zeros((len(labels.ids), len(known)))
    used = [c for c, label in enumerate(labels.classes) if label in known]
    numbers[:, [known.index(labels.classes[c]) for c in used]] = labels.numbers[:, used]
    return LabelTable(labels.ids, list(known), numbers, labels.files)


def _typed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers, or the true and false of bags of one, where text is that; text otherwise."""
    return inferred(column) if is_text(column.type) else column


def _numbers(values: pa.ChunkedArray, column: str, name: str) -> FloatArray:
    numbers = numbers_of(values, "numeric", column)
    if np.isnan(numbers).any():
        row = int(np.argmax(np.isnan(numbers))) + 1
        raise ValueError(
            f"the column {column!r} of {name} has no number in row {row}; "
            "a count or a proportion is expected, 0 if there are none."
        )
    return numbers
