"""Rows from files, one or several, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv

from bagwise.errors import InputError, Option, is_lack_of_memory
from bagwise.limits import LIMITS, Limits
from bagwise.tables.read.databases import DatabaseSource, is_database
from bagwise.tables.read.dialect import header, text_options
from bagwise.tables.read.frames import FrameSource, is_frame, refuse_no_table
from bagwise.tables.read.object_stores import unreadable
from bagwise.tables.read.partitions import partitions_of
from bagwise.tables.read.paths import Paths, paths_of
from bagwise.tables.read.row_source import RowSource, rows_within
from bagwise.tables.read.table_files import (
    RemoteFile,
    TableFile,
    as_it_is,
    is_text_file,
    text_stream,
)
from bagwise.tables.read.type_inference import inferred
from bagwise.tables.read.typed_files import About, about, batches
from bagwise.tables.read.values import is_text
from bagwise.wording import listed

Table = Any
"""Paths or URIs of files, a table of a database, or a data frame."""


class FileSource(RowSource):
    """The rows of one or several files with the same columns.

    Parquet and Arrow are read batch by batch. CSV and TSV are too if all of it is read as text
    (`typed=False`: what a column means is known then); to find out the columns' types, the whole of
    it has to be looked at, and is kept. The texts are parsed in the same way in both cases.

    Args:
        paths: a file, a folder, a pattern such as `data/*.parquet`, a URI (s3://, gs://, file://)
            of one of these, or several.
        typed: find out the types of columns in CSV files; otherwise everything there is text.
        as_text: columns of CSV files that are text in any case, so that "007" stays "007"; they may
            be numbers in one Parquet file and text in another.
        limits: rows of a batch.
        budget: bytes of memory that reading may use; batches have fewer rows where that asks for
            it.

    Attributes:
        partitions: what the folders say; their columns, such as that of `year=2020`, come last.
    """

    def __init__(
        self,
        paths: Paths,
        typed: bool = True,
        as_text: Iterable[str] = (),
        limits: Limits = LIMITS,
        budget: int | None = None,
    ) -> None:
        self.files = paths_of(paths)
        self.limits = limits
        self._typed, self._frugal = typed, budget is not None
        self._as_text = list(as_text)
        self._tables: dict[TableFile, pa.Table] = {}
        self._typed_files: dict[TableFile, About] = {}
        self._text: dict[TableFile, dict[str, Any]] = {}  # how they are read
        self.partitions = partitions_of(self.files, typed, self._as_text)
        self.folder_columns = self.partitions.names
        schemas = {file: self._open(file) for file in self.files}
        for file, schema in schemas.items():
            if not schema.names:
                line = "; a header line is expected" if is_text_file(file) else ""
                raise InputError(f"{file} has no columns{line}.")
            self.refuse_repeated_names(schema.names, str(file))
        added = self.partitions.names
        columns = {f: [name for name in s.names if name not in added] for f, s in schemas.items()}
        first = self.files[0]
        for file in columns:
            for one, other in ((file, first), (first, file)):
                if missing := sorted(set(columns[other]) - set(columns[one])):
                    raise InputError(
                        f"{one} has no column {listed(missing)}, which {other} has; "
                        "all files must have the same columns."
                    )
        fields = [
            pa.field(
                name, self._common_type(name, [schemas[f].field(name).type for f in self.files])
            )
            for name in columns[first]
        ]
        schema = pa.schema([*fields, *self.partitions.fields])
        super().__init__(str(first), schema, self._count(), limits)
        if budget is not None:
            most = max((known.room for known in self._typed_files.values()), default=0)
            self.batch_rows = rows_within(budget, len(schema.names), most, limits)
        for file in self._tables:
            self._settle(file)
        for file, schema in schemas.items():
            self._compare_with_folders(file, [name for name in added if name in schema.names])

    def _common_type(self, name: str, types: list[pa.DataType]) -> pa.DataType:
        fields = [pa.schema([pa.field("x", kind)]) for kind in types]
        try:
            return pa.unify_schemas(fields, promote_options="permissive").field("x").type
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            if not self._typed or name in self._as_text:  # every file's are read by themselves
                return pa.string()
            first_with = dict(zip(reversed(types), reversed(self.files), strict=True))
            kinds = [f"{kind} in {first_with[kind]}" for kind in dict.fromkeys(types)]
            raise InputError(
                f"the files do not agree on what the column {name!r} holds: {' and '.join(kinds)}; "
                "write it alike in all of them."
            ) from error

    def _compare_with_folders(self, file: TableFile, names: list[str]) -> None:
        """Columns that the file has and its folders name, too."""
        if not names:
            return
        with self.reading(file):
            for batch in self._batches(file, names):
                for name in names:
                    self.partitions.refuse_other_values(batch.column(name), name, file)

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, of these columns (all if not given), in batches."""
        names = self.schema.names if columns is None else columns
        added = self.partitions.names
        if not set(added).intersection(names):
            added = []
        in_files = [name for name in names if name not in added]
        if not in_files:  # one column at least tells how many rows there are
            in_files = [name for name in self.schema.names if name not in added][:1]
        for file in self.files:
            try:
                for batch in self._batches(file, in_files):
                    if not batch.num_rows:
                        continue
                    if added:
                        batch = self.partitions.added_to(batch, file, names)
                    yield batch.select(names)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _unreadable(file, error) from error

    def fingerprint(self) -> Any:
        """Sizes, times and ends of the files, and what their folders say: moving one changes it."""
        files = [as_it_is(file) for file in self.files]
        return [files, list(self.partitions.texts.values())]

    def _count(self) -> int | None:
        rows = 0
        for file in self.files:
            if file in self._tables:
                rows += self._tables[file].num_rows
            elif file in self._typed_files:
                rows += self._typed_files[file].rows
            else:
                return None
        return rows

    def _open(self, file: TableFile) -> pa.Schema:
        """The columns of a file; a typed CSV file is read as a whole."""
        with self.reading(file):
            if not is_text_file(file):
                self._typed_files[file] = about(file)
                return self._typed_files[file].schema
            if not self._typed:
                with self._csv(file) as reader:
                    return reader.schema
            with text_stream(file) as stream:
                table = pcsv.read_csv(stream, **self._text_options(file))
            names, columns, types = table.column_names, table.columns, []
            for place, name in enumerate(names):
                found = columns[place] if name in self._as_text else inferred(columns[place])
                types.append((name, found.type))
                if not pa.types.is_null(found.type):  # other files say what such a column holds
                    columns[place] = found
            self._tables[file] = pa.table(columns, names)
            return pa.schema(types)

    @contextmanager
    def _csv(self, file: TableFile) -> Iterator[Any]:
        """A reader of a CSV file whose columns are all text."""
        options = self._text_options(file)
        with text_stream(file) as stream, pcsv.open_csv(stream, **options) as reader:
            yield reader

    def _text_options(self, file: TableFile) -> dict[str, Any]:
        if file not in self._text:
            self._text[file] = text_options(file, self.limits)
        return self._text[file]

    @contextmanager
    def reading(self, file: TableFile) -> Iterator[None]:
        """What goes wrong when a file is opened is a ValueError that names it."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise InputError(
                f"{file} cannot be read: its header is not UTF-8; save it as UTF-8."
            ) from error
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(file, error) from error

    def _settle(self, file: TableFile) -> None:
        """Words for a missing value are names where other files have text, else no values."""
        table = self._tables[file]
        columns = table.columns
        for place, field in enumerate(table.schema):
            if is_text(field.type) and not is_text(self.schema.field(field.name).type):
                columns[place] = pa.nulls(len(table))
        self._tables[file] = pa.table(columns, table.column_names)

    def _batches(self, file: TableFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        if file in self._tables:
            table = self._tables[file].select(names)
            yield from table.to_batches(max_chunksize=self.limits.batch_rows)
        elif is_text_file(file):
            with self._csv(file) as reader:
                for block in reader:
                    size = self.batch_rows if self._frugal else max(len(block), 1)
                    for start in range(0, len(block), size):
                        yield block.slice(start, size)
        else:
            yield from batches(file, names, self.batch_rows, self._frugal)


def open_rows(
    data: Table,
    *,
    typed: bool = False,
    as_text: Iterable[str] = (),
    keys: Sequence[str] = (),
    name: str = "the table",
    limits: Limits = LIMITS,
    budget: int | None = None,
) -> RowSource:
    """The rows of files, of a database, or of a data frame.

    Args:
        typed: see `FileSource`; the columns of a frame have their types.
        keys: columns that may be levels of a pandas index.
        name: what messages call a frame.
        limits: rows of a batch.
        budget: bytes of memory that reading may use; not for frames.
    """
    refuse_no_table(data, name)
    if is_frame(data) and budget is not None:
        raise InputError(
            Option("memory"),
            f" is for files, and the rows are a {type(data).__name__}, which is in memory as a "
            "whole. Leave it out, or write the rows to a Parquet file and give its path.",
        )
    if is_frame(data):
        return FrameSource(data, name, keys, limits)
    if is_database(data):
        return DatabaseSource(data, limits, budget)
    return FileSource(data, typed, as_text, limits, budget)


def _unreadable(file: TableFile, error: Exception) -> Exception:
    if is_lack_of_memory(error):
        raise error  # it says nothing about the file
    if isinstance(file, RemoteFile) and isinstance(error, OSError):
        return unreadable(file.uri, error)
    if isinstance(error, PermissionError):
        return InputError(f"{file} may not be read by this user.")
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    if found := re.search(r"column #(\d+): .*invalid UTF8", reason):
        name = header(file)[int(found[1])]
        reason = f"column {name!r} is not UTF-8; save it as UTF-8."
    return InputError(f"{file} cannot be read: {reason}")
