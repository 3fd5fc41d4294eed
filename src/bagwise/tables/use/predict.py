"""Predictions for the rows of a table, written batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bagwise.errors import InputError
from bagwise.limits import LIMITS, Limits
from bagwise.progress import RowProgress
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.bag_names import bag_ids
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.use.counts import Counts
from bagwise.tables.use.prediction_file import (
    Out,
    Written,
    added_columns,
    check_out,
    kept_columns,
    writer_of,
)

if TYPE_CHECKING:
    from bagwise.labels.label_spec import LabelsAre


def predict_table(
    model: FittedTable,
    data: Table,
    out: Out,
    keep: Sequence[str] | None = None,
    progress: bool = False,
    force: bool = False,
    *,
    key: Sequence[str] = (),
    labels: Table | None = None,
    labels_are: LabelsAre = "auto",
    skip_unmatched: bool = False,
    limits: Limits = LIMITS,
) -> Written:
    """Write each row's most probable class and the probability of every class.

    Rows keep their order. The file appears when it is complete; memory holds one batch, with
    `labels` the log-probabilities of all rows.

    Args:
        model: a fitted one. One with bag effects uses those of its bags, where the table says which
            bag a row is in.
        data: rows with the model's feature columns.
        out: a file that ends in .parquet, .csv or .tsv.
        keep: columns to copy; those that are not features if not given.
        progress: show a bar, on a terminal.
        force: replace a file also if it does not end in the columns of such predictions; an input
            is never replaced.
        key: the bag's columns; of a model with bag effects, if not given, those it was fitted with.
        labels: a file with the known counts or shares of the bags, which tell what to expect of
            rows of these, see `bagwise.likelihood.effects_of_shares`.
        labels_are: what its numbers are.
        skip_unmatched: leave out rows of bags that it does not have.
        limits: sizes of what is read at a time.
    """
    source = open_rows(data, limits=limits)
    if labels is not None:
        from bagwise.tables.use.predict_by_shares import predict_by_shares

        counts = Counts(key, labels, labels_are, skip_unmatched)
        return predict_by_shares(model, source, counts, out, keep, progress, force)
    check_out(out, source.files, model.classes, force)
    source.require([*key, *model.columns.names])
    kept = kept_columns(source, model, keep)
    names = model.bag_columns(source.schema.names, key)
    with RowProgress("predicting", source.rows, progress) as bar:
        return predict_rows(model, source, source.schema, out, kept, names, bar.advance, False)


def predict_rows(
    model: FittedTable,
    source: RowSource,
    schema: pa.Schema,
    out: Out,
    kept: list[str],
    bag_columns: list[str],
    watch: Callable[[int], None],
    may_be_empty: bool,
) -> Written:
    """Write predictions for all rows of files whose columns were checked.

    Args:
        model: a fitted one.
        source: the rows.
        schema: types of the columns that are copied; `source` may be one of several files.
        out: the file.
        kept: columns to copy.
        bag_columns: those that name the bags, where that matters.
        watch: called with the number of rows whenever some are done.
        may_be_empty: whether there may be no rows at all.
    """
    surprises = Surprises()
    row = of_known = 0
    with writer_of(out, schema, kept, added_columns(model.classes)) as write:
        columns = dict.fromkeys([*kept, *bag_columns, *model.columns.names])
        for batch in source.batches(list(columns)):
            bags = bag_ids(batch, bag_columns) if bag_columns else None
            log_probs = model.predict(model.columns.encode(batch, row, surprises), bags)
            best = log_probs.argmax(axis=-1)
            write(batch.select(kept), [model.named(best)], np.exp(log_probs))
            if model.known_bags is not None and bags is not None:
                of_known += model.known_bags.count(bags)
            row += batch.num_rows
            watch(batch.num_rows)
        if not (row or may_be_empty):
            raise InputError(f"{source.name} has no rows.")
    return Written(row, surprises, of_known_bags=of_known if model.known_bags else None)
