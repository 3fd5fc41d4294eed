"""Predictions for the rows of a table, written batch by batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import torch

from bagwise.bags import FloatArray, IntArray
from bagwise.errors import InputError
from bagwise.labels.targets import NumbersAre
from bagwise.likelihood import effects_of_shares, mean_softmax, posterior_with_effects
from bagwise.limits import LIMITS, Limits
from bagwise.posterior import bag_posterior, most_probable_labeling
from bagwise.progress import RowProgress
from bagwise.storage.files import refuse_foreign, unfinished
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.known_shares import refuse_inexact, shares_of
from bagwise.tables.labels.label_file import bag_ids, read_labels
from bagwise.tables.match.bag_table import match_rows, match_some, places
from bagwise.tables.model.table_model import TableModel
from bagwise.tables.read.source import Paths, Source

LABEL, MOST_PROBABLE = "label", "most_probable"
_KINDS = (".parquet", ".pq", ".csv", ".tsv")
_CHUNK = 200_000  # instances of bags that are labelled at a time


class Written(NamedTuple):
    """What an output has.

    Attributes:
        rows: how many.
        surprises: what they had that the training rows had not.
        rows_left_out: rows of the input that are not in the output.
        bags_left_out: names of the bags that only one of the two files has.
        of_known_bags: rows of bags whose effect the model knows; None for a model without effects.
        tau: with known shares, how far bags differ by more than their rows explain.
        counts_are: how the bags' counts are known where they are not exact; empty where they are.
    """

    rows: int
    surprises: Surprises
    rows_left_out: int = 0
    bags_left_out: Sequence[str] = ()
    of_known_bags: int | None = None
    tau: float | None = None
    counts_are: str = ""


def predict_table(
    model: TableModel,
    data: Paths,
    out: Path,
    keep: Sequence[str] | None = None,
    progress: bool = False,
    force: bool = False,
    *,
    key: Sequence[str] = (),
    labels: Paths | None = None,
    labels_are: NumbersAre = "auto",
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
    source = Source(data, typed=False, limits=limits)
    known = None
    if labels is not None:
        if not key:
            raise InputError("--labels says what is known of bags; say with --bag which they are.")
        refuse_inexact(labels_are)
        known = read_labels(labels, list(key), known=model.classes, numbers_are=labels_are)
    _check_out(out, [*source.files, *(known.files if known else [])], model.classes, force)
    source.require([*key, *model.columns.names])
    kept = kept_columns(source, model, keep)
    if known is not None:
        shares = shares_of(known, known.numbers_are)
        place, left_out = match_some(source, list(key), known, skip_unmatched, progress)
        return _predict_by_shares(model, source, kept, out, place, shares, left_out, progress)
    names = model.bag_columns(source.schema.names, key)
    with RowProgress("predicting", source.rows, progress) as bar:
        return predict_rows(model, source, source.schema, out, kept, names, bar.advance, False)


def predict_rows(
    model: TableModel,
    source: Source,
    schema: pa.Schema,
    out: Path,
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
    with _writer(out, schema, kept, _added(model.classes)) as write:
        columns = dict.fromkeys([*kept, *bag_columns, *model.columns.names])
        for batch in source.batches(list(columns)):
            bags = bag_ids(batch, bag_columns) if bag_columns else None
            log_probs = model.predict(model.columns.encode(batch, row, surprises), bags)
            best = log_probs.argmax(-1).numpy()
            write(batch.select(kept), [model.named(best)], log_probs.exp().numpy())
            if model.known_bags is not None and bags is not None:
                of_known += model.known_bags.count(bags)
            row += batch.num_rows
            watch(batch.num_rows)
        if not (row or may_be_empty):
            raise InputError(f"{source.files[0]} has no rows.")
    return Written(row, surprises, of_known_bags=of_known if model.known_bags else None)


def _predict_by_shares(
    model: TableModel,
    source: Source,
    kept: list[str],
    out: Path,
    place: IntArray,
    known: tuple[FloatArray, FloatArray],
    left_out: list[str],
    progress: bool,
) -> Written:
    """Predictions for rows of bags whose shares are known; `place` (N,) says which, -1 of none."""
    surprises = Surprises()
    z = np.empty((len(place), len(model.classes)), dtype=np.float32)
    row = 0
    with RowProgress("predicting", len(place), progress) as bar:
        for batch in source.batches(model.columns.names):
            inputs = model.columns.encode(batch, row, surprises)
            z[row : row + batch.num_rows] = model.log_probs(inputs).numpy()
            row += batch.num_rows
            bar.advance(batch.num_rows)
    rows = np.flatnonzero(place >= 0)
    rows = rows[np.argsort(place[rows], kind="stable")]
    bags, sizes = np.unique(place[rows], return_counts=True)
    shares, totals = (numbers[bags] for numbers in known)
    tau = model.known_bags.effects.tau if model.known_bags else None
    found = effects_of_shares(z[rows].astype(np.float64), sizes, shares, totals, tau)
    with _writer(out, source.schema, kept, _added(model.classes)) as write:
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
    return Written(len(rows), surprises, len(place) - len(rows), left_out, tau=found.tau)


def label_table(
    model: TableModel,
    data: Paths,
    key: list[str],
    labels: Paths,
    out: Path,
    *,
    keep: Sequence[str] | None = None,
    labels_are: NumbersAre = "auto",
    row_labels: str | None = None,
    skip_unmatched: bool = False,
    progress: bool = False,
    force: bool = False,
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
    source = Source(data, typed=False, limits=limits)
    known = read_labels(labels, key, known=model.classes, numbers_are=labels_are)
    _check_out(out, [*source.files, *known.files], model.classes, force)
    source.require([*key, *model.columns.names])
    kept = kept_columns(source, model, keep, MOST_PROBABLE)
    rows_found = match_rows(
        source,
        key,
        known,
        columns=model.columns,
        row_labels=row_labels,
        skip_unmatched=skip_unmatched,
        progress=progress,
    )
    order, n_rows, bags = rows_found.targets.order, rows_found.n_rows, rows_found.targets.bags
    place, surprises = places(order, n_rows), Surprises()
    log_probs = torch.empty(len(order), len(model.classes))
    with RowProgress("predicting", n_rows, progress) as bar:
        row = 0
        for batch in source.batches(model.columns.names):
            own = place[row : row + batch.num_rows]
            there = own >= 0
            inputs = model.columns.encode(batch, row, surprises)[there]
            log_probs[torch.from_numpy(own[there])] = model.log_probs(inputs)
            row += batch.num_rows
            bar.advance(batch.num_rows)
    posterior = np.empty(log_probs.shape, dtype=np.float32)
    best = np.empty(len(log_probs), dtype=np.int64)
    with RowProgress("labelling", len(log_probs), progress) as bar:
        for index in bags.batches(_CHUNK, torch.arange(len(bags))):
            rows, some = bags.rows(index), bags.select(index)
            part = log_probs[torch.from_numpy(rows)].double()
            if model.known_bags is None or some.is_sharp.all():
                posterior[rows] = bag_posterior(part, some).weights.numpy()
            else:
                tau = model.known_bags.effects.tau
                posterior[rows], effects = posterior_with_effects(part.numpy(), some, tau)
                part = (part + torch.from_numpy(effects[some.bag_of_row])).log_softmax(-1)
            best[rows] = most_probable_labeling(part, some).numpy()
            bar.advance(len(rows))
    row = 0
    added = [MOST_PROBABLE, *_added(model.classes)]
    with _writer(out, source.schema, kept, added) as write:
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
        counts_are=rows_found.counts_are,
    )


def kept_columns(
    source: Source, model: TableModel, keep: Sequence[str] | None, *more: str
) -> list[str]:
    """The columns to copy, checked against those that are added."""
    if keep is None:
        kept = [name for name in source.schema.names if name not in model.columns.names]
    else:
        source.require(keep)
        kept = list(keep)
    if clash := [name for name in kept if name in (*more, *_added(model.classes))]:
        raise InputError(
            f"the input has a column {clash[0]!r}, and so will the output; "
            "rename it, or choose the columns to copy with --keep."
        )
    return kept


def _added(classes: Sequence[str]) -> list[str]:
    return [LABEL, *(f"p_{label}" for label in classes)]


def _check_out(out: Path, inputs: list[Path], classes: Sequence[str], force: bool) -> None:
    if out.suffix.lower() not in _KINDS:
        raise InputError(f"{out} is of an unknown kind; .parquet, .csv or .tsv is expected.")
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file for the output.")
    if any(out.exists() and file.samefile(out) for file in inputs):
        raise InputError(f"{out} is an input itself; choose another file for the output.")
    refuse_foreign(out, lambda path: is_prediction(path, classes), force)


def is_prediction(path: Path, classes: Sequence[str]) -> bool:
    """Whether the last columns of a file are those of predictions; not if it is no table at all."""
    names = _added(classes)
    try:
        source = Source(path, typed=False)
        added = source.partitions.names  # of its folder
        return [name for name in source.schema.names if name not in added][-len(names) :] == names
    except InputError:
        return False


def _as(fields: list[pa.Field], batch: pa.RecordBatch) -> list[pa.Array]:
    """The columns in the types that all files together have."""
    pairs = zip(batch.columns, fields, strict=True)
    return [column.cast(field.type) for column, field in pairs]


@contextmanager
def _writer(out: Path, schema: pa.Schema, kept: list[str], added: Sequence[str]) -> Iterator[Any]:
    """A function that writes rows; the file is there when the block ends without an error.

    It takes the columns that are copied, those of names, of which `label` is the last, and the
    probabilities.
    """
    kind = out.suffix.lower()
    types = [schema.field(name) for name in kept]
    names = added.index(LABEL) + 1
    schema = pa.schema(
        [*types, *(pa.field(name, pa.string()) for name in added[:names])]
        + [pa.field(name, pa.float64()) for name in added[names:]]
    )
    if kind in (".csv", ".tsv"):
        for field in types:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise InputError(
                    f"the column {field.name!r} is of type {field.type}, which {kind} cannot hold; "
                    "write .parquet, or choose the columns to copy with --keep."
                )
    with _unfinished(out) as temporary:
        if kind in (".parquet", ".pq"):
            writer: Any = pq.ParquetWriter(temporary, schema)
        else:
            options = pcsv.WriteOptions(delimiter="\t" if kind == ".tsv" else ",")
            writer = pcsv.CSVWriter(temporary, schema, write_options=options)

        def write(
            copied: pa.RecordBatch | None, names: list[pa.Array], probabilities: FloatArray
        ) -> None:
            columns = [] if copied is None else _as(types, copied)
            columns += names
            columns += [pa.array(np.ascontiguousarray(p)) for p in probabilities.T]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

        with writer:
            yield write


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """A hidden file beside `out` that takes its place when the block ends without an error.

    A symbolic link stays, and what it leads to is replaced.
    """
    out = Path(os.path.realpath(out))
    new_folders = [folder for folder in out.parents if not folder.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(out) as temporary:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(out)
    except BaseException:
        for folder in new_folders:
            with suppress(OSError):  # it was not made, or holds something by now
                folder.rmdir()
        raise
