"""The column that says how many identical rows each row stands for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bagwise.bags import IntArray
from bagwise.errors import InputError, Option
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.values import numbers_of

_LARGEST = 2**31  # more people than a row can stand for
_LEARNED = 2_000_000  # rows, written out, from which it is learned what columns mean


def row_counts(source: RowSource, column: str) -> IntArray:
    """(N,) how many identical rows each row stands for."""
    source.require([column])
    parts, row = [np.empty(0, dtype=np.int64)], 0
    for batch in source.batches([column]):
        parts.append(row_counts_of(batch.column(column), column, row))
        row += batch.num_rows
    return np.concatenate(parts)


def row_counts_of(values: pa.Array, column: str, first_row: int) -> IntArray:
    """The same of some rows."""
    found = numbers_of(values, "numeric", column, first_row)
    bad = ~((found >= 1) & (found <= _LARGEST) & (found == np.rint(found)))
    if bad.any():
        place = int(np.argmax(bad))
        value = "no number" if np.isnan(found[place]) else f"{found[place]:g}"
        raise InputError(
            Option("weights"),
            f" is the column {column!r}, which has {value} in row {first_row + place + 1}; the "
            "number of identical rows that a row stands for is expected, a whole number from 1 on. "
            "Leave out rows that stand for none. Survey weights, which say how many others a row "
            "represents, are not supported.",
        )
    return found.astype(np.int64)


def learned_copies(copies: IntArray) -> IntArray:
    """(N,) how often each row counts where it is learned what columns mean: as often as it stands
    for rows, or in proportion if these are more than two million.
    """
    share = min(_LEARNED / max(int(copies.sum()), 1), 1.0)
    return np.maximum((copies * share).astype(np.int64), 1)


def written_out(batch: pa.RecordBatch, copies: IntArray) -> pa.RecordBatch:
    """Rows, each as often as `copies` says.

    >>> rows = pa.RecordBatch.from_pydict({"age": [20, 60]})
    >>> written_out(rows, np.array([1, 2])).column("age").to_pylist()
    [20, 60, 60]
    """
    return batch.take(pa.array(np.repeat(np.arange(batch.num_rows), copies)))
