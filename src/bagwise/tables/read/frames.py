"""Rows from data frames in memory: pandas, polars, pyarrow, or anything that speaks Arrow."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bagwise.errors import InputError, InputTypeError
from bagwise.limits import LIMITS, Limits
from bagwise.tables.read.row_source import RowSource

KINDS = ("pandas", "polars", "pyarrow")


class FrameSource(RowSource):
    """The rows of a data frame.

    Args:
        keys: levels of a pandas index that are columns here, too.
    """

    def __init__(
        self, frame: Any, name: str, keys: Sequence[str] = (), limits: Limits = LIMITS
    ) -> None:
        self.table = to_arrow(frame, name, keys)
        super().__init__(name, self.table.schema, self.table.num_rows, limits)
        self.refuse_repeated_names(self.table.column_names)

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, of these columns (all if not given), in batches."""
        table = self.table if columns is None else self.table.select(columns)
        yield from table.to_batches(max_chunksize=self.limits.batch_rows)


def is_frame(rows: object) -> bool:
    """Whether this is a data frame: of pandas or polars, a pyarrow table, or anything else with
    `__arrow_c_stream__`.

    >>> is_frame(pa.table({"age": [30]})), is_frame("rows.csv")
    (True, False)
    """
    return hasattr(rows, "__arrow_c_stream__") or kind_of(rows) == "pandas"


def refuse_no_table(data: object, name: str = "the table") -> None:
    """Refuse what is neither a data frame nor the path of a file, though it looks like one."""
    others = ("Series", "LazyFrame", "ndarray", "NoneType")
    if type(data).__name__ in others or isinstance(data, Mapping):
        raise InputTypeError(
            f"{name} is a {type(data).__name__}; a data frame (pandas, polars, pyarrow) or the "
            "path of a file is expected."
        )


def kind_of(frame: object) -> str:
    """Of which library a frame is; "pyarrow" for all others that speak Arrow."""
    library = type(frame).__module__.partition(".")[0]
    return library if library in KINDS else "pyarrow"


def to_arrow(frame: Any, name: str, keys: Sequence[str] = ()) -> pa.Table:
    """A frame as an Arrow table whose columns are named by text.

    >>> to_arrow(pa.record_batch({"age": [30]}), "rows").column_names
    ['age']
    """
    if kind_of(frame) != "pandas":
        try:
            table = pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"{name} cannot be read as a table: {error}") from error
        plain = [_plain_column(column) for column in table.columns]
        return pa.Table.from_arrays(plain, names=table.column_names)
    columns: dict[str, Any] = {}
    for level in _levels(frame, keys):
        columns[str(level)] = _column(frame.index.get_level_values(level), level, name)
    for label, values in frame.items():
        if str(label) in columns:
            raise InputError(f"{name} has more than one column {str(label)!r}; rename one.")
        columns[str(label)] = _column(values, label, name)
    return pa.table(columns)


def _levels(frame: Any, keys: Sequence[str]) -> list[Any]:
    """Levels of a pandas index that are columns: the keys, and where these do not tell the rows
    apart, the others too: counts by bag and class, as `value_counts` gives them.
    """
    own = [key for key in keys if key in frame.index.names and key not in frame.columns]
    others = [level for level in frame.index.names if level not in (*own, None)]
    if not own or not others or not frame.index.to_frame()[own].duplicated().any():
        return own
    return own + others


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [plain_text(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, plain_type(column.type))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Plain text in place of views, which polars has and few functions of Arrow take."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        return pa.dictionary(kind.index_type, pa.string(), kind.ordered)
    return kind


def plain_text(values: pa.Array) -> pa.Array:
    """The same of values."""
    kind = values.type
    if pa.types.is_string_view(kind):
        return _texts(values)
    if not pa.types.is_dictionary(kind) or not pa.types.is_string_view(kind.value_type):
        return values
    return pa.DictionaryArray.from_arrays(
        values.indices, _texts(values.dictionary), ordered=kind.ordered
    )


def _texts(views: pa.Array) -> pa.Array:
    try:
        return views.cast(pa.string())
    except pa.ArrowNotImplementedError:  # before pyarrow 18
        return pa.array(views.to_pylist(), pa.string())


def _column(values: Any, label: object, name: str) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.Array.from_pandas(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        kinds = sorted({type(value).__name__ for value in values[:1000]})
        raise InputError(
            f"the column {str(label)!r} of {name} holds values that do not go together "
            f"({', '.join(kinds[:4])}); convert it to numbers or to text."
        ) from error


@dataclass(frozen=True)
class FrameMaker:
    """Makes results of the same kind as a frame that was given.

    Attributes:
        kind: "pandas", "polars" or "pyarrow".
        index: of the pandas frame, for results with a row for each of its rows.
    """

    kind: str
    index: Any = None

    @classmethod
    def like(cls, frame: Any) -> FrameMaker:
        """Of the kind of a frame; of a path, of what is at hand."""
        if not is_frame(frame):
            return cls.at_hand()
        kind = kind_of(frame)
        return cls(kind, frame.index if kind == "pandas" else None)

    @classmethod
    def at_hand(cls) -> FrameMaker:
        """pandas where it is installed, else polars where that is, else pyarrow."""
        here = (kind for kind in KINDS if kind in sys.modules or importlib.util.find_spec(kind))
        return cls(next(here))

    def frame(self, columns: dict[str, Any], rows: npt.NDArray[np.int64] | None = None) -> Any:
        """A frame of columns, arrays or lists; `rows` are the places of the given rows it has."""
        table = pa.table(columns)
        if self.kind == "pandas":
            found = table.to_pandas()
            if self.index is not None:
                found.index = self.index if rows is None else self.index[rows]
            return found
        if self.kind == "polars":
            import polars

            return polars.from_arrow(table)
        return table

    def series(self, name: str, values: Any, rows: npt.NDArray[np.int64] | None = None) -> Any:
        """One column."""
        frame = self.frame({name: values}, rows)
        return frame.column(name) if self.kind == "pyarrow" else frame[name]
