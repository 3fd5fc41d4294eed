"""The file with each bag's label counts or proportions, wide or long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bagwise.bags import FloatArray
from bagwise.errors import InputError, Option, warn_user
from bagwise.labels.label_spec import LabelsAre, LabelSpec
from bagwise.tables.labels.bag_names import bag_ids
from bagwise.tables.labels.cells import (
    HIGH,
    LOW,
    Cells,
    bound_columns,
    cells_of,
    first_text,
    mostly_numbers,
    numbers_of_cells,
    readable,
    without_thousands,
)
from bagwise.tables.labels.label_columns import TOTALS, named_columns, total_name, without_total
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.read.table_files import TableFile
from bagwise.tables.read.values import category_texts
from bagwise.wording import in_order


@dataclass(frozen=True)
class LabelTable:
    """What a label file says.

    Attributes:
        ids: the bags' names, sorted: folds of bags are drawn by their places, and the order of
            lines in the file should not change a model.
        classes: the class labels, sorted; those of a model in its own order, where it is given.
        numbers: (B, C) as they stand there, counts or proportions; NaN where one is not known, and
            for a second class that has no column: it has the rest of each bag. (B, C, 2) bounds
            where they are ranges.
        source: where the numbers come from, for messages.
        label_spec: what they are: as it was said, but "ranges" where cells are such, and with the
            decimals that rounded ones have.
        files: that were read; none of a frame.
        key: the bag's columns.
    """

    ids: list[str]
    classes: list[str]
    numbers: FloatArray
    source: str
    label_spec: LabelSpec
    files: Sequence[TableFile] = ()
    key: Sequence[str] = ()

    @property
    def grouping(self) -> str:
        """What the way in which it groups rows is called."""
        return ",".join(self.key)


def read_labels(
    labels: Table,
    key: Sequence[str],
    classes: Iterable[str] | None = None,
    known: Sequence[str] | None = None,
    labels_are: LabelsAre = "auto",
    apart: Sequence[str] = (),
) -> LabelTable:
    """Read a label file.

    Wide: the bag's columns and a column of numbers for each class; of ranges two, `yes_low` and
    `yes_high`. Long: the bag's columns, one with a class and one with a number; classes are text
    then, or most bags have several rows. Counts may have ranges such as "<5" among them.

    Args:
        labels: CSV, TSV or Parquet, a data frame, or a pandas series of numbers by bag and class.
        key: names of the bag's columns.
        classes: the class columns to use of a wide file; all but the bag's if not given. Where it
            has the column of one class alone, maybe with a total, a second one has the rest.
        known: the classes of a model, which the result has then, exactly these and in this order.
            Other columns of a wide file are left out; a long one may lack a class.
        labels_are: what the numbers are.
        apart: columns of the file that say something else of the bags.
    """
    found = _sorted(_read(labels, key, classes, known, LabelSpec.of(labels_are), apart))
    found = replace(found, key=tuple(key))
    gaps = np.isnan(found.numbers).reshape(len(found.ids), -1)
    silent = np.flatnonzero(gaps.all(axis=1))
    if not len(silent):
        return found
    told = np.flatnonzero(~gaps.all(axis=1))
    ids, names = ([found.ids[b] for b in part.tolist()] for part in (told, silent))
    if not ids:
        raise InputError(f"{found.source} has no number at all; one for each class is expected.")
    listed = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
    warn_user(
        f"{found.source} has no number for any class of bag {listed}: as if it did not have it."
    )
    return replace(found, ids=ids, numbers=found.numbers[told])


def _sorted(labels: LabelTable) -> LabelTable:
    """The same with the bags in the order of their names."""
    order = sorted(range(len(labels.ids)), key=lambda b: in_order(labels.ids[b]))
    return replace(labels, ids=[labels.ids[b] for b in order], numbers=labels.numbers[order])


def _read(
    labels: Table,
    key: Sequence[str],
    classes: Iterable[str] | None,
    known: Sequence[str] | None,
    spec: LabelSpec,
    apart: Sequence[str],
) -> LabelTable:
    if not key:
        raise InputError("no bag column is given; name the column that says which bag a row is in.")
    if type(labels).__name__ == "Series" and getattr(labels, "index", None) is not None:
        labels = labels.to_frame("count" if labels.name is None else labels.name)  # of pandas
    source = open_rows(labels, keys=key, name="the table of labels")
    name = source.name
    if known is not None and set(known) <= set(source.schema.names):
        classes = known
    if unnamed := _unnamed_levels(labels, key, source):
        raise InputError(
            f"{name} has no column {unnamed!r}, and its index has no name. Give it one: "
            f".rename_axis([{unnamed!r}{', ...' * (labels.index.nlevels > 1)}])."
        )
    source.require(key)
    batches = [pa.Table.from_batches([batch]).cast(source.schema) for batch in source.batches()]
    table = pa.concat_tables([pa.Table.from_batches([], source.schema), *batches])
    if not table.num_rows:
        raise InputError(f"{name} has no rows; one for each bag is expected.")
    ids = bag_ids(table, key)
    if ids.null_count:
        row = ids.is_null().index(True).as_py() + 1
        raise InputError(f"{name} has no bag in row {row}; {', '.join(key)} must be there.")
    chosen = None if classes is None else list(classes)
    no_classes = {*key, *apart, *source.folder_columns}  # a folder may name a bag, but no class
    beside = [x for x in table.column_names if x not in no_classes]
    if chosen is None:
        beside = named_columns(table, beside, name)
    if chosen is not None and len(chosen) == 1 and known is None:
        raise InputError(
            Option("classes"),
            f" has one class, {chosen[0]!r}; two are expected at least. Name all of them, or say ",
            Option("classes", [chosen[0], "OTHER"]),
            ": a class that has no column has the rest of each bag.",
        )
    of_numbers = [column for column in chosen or beside if column in table.column_names]
    table = without_thousands(table, of_numbers, ids, spec, name)
    if spec.kind == "ranges" and any(column.endswith((LOW, HIGH)) for column in beside):
        return _of_bounds(ids, table, beside, chosen or known, source)
    if (pair := _with_the_rest(chosen or known, beside)) is not None:
        return _two_classes(pair, ids, table, source, known, spec)
    if chosen is not None:
        source.require(chosen)
    others = chosen or beside
    if not others:
        raise InputError(f"{name} has no class columns beside {', '.join(key)}.")
    rows_of_bags = {entry["values"]: entry["counts"] for entry in ids.value_counts().to_pylist()}
    repeated = [key for key, rows in rows_of_bags.items() if rows > 1]
    values = {column: cells_of(table.column(column), column) for column in others}
    texts = [column for column in others if values[column] is None]
    if chosen is None and len(others) == 2:
        # Classes may be numbers, or ranges of ages; but a wide file in which a bag or two occur
        # twice, or a cell or two are text, is a mistake.
        looks_long = any(not mostly_numbers(table.column(column)) for column in texts)
        looks_long |= len(repeated) > 0.5 * len(rows_of_bags)
        if others[1] in texts or (looks_long and not _has_number(values[others[1]])):
            others.reverse()
        if looks_long:
            found = _long(ids, table, others, values[others[1]], source, spec)
            return found if known is None else _of_known(found, known, may_lack=True)
    _refuse_repeated(ids, name)
    if texts:
        row, text = first_text(table.column(texts[0]))
        raise InputError(
            f"the column {texts[0]!r} of {name} holds text, {text!r} in row {row + 1}; numbers are "
            "expected in class columns, * or nothing where a count is not published. Fix it",
            *(() if chosen else (", or name the class columns with ", Option("classes"))),
            ".",
        )
    if len(others) - (len(others) == 2 and total_name(others[1])) == 1 and chosen is None:
        with_total = f" (and {others[1]!r}, which may be a total)" if len(others) == 2 else ""
        raise InputError(
            f"{name} has numbers of {others[0]!r} alone{with_total}; two classes are expected. If "
            "they are counts or shares of a class, name it and that of all other rows: ",
            Option("classes", [others[0], "OTHER"]),
            ". Nothing can be learned from means.",
        )
    cells = {column: there for column, there in values.items() if there is not None}
    if chosen is None:
        inexact = any(there.example or np.isnan(there.low).any() for there in cells.values())
        numbers = np.stack([there.low for there in cells.values()], axis=1)
        others = without_total(others, None if inexact else numbers, spec, "column", name)
    others = sorted(others)
    numbers, are = numbers_of_cells({column: cells[column] for column in others}, name, spec)
    found = LabelTable(ids.to_pylist(), others, numbers, name, are, source.files)
    return found if known is None else _of_known(found, known, may_lack=False)


def _unnamed_levels(labels: Table, key: Sequence[str], source: RowSource) -> str | None:
    """The bag's column that is missing, where a pandas index without a name may be it."""
    missing = [name for name in key if name not in source.schema.names]
    levels = getattr(getattr(labels, "index", None), "names", ())
    is_numbering = type(getattr(labels, "index", None)).__name__ == "RangeIndex"
    return missing[0] if missing and None in levels and not is_numbering else None


def _has_number(cells: Cells | None) -> bool:
    return cells is not None and cells.has_number


def _refuse_repeated(ids: pa.Array, name: str) -> None:
    for entry in ids.value_counts().to_pylist():
        if entry["counts"] > 1:
            raise InputError(
                f"{name} has more than one row for bag {entry['values']!r}; one is expected."
            )


def _with_the_rest(
    classes: Sequence[str] | None, columns: list[str]
) -> tuple[str, str, str | None] | None:
    """(class with a column, class without one, column of the total or None), if it is like that."""
    if classes is None or len(classes) != 2:
        return None
    own = [label for label in classes if label in columns]
    beside = [column for column in columns if column not in own]
    total = beside[0] if beside else None
    if len(own) != 1 or len(beside) > 1 or (total and total.strip().lower() not in TOTALS):
        return None
    (other,) = (label for label in classes if label not in own)
    return own[0], other, total


def _two_classes(
    pair: tuple[str, str, str | None],
    ids: pa.Array,
    table: pa.Table,
    source: RowSource,
    known: Sequence[str] | None,
    spec: LabelSpec,
) -> LabelTable:
    """One class's numbers as they stand, and the rest for the other one."""
    one, _, total = pair
    name = source.name
    _refuse_repeated(ids, name)
    own, are = numbers_of_cells({one: readable(table, one, name)}, name, spec)
    rest = np.full_like(own, np.nan)
    if total is not None and (are.is_plain or are.kind == "sample"):
        totals, of_totals = numbers_of_cells(
            {total: readable(table, total, name)}, name, LabelSpec()
        )
        if of_totals.kind == "ranges":
            raise InputError(
                f"{name} has ranges in {total!r}, the number of rows of each bag; give numbers, or "
                "leave the column out."
            )
        if ((own != np.rint(own)) & ~np.isnan(own) | (own > totals)).any():
            raise InputError(
                f"{name} has {one!r} and {total!r}, but {one!r} is not a count up to {total!r} in "
                "every row; give counts, or leave the total out."
            )
        rest = totals - own
    classes = list(known) if known is not None else sorted(pair[:2])
    both = [own if label == one else rest for label in classes]
    return LabelTable(
        ids.to_pylist(), classes, np.concatenate(both, axis=1), name, are, source.files
    )


def _of_bounds(
    ids: pa.Array,
    table: pa.Table,
    columns: list[str],
    classes: Sequence[str] | None,
    source: RowSource,
) -> LabelTable:
    """Ranges from two columns for each class."""
    name = source.name
    _refuse_repeated(ids, name)
    found = bound_columns(columns, classes, name)
    if classes is None:
        found = {label: pair for label, pair in found.items() if not total_name(label)}
        if len(found) < 2:
            raise InputError(
                f"{name} has bounds of {', '.join(map(repr, found))} alone; two classes are "
                "expected. If all other rows are of a second class, name both with ",
                Option("classes"),
                ".",
            )
    names = sorted(found) if classes is None else list(classes)
    numbers = np.full((len(ids), len(names), 2), np.nan)
    for c, label in enumerate(names):
        if label not in found:
            continue  # it has the rest
        low, high = (readable(table, column, name) for column in found[label])
        for column, cells in zip(found[label], (low, high), strict=True):
            if cells.example and column != label:
                raise InputError(
                    f"the column {column!r} of {name} has {cells.example!r}; a number is expected "
                    "in a column of bounds, nothing where there is none."
                )
        numbers[:, c, 0], numbers[:, c, 1] = low.low, high.high
        if (bad := low.low > high.high).any():
            b = int(np.argmax(bad))
            raise InputError(
                f"{name} has {low.low[b]:g} in {found[label][0]!r} and {high.high[b]:g} in "
                f"{found[label][1]!r} for bag {ids[b].as_py()!r}; the lower bound must not be "
                "above the upper one."
            )
    return LabelTable(ids.to_pylist(), names, numbers, name, LabelSpec("ranges"), source.files)


def _long(
    ids: pa.Array,
    table: pa.Table,
    columns: list[str],
    cells: Cells | None,
    source: RowSource,
    spec: LabelSpec,
) -> LabelTable:
    class_column, number_column = columns
    name = source.name
    classes = category_texts(table.column(class_column))
    if classes.null_count:
        row = classes.is_null().index(True).as_py() + 1
        raise InputError(f"{name} has no {class_column} in row {row}.")
    if cells is None:
        cells = readable(table, number_column, name)
    values, are = numbers_of_cells({number_column: cells}, name, spec)
    found, labels = list(dict.fromkeys(ids.to_pylist())), sorted(set(classes.to_pylist()))
    places = {key: b for b, key in enumerate(found)}
    columns_of_classes = {label: c for c, label in enumerate(labels)}
    numbers = np.zeros((len(found), len(labels), *values.shape[2:]))
    there = np.zeros((len(found), len(labels)), dtype=np.bool_)
    for key, label, value in zip(ids.to_pylist(), classes.to_pylist(), values[:, 0], strict=True):
        place = places[key], columns_of_classes[label]
        if there[place]:
            raise InputError(f"{name} has class {label!r} of bag {key!r} twice; once is expected.")
        numbers[place], there[place] = value, True
    exact = None if numbers.ndim > 2 or np.isnan(numbers).any() else numbers
    used = without_total(labels, exact, are, "class", name)
    numbers = numbers[:, [columns_of_classes[label] for label in used]]
    return LabelTable(found, used, numbers, name, are, source.files)


def _of_known(labels: LabelTable, known: Sequence[str], may_lack: bool) -> LabelTable:
    """The same numbers under exactly the known classes, 0 for one that is lacking; others may be
    there if they are 0 in all bags.
    """
    there = (labels.numbers != 0).any(axis=tuple({0, labels.numbers.ndim - 1} - {1}))
    if unknown := [
        x for x, some in zip(labels.classes, there, strict=True) if some and x not in known
    ]:
        raise InputError(
            f"{labels.source} has the class {unknown[0]!r}, which the model does not know; "
            f"it knows {', '.join(known)}."
        )
    missing = [label for label in known if label not in labels.classes]
    if missing and not may_lack:
        raise InputError(
            f"{labels.source} has no column for the class {missing[0]!r}; the model knows "
            f"{', '.join(known)}."
        )
    numbers = np.zeros((len(labels.ids), len(known), *labels.numbers.shape[2:]))
    used = [c for c, label in enumerate(labels.classes) if label in known]
    numbers[:, [known.index(labels.classes[c]) for c in used]] = labels.numbers[:, used]
    return replace(labels, classes=list(known), numbers=numbers)
