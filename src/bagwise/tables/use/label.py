"""Labels for rows of bags whose counts are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bagwise.bags import Bags, FloatArray, Groupings, IntArray
from bagwise.errors import warn_user
from bagwise.limits import LIMITS, Limits
from bagwise.posterior import bag_posterior, most_probable_labeling
from bagwise.posterior.auto import AUTO_STATES
from bagwise.posterior.proved import prove
from bagwise.progress import RowProgress
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.counts import Counts
from bagwise.tables.match.bag_table import MatchedRows, places
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.use.copied_types import copied_schema
from bagwise.tables.use.counted_rows import label_tables, matched_rows, weight_column
from bagwise.tables.use.prediction_file import (
    MOST_PROBABLE,
    Destination,
    Written,
    added_columns,
    count_columns,
    kept_columns,
    writer_of,
)

_CHUNK = 200_000  # instances of bags that are labeled at a time


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

    With several groupings, the probabilities are those given the counts of all of them, and `label`
    is the most probable labeling, by these, that has the counts of the first one. Where rows have
    weights, `n_...`, how many of the rows that a row stands for have each label, takes the place of
    `label`.
    """
    source = model.with_context(open_rows(data, limits=limits), counts.key)
    tables = label_tables(model, counts)
    to.check([*source.files, *(file for table in tables for file in table.files)], model.classes)
    source.require([*counts.keys, *model.columns.names])
    is_weighted = weight_column(model, source, counts.weights) is not None
    more = [MOST_PROBABLE, *(count_columns(model.classes) if is_weighted else [])]
    kept = kept_columns(source, model, to.keep, *more)
    rows_found = matched_rows(model, source, counts, progress, tables=tables, row_labels=row_labels)
    order, n_rows, bags = rows_found.targets.order, rows_found.n_rows, rows_found.targets.bags
    if rows_found.groupings is not None:
        order = np.unique(order)
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
    with RowProgress("labeling", len(log_probs), progress) as bar:
        posterior, best, proved = _labels(model, log_probs, rows_found, bar, limits)
    row = 0
    added = [MOST_PROBABLE, *added_columns(model.classes, is_weighted)]
    with writer_of(to, copied_schema(source, kept, to.out), kept, added) as write:
        for batch in source.batches(kept or list(counts.key)):
            own = place[row : row + batch.num_rows]
            there = own >= 0
            copied = batch.select(kept).filter(pa.array(there)) if kept else None
            own = own[there]
            p = posterior[own].astype(np.float64)
            labels = [model.named(best[own].argmax(-1))]
            if is_weighted:
                labels = [pa.array(n) for n in best[own].T]
            write(copied, [model.named(p.argmax(-1)), *labels], p)
            row += batch.num_rows
    return Written(
        len(log_probs),
        surprises,
        n_rows - len(order),
        rows_found.left_out,
        labels=None if bags.is_sharp.all() else rows_found.label_spec.to_json(),
        places=np.sort(order),
        groupings=[table.grouping for table in tables] if len(tables) > 1 else [],
        weighted=is_weighted,
        bags=len(bags),
        proved=proved,
    )


def _labels(
    model: FittedTable,
    log_probs: npt.NDArray[np.float32],
    rows: MatchedRows,
    bar: RowProgress,
    limits: Limits,
) -> tuple[npt.NDArray[np.float32], IntArray, int | None]:
    """(N, C) probabilities of classes given the counts, (N, C) how many of the rows that each row
    stands for have each label, and how many bags' probabilities are proved; None where that is not
    known.
    """
    if rows.groupings is not None:
        return *_labels_of_groupings(log_probs.astype(np.float64), rows.groupings), None
    bags = rows.targets.bags
    bound = np.full(len(bags), np.nan)
    posterior = np.empty(log_probs.shape, dtype=np.float32)
    best = np.empty(log_probs.shape, dtype=np.int64)
    for index in bags.batches(_CHUNK):
        own, some = bags.rows(index), bags.select(index)
        part = log_probs[own].astype(np.float64)
        if model.known_bags is None or some.is_sharp.all():
            found = bag_posterior(part, some, max_states=AUTO_STATES)
            posterior[own], bound[index] = found.weights, found.bound
        else:
            from scipy.special import log_softmax  # seldom needed, and long to import

            from bagwise.likelihood import posterior_with_effects

            tau = model.known_bags.effects.tau
            posterior[own], effects = posterior_with_effects(part, some, tau)
            part = log_softmax(part + effects[some.bag_of_row], axis=-1)
        best[own] = _label_counts(part, some)
        bar.advance(len(own))
    for own, weights in prove(log_probs, bags, bound, limits):
        posterior[own] = weights
    return posterior, best, None if np.isnan(bound).any() else int(np.isfinite(bound).sum())


def _labels_of_groupings(
    log_probs: FloatArray, groupings: Groupings
) -> tuple[npt.NDArray[np.float32], IntArray]:
    """The same given the counts of several groupings; labels have the counts of the first one."""
    none = np.zeros((len(groupings), *log_probs.shape))
    found = bag_posterior(log_probs, groupings, messages=none, max_states=AUTO_STATES)
    if not found.converged:
        messages = found.messages
        found = bag_posterior(
            log_probs, groupings, messages=messages, damping=0.6, max_states=AUTO_STATES
        )
    if not found.converged:
        warn_user(
            "what the groupings say of single rows did not settle: the probabilities given all "
            "counts are approximate."
        )
    posterior = found.weights
    best = np.eye(groupings.n_classes, dtype=np.int64)[posterior.argmax(axis=1)]
    best *= groupings.copies[:, None]
    first = groupings.groupings[0]
    likely = np.log(np.maximum(posterior[first.rows], 1e-30))
    best[first.rows] = _label_counts(likely, first.bags)
    return posterior.astype(np.float32), best


def _label_counts(log_probs: FloatArray, bags: Bags) -> IntArray:
    """(N, C) the most probable labeling, of single rows as numbers of 0 and 1, too."""
    found = most_probable_labeling(log_probs, bags)
    return found if found.ndim == 2 else np.eye(bags.n_classes, dtype=np.int64)[found]
