"""What every source of rows has, whether they come from files or from a data frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from bagwise.errors import InputError, Option
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import shown_size
from bagwise.tables.read.table_files import TableFile, shown
from bagwise.wording import listed

_CELL = 24  # bytes that a cell of a batch takes while it is read and encoded
_LEAST = 32_000_000  # bytes for the rest
_FEWEST = 1024  # rows of a batch


class RowSource(ABC):
    """Rows, batch by batch.

    Attributes:
        name: what messages call it.
        rows: how many there are, or None where only reading them would tell.
        files: that were read; none of a frame or a database.
        folder_columns: names of columns that stand in the names of folders.
        bag_columns: names of columns that have one value in all rows of a bag.
        batch_rows: rows of a batch, at most.
    """

    files: Sequence[TableFile] = ()
    folder_columns: Sequence[str] = ()
    bag_columns: Sequence[str] = ()

    def __init__(
        self, name: str, schema: pa.Schema, rows: int | None, limits: Limits = LIMITS
    ) -> None:
        self.name, self.schema, self.rows, self.limits = name, schema, rows, limits
        self.batch_rows = limits.batch_rows

    @abstractmethod
    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, of these columns (all if not given), in batches."""

    @property
    def places(self) -> list[str]:
        """Where the rows were, for people; nothing of a frame."""
        return [shown(file) for file in self.files]

    def fingerprint(self) -> Any:
        """JSON that tells whether a later command reads the same rows in the same order."""
        raise NotImplementedError

    def require(self, names: Iterable[str]) -> None:
        """Raise an InputError that names the columns which are not there."""
        there = set(self.schema.names)
        if missing := [name for name in names if name not in there]:
            raise InputError(
                f"{self.name} has no column {listed(missing)}; it has {listed(self.schema.names)}."
            )

    def refuse_repeated_names(self, names: Sequence[str], where: str = "") -> None:
        """Raise an InputError where two columns have the same name."""
        where = where or self.name
        for name, times in Counter(names).items():
            if times > 1 and not name.strip():
                raise InputError(
                    f"{where} has {times} columns without a name, as spreadsheets "
                    "write them behind the others; remove them, or name them."
                )
            if times > 1:
                raise InputError(f"{where} has more than one column {name!r}; rename one.")


def rows_within(budget: int, n_columns: int, room: int, limits: Limits) -> int:
    """How many rows may be read at a time within a budget of memory.

    Args:
        room: bytes that reading takes besides.
    """
    needed = _LEAST + n_columns * limits.column_bytes + room
    if needed > budget:
        raise InputError(
            Option("memory"),
            f" is {shown_size(budget)}; with {n_columns} columns, at least "
            f"{-(-needed // 10**6):,} MB are needed.",
        )
    left = (budget - needed) // 2 // (_CELL * n_columns)
    return min(max(left, _FEWEST), limits.batch_rows)
