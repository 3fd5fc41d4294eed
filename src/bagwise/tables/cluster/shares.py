"""The part of a table that one worker reads: rows of its files, from one number to another."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bagwise.errors import InputError
from bagwise.limits import Limits
from bagwise.tables.read.paths import Paths
from bagwise.tables.read.streaming import Look, StreamedSource
from bagwise.tables.read.table_files import TableFile, is_parquet, local
from bagwise.tables.read.typed_files import batches, row_groups

MUCH = 2**62  # bytes, where memory is not limited


class SharedSource(StreamedSource):
    """As `StreamedSource`, and it can be cut into shares of about as many rows each.

    Of a Parquet file only the row groups of a share are read. A CSV file is parsed from its
    beginning to the end of the share.

    Args:
        looks: what workers have found out about CSV files.

    Attributes:
        first_row: of the table, that is in the share.
    """

    first_row = 0
    _range: dict[TableFile, tuple[int, int]] | None = None

    def __init__(
        self,
        paths: Paths,
        as_text: Iterable[str],
        budget: int,
        limits: Limits,
        looks: Mapping[TableFile, Look] | None = None,
    ) -> None:
        self._looks = looks or {}
        super().__init__(paths, as_text, budget, limits)

    def look(self, file: TableFile) -> Look:
        """What a worker has found out, or a reading here does."""
        return self._looks[file] if file in self._looks else super().look(file)

    def shares(self, n: int) -> list[SharedSource]:
        """So many shares, one after the other; some are empty where there are fewer rows."""
        counts = [self._rows_of(file) for file in self.files]
        ends = np.cumsum(counts)
        cuts = np.linspace(0, ends[-1], n + 1).astype(int).tolist()
        found = []
        for begin, end in pairwise(cuts):
            share = copy(self)
            share.first_row, share.rows, share._range = begin, end - begin, {}
            for file, last, rows in zip(self.files, ends.tolist(), counts, strict=True):
                first = last - rows
                if (low := max(begin, first)) < (high := min(end, last)):
                    share._range[file] = low - first, high - first
            share.files = list(share._range)
            found.append(share)
        return found

    def look_of(self, file: TableFile) -> Look:
        """What was found out about a CSV file."""
        return self._found[file], self._counted[file]

    def _rows_of(self, file: TableFile) -> int:
        typed = self._typed_files.get(file)
        return self._counted[file] if typed is None else typed.rows

    def _batches(self, file: TableFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        if self._range is None:
            yield from super()._batches(file, names)
            return
        begin, end = self._range[file]
        row, found = 0, super()._batches(file, names)
        if is_parquet(file):
            ends = np.cumsum(row_groups(file))
            first, last = np.searchsorted(ends, [begin, end - 1], side="right").tolist()
            row, groups = int(ends[first - 1]) if first else 0, list(range(first, last + 1))
            found = batches(file, names, self.batch_rows, frugal=True, groups=groups)
        for batch in found:
            low, high = max(begin - row, 0), min(end - row, batch.num_rows)
            if low < high:
                yield batch.slice(low, high - low)
            row += batch.num_rows
            if row >= end:
                return


def require_files(files: Iterable[TableFile]) -> None:
    """Raise an InputError where a file is not there on this machine."""
    for file in local(files):
        if not file.exists():
            raise InputError(
                f"{file} is not there on the machine {platform.node()} of the cluster; files have "
                "to be on a disk that all see."
            )
