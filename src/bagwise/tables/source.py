"""Rows from CSV, TSV and Parquet files, one or several, batch by batch."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

Paths = str | Path | Iterable[str | Path]

_ROWS = 65_536
_BLOCK = 8 << 20  # bytes of a CSV file read at a time
_PARQUET = (".parquet", ".pq")
_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


class Source:
    """The rows of one or several files with the same columns.

    Parquet is read batch by batch. CSV and TSV are too if all of it is read as text (`typed=False`:
    what a column means is known then); to find out the columns' types, the whole of it has to be
    looked at, and is kept.

    Args:
        paths: a file, a pattern such as `data/*.parquet`, or several of either.
        typed: find out the types of columns in CSV files; otherwise everything there is text.
        as_text: columns of CSV files that are text in any case, so that "007" stays "007".

    Attributes:
        schema: names and types of the columns.
        rows: how many there are, or None where only reading them would tell.
    """

    def __init__(self, paths: Paths, typed: bool = True, as_text: Iterable[str] = ()) -> None:
        self.files = _expand(paths)
        self._typed = typed
        self._as_text = list(as_text)
        self._tables: dict[Path, pa.Table] = {}
        schemas = [self._open(file) for file in self.files]
        self.rows = self._count()
        first = schemas[0]
        for file, schema in zip(self.files[1:], schemas[1:], strict=True):
            if missing := sorted(set(first.names) - set(schema.names)):
                raise ValueError(
                    f"{file} has no column {_quoted(missing)}, which {self.files[0]} has; "
                    "all files must have the same columns."
                )
        try:
            self.schema = pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"the files do not agree on what a column holds: {_first_line(error)}."
            ) from error
        if not self.schema.names:
            raise ValueError(f"{self.files[0]} has no columns; a header line is expected.")
        for name in self.schema.names:
            if self.schema.names.count(name) > 1:
                raise ValueError(f"{self.files[0]} has more than one column {name!r}; rename one.")

    def require(self, names: Iterable[str]) -> None:
        """Raise a ValueError that names the columns which are not there."""
        if missing := [name for name in names if name not in self.schema.names]:
            raise ValueError(
                f"{self.files[0]} has no column {_quoted(missing)}; "
                f"it has {_quoted(self.schema.names)}."
            )

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, of these columns (all if not given), in batches."""
        names = self.schema.names if columns is None else columns
        for file in self.files:
            try:
                for batch in self._batches(file, names):
                    if batch.num_rows:
                        yield batch.select(names)
            except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
                raise _unreadable(file, error) from error

    def _count(self) -> int | None:
        rows = 0
        for file in self.files:
            if file in self._tables:
                rows += self._tables[file].num_rows
            elif _is_parquet(file):
                rows += pq.read_metadata(file).num_rows
            else:
                return None
        return rows

    def _open(self, file: Path) -> pa.Schema:
        """The columns of a file; a typed CSV file is read as a whole."""
        try:
            if _is_parquet(file):
                return pq.read_schema(file).remove_metadata()
            if not self._typed:
                with self._text_reader(file) as reader:
                    return reader.schema
            parse = pcsv.ParseOptions(delimiter=_delimiter(file), newlines_in_values=True)
            convert = pcsv.ConvertOptions(
                column_types=dict.fromkeys(self._as_text, pa.string()), strings_can_be_null=True
            )
            options = pcsv.ReadOptions(block_size=_BLOCK)
            self._tables[file] = pcsv.read_csv(file, options, parse, convert)
            return self._tables[file].schema
        except (pa.ArrowInvalid, pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _unreadable(file, error) from error

    def _batches(self, file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
        if file in self._tables:
            yield from self._tables[file].select(names).to_batches(max_chunksize=_ROWS)
        elif _is_parquet(file):
            with pq.ParquetFile(file) as parquet:
                yield from parquet.iter_batches(_ROWS, columns=names)
        else:
            with self._text_reader(file) as reader:
                yield from reader

    def _text_reader(self, file: Path) -> pcsv.CSVStreamingReader:
        delimiter = _delimiter(file)
        parse = pcsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        with pcsv.open_csv(file, parse_options=parse) as reader:
            names = reader.schema.names
        convert = pcsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True
        )
        return pcsv.open_csv(file, pcsv.ReadOptions(block_size=_BLOCK), parse, convert)


def columns_of(value: str | Iterable[str] | None) -> list[str]:
    """Column names from a list, or from text with commas between.

    >>> columns_of("state, county")
    ['state', 'county']
    """
    if value is None:
        return []
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts if part.strip()]


def _expand(paths: Paths) -> list[Path]:
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    files: list[Path] = []
    for item in given:
        path = Path(item)
        if path.exists():
            found = [path]
        else:
            found = [Path(name) for name in sorted(glob.glob(str(item), recursive=True))]
        if not found:
            raise ValueError(f"there is no file {item}.")
        for file in found:
            if file.is_dir():
                raise ValueError(f"{file} is a folder; give its files, for instance {file}/*.csv.")
            if not (_is_parquet(file) or file.name.lower().endswith(_TEXT)):
                raise ValueError(
                    f"{file} is of an unknown kind; files that end in .csv, .tsv, .csv.gz or "
                    ".parquet can be read."
                )
            if file.stat().st_size == 0:
                raise ValueError(f"{file} is empty; a header line and rows are expected.")
        files += found
    if not files:
        raise ValueError("no file was given.")
    return files


def _is_parquet(file: Path) -> bool:
    return file.suffix.lower() in _PARQUET


def _delimiter(file: Path) -> str:
    """The character between columns: of those that occur in the header, the most frequent."""
    with pa.input_stream(file) as stream:
        head = stream.read(1 << 16)
    line = head.split(b"\n", 1)[0].decode(errors="replace")
    marks = ("\t", ",", ";", "|") if ".tsv" in file.name.lower() else (",", ";", "\t", "|")
    return max(marks, key=line.count)


def _unreadable(file: Path, error: Exception) -> ValueError:
    if isinstance(error, PermissionError):
        return ValueError(f"{file} may not be read by this user.")
    return ValueError(f"{file} cannot be read: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def _quoted(names: Iterable[str], most: int = 12) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(repr(name) for name in listed[:most]) + more
