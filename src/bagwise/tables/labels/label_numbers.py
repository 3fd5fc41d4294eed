"""The numbers of a label file, and what they are."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa

from bagwise.bags import FloatArray, Noise
from bagwise.errors import InputError
from bagwise.labels.kinds import NumbersAre, Rounded, rounding_of
from bagwise.tables.labels.cells import HIGH, LOW, UNKNOWN, Cells, cells_of, first_text


def said(numbers_are: NumbersAre, *kinds: str) -> bool:
    """Whether numbers are said to be of one of these kinds, and not noisy."""
    return isinstance(numbers_are, str) and numbers_are in kinds


def readable(table: pa.Table, column: str, name: str) -> Cells:
    """The cells of a column of numbers; an error that names the first that is none."""
    values = table.column(column)
    cells = cells_of(values, column)
    if cells is None:
        row, text = first_text(values)
        raise InputError(
            f"the column {column!r} of {name} has {text!r} in row {row + 1}; a number is expected."
        )
    return cells


def numbers_of_cells(
    cells: dict[str, Cells], name: str, numbers_are: NumbersAre
) -> tuple[FloatArray, NumbersAre]:
    """(B, C) numbers of columns, or (B, C, 2) bounds where some are ranges; and what they are."""
    low = np.stack([x.low for x in cells.values()], axis=1)
    high = np.stack([x.high for x in cells.values()], axis=1)
    columns = list(cells)
    ranges = {column: x.example for column, x in cells.items() if x.example}
    if ranges or said(numbers_are, "ranges"):
        _refuse_odd_ranges(ranges, low, high, columns, name, numbers_are)
        return np.stack([low, high], axis=-1), "ranges"
    soft = said(numbers_are, "counts", "rounded") or isinstance(numbers_are, Noise | Rounded)
    if np.isnan(low).any() and not soft:
        row, c = np.argwhere(np.isnan(low))[0]
        raise InputError(
            f"the column {columns[c]!r} of {name} has no number in row {row + 1}; a count or a "
            "proportion is expected, 0 if there are none. Where nobody knows a count, say "
            f"--labels-are counts: {UNKNOWN} and empty cells are then unknown."
        )
    rounded = said(numbers_are, "rounded") or isinstance(numbers_are, Rounded)
    return low, rounding_of(low, numbers_are) if rounded else numbers_are


def _refuse_odd_ranges(
    ranges: dict[str, str],
    low: FloatArray,
    high: FloatArray,
    columns: list[str],
    name: str,
    numbers_are: NumbersAre,
) -> None:
    """Ranges stand among counts, and are not upside down; a note says that they were read."""
    if not ranges:
        if (low == high).all():
            raise InputError(
                f"{name} has no ranges: neither columns such as {columns[0] + LOW!r} and "
                f"{columns[0] + HIGH!r} nor cells such as 1-4; say --labels-are counts."
            )
        return
    column, example = next(iter(ranges.items()))
    if not said(numbers_are, "auto", "counts", "ranges"):
        raise InputError(
            f"the column {column!r} of {name} has {example!r}, a range, which is read among "
            "counts (--labels-are counts or ranges), not among other numbers."
        )
    if ((low != np.rint(low)) & ~np.isnan(low)).any():
        row, c = np.argwhere((low != np.rint(low)) & ~np.isnan(low))[0]
        raise InputError(
            f"{name} has {example!r} in the column {column!r}, a range of counts, but "
            f"{low[row, c]:g} in {columns[c]!r} is no count; ranges of shares are not read. "
            "Leave such cells empty and say --labels-are rounded."
        )
    if (low > high).any():
        row, c = np.argwhere(low > high)[0]
        raise InputError(
            f"the column {columns[c]!r} of {name} has {low[row, c]:g}-{high[row, c]:g} in row "
            f"{row + 1}; the lower bound comes first."
        )
    warnings.warn(
        f"cells of {name} such as {example!r} are read as ranges of counts.",
        UserWarning,
        stacklevel=5,
    )
