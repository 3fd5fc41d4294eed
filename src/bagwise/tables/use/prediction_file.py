"""Where predictions go: to a file, or into memory; their columns, and how they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bagwise.errors import InputError, Option
from bagwise.storage.files import naming, refuse_foreign, unfinished
from bagwise.storage.uris import refuse_uri
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import open_rows
from bagwise.tables.read.table_files import TableFile, local
from bagwise.tables.use.copied_types import copied
from bagwise.tables.use.formulas import escaped_batch

LABEL, MOST_PROBABLE = "label", "most_probable"
_KINDS = (".parquet", ".pq", ".csv", ".tsv")


class Collected:
    """Takes the place of a file: the predictions stay in memory.

    Attributes:
        batches: of rows, in their order.
    """

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    @property
    def table(self) -> pa.Table:
        """All of them."""
        return pa.Table.from_batches(self.batches)


@dataclass(frozen=True)
class Destination:
    """Where predictions go, and what stands beside them.

    Attributes:
        out: a file (.parquet, .csv or .tsv), a stream of bytes, which gets CSV, or `Collected`.
        keep: columns to copy; None for those that are not features.
        force: replace a file even if Bagwise did not write it; an input is never replaced.
        escape_formulas: in CSV, put ' before text that a spreadsheet would take for a formula.
    """

    out: Path | IO[bytes] | Collected
    keep: Sequence[str] | None = None
    force: bool = False
    escape_formulas: bool = False

    def check(self, inputs: Sequence[TableFile], classes: Sequence[str]) -> None:
        """Refuse a file that cannot be written, or should not be."""
        out = self.out
        if not isinstance(out, Path):
            return
        refuse_uri(out)
        if out.suffix.lower() not in _KINDS:
            raise InputError(f"{out} is of an unknown kind; .parquet, .csv or .tsv is expected.")
        if out.is_dir():
            raise InputError(f"{out} is a folder; name a file for the output.")
        if any(out.exists() and file.samefile(out) for file in local(inputs)):
            raise InputError(f"{out} is an input itself; choose another file for the output.")
        refuse_foreign(out, lambda path: is_prediction(path, classes), self.force)


class Written(NamedTuple):
    """What an output has.

    Attributes:
        rows: how many.
        surprises: what they had that the training rows had not.
        rows_left_out: rows of the input that are not in the output.
        bags_left_out: names of the bags that only one of the two files has.
        of_known_bags: rows of bags whose effect the model knows; None for a model without effects.
        tau: with known shares, how far bags differ by more than their rows explain.
        labels: what the numbers of the label file are (`LabelSpec.to_json`) where counts are not
            exact; None where they are.
        places: of the rows, in the input; None for all of them.
        groupings: whose counts were used, where there are several.
        weighted: whether there are numbers of labels in place of a label.
        bags: whose counts were used.
        proved: of how many of them probabilities are proved to be right within 1e-6; None where
            that is not known.
    """

    rows: int
    surprises: Surprises
    rows_left_out: int = 0
    bags_left_out: Sequence[str] = ()
    of_known_bags: int | None = None
    tau: float | None = None
    labels: dict[str, Any] | None = None
    places: npt.NDArray[np.int64] | None = None
    groupings: Sequence[str] = ()
    weighted: bool = False
    bags: int = 0
    proved: int | None = None


def kept_columns(
    source: RowSource, model: FittedTable, keep: Sequence[str] | None, *more: str
) -> list[str]:
    """The columns to copy, checked against those that are added."""
    if keep is None:
        used = set(model.columns.names)
        kept = [name for name in source.schema.names if name not in used]
    else:
        source.require(keep)
        kept = list(keep)
    if clash := [name for name in kept if name in (*more, *added_columns(model.classes))]:
        raise InputError(
            f"the input has a column {clash[0]!r}, and so will the output; rename it, or choose "
            "the columns to copy with ",
            Option("keep"),
            ".",
        )
    return kept


def added_columns(classes: Sequence[str], weighted: bool = False) -> list[str]:
    """The columns that a prediction has beside those that are copied; with weights, numbers of
    labels take the place of a label.
    """
    labels = count_columns(classes) if weighted else [LABEL]
    return [*labels, *(f"p_{label}" for label in classes)]


def count_columns(classes: Sequence[str]) -> list[str]:
    """How many of the rows that a row stands for have each label."""
    return [f"n_{label}" for label in classes]


def is_prediction(path: Path, classes: Sequence[str]) -> bool:
    """Whether the last columns of a file are those of predictions; False if it is not a table."""
    try:
        source = open_rows(path)
        added = source.folder_columns  # of its folder
        there = [name for name in source.schema.names if name not in added]
        ends = (added_columns(classes), added_columns(classes, weighted=True))
        return any(there[-len(names) :] == names for names in ends)
    except InputError:
        return False


def _as(fields: list[pa.Field], batch: pa.RecordBatch) -> list[pa.Array]:
    """The columns in the types that all files together have."""
    pairs = zip(batch.columns, fields, strict=True)
    return [copied(column, field.type) for column, field in pairs]


@contextmanager
def writer_of(
    to: Destination, schema: pa.Schema, kept: list[str], added: Sequence[str]
) -> Iterator[Any]:
    """A function that writes rows; a file is there when the block ends without an error.

    It takes the columns that are copied, those of labels, and the probabilities.
    """
    types = [schema.field(name) for name in kept]
    kinds = {LABEL: pa.string(), MOST_PROBABLE: pa.string()}
    of_added = [
        pa.field(name, kinds.get(name, pa.int64() if name.startswith("n_") else pa.float64()))
        for name in added
    ]
    schema = pa.schema([*types, *of_added])

    def batch_of(
        rows: pa.RecordBatch | None, labels: list[pa.Array], probabilities: npt.NDArray[Any]
    ) -> pa.RecordBatch:
        columns = [] if rows is None else _as(types, rows)
        columns += labels
        columns += [pa.array(np.ascontiguousarray(p)) for p in probabilities.T]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    out = to.out
    if isinstance(out, Collected):
        yield lambda *parts: out.batches.append(batch_of(*parts))
        return
    is_text = not isinstance(out, Path) or out.suffix.lower() in (".csv", ".tsv")
    if to.escape_formulas and is_text:
        first = escaped_batch(pa.RecordBatch.from_pylist([], schema=schema))
        with _file_writer(out, first.schema, types) as writer:
            yield lambda *parts: writer.write_batch(escaped_batch(batch_of(*parts)))
        return
    with _file_writer(out, schema, types) as writer:

        def write(*parts: Any) -> None:
            rows = batch_of(*parts)
            with naming(out) if isinstance(out, Path) else nullcontext():
                writer.write_batch(rows)

        yield write


@contextmanager
def _file_writer(out: Path | IO[bytes], schema: pa.Schema, kept: list[pa.Field]) -> Iterator[Any]:
    kind = out.suffix.lower() if isinstance(out, Path) else ".csv"
    if kind in (".csv", ".tsv"):
        for field in kept:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise InputError(
                    f"the column {field.name!r} is of type {field.type}, which {kind} cannot hold; "
                    "write .parquet, or choose the columns to copy with ",
                    Option("keep"),
                    ".",
                )
    options = pcsv.WriteOptions(delimiter="\t" if kind == ".tsv" else ",")
    if not isinstance(out, Path):
        with pcsv.CSVWriter(out, schema, write_options=options) as writer:
            yield writer
        return
    with _unfinished(out) as temporary:
        with naming(out):
            if kind in (".parquet", ".pq"):
                writer = pq.ParquetWriter(temporary, schema)
            else:
                writer = pcsv.CSVWriter(temporary, schema, write_options=options)
        try:
            yield writer
        finally:
            with naming(out):
                writer.close()


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
            with naming(out), temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(out)
    except BaseException:
        for folder in new_folders:
            with suppress(OSError):  # it was not made, or holds something by now
                folder.rmdir()
        raise
