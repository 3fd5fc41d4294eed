"""The rows whose shares are estimated, encoded, batch by batch or some bags at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bagwise.bags import Bags, IntArray
from bagwise.errors import InputError, Option
from bagwise.progress import RowProgress
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.encode.columns import Inputs, Surprises
from bagwise.tables.labels.bag_names import bag_ids
from bagwise.tables.labels.row_count_column import row_counts_of
from bagwise.tables.match.bag_table import MatchedRows, encode_rows
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.model.known_bags import KnownBags
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.sort.counted_store import CountedStore
from bagwise.tables.use.row_groups import RowGroups

_ROWS = 16_384  # of those in memory that are taken at a time
_LARGEST = 1 << 24  # up to which every whole number is one of float32


class Part(NamedTuple):
    """Some rows.

    Attributes:
        inputs: (n, d) encoded.
        group: (n,) of each.
        copies: (n,) how many identical rows each stands for.
        bag: (n,) the number of each row's bag, see `likelihood.group_shares_with_effects`; None of
            a model without bag effects.
    """

    inputs: Inputs
    group: IntArray
    copies: IntArray
    bag: IntArray | None


@dataclass(frozen=True)
class EstimatedRows:
    """Rows that are gone through once or several times.

    Attributes:
        parts: gives all of them.
        n: (G,) instances of each group.
        groups: (N,) the group of each counted row, an array, or a file that gives rows like one.
        counted: (N, d) rows sorted by bag, likewise, and their bags; None of rows that were not
            counted, or in several ways.
    """

    parts: Callable[[], Iterator[Part]]
    n: IntArray
    groups: Any = None
    counted: tuple[Any, Bags] | None = None


@dataclass(frozen=True)
class RowNumbers:
    """What is known of rows beside their features.

    Attributes:
        groups: that they are in.
        weights: the column that says how many identical rows each row stands for.
        bags: numbers of their bags, of a model with bag effects.
    """

    groups: RowGroups
    weights: str | None
    bags: BagNumbers | None

    @property
    def names(self) -> list[str]:
        """The columns that say it."""
        own = [] if self.weights is None else [self.weights]
        return [*self.groups.by, *own, *([] if self.bags is None else self.bags.names)]

    def of_rows(
        self, batch: pa.RecordBatch, first_row: int
    ) -> tuple[IntArray, IntArray, IntArray | None]:
        """(n,) groups, copies and bags of rows."""
        copies = np.ones(batch.num_rows, dtype=np.int64)
        if self.weights is not None:
            copies = row_counts_of(batch.column(self.weights), self.weights, first_row)
        bags = None if self.bags is None else self.bags.of_rows(batch)
        return self.groups.of_rows(batch), copies, bags


class BagNumbers:
    """Numbers of the bags of rows: those of known ones, and beyond of new ones, each with a number
    of its own. A row without a bag is alone in a new one: -1.
    """

    def __init__(self, known: KnownBags, names: Sequence[str]) -> None:
        self.names, self._known = list(names), known
        self._new: dict[str, int] = {}

    def of_rows(self, batch: pa.RecordBatch) -> IntArray:
        """(n,) of a batch."""
        ids, after = bag_ids(batch, self.names), len(self._known.names)
        places, encoded = self._known.places(ids), ids.dictionary_encode()
        new = [
            self._new.setdefault(name, len(self._new)) for name in encoded.dictionary.to_pylist()
        ]
        local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        beyond = after + np.array([*new, 0], dtype=np.int64)[local]
        return np.where(local < 0, -1, np.where(places < after, places, beyond))


def new_rows(
    model: FittedTable,
    source: RowSource,
    numbers: RowNumbers,
    surprises: Surprises | None,
    progress: bool,
) -> EstimatedRows:
    """All rows of a table, read anew each time.

    Args:
        model: a fitted one.
        source: of the rows.
        numbers: what is known of them.
        surprises: to which is added what rows have that those of `fit` had not.
        progress: show a bar, on a terminal.
    """
    names = list(dict.fromkeys([*numbers.names, *model.columns.names]))
    noted = [Surprises() if surprises is None else surprises]

    def parts() -> Iterator[Part]:
        own = noted.pop() if noted else Surprises()  # each is noted once
        row = 0
        with RowProgress("estimating", source.rows, progress) as bar:
            for batch in source.batches(names):
                inputs = model.columns.encode(batch, row, own)
                group, copies, bags = numbers.of_rows(batch, row)
                yield Part(inputs, group, copies, bags)
                row += batch.num_rows
                bar.advance(batch.num_rows)

    return EstimatedRows(parts, numbers.groups.rows)


def rows_in_memory(
    model: FittedTable,
    source: RowSource,
    numbers: RowNumbers,
    matched: MatchedRows,
    surprises: Surprises | None,
    progress: bool,
) -> EstimatedRows:
    """The rows of counted bags, in their order; with several groupings, in that of the table.

    Args:
        model: a fitted one.
        source: of the rows.
        numbers: what is known of them.
        matched: their bags.
        surprises: see `new_rows`.
        progress: show a bar, on a terminal.
    """
    order, bags = matched.targets.order, matched.targets.bags
    if is_several := matched.groupings is not None:
        order = np.unique(order)
    inputs, found = encode_rows(source, model.columns, order, matched.n_rows, progress)
    if surprises is not None:
        surprises.update(found)
    of_batches, row = [], 0
    for batch in source.batches(list(dict.fromkeys(numbers.names))):
        of_batches.append(numbers.of_rows(batch, row))
        row += batch.num_rows
    groups, copies = (
        np.concatenate([part[place] for part in of_batches])[order] for place in (0, 1)
    )
    own = None
    if numbers.bags is not None:
        own = np.concatenate([part[2] for part in of_batches if part[2] is not None])[order]

    def parts() -> Iterator[Part]:
        for first in range(0, len(inputs), _ROWS):
            some = slice(first, first + _ROWS)
            yield Part(inputs[some], groups[some], copies[some], None if own is None else own[some])

    n = np.bincount(groups, copies, len(numbers.groups)).astype(np.int64)
    return EstimatedRows(parts, n, groups, None if is_several else (inputs, bags))


def rows_in_store(
    model: FittedTable, numbers: RowNumbers, store: CountedStore, surprises: Surprises | None
) -> EstimatedRows:
    """The same, sorted into a file; behind the features of a row are its group and its bag.

    Args:
        model: a fitted one.
        numbers: what is known of the rows.
        store: sorts them.
        surprises: see `new_rows`.
    """
    width, has_bags = len(model.columns.encoded_names), numbers.bags is not None
    noted = Surprises() if surprises is None else surprises
    names = list(dict.fromkeys([*numbers.names, *model.columns.names]))

    def encoded(batch: pa.RecordBatch, first_row: int) -> Inputs:
        group, _, bag = numbers.of_rows(batch, first_row)
        beside = np.column_stack([group] if bag is None else [group, bag])
        if (beside >= _LARGEST).any():
            raise InputError(
                Option("memory"),
                f" goes with up to {_LARGEST:,} groups and new bags; leave it out.",
            )
        inputs = model.columns.encode(batch, first_row, noted)
        return np.hstack([inputs, beside.astype(np.float32)])

    stored = store.sorted(names, encoded, width + 1 + has_bags)

    def parts() -> Iterator[Part]:
        for first in range(0, len(stored), _ROWS):
            rows = stored.take(np.arange(first, min(first + _ROWS, len(stored))))
            group, *own = rows[:, width:].T.astype(np.int64)
            ones = np.ones(len(rows), dtype=np.int64)
            yield Part(rows[:, :width], group, ones, own[0] if has_bags else None)

    n = sum(np.bincount(part.group, minlength=len(numbers.groups)) for part in parts())
    features, groups = _Columns(stored, slice(width)), _Columns(stored, width)
    return EstimatedRows(parts, np.asarray(n), groups, (features, store.rows.targets.bags))


class _Columns:
    """Some columns of rows in a file; one of them as whole numbers."""

    def __init__(self, stored: StoredRows, which: slice | int) -> None:
        self._stored, self._which = stored, which

    def __getitem__(self, rows: Any) -> npt.NDArray[Any]:
        if isinstance(self._which, slice):
            return self._stored.take(rows)[:, self._which]
        found = np.empty(len(rows), dtype=np.int64)
        for first in range(0, len(rows), _ROWS):  # of each row all is read
            some = slice(first, first + _ROWS)
            found[some] = self._stored.take(rows[some])[:, self._which]
        return found
