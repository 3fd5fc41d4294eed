"""Columns of bags beside those of rows: from the label file, or means of the rows of a bag.

They become columns of the rows: each row has those of its bag. New rows of known bags get them from
the model; other rows have them in columns of their own, or are taken to be of an average bag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.bags import FloatArray, IntArray
from bagwise.checks import Where, list_of, record, text, whole, wrong
from bagwise.errors import InputError, Option
from bagwise.tables.labels.bag_names import bag_ids, plain_name
from bagwise.tables.labels.row_count_column import row_counts
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.read.type_inference import inferred
from bagwise.tables.read.values import category_texts, is_text

FORMAT = 1
_MEAN = re.compile(r"mean\((.+)\)")
_MOST_LEVELS = 20  # of a column of text, whose shares are taken


def label_columns(context: Sequence[str]) -> list[str]:
    """Those of the names that are columns of the label file, and no means.

    >>> label_columns(["income", "mean(age)"])
    ['income']
    """
    return [name for name in context if not _MEAN.fullmatch(name)]


@dataclass(frozen=True)
class BagContext:
    """Columns of bags.

    Attributes:
        key: columns that name the bag of a row.
        bags: their names.
        columns: by name, a value for each bag, null where it is not known.
    """

    key: tuple[str, ...]
    bags: tuple[str, ...]
    columns: Mapping[str, pa.Array]

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self.columns)

    def used(self, names: Sequence[str], bags: Sequence[str]) -> BagContext:
        """The same with these columns and bags only."""
        there = set(map(plain_name, bags))
        kept = [b for b, name in enumerate(self.bags) if plain_name(name) in there]
        return BagContext(
            self.key,
            tuple(self.bags[b] for b in kept),
            {
                name: x.take(pa.array(kept, pa.int64()))
                for name, x in self.columns.items()
                if name in names
            },
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        names = list(enumerate(self.bags))
        return {plain_name(name): b for b, name in names} | {name: b for b, name in names}

    def places(self, ids: pa.Array) -> pa.Array:
        """Where in `bags` each row's bag is; null where it is not."""
        encoded = ids.dictionary_encode()
        known = [
            self._places.get(name, self._places.get(plain_name(name)))
            for name in encoded.dictionary.to_pylist()
        ]
        return pa.array(known, pa.int64()).take(encoded.indices)

    def to_json(self) -> dict[str, Any]:
        """The content of context.json: values as they are written."""
        values = {name: x.cast(pa.string()).to_pylist() for name, x in self.columns.items()}
        return {
            "format": FORMAT,
            "bag_columns": list(self.key),
            "bags": list(self.bags),
            "columns": values,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> BagContext:
        """The same from there, as texts; what is of another form is an InputError."""
        needed = {
            "format": whole(FORMAT, FORMAT),
            "bag_columns": list_of(text, 1),
            "bags": list_of(text, 1),
            "columns": _check_columns,
        }
        record(needed)(content, "")
        columns = {name: pa.array(x, pa.string()) for name, x in content["columns"].items()}
        for name, values in columns.items():
            if len(values) != len(content["bags"]):
                raise InputError(f"columns.{name} has {len(values)} values, not one for each bag.")
        return cls(tuple(content["bag_columns"]), tuple(content["bags"]), columns)


def _check_columns(value: Any, name: Where) -> None:
    if not isinstance(value, dict) or not all(
        isinstance(x, list) and all(v is None or isinstance(v, str) for v in x)
        for x in value.values()
    ):
        raise wrong(value, name, "a list of texts for each column")


class RowsWithContext(RowSource):
    """Rows with the columns of their bags.

    Args:
        source: the rows. A column that they have themselves is left as it is.
        context: columns of bags.
        bag: columns that name the bag of a row, if not those of `context`.
    """

    def __init__(self, source: RowSource, context: BagContext, bag: Sequence[str] = ()) -> None:
        self._source, self._context = source, context
        self._added = [name for name in context.names if name not in source.schema.names]
        key = list(bag) or list(context.key)
        self._key = key if set(key) <= set(source.schema.names) else []
        fields = [pa.field(name, context.columns[name].type) for name in self._added]
        schema = pa.schema([*source.schema, *fields])
        super().__init__(source.name, schema, source.rows, source.limits)
        self.files, self.folder_columns = source.files, source.folder_columns
        self.batch_rows = source.batch_rows
        self.bag_columns = self._added

    @property
    def places(self) -> list[str]:
        """Those of the rows."""
        return self._source.places

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, of these columns (all if not given), in batches."""
        names = self.schema.names if columns is None else columns
        added = [name for name in names if name in self._added]
        if not added:
            yield from self._source.batches(columns)
            return
        own = [name for name in names if name not in added]
        read = list(dict.fromkeys([*own, *self._key])) or self._source.schema.names[:1]
        for batch in self._source.batches(read):
            places = pa.nulls(batch.num_rows, pa.int64())
            if self._key:
                places = self._context.places(bag_ids(batch, self._key))
            arrays = {name: batch.column(name) for name in own}
            arrays |= {name: self._context.columns[name].take(places) for name in added}
            yield pa.RecordBatch.from_pydict({name: arrays[name] for name in names})


def context_of(
    context: Sequence[str],
    labels: Table,
    source: RowSource,
    key: Sequence[str],
    classes: Sequence[str],
    weights: str | None = None,
) -> BagContext:
    """The columns of bags that a fit is asked to learn from.

    Args:
        context: names of columns of the label file, and `mean(column)` of columns of the rows: the
            mean over a bag, of text the share of each value but the most frequent one.
        labels: the label file.
        source: the rows.
        key: columns that name bags.
        classes: names of the classes.
        weights: the column that says how many identical rows each row stands for.
    """
    context = list(dict.fromkeys(context))
    for name in context:
        if name in classes:
            raise InputError(
                Option("context"),
                f" names {name!r}, a class: its counts are what is to be learned. Leave it out.",
            )
        if name in source.schema.names and name in key:
            raise InputError(
                Option("context"), f" names {name!r}, which names the bags; leave it out."
            )
        if name in source.schema.names:
            raise InputError(
                Option("context"),
                f" names {name!r}, which is a column of the rows; leave it out, or say ",
                Option("context", f"mean({name})"),
                ".",
            )
    means = list(dict.fromkeys(x[1].strip() for name in context if (x := _MEAN.fullmatch(name))))
    if named := [name for name in means if name in key]:
        raise InputError(
            Option("context"),
            f" names mean({named[0]}), but {named[0]!r} names the bags; leave it out.",
        )
    source.require([*key, *means])
    of_rows, bags = _means(source, list(key), means, weights)
    of_labels = _of_label_file(labels, list(key), label_columns(context), bags)
    return BagContext(tuple(key), tuple(bags), of_labels | of_rows)


def _of_label_file(
    labels: Table, key: list[str], names: list[str], bags: Sequence[str]
) -> dict[str, pa.Array]:
    """Columns of the label file, for these bags; what has several values in a bag is an error."""
    if not names:
        return {}
    source = open_rows(labels, keys=key, name="the table of labels")
    source.require([*key, *names])
    table = pa.Table.from_batches(source.batches([*key, *names]))
    ids = [plain_name(name or "") for name in bag_ids(table, key).to_pylist()]
    found = {}
    for name in names:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = pa.chunked_array([category_texts(column.combine_chunks())])
        if is_text(column.type):
            column = inferred(column)
        column = column.combine_chunks()
        by_bag: dict[str, int] = {}
        values = column.to_pylist()
        for row, bag in enumerate(ids):
            first = by_bag.setdefault(bag, row)
            if values[first] != values[row]:
                raise InputError(
                    f"the column {name!r} of {source.name} has {values[first]!r} and "
                    f"{values[row]!r} for bag {bag!r} (None: no value); a column of ",
                    Option("context"),
                    " has one value for each bag.",
                )
        # Rows of bags without labels are left out later; until then they have an ordinary value.
        ordinary = pc.sort_indices(column)[(len(column) - column.null_count) // 2].as_py()
        places = pa.array([by_bag.get(plain_name(bag), ordinary) for bag in bags], pa.int64())
        found[name] = column.take(places)
    return found


def _means(
    source: RowSource, key: list[str], names: list[str], weights: str | None
) -> tuple[dict[str, pa.Array], list[str]]:
    """Means of columns over the rows of each bag, and the names of the bags."""
    copies = None if weights is None else row_counts(source, weights)
    numbers: dict[str, int] = {}
    sums: dict[str, dict[str, list[tuple[IntArray, FloatArray]]]] = {name: {} for name in names}
    row = 0
    for batch in source.batches([*key, *names]):
        encoded = bag_ids(batch, key).dictionary_encode()
        places = [numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()]
        local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        bag = np.array([*places, -1], dtype=np.int64)[local]
        times = np.ones(len(bag)) if copies is None else copies[row : row + len(bag)].astype(float)
        row += len(bag)
        for name in names:
            for level, (there, values) in _values(batch.column(name), name, source.name).items():
                part = sums[name].setdefault(level, [])
                used = there & (bag >= 0)
                part.append((bag[used], np.stack([times[used], times[used] * values[used]])))
    found = {}
    for name in names:
        totals = {level: _totals(part, len(numbers)) for level, part in sums[name].items()}
        if "" not in totals:  # of text: shares of the most frequent values but the first
            rows = sum(t[0] for t in totals.values())
            ranked = sorted(totals, key=lambda level: -totals[level][0].sum())
            shares = {x: (rows, totals[x][0]) for x in sorted(ranked[1 : _MOST_LEVELS + 1])}
            means = {f"mean({name}={level})": pair for level, pair in shares.items()}
        else:
            means = {f"mean({name})": (totals[""][0], totals[""][1])}
        for label, (n, total) in means.items():
            found[label] = pa.array(total / np.maximum(n, 1e-300), mask=n == 0)
    return found, list(numbers)


def _values(column: pa.Array, name: str, source: str) -> dict[str, tuple[np.ndarray, FloatArray]]:
    """Which rows have a value, and the values as numbers; of text by level."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        return {"": (np.isfinite(values), np.where(np.isfinite(values), values, 0.0))}
    if not (is_text(column.type) or pa.types.is_dictionary(column.type)):
        raise InputError(
            Option("context"),
            f" names mean({name}), but that column of {source} has the type {column.type}; choose "
            "one of numbers or text.",
        )
    encoded = category_texts(column).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return {
        level: (codes == code, np.ones(len(codes)))
        for code, level in enumerate(encoded.dictionary.to_pylist())
    }


def _totals(parts: list[tuple[IntArray, FloatArray]], n_bags: int) -> FloatArray:
    """(2, n_bags) sums over rows of weights, and of weights times values."""
    totals = np.zeros((2, n_bags))
    for bag, values in parts:
        for k in range(2):
            totals[k] += np.bincount(bag, values[k], minlength=n_bags)
    return totals
