"""The groups that the values of columns make of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bagwise.bags import IntArray
from bagwise.errors import InputError
from bagwise.tables.encode.columns import Columns
from bagwise.tables.read.row_source import RowSource
from bagwise.wording import in_order

MISSING = "(missing)"


def row_groups(
    source: RowSource, by: Sequence[str], columns: Columns
) -> tuple[IntArray, list[tuple[str, ...]]]:
    """(N,) the group of each row, and the values that make each group, sorted.

    Values of ordered categories of the model are in their order.
    """
    levels = {c.name: c.categories for c in columns.columns if c.kind == "ordered"}
    places = [{level: place for place, level in enumerate(levels.get(name, ()))} for name in by]
    numbers: dict[tuple[str, ...], int] = {}
    parts = []
    for batch in source.batches(list(by)):
        texts = [_texts(batch, name).to_pylist() for name in by]
        named = ([x or MISSING for x in column] for column in texts)
        values = list(zip(*named, strict=True))
        parts.append([numbers.setdefault(value, len(numbers)) for value in values])
    if not numbers:
        raise InputError(f"{source.name} has no rows.")
    names = sorted(
        numbers,
        key=lambda group: [
            (place.get(value, len(place)), in_order(value))
            for place, value in zip(places, group, strict=True)
        ],
    )
    place = np.empty(len(names), dtype=np.int64)
    for position, name in enumerate(names):
        place[numbers[name]] = position
    return place[np.concatenate(parts)], names


def _texts(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column's values as they are written."""
    column = batch.column(name)
    if pa.types.is_nested(column.type):
        raise InputError(
            f"the column {name!r} holds values of type {column.type}, which make no groups; choose "
            "one of text, numbers or dates."
        )
    return column.cast(pa.string())
