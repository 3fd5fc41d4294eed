"""Predictions for the rows of a table, written batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from bagwise.errors import InputError
from bagwise.limits import LIMITS, Limits
from bagwise.progress import RowProgress
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.bag_names import bag_ids
from bagwise.tables.labels.counts import Counts
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.use.copied_types import copied_schema
from bagwise.tables.use.prediction_file import (
    Destination,
    Written,
    added_columns,
    kept_columns,
    writer_of,
)


def predict_table(
    model: FittedTable,
    data: Table,
    to: Destination,
    counts: Counts | None = None,
    *,
    bag: Sequence[str] = (),
    progress: bool = False,
    limits: Limits = LIMITS,
) -> Written:
    """Write each row's most probable class and the probability of every class.

    Rows keep their order. A file appears when it is complete; memory holds one batch, with `counts`
    the log-probabilities of all rows.

    Args:
        model: a fitted one. One with bag effects uses those of its bags, where the table says which
            bag a row is in.
        data: rows with the model's feature columns.
        to: where the predictions go.
        counts: the known counts or shares of the bags that these are new rows of, which tell what
            to expect of them, see `bagwise.likelihood.effects_of_shares`.
        bag: the bag's columns, for a model with bag effects; those of the fit if not given.
        progress: show a bar, on a terminal.
        limits: sizes of what is read at a time.
    """
    key = bag if counts is None else counts.key
    source = model.with_context(open_rows(data, limits=limits), key)
    if counts is not None:
        from bagwise.tables.use.predict_by_shares import predict_by_shares

        return predict_by_shares(model, source, counts, to, progress)
    to.check(source.files, model.classes)
    source.require([*bag, *model.columns.names])
    kept = kept_columns(source, model, to.keep)
    names = model.bag_columns(source.schema.names, bag)
    schema = copied_schema(source, kept, to.out)
    with RowProgress("predicting", source.rows, progress) as bar:
        return predict_rows(model, source, schema, to, kept, names, bar.advance, False)


def predict_rows(
    model: FittedTable,
    source: RowSource,
    schema: pa.Schema,
    to: Destination,
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
        to: where they go.
        kept: columns to copy.
        bag_columns: those that name the bags, where that matters.
        watch: called with the number of rows whenever some are done.
        may_be_empty: whether there may be no rows at all.
    """
    surprises = Surprises()
    row = of_known = 0
    with writer_of(to, schema, kept, added_columns(model.classes)) as write:
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
