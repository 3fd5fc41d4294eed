"""Rows of files that are larger than memory: CSV files too are read batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bagwise.errors import InputError, Option
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import shown_size
from bagwise.tables.read.dialect import text_options
from bagwise.tables.read.paths import Paths, is_parquet
from bagwise.tables.read.source import FileSource
from bagwise.tables.read.type_inference import Inference
from bagwise.tables.read.values import is_text

BUFFER = 1 << 15  # bytes of each column of a Parquet file that are read at a time
_CELL = 24  # bytes that a cell of a batch takes while it is read and encoded
_PAGE = 3_000_000  # bytes that a column of a Parquet file takes, at most, while it is decoded
_CHUNK = 1000  # bytes that are known of a column in a row group
_LEAST = 32_000_000  # bytes for the rest
_FEWEST = 1024  # rows of a batch


class StreamedSource(FileSource):
    """As `FileSource`, the same rows, types and batches, but no file is ever in memory as a whole.

    The types of a CSV file's columns are found in a reading of their own. Batches have fewer rows
    where the budget asks for it.

    Args:
        budget: bytes of memory that may be used.
    """

    def __init__(
        self, paths: Paths, as_text: Iterable[str], budget: int, limits: Limits = LIMITS
    ) -> None:
        self._found: dict[Path, dict[str, Inference]] = {}
        self._counted: dict[Path, int] = {}
        self.batch_rows = limits.batch_rows
        super().__init__(paths, typed=True, as_text=as_text, limits=limits)
        needed = _LEAST + len(self.schema.names) * limits.column_bytes + self._for_parquet()
        if needed > budget:
            raise InputError(
                Option("memory"),
                f" is {shown_size(budget)}; with {len(self.schema.names)} columns, at least "
                f"{-(-needed // 10**6):,} MB are needed.",
            )
        room = (budget - needed) // 2 // (_CELL * len(self.schema.names))
        self.batch_rows = min(max(room, _FEWEST), limits.batch_rows)

    def _for_parquet(self) -> int:
        """Bytes that reading Parquet files takes, at most one of them at a time."""
        most = 0
        for file in filter(is_parquet, self.files):
            about = pq.read_metadata(file)
            groups = (about.row_group(i) for i in range(about.num_row_groups))
            size = max((group.total_byte_size for group in groups), default=0)
            known = _CHUNK * about.num_row_groups * about.num_columns
            most = max(most, known + min(3 * size, _PAGE * about.num_columns))
        return most

    def _open(self, file: Path) -> pa.Schema:
        if is_parquet(file):
            return super()._open(file)
        with self.reading(file), pcsv.open_csv(file, **text_options(file, self.limits)) as reader:
            found = {name: Inference() for name in reader.schema.names}
            rows = 0
            for batch in reader:
                rows += batch.num_rows
                for name, column in zip(found, batch.columns, strict=True):
                    if name not in self._as_text:
                        found[name].add(column)
        self._found[file], self._counted[file] = found, rows
        return pa.schema(
            [
                pa.field(name, pa.string() if name in self._as_text else one.type)
                for name, one in found.items()
            ]
        )

    def _count(self) -> int | None:
        parquet = (file for file in self.files if file not in self._counted)
        rows = sum(int(pq.read_metadata(file).num_rows) for file in parquet)
        return rows + sum(self._counted.values())

    def _batches(self, file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
        if is_parquet(file):
            # Without a buffer every column of a row group would be read as a whole.
            with pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER) as parquet:
                yield from parquet.iter_batches(self.batch_rows, columns=names)
            return
        with pcsv.open_csv(file, **text_options(file, self.limits)) as reader:
            for block in reader:
                for start in range(0, block.num_rows, self.batch_rows):
                    batch = block.slice(start, self.batch_rows)
                    columns = [self._typed_column(file, name, batch.column(name)) for name in names]
                    yield pa.RecordBatch.from_arrays(columns, names)

    def _typed_column(self, file: Path, name: str, texts: pa.Array) -> pa.Array:
        if name in self._as_text:
            return texts
        found = self._found[file][name]
        if not pa.types.is_null(found.type):
            return found.converted(texts)
        # Words for a missing value are names where other files have text.
        return texts if is_text(self.schema.field(name).type) else pa.nulls(len(texts))
