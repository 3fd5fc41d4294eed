"""Rows of bags whose counts are known, for a model that is fitted already."""

from __future__ import annotations

from bagwise.tables.labels.counts import Counts
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.match.bag_table import MatchedRows, match_rows
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource


def matched_rows(
    model: FittedTable, source: RowSource, counts: Counts, progress: bool = False
) -> MatchedRows:
    """Which bag of the label file each row is in."""
    key = list(counts.key)
    source.require([*key, *model.columns.names])
    return match_rows(
        source,
        key,
        read_labels(counts.labels, key, known=model.classes, labels_are=counts.labels_are),
        columns=model.columns,
        skip_unmatched=counts.skip_unmatched,
        progress=progress,
    )
