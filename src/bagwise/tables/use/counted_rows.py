"""Rows of bags whose counts are known, for a model that is fitted already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from bagwise.errors import InputError, Option
from bagwise.tables.labels.counts import Counts
from bagwise.tables.labels.label_file import LabelTable, read_labels
from bagwise.tables.match.bag_table import MatchedRows, match_rows
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource

if TYPE_CHECKING:
    from bagwise.tables.sort.counted_store import CountedStore


def label_tables(model: FittedTable, counts: Counts) -> list[LabelTable]:
    """What is known of the bags, of each grouping."""
    apart = [] if model.context is None else model.context.names
    return [
        read_labels(
            part.labels, part.key, known=model.classes, labels_are=part.labels_are, apart=apart
        )
        for part in counts.groupings
    ]


def matched_rows(
    model: FittedTable,
    source: RowSource,
    counts: Counts,
    progress: bool = False,
    *,
    tables: Sequence[LabelTable] | None = None,
    row_labels: str | None = None,
) -> MatchedRows:
    """Which bag of the label files each row is in.

    Args:
        model: a fitted one.
        source: of the rows.
        counts: their bags.
        progress: show a bar, on a terminal.
        tables: of labels, if they are read already.
        row_labels: a column with labels of some rows.
    """
    source.require([*counts.keys, *model.columns.names])
    return match_rows(
        source,
        label_tables(model, counts) if tables is None else tables,
        columns=model.columns,
        row_labels=row_labels,
        weights=weight_column(model, source, counts.weights),
        skip_unmatched=counts.skip_unmatched,
        progress=progress,
    )


@contextmanager
def stored_rows(
    model: FittedTable, source: RowSource, counts: Counts, memory: int, progress: bool
) -> Iterator[CountedStore]:
    """The same within so many bytes of memory, in temporary files, which end with the block."""
    if not counts.is_plain:
        what = "several groupings" if counts.others else "rows with weights"
        raise InputError(f"{what} are all kept in memory; leave ", Option("memory"), " out.")
    from bagwise.tables.sort.counted_store import counted_store  # which imports what fits need

    (labels,) = label_tables(model, counts)
    source.require([*counts.keys, *model.columns.names])
    with counted_store(
        source, labels, model.columns, memory, counts.skip_unmatched, progress
    ) as store:
        yield store


def weight_column(model: FittedTable, source: RowSource, given: str | None) -> str | None:
    """The column that says how many identical rows each row stands for: if it is not given, that
    of the fit, where the table has it.
    """
    if given is None:
        with suppress(InputError):  # of a damaged fit.json
            own = model.facts.data.weights
            return own if own in source.schema.names else None
    return given
