"""What every source of rows has, whether they come from files or from a data frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from bagwise.errors import InputError
from bagwise.limits import LIMITS, Limits
from bagwise.wording import listed


class RowSource(ABC):
    """Rows, batch by batch.

    Attributes:
        name: what messages call it.
        rows: how many there are, or None where only reading them would tell.
        files: that were read; none of a frame.
        folder_columns: names of columns that stand in the names of folders.
        bag_columns: names of columns that have one value in all rows of a bag.
    """

    files: Sequence[Path] = ()
    folder_columns: Sequence[str] = ()
    bag_columns: Sequence[str] = ()

    def __init__(
        self, name: str, schema: pa.Schema, rows: int | None, limits: Limits = LIMITS
    ) -> None:
        self.name, self.schema, self.rows, self.limits = name, schema, rows, limits

    @abstractmethod
    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, of these columns (all if not given), in batches."""

    def require(self, names: Iterable[str]) -> None:
        """Raise an InputError that names the columns which are not there."""
        if missing := [name for name in names if name not in self.schema.names]:
            raise InputError(
                f"{self.name} has no column {listed(missing)}; it has {listed(self.schema.names)}."
            )

    def refuse_repeated_names(self, names: Sequence[str], where: str = "") -> None:
        """Raise an InputError where two columns have the same name."""
        where = where or self.name
        for name in names:
            if names.count(name) > 1 and not name.strip():
                raise InputError(
                    f"{where} has {names.count(name)} columns without a name, as spreadsheets "
                    "write them behind the others; remove them, or name them."
                )
            if names.count(name) > 1:
                raise InputError(f"{where} has more than one column {name!r}; rename one.")
