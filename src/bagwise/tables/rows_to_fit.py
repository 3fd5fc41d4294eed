"""The rows that a model is fitted to: in memory, in a file, or with the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from bagwise.errors import InputError, Option
from bagwise.storage.files import temporary_folder
from bagwise.tables.cluster.shares import MUCH, SharedSource
from bagwise.tables.fit_options import (
    ColumnOptions,
    ModelOptions,
    WorkOptions,
    refuse_when_spread,
    spreads_rows,
)
from bagwise.tables.labels.bag_context import label_columns
from bagwise.tables.labels.counts import Counts
from bagwise.tables.labels.label_file import LabelTable, read_labels
from bagwise.tables.match.bag_table import MatchedRows
from bagwise.tables.read.databases import is_database
from bagwise.tables.read.frames import is_frame
from bagwise.tables.read.paths import paths_of
from bagwise.tables.read.source import Table
from bagwise.tables.read.table_files import TableFile, is_text_file
from bagwise.tables.sort.encoded_bags import EncodedBags
from bagwise.tables.sort.sorted_table import refuse_what_needs_memory
from bagwise.tables.sort.store import Store
from bagwise.tables.sort.table_rows import Asked, rows_in_memory, rows_in_store


class RowsToFit(NamedTuple):
    """Encoded rows, and where they come from.

    Attributes:
        files: that were read, or where else the rows were; none of a frame.
        store: the folder that has the rows, if one does.
    """

    files: Sequence[str]
    rows: MatchedRows
    encoded: EncodedBags
    store: Store | None = None


def read_rows(
    data: Table,
    counts: Counts,
    columns: ColumnOptions,
    model: ModelOptions,
    work: WorkOptions,
    enter: Callable[[AbstractContextManager[Any]], Any],
) -> RowsToFit:
    """Read labels and rows.

    Args:
        enter: enters a context that lasts as long as rows are needed.
    """
    if work.memory is not None and is_frame(data):
        raise InputError(
            Option("memory"),
            f" is for files, and the rows are a {type(data).__name__}, which is in memory as a "
            "whole. Leave it out, or write the rows to a Parquet file and give its path.",
        )
    is_spread = spreads_rows(data, model, work)
    if is_spread:
        refuse_when_spread(counts, columns)
    if is_spread or work.memory is not None:
        refuse_what_needs_memory(model.training.method, columns.row_labels)
    elif work.store is not None:
        raise InputError(
            Option("store"), " is for rows beyond memory; give ", Option("memory"), ", too."
        )
    labels = [
        read_labels(
            part.labels,
            part.key,
            part.classes,
            labels_are=part.labels_are,
            apart=label_columns(columns.context),
        )
        for part in counts.groupings
    ]
    asked = Asked(
        key=counts.keys,
        features=columns.features,
        exclude=columns.exclude,
        categorical=columns.categorical,
        ordered=columns.ordered,
        row_labels=columns.row_labels,
        weights=counts.weights,
        skip_unmatched=counts.skip_unmatched,
        seed=model.training.seed,
        limits=work.limits,
        context=columns.context,
        label_file=counts.labels,
    )
    if is_spread:
        return _with_workers(data, labels[0], asked, work, enter)
    if work.memory is None:
        files, rows, inputs = rows_in_memory(data, labels, asked, work.progress)
        instances = None if rows.groupings is None else rows.groupings.stacked()[0]
        return RowsToFit(files, rows, EncodedBags(inputs, rows.targets.bags, instances))
    if work.out is None and work.store is None:
        store = Store(enter(temporary_folder()) / "rows")  # a store locks its folder itself
    else:
        store = Store.beside(work.out, work.store)
    files, rows, stored = rows_in_store(data, labels[0], asked, store, work.memory, work.progress)
    return RowsToFit(files, rows, EncodedBags(stored, rows.targets.bags), store)


def _with_workers(
    data: Table,
    labels: LabelTable,
    asked: Asked,
    work: WorkOptions,
    enter: Callable[[AbstractContextManager[Any]], Any],
) -> RowsToFit:
    if is_database(data):
        raise InputError(
            "the workers of a cluster share the rows of files, and these are in a database. Write "
            "them to Parquet files, or leave out ",
            Option("ray"),
            ".",
        )
    from bagwise.tables.cluster.read_sharded import looked_at, rows_in_shards
    from bagwise.tables.cluster.worker_pool import Workers

    files = paths_of(data)
    is_known = not any(map(is_text_file, files))  # what the columns hold
    if is_known:  # mistakes are named before Ray is started
        _shared(files, asked, work).require(asked.key)
    assert work.ray is not None
    cores = enter(work.ray)
    n = work.workers or cores
    if n > cores:
        raise InputError(
            f"{n} workers need a core each, and Ray has {cores}; give fewer ",
            Option("workers"),
            ".",
        )
    workers = enter(Workers(n, work.store))
    looks = None if is_known else looked_at(files, asked, workers)
    source = _shared(files, asked, work, looks)
    source.require(asked.key)
    return RowsToFit(*rows_in_shards(source, labels, asked, workers, work.memory, work.progress))


def _shared(
    files: Sequence[TableFile], asked: Asked, work: WorkOptions, looks: Any = None
) -> SharedSource:
    return SharedSource(files, asked.as_text, work.memory or MUCH, asked.limits, looks)
