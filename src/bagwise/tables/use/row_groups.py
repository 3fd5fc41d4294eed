"""The groups that the values of columns make of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bagwise.bags import IntArray
from bagwise.errors import InputError
from bagwise.tables.encode.columns import Columns
from bagwise.tables.labels.row_count_column import row_counts_of
from bagwise.tables.read.row_source import RowSource
from bagwise.wording import in_order

MISSING = "(missing)"


@dataclass(frozen=True)
class RowGroups:
    """Groups of rows.

    Attributes:
        by: columns whose values make them.
        names: (G,) these values, sorted.
        rows: (G,) instances of each, those that weights stand for.
    """

    by: Sequence[str]
    names: list[tuple[str, ...]]
    rows: IntArray
    _numbers: dict[tuple[str, ...], int]

    def __len__(self) -> int:
        return len(self.names)

    def of_rows(self, batch: pa.RecordBatch) -> IntArray:
        """(n,) the group of each row."""
        values, place = _values(batch, self.by)
        return np.array([self._numbers[value] for value in values], dtype=np.int64)[place]


def row_groups(
    source: RowSource, by: Sequence[str], columns: Columns, weights: str | None = None
) -> RowGroups:
    """The groups of all rows. Values of ordered categories of the model are in their order.

    Args:
        source: of the rows.
        by: columns whose values make the groups.
        columns: of the model.
        weights: the column that says how many identical rows each row stands for.
    """
    levels = {c.name: c.categories for c in columns.columns if c.kind == "ordered"}
    places = [{level: place for place, level in enumerate(levels.get(name, ()))} for name in by]
    found: Counter[tuple[str, ...]] = Counter()
    row = 0
    for batch in source.batches(list(dict.fromkeys([*by, *([weights] if weights else [])]))):
        values, place = _values(batch, by)
        copies = row_counts_of(batch.column(weights), weights, row) if weights else None
        rows = np.bincount(place, copies, len(values)).astype(np.int64)
        found.update(dict(zip(values, rows.tolist(), strict=True)))
        row += batch.num_rows
    if not found:
        raise InputError(f"{source.name} has no rows.")
    names = sorted(
        found,
        key=lambda group: [
            (place.get(value, len(place)), in_order(value))
            for place, value in zip(places, group, strict=True)
        ],
    )
    numbers = {name: number for number, name in enumerate(names)}
    return RowGroups(by, names, np.array([found[name] for name in names]), numbers)


def _values(batch: pa.RecordBatch, by: Sequence[str]) -> tuple[list[tuple[str, ...]], IntArray]:
    """The different values of columns, and (n,) which of them each row has."""
    place = np.zeros(batch.num_rows, dtype=np.int64)
    texts: list[list[str]] = []
    for name in by:
        encoded = _texts(batch, name).dictionary_encode(null_encoding="encode")
        texts.append([text or MISSING for text in encoded.dictionary.to_pylist()])
        place = place * max(len(texts[-1]), 1) + encoded.indices.to_numpy(zero_copy_only=False)
    different, place = np.unique(place, return_inverse=True)
    sizes = [max(len(column), 1) for column in texts]
    rows = zip(*np.unravel_index(different, sizes), strict=True)
    values = [tuple(column[i] for column, i in zip(texts, row, strict=True)) for row in rows]
    return values, place.ravel()


def _texts(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column's values as they are written."""
    column = batch.column(name)
    if pa.types.is_nested(column.type):
        raise InputError(
            f"the column {name!r} holds values of type {column.type}, which make no groups; choose "
            "one of text, numbers or dates."
        )
    return column.cast(pa.string())
