"""Rows of files that are larger than memory: CSV files too are read batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from bagwise.limits import LIMITS, Limits
from bagwise.tables.read.databases import DatabaseSource, is_database
from bagwise.tables.read.paths import Paths
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import FileSource, Table
from bagwise.tables.read.table_files import TableFile, is_text_file
from bagwise.tables.read.type_inference import Inference
from bagwise.tables.read.values import is_text

Look = tuple[dict[str, Inference], int]
"""What the columns of a CSV file hold, and how many rows it has."""


def streamed_rows(
    data: Table, as_text: Iterable[str], budget: int, limits: Limits = LIMITS
) -> RowSource:
    """The rows of files or of a database, within a budget of memory."""
    if is_database(data):
        return DatabaseSource(data, limits, budget)
    return StreamedSource(data, as_text, budget, limits)


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
        self._found: dict[TableFile, dict[str, Inference]] = {}
        self._counted: dict[TableFile, int] = {}
        super().__init__(paths, True, as_text, limits, budget)

    def _open(self, file: TableFile) -> pa.Schema:
        if not is_text_file(file):
            return super()._open(file)
        found, self._counted[file] = self.look(file)
        self._found[file] = found
        return pa.schema(
            [
                pa.field(name, pa.string() if name in self._as_text else one.type)
                for name, one in found.items()
            ]
        )

    def look(self, file: TableFile) -> Look:
        """Read a CSV file to find out what its columns hold."""
        with self.reading(file), self._csv(file) as reader:
            found = {name: Inference() for name in reader.schema.names}
            rows = 0
            for batch in reader:
                rows += batch.num_rows
                for name, column in zip(found, batch.columns, strict=True):
                    if name not in self._as_text:
                        found[name].add(column)
        return found, rows

    def _count(self) -> int | None:
        typed = sum(known.rows for known in self._typed_files.values())
        return typed + sum(self._counted.values())

    def _batches(self, file: TableFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in super()._batches(file, names):
            if is_text_file(file):
                columns = [self._typed_column(file, name, batch.column(name)) for name in names]
                yield pa.RecordBatch.from_arrays(columns, names)
            else:
                yield batch

    def _typed_column(self, file: TableFile, name: str, texts: pa.Array) -> pa.Array:
        if name in self._as_text:
            return texts
        found = self._found[file][name]
        if not pa.types.is_null(found.type):
            return found.converted(texts)
        # Words for a missing value are names where other files have text.
        return texts if is_text(self.schema.field(name).type) else pa.nulls(len(texts))
