"""Predictions for new rows of bags whose counts or shares are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bagwise.errors import InputError, Option, naming
from bagwise.labels.counts_or_shares import refuse_inexact, shares_of
from bagwise.labels.label_spec import LabelSpec
from bagwise.likelihood import effects_of_shares, mean_softmax
from bagwise.progress import RowProgress
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.counts import Counts
from bagwise.tables.match.bag_table import match_some
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.use.copied_types import copied_schema
from bagwise.tables.use.counted_rows import label_tables
from bagwise.tables.use.prediction_file import (
    Destination,
    Written,
    added_columns,
    kept_columns,
    writer_of,
)


def predict_by_shares(
    model: FittedTable,
    source: RowSource,
    counts: Counts,
    to: Destination,
    progress: bool,
) -> Written:
    """Write predictions for rows of bags whose counts or shares are known, see `predict_table`."""
    counts.refuse_several("predict")
    key = list(counts.key)
    if not key:
        raise InputError(
            "the labels of bags are given; name the bag's columns with ", Option("bag"), "."
        )
    refuse_inexact(LabelSpec.of(counts.labels_are))
    (known,) = label_tables(model, counts)
    to.check([*source.files, *known.files], model.classes)
    source.require([*key, *model.columns.names])
    kept = kept_columns(source, model, to.keep)
    with naming(bag=known.ids):
        given = shares_of(known.numbers, known.label_spec)
    place, left_out = match_some(source, key, known, counts.skip_unmatched, progress)
    surprises = Surprises()
    z = np.empty((len(place), len(model.classes)), dtype=np.float32)
    row = 0
    with RowProgress("predicting", len(place), progress) as bar:
        for batch in source.batches(model.columns.names):
            inputs = model.columns.encode(batch, row, surprises)
            z[row : row + batch.num_rows] = model.log_probs(inputs)
            row += batch.num_rows
            bar.advance(batch.num_rows)
    rows = np.flatnonzero(place >= 0)
    rows = rows[np.argsort(place[rows], kind="stable")]
    bags, sizes = np.unique(place[rows], return_counts=True)
    shares, totals = (numbers[bags] for numbers in given)
    tau = model.known_bags.effects.tau if model.known_bags else None
    found = effects_of_shares(z[rows].astype(np.float64), sizes, shares, totals, tau)
    schema = copied_schema(source, kept, to.out)
    with writer_of(to, schema, kept, added_columns(model.classes)) as write:
        row = 0
        for batch in source.batches(kept or model.columns.names[:1]):
            own = place[row : row + batch.num_rows]
            there = own >= 0
            which = np.searchsorted(bags, own[there])
            logits = z[row : row + batch.num_rows][there].astype(np.float64)
            p = mean_softmax(logits, which, found.means, found.spreads)
            copied = batch.select(kept).filter(pa.array(there)) if kept else None
            write(copied, [model.named(p.argmax(-1))], p)
            row += batch.num_rows
    return Written(
        len(rows), surprises, len(place) - len(rows), left_out, tau=found.tau, places=np.sort(rows)
    )
