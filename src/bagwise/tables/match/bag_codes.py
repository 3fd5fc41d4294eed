"""The bag of each row of a table, read once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bagwise.bags import IntArray
from bagwise.errors import InputError
from bagwise.progress import RowProgress
from bagwise.tables.encode.learn_columns import ColumnLearner
from bagwise.tables.labels.bag_names import bag_ids
from bagwise.tables.labels.row_count_column import learned_copies, written_out
from bagwise.tables.labels.row_label_column import RowLabels
from bagwise.tables.read.row_source import RowSource


def read_bag_codes(
    source: RowSource,
    keys: list[list[str]],
    learner: ColumnLearner | None,
    bar: RowProgress,
    row_labels: RowLabels | None = None,
    copies: IntArray | None = None,
) -> list[tuple[IntArray, list[str]]]:
    """For each grouping, (N,) a number for each row's bag, -1 where it has none, and the names of
    these numbers.
    """
    numbers: list[dict[str, int]] = [{} for _ in keys]
    parts = list(bag_codes(source, keys, learner, bar, numbers, row_labels, copies))
    of_keys = zip(zip(*parts, strict=True), numbers, strict=True)
    return [(np.concatenate(codes), list(names)) for codes, names in of_keys]


def bag_codes(
    source: RowSource,
    keys: list[list[str]],
    learner: ColumnLearner | None,
    bar: RowProgress,
    numbers: list[dict[str, int]],
    row_labels: RowLabels | None = None,
    copies: IntArray | None = None,
) -> Iterator[list[npt.NDArray[np.int32]]]:
    """A number for each row's bag in each grouping, -1 where it has none, batch by batch.

    Args:
        source: of the rows.
        keys: the bag's columns, of each grouping.
        learner: to which the batches are shown.
        bar: to which their rows are told.
        numbers: of each grouping, name of a bag -> its number; new ones are added.
        row_labels: to which the batches are shown.
        copies: (N,) how many identical rows each row stands for; None for one.
    """
    row = 0
    wanted = [*(name for key in keys for name in key), *(learner.names if learner else [])]
    wanted += [] if row_labels is None else [row_labels.column]
    shown = None if copies is None else learned_copies(copies)
    for batch in source.batches(list(dict.fromkeys(wanted))):
        codes = [_codes(batch, key, known) for key, known in zip(keys, numbers, strict=True)]
        if learner is not None:
            own = None if shown is None else shown[row : row + batch.num_rows]
            learner.update(batch if own is None else written_out(batch, own))
        if row_labels is not None:
            row_labels.update(batch)
        bar.advance(batch.num_rows)
        yield codes
        row += batch.num_rows
    if not row:
        raise InputError(f"{source.name} has no rows.")


def _codes(batch: pa.RecordBatch, key: list[str], numbers: dict[str, int]) -> npt.NDArray[np.int32]:
    encoded = bag_ids(batch, key).dictionary_encode()
    own = [numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()]
    local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(local >= 0, np.array([*own, -1])[local], -1).astype(np.int32)
