"""Rows whose bags are counted, for a model that is fitted already, within a budget of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bagwise.bags import IntArray
from bagwise.progress import RowProgress
from bagwise.storage.files import temporary_folder, write_to
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.encode.columns import Columns, Inputs
from bagwise.tables.labels.label_file import LabelTable
from bagwise.tables.match.bag_codes import bag_codes
from bagwise.tables.match.bag_table import MatchedRows
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.sort.sorted_table import (
    CODES,
    matched,
    refuse_small_budget,
    row_totals,
    rows_of_bags,
)
from bagwise.tables.sort.sorting import Batches, sorted_rows
from bagwise.tables.sort.store import Store

Encode = Callable[[pa.RecordBatch, int], Inputs]
"""Gives numbers (n, d) of a batch, and of the number of its first row."""


class CountedStore:
    """Rows of a table whose bags are known, in temporary files.

    Attributes:
        rows: their bags.
    """

    def __init__(
        self,
        source: RowSource,
        rows: MatchedRows,
        bag_of_row: Callable[[int, int], IntArray],
        store: Store,
        budget: int,
        progress: bool,
    ) -> None:
        self._source, self.rows, self._bag_of_row = source, rows, bag_of_row
        self._store, self._budget, self._progress = store, budget, progress

    def sorted(self, names: Sequence[str], encode: Encode, width: int) -> StoredRows:
        """Numbers of all rows, sorted by bag into a file.

        Args:
            names: columns that are read.
            encode: gives the numbers.
            width: how many numbers a row has.
        """
        limits, sizes = self._source.limits, self.rows.targets.bags.sizes
        path = sorted_rows(
            self._store,
            "use",
            partial(self._batches, names, encode),
            sizes,
            width,
            self._budget // limits.sorting_part,
            self.rows.n_rows,
            self._progress,
            limits,
        )
        return StoredRows.of_file(path, sizes, width, self._budget, "use", limits)

    def some(self, names: Sequence[str], encode: Encode, index: IntArray) -> Inputs:
        """Numbers of the rows of some bags, in memory, sorted by bag."""
        n_bags = len(self.rows.targets.bags)
        places, rows = rows_of_bags(self._batches(names, encode), n_bags, index)
        found: Inputs = rows[np.argsort(places, kind="stable")]
        return found

    def _batches(self, names: Sequence[str], encode: Encode) -> Batches:
        row = 0
        for batch in self._source.batches(list(names)):
            yield self._bag_of_row(row, row + batch.num_rows), partial(encode, batch, row)
            row += batch.num_rows


@contextmanager
def counted_store(
    source: RowSource,
    labels: LabelTable,
    columns: Columns,
    budget: int,
    skip_unmatched: bool,
    progress: bool,
) -> Iterator[CountedStore]:
    """Read which bag each row is in; the files are gone when the block ends.

    Args:
        source: of the rows.
        labels: what is known of the bags.
        columns: of the model.
        budget: bytes of memory that may be used.
        skip_unmatched: leave out bags that only one of the tables has.
        progress: show a bar, on a terminal.
    """
    with temporary_folder() as folder:
        store = Store(folder)
        numbers: dict[str, int] = {}
        n, path = 0, store.folder / CODES
        with (
            RowProgress("reading", source.rows, progress) as bar,
            path.open("wb", buffering=0) as file,
        ):
            for (codes,) in bag_codes(source, [list(labels.key)], None, bar, [numbers]):
                write_to(file, codes.data)
                n += len(codes)
        of_rows = np.asarray(np.memmap(path, np.int32, "r", shape=(n,)))
        totals = row_totals(of_rows, len(numbers))
        rows, bag_of_code = matched(
            columns, list(numbers), totals, labels, source.name, skip_unmatched
        )
        refuse_small_budget(rows.targets.bags, budget, source.limits)

        def bag_of_row(first: int, end: int) -> npt.NDArray[np.int64]:
            found: npt.NDArray[np.int64] = bag_of_code[of_rows[first:end]]
            return found

        yield CountedStore(source, rows, bag_of_row, store, budget, progress)
