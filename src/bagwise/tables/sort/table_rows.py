"""The rows of a table, encoded and sorted by bag: in memory, or in a file if they are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bagwise.bags import IntArray
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import refuse_more_than_memory
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.encode.columns import Inputs
from bagwise.tables.encode.learn_columns import Ordered
from bagwise.tables.labels.bag_context import RowsWithContext, context_of
from bagwise.tables.labels.label_file import LabelTable
from bagwise.tables.match.bag_table import (
    MatchedRows,
    encode_rows,
    match_rows,
    without_absent_classes,
)
from bagwise.tables.match.heavy_tails import judged_here, with_useful_logs
from bagwise.tables.read.databases import is_database
from bagwise.tables.read.frames import is_frame, refuse_no_table
from bagwise.tables.read.paths import paths_of
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.read.streaming import streamed_rows
from bagwise.tables.read.table_files import is_text_file, size_of
from bagwise.tables.sort.sorted_table import read_sorted
from bagwise.tables.sort.store import Store


@dataclass(frozen=True)
class Asked:
    """What to read.

    Attributes:
        key: the bag's columns, of all groupings.
        features: see `bagwise.read_bags`, also for the others.
        seed: of the bags by which logarithms are judged.
        context: columns of bags, see `tables.labels.bag_context`,
        label_file: where those that are not means are.
    """

    key: list[str]
    features: list[str]
    exclude: list[str]
    categorical: list[str]
    ordered: Ordered
    row_labels: str | None
    skip_unmatched: bool
    seed: int
    limits: Limits = LIMITS
    weights: str | None = None
    context: Sequence[str] = ()
    label_file: Table = None

    @property
    def as_text(self) -> list[str]:
        """Columns of CSV files that are text in any case."""
        own = [] if self.row_labels is None else [self.row_labels]
        return [*self.key, *own, *self.categorical, *self.ordered]


def rows_in_memory(
    data: Table, labels: Sequence[LabelTable], asked: Asked, progress: bool
) -> tuple[Sequence[str], MatchedRows, Inputs]:
    """Where the rows were, the bags and what the columns mean, and (N, width) the rows."""
    refuse_no_table(data)
    if not (is_frame(data) or is_database(data)):
        data = paths_of(data)
        texts = [file for file in data if is_text_file(file)]
        refuse_more_than_memory(sum(map(size_of, texts)), "the table")
    source = open_rows(data, typed=True, as_text=asked.as_text, keys=asked.key, limits=asked.limits)
    context = None
    if asked.context:
        context = context_of(
            asked.context,
            asked.label_file,
            source,
            list(labels[0].key),
            labels[0].classes,
            asked.weights,
        )
        source = RowsWithContext(source, context)
    own = context.names if context is not None and asked.features else []
    rows = match_rows(
        source,
        labels,
        features=[*asked.features, *own],
        exclude=asked.exclude,
        categorical=asked.categorical,
        ordered=asked.ordered,
        row_labels=asked.row_labels,
        weights=asked.weights,
        skip_unmatched=asked.skip_unmatched,
        progress=progress,
    )
    if context is not None:
        rows = replace(rows, context=context.used(rows.columns.names, rows.targets.ids.tolist()))
    rows = without_absent_classes(rows, labels[0].source)
    targets, given = rows.targets, rows.columns

    def encode(index: IntArray) -> np.ndarray:
        order = targets.order[targets.bags.rows(index)]
        return encode_rows(source, given, order, rows.n_rows)[0]

    rows = replace(rows, columns=with_useful_logs(rows, asked.seed, judged_here(encode)))
    cells = len(targets.order) * len(rows.columns.encoded_names)
    refuse_more_than_memory(4 * cells, "the table, encoded,")
    inputs, _ = encode_rows(source, rows.columns, targets.order, rows.n_rows, progress)
    return source.places, rows, inputs


def rows_in_store(
    data: Table, labels: LabelTable, asked: Asked, store: Store, budget: int, progress: bool
) -> tuple[Sequence[str], MatchedRows, StoredRows]:
    """The same within a budget of memory, the rows in a store."""
    with store.alone():
        source = streamed_rows(data, asked.as_text, budget, asked.limits)
        rows, inputs = read_sorted(source, labels, asked, store, budget, progress)
    return source.places, rows, inputs
