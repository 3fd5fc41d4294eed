"""Files whose columns have types: Parquet, and Arrow (Feather)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import InputError
from bagwise.tables.read.frames import plain_text, plain_type
from bagwise.tables.read.table_files import RemoteFile, TableFile, is_parquet, opened

_BUFFER = 1 << 15  # bytes of each column of a Parquet file that are read at a time
_REMOTE_BUFFER = 1 << 20  # the same over a network, where each reading takes long
_PAGE = 3_000_000  # bytes that a column of a Parquet file takes, at most, while it is decoded
_CHUNK = 1000  # bytes that are known of a column in a row group
_PACKED = 4  # by how much a compressed Arrow file grows
_FILE, _OLD = b"ARROW1", b"FEA1"


class About(NamedTuple):
    """What a file says of itself.

    Attributes:
        schema: its columns.
        rows: how many it has.
        room: bytes that reading it batch by batch takes.
    """

    schema: pa.Schema
    rows: int
    room: int


def about(file: TableFile) -> About:
    """The columns and rows of a file."""
    with opened(file) as source:
        return _about_parquet(file, source) if is_parquet(file) else _about_arrow(file, source)


def batches(
    file: TableFile,
    names: list[str],
    rows: int,
    frugal: bool = False,
    groups: list[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """All rows, of these columns, so many at a time.

    Args:
        frugal: hold no column of a row group as a whole.
        groups: the row groups of a Parquet file to read; None for all.
    """
    with opened(file) as source:
        if is_parquet(file):
            # With pre_buffer the whole file would come to lie in memory, bit by bit; without a
            # buffer every column of a row group would be read as a whole.
            size = (_REMOTE_BUFFER if isinstance(file, RemoteFile) else _BUFFER) if frugal else 0
            with pq.ParquetFile(source, pre_buffer=False, buffer_size=size) as parquet:
                yield from parquet.iter_batches(rows, groups, names)
            return
        for batch in _arrow_batches(file, source, names):
            columns = [plain_text(batch.column(name)) for name in names]
            plain = pa.RecordBatch.from_arrays(columns, names)
            for start in range(0, len(plain), rows):
                yield plain.slice(start, rows)


def row_groups(file: TableFile) -> list[int]:
    """The rows of each row group of a Parquet file."""
    with opened(file) as source:
        known = pq.ParquetFile(source, pre_buffer=False).metadata
    return [known.row_group(i).num_rows for i in range(known.num_row_groups)]


def _about_parquet(file: TableFile, source: pa.NativeFile) -> About:
    known = pq.ParquetFile(source, pre_buffer=False).metadata
    n = known.num_columns
    groups = (known.row_group(i) for i in range(known.num_row_groups))
    size = max((group.total_byte_size for group in groups), default=0)
    room = _CHUNK * known.num_row_groups * n + min(3 * size, _PAGE * n)
    if isinstance(file, RemoteFile):
        room += _REMOTE_BUFFER * n
    return About(known.schema.to_arrow_schema().remove_metadata(), known.num_rows, room)


def _about_arrow(file: TableFile, source: pa.NativeFile) -> About:
    with _arrow_reader(file, source) as reader:
        fields = [pa.field(field.name, plain_type(field.type)) for field in reader.schema]
        names = reader.schema.names
    rows = largest = 0
    before = taken = pa.total_allocated_bytes()
    if names:
        source.seek(0)
        for batch in _arrow_batches(file, source, names[:1]):
            rows, largest = rows + len(batch), max(largest, len(batch))
            taken = max(taken, pa.total_allocated_bytes())
    is_mapped = taken == before  # what is not compressed need not come into memory
    room = 0 if is_mapped else _PACKED * source.size() * largest // max(rows, 1)
    return About(pa.schema(fields), rows, room)


@contextmanager
def _arrow_reader(
    file: TableFile, source: pa.NativeFile, included: list[int] | None = None
) -> Iterator[Any]:
    """A reader of a file, or of a stream in a file."""
    first = source.read(len(_FILE))
    source.seek(0)
    if first.startswith(_OLD):
        raise InputError(
            f"{file} is in the first Feather format; write it anew with a library of today."
        )
    options = pa.ipc.IpcReadOptions(included_fields=included or [])
    kind = pa.ipc.open_file if first == _FILE else pa.ipc.open_stream
    with kind(source, options=options) as reader:
        yield reader


def _arrow_batches(
    file: TableFile, source: pa.NativeFile, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Record batches as they are in the file, of some columns."""
    with _arrow_reader(file, source) as reader:
        all_names = reader.schema.names
    source.seek(0)
    with _arrow_reader(file, source, [all_names.index(name) for name in names]) as reader:
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
        else:
            yield from reader
