"""Labels for rows of bags whose counts are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bagwise.limits import LIMITS, Limits
from bagwise.posterior import bag_posterior, most_probable_labeling
from bagwise.progress import RowProgress
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.counts import Counts
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.match.bag_table import match_rows, places
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.use.copied_types import copied_schema
from bagwise.tables.use.prediction_file import (
    Destination,
    Written,
    added_columns,
    kept_columns,
    writer_of,
)

MOST_PROBABLE = "most_probable"
_CHUNK = 200_000  # instances of bags that are labelled at a time


def label_table(
    model: FittedTable,
    data: Table,
    counts: Counts,
    to: Destination,
    *,
    row_labels: str | None = None,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> Written:
    """Write the labels of rows whose bags' counts are known, these taken into account.

    The probabilities are those of a row's label given its bag's counts, and `most_probable` is the
    class that has the largest; `label` is that of the most probable labeling of the whole bag with
    exactly these counts. If the model is right, the former is right more often; the latter has the
    right totals. Where counts are not exact, what is known of them takes their place, and the
    totals are those that are most probable. Rows of bags that are left out (`skip_unmatched`) are
    left out. The own effect of a bag does not matter where its counts are exact: given them, the
    labels do not depend on it. Where they are not, the labels given what is known are averaged over
    the effects that go with it, and `label` is at their mean. What the fit knew of a bag's effect
    is not used: it may come from the same counts, which would count twice. With `row_labels`, a
    column of labels of some rows, these are kept and the others have the rest of the counts.
    """
    source = open_rows(data, limits=limits)
    key = list(counts.key)
    known = read_labels(counts.labels, key, known=model.classes, labels_are=counts.labels_are)
    to.check([*source.files, *known.files], model.classes)
    source.require([*key, *model.columns.names])
    kept = kept_columns(source, model, to.keep, MOST_PROBABLE)
    rows_found = match_rows(
        source,
        key,
        known,
        columns=model.columns,
        row_labels=row_labels,
        skip_unmatched=counts.skip_unmatched,
        progress=progress,
    )
    order, n_rows, bags = rows_found.targets.order, rows_found.n_rows, rows_found.targets.bags
    place, surprises = places(order, n_rows), Surprises()
    log_probs = np.empty((len(order), len(model.classes)), dtype=np.float32)
    with RowProgress("predicting", n_rows, progress) as bar:
        row = 0
        for batch in source.batches(model.columns.names):
            own = place[row : row + batch.num_rows]
            there = own >= 0
            inputs = model.columns.encode(batch, row, surprises)[there]
            log_probs[own[there]] = model.log_probs(inputs)
            row += batch.num_rows
            bar.advance(batch.num_rows)
    posterior = np.empty(log_probs.shape, dtype=np.float32)
    best = np.empty(len(log_probs), dtype=np.int64)
    with RowProgress("labelling", len(log_probs), progress) as bar:
        for index in bags.batches(_CHUNK):
            rows, some = bags.rows(index), bags.select(index)
            part = log_probs[rows].astype(np.float64)
            if model.known_bags is None or some.is_sharp.all():
                posterior[rows] = bag_posterior(part, some).weights
            else:
                from scipy.special import log_softmax  # takes long to import

                from bagwise.likelihood import posterior_with_effects

                tau = model.known_bags.effects.tau
                posterior[rows], effects = posterior_with_effects(part, some, tau)
                part = log_softmax(part + effects[some.bag_of_row], axis=-1)
            best[rows] = most_probable_labeling(part, some)
            bar.advance(len(rows))
    row = 0
    added = [MOST_PROBABLE, *added_columns(model.classes)]
    with writer_of(to, copied_schema(source, kept, to.out), kept, added) as write:
        for batch in source.batches(kept or key):
            own = place[row : row + batch.num_rows]
            there = own >= 0
            copied = batch.select(kept).filter(pa.array(there)) if kept else None
            own = own[there]
            p = posterior[own].astype(np.float64)
            write(copied, [model.named(p.argmax(-1)), model.named(best[own])], p)
            row += batch.num_rows
    return Written(
        len(log_probs),
        surprises,
        n_rows - len(order),
        rows_found.left_out,
        labels=None if bags.is_sharp.all() else rows_found.label_spec.to_json(),
        places=np.sort(order),
    )
