"""Rows from CSV, TSV and Parquet files, one or several, batch by batch."""

from __future__ import annotations

import codecs
import csv
import glob
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bagwise.errors import InputError, is_lack_of_memory
from bagwise.limits import LIMITS, Limits
from bagwise.storage.files import begins
from bagwise.tables.read.partitions import partitions_of
from bagwise.tables.read.type_inference import inferred
from bagwise.tables.read.values import is_text

Paths = str | Path | Iterable[str | Path]

_PARQUET = (".parquet", ".pq")
_SPOOLED = "standard-input"
_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


class Source:
    """The rows of one or several files with the same columns.

    Parquet is read batch by batch. CSV and TSV are too if all of it is read as text (`typed=False`:
    what a column means is known then); to find out the columns' types, the whole of it has to be
    looked at, and is kept until `forget`. The texts are parsed in the same way in both cases.

    Args:
        paths: a file, a folder, a pattern such as `data/*.parquet`, or several of these.
        typed: find out the types of columns in CSV files; otherwise everything there is text.
        as_text: columns of CSV files that are text in any case, so that "007" stays "007"; they may
            be numbers in one Parquet file and text in another.
        limits: sizes of what is read at a time.

    Attributes:
        files: that were found.
        schema: names and types of the columns; those of folders such as `year=2020` come last.
        partitions: what the folders say.
        rows: how many there are, or None where only reading them would tell.
    """

    def __init__(
        self,
        paths: Paths,
        typed: bool = True,
        as_text: Iterable[str] = (),
        limits: Limits = LIMITS,
    ) -> None:
        self.files = paths_of(paths)
        self.limits = limits
        self._typed = typed
        self._as_text = list(as_text)
        self._tables: dict[Path, pa.Table] = {}
        self.partitions = partitions_of(self.files, typed, self._as_text)
        schemas = [self._open(file) for file in self.files]
        self.rows = self._count()
        for file, schema in zip(self.files, schemas, strict=True):
            if not schema.names:
                line = "" if is_parquet(file) else "; a header line is expected"
                raise InputError(f"{file} has no columns{line}.")
            for name in schema.names:
                if schema.names.count(name) > 1 and not name.strip():
                    raise InputError(
                        f"{file} has {schema.names.count(name)} columns without a name, as "
                        "spreadsheets write them behind the others; remove them, or name them."
                    )
                if schema.names.count(name) > 1:
                    raise InputError(f"{file} has more than one column {name!r}; rename one.")
        added = self.partitions.names
        repeated = [
            (file, [name for name in added if name in schema.names])
            for file, schema in zip(self.files, schemas, strict=True)
        ]
        schemas = [pa.schema([f for f in schema if f.name not in added]) for schema in schemas]
        first = schemas[0]
        for file, schema in zip(self.files, schemas, strict=True):
            for one, other, names in (
                (file, self.files[0], set(first.names) - set(schema.names)),
                (self.files[0], file, set(schema.names) - set(first.names)),
            ):
                if names:
                    raise InputError(
                        f"{one} has no column {_quoted(sorted(names))}, which {other} has; "
                        "all files must have the same columns."
                    )
        self.schema = pa.schema(
            [
                pa.field(name, self._common_type(name, [s.field(name).type for s in schemas]))
                for name in first.names
            ]
            + list(self.partitions.fields)
        )
        for file in self._tables:
            self._settle(file)
        for file, in_folders_too in repeated:
            self._compare_with_folders(file, in_folders_too)

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

    def _compare_with_folders(self, file: Path, names: list[str]) -> None:
        """Columns that the file has and its folders name, too."""
        if not names:
            return
        with self.reading(file):
            for batch in self._batches(file, names):
                for name in names:
                    self.partitions.refuse_other_values(batch.column(name), name, file)

    def require(self, names: Iterable[str]) -> None:
        """Raise a ValueError that names the columns which are not there."""
        if missing := [name for name in names if name not in self.schema.names]:
            raise InputError(
                f"{self.files[0]} has no column {_quoted(missing)}; "
                f"it has {_quoted(self.schema.names)}."
            )

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

    def forget(self) -> None:
        """Free the memory of tables that were read as a whole; the rows cannot be read again."""
        self._tables.clear()

    def _count(self) -> int | None:
        rows = 0
        for file in self.files:
            if file in self._tables:
                rows += self._tables[file].num_rows
            elif is_parquet(file):
                rows += pq.read_metadata(file).num_rows
            else:
                return None
        return rows

    def _open(self, file: Path) -> pa.Schema:
        """The columns of a file; a typed CSV file is read as a whole."""
        with self.reading(file):
            if is_parquet(file):
                return pq.read_schema(file).remove_metadata()
            options = text_options(file, self.limits)
            if not self._typed:
                with pcsv.open_csv(file, **options) as reader:
                    return reader.schema
            table = pcsv.read_csv(file, **options)
            schema = table.schema
            for place, name in enumerate(table.column_names):
                if name in self._as_text:
                    continue
                column = inferred(table.column(place))
                schema = schema.set(place, pa.field(name, column.type))
                if not pa.types.is_null(column.type):  # other files say what such a column holds
                    table = table.set_column(place, name, column)
            self._tables[file] = table
            return schema

    @contextmanager
    def reading(self, file: Path) -> Iterator[None]:
        """What goes wrong when a file is opened is a ValueError that names it."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise InputError(
                f"{file} cannot be read: its header is not UTF-8; save it as UTF-8."
            ) from error
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(file, error) from error

    def _settle(self, file: Path) -> None:
        """Words for a missing value are names where other files have text, else no values."""
        table = self._tables[file]
        for place, field in enumerate(table.schema):
            if is_text(field.type) and not is_text(self.schema.field(field.name).type):
                table = table.set_column(place, field.name, pa.nulls(len(table)))
        self._tables[file] = table

    def _batches(self, file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
        if file in self._tables:
            table = self._tables[file].select(names)
            yield from table.to_batches(max_chunksize=self.limits.batch_rows)
        elif is_parquet(file):
            # With pre_buffer the whole file would come to lie in memory, bit by bit.
            with pq.ParquetFile(file, pre_buffer=False) as parquet:
                yield from parquet.iter_batches(self.limits.batch_rows, columns=names)
        else:
            with pcsv.open_csv(file, **text_options(file, self.limits)) as reader:
                yield from reader


@contextmanager
def spooled(paths: Iterable[str], stream: IO[bytes]) -> Iterator[list[str]]:
    """The same paths, but a temporary file with the content of the stream where one is `-`.

    Tables are read more than once, a stream cannot be. The file is gone when the block ends.
    """
    names = list(paths)
    if "-" not in names:
        yield names
        return
    if names.count("-") > 1:
        raise InputError("- is given twice; standard input can be read only once.")
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        first = stream.read(4)
        kinds = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz"}
        kind = next((kind for magic, kind in kinds.items() if first.startswith(magic)), ".csv")
        file = Path(folder) / f"{_SPOOLED}{kind}"
        with file.open("wb") as copy:
            copy.write(first)
            shutil.copyfileobj(stream, copy)
        yield [str(file) if name == "-" else name for name in names]


def columns_of(value: str | Iterable[str] | None) -> list[str]:
    """Column names from a list, or from text with commas between, quoted where they have commas.

    >>> columns_of("state, county")
    ['state', 'county']
    >>> columns_of('"height, cm",weight')
    ['height, cm', 'weight']
    """
    if value is None:
        return []
    if not isinstance(value, str):
        return list(value)
    (parts,) = csv.reader([value], skipinitialspace=True) if value.strip() else ([],)
    return [part.strip() for part in parts if part.strip()]


def paths_of(paths: Paths) -> list[Path]:
    """The files that are meant, those in folders too; what is no table's is a ValueError."""
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    files: list[Path] = []
    for item in given:
        path = Path(item)
        if path.exists():
            found = [path]
        else:
            names = sorted(glob.glob(str(item), recursive=True))
            found = [
                path
                for path in map(Path, names)
                if _is_table(path) or not path.name.startswith(("_", "."))
            ]
        if not found:
            raise InputError(f"there is no file {item}.")
        inside = [file for one in found for file in (_within(one) if one.is_dir() else [one])]
        found = list(dict.fromkeys(inside))  # ** finds folders and what is in them
        for file in found:
            if not _is_table(file):
                raise InputError(
                    f"{file} is of an unknown kind; files that end in .csv, .tsv, .csv.gz or "
                    ".parquet can be read."
                )
            if file.stat().st_size == 0:
                rows = "rows are" if is_parquet(file) else "a header line and rows are"
                raise InputError(f"{_shown(file)} is empty; {rows} expected.")
            _refuse_other_content(file)
        files += found
    if not files:
        raise InputError("no file was given.")
    return files


def _within(folder: Path) -> list[Path]:
    """The tables in a folder and below it, without hidden files and notes such as _SUCCESS."""
    found = [
        file
        for file in sorted(folder.rglob("*"))
        if _is_table(file)
        and file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    ]
    if not found:
        raise InputError(
            f"{folder} is a folder without tables. Files that end in .csv, .tsv, .csv.gz or "
            ".parquet can be read."
        )
    return found


_CONTENT = {  # how files begin, and what they should be called
    b"\x1f\x8b": ("gzip", (".gz",)),
    b"PAR1": ("Parquet", _PARQUET),
    b"PK\x03\x04": ("a spreadsheet or zip archive", ()),
    b"\xd0\xcf\x11\xe0": ("an old spreadsheet", ()),
    b"SQLite format 3": ("an SQLite database", ()),
}


def _refuse_other_content(file: Path) -> None:
    """A file whose content is of another kind than its name says is named, not read as text."""
    first = begins(file)
    for magic, (kind, endings) in _CONTENT.items():
        if first.startswith(magic) and not file.name.lower().endswith(tuple(endings)):
            todo = f"name it with {endings[0]} at the end" if endings else "save it as CSV"
            raise InputError(
                f"{_shown(file)} is {kind} by its content, not what its name says; {todo}."
            )


def _shown(file: Path) -> str:
    """A file as the user knows it."""
    return "standard input" if file.stem.startswith(_SPOOLED) else str(file)


def is_parquet(file: Path) -> bool:
    """Whether a file is named as Parquet files are."""
    return file.suffix.lower() in _PARQUET


def _is_table(file: Path) -> bool:
    """Whether a file is named as one that can be read."""
    return is_parquet(file) or file.name.lower().endswith(_TEXT)


def _layout(file: Path) -> tuple[pcsv.ParseOptions, int]:
    """How columns are told apart, and how many lines stand before the header.

    The character between columns is the most frequent in the header, outside of quotes, or that of
    a first line such as "sep=;", which spreadsheets write.
    """
    with pa.input_stream(file) as stream:
        head = stream.read(1 << 16)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise pa.ArrowInvalid('it is UTF-16 ("Unicode text" of spreadsheets); save it as UTF-8.')
    lines = [line for line in head.decode("utf-8-sig", "replace").splitlines() if line.strip()]
    if lines and (told := re.fullmatch(r'"?sep=(.)"?', lines[0].strip("\r"))):
        return pcsv.ParseOptions(delimiter=told[1], newlines_in_values=True), 1
    header = re.sub(r'"[^"]*"', "", lines[0]) if lines else ""
    marks = ("\t", ",", ";", "|") if ".tsv" in file.name.lower() else (",", ";", "\t", "|")
    return pcsv.ParseOptions(delimiter=max(marks, key=header.count), newlines_in_values=True), 0


def text_options(file: Path, limits: Limits) -> dict[str, Any]:
    """How a file is read with every column as text."""
    parse, before = _layout(file)
    types = dict.fromkeys(_header(file), pa.string())
    return {
        "read_options": pcsv.ReadOptions(block_size=limits.csv_block_bytes, skip_rows=before),
        "parse_options": parse,
        "convert_options": pcsv.ConvertOptions(column_types=types),
    }


def _header(file: Path) -> list[str]:
    parse, before = _layout(file)
    options = pcsv.ReadOptions(skip_rows=before)
    with pcsv.open_csv(file, parse_options=parse, read_options=options) as reader:
        names: list[str] = reader.schema.names
    return names


def _unreadable(file: Path, error: Exception) -> InputError:
    if is_lack_of_memory(error):
        raise error  # it says nothing about the file
    if isinstance(error, PermissionError):
        return InputError(f"{file} may not be read by this user.")
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    if found := re.search(r"column #(\d+): .*invalid UTF8", reason):
        name = _header(file)[int(found[1])]
        reason = f"column {name!r} is not UTF-8; save it as UTF-8."
    return InputError(f"{file} cannot be read: {reason}")


def _quoted(names: Iterable[str], most: int = 12) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(repr(name) for name in listed[:most]) + more
