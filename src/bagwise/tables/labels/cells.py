"""Cells of a label file: numbers, ranges such as "<5" or "1-4", and what nobody knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.bags import FloatArray
from bagwise.errors import InputError, Option, warn_user
from bagwise.labels.label_spec import LabelSpec
from bagwise.tables.read.notation import GROUPED, Dots, numbers_written, rewritten
from bagwise.tables.read.type_inference import inferred
from bagwise.tables.read.values import ARROW_ERRORS, cleaned, is_text, numbers_of, parsed

UNKNOWN = "*"  # published in place of a number that must not be known
LOW, HIGH = "_low", "_high"  # how the names of columns of bounds end
_LONGEST = 15  # digits of a count
_N = r"(\d{1,3}(?:,\d{3})+|\d+)"  # 1,000 too
_RANGES = (
    # what is written, and the bounds that a number n (or two) of it gives
    (rf"(?:<|fewer than|less than|under|below)\s*{_N}", lambda n: (0, n - 1)),
    (rf"(?:<=|=<|≤|at most|up to|no more than)\s*{_N}", lambda n: (0, n)),
    (rf"{_N}\s*or (?:fewer|less)", lambda n: (0, n)),
    (rf"{_N}\s*(?:-|\u2013|\u2014|to|\.\.)\s*{_N}", lambda n, m: (n, m)),
    (rf"(?:>|more than|over|above)\s*{_N}", lambda n: (n + 1, np.nan)),
    (rf"(?:>=|=>|≥|at least)\s*{_N}", lambda n: (n, np.nan)),
    (rf"{_N}\s*(?:\+|or more)", lambda n: (n, np.nan)),
)


class Cells(NamedTuple):
    """The cells of a column.

    Attributes:
        low: (B,) a number, or the least one it can be; NaN for no bound.
        high: (B,) the same number, or the largest one.
        example: a cell that is a range, None if there is none.
        has_number: whether some cell is a plain number.
    """

    low: FloatArray
    high: FloatArray
    example: str | None = None
    has_number: bool = True


def cells_of(column: pa.ChunkedArray, name: str) -> Cells | None:
    """What the cells of a column say; None if one of them is neither number, range nor unknown.

    >>> cells_of(pa.chunked_array([["7", "<5", "1-4", ">=10", "*"]]), "yes")[:3]
    (array([ 7.,  0.,  1., 10., nan]), array([ 7.,  4.,  4., nan, nan]), '<5')
    >>> cells_of(pa.chunked_array([["7", "many"]]), "yes") is None
    True

    Numbers may be written 1,234 or 0,25, and with a percent sign, all in one way. 1.234 is a
    little more than one here, see `without_thousands`.

    >>> cells_of(pa.chunked_array([["1,234", "<5", "870"]]), "yes").high
    array([1234.,    4.,  870.])
    >>> cells_of(pa.chunked_array([["12.5 %", "100%"]]), "yes").low
    array([ 12.5, 100. ])
    """
    typed = inferred(column) if is_text(column.type) else column
    if not is_text(typed.type):
        try:
            numbers = numbers_of(typed, "numeric", name)
        except InputError:
            return None
        return Cells(numbers, numbers)
    encoded = cleaned(typed.combine_chunks().cast(pa.string())).dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    bounds = np.array([*(_range(text) or (np.nan, np.nan) for text in texts), (np.nan, np.nan)])
    ranges = [text for text in texts if _range(text)]
    plain = [place for place, text in enumerate(texts) if text != UNKNOWN and not _range(text)]
    found = _numbers(pa.array([texts[place] for place in plain], pa.string()))
    if found is None:
        return None
    numbers = found.to_numpy(zero_copy_only=False)
    bounds[plain] = np.where(np.isinf(numbers), np.nan, numbers)[:, None]
    low, high = bounds[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)].T
    return Cells(low, high, ranges[0] if ranges else None, bool(plain))


def mostly_numbers(column: pa.ChunkedArray) -> bool:
    """Whether most cells of a column of text are numbers or ranges; a missing one is neither.

    >>> mostly_numbers(pa.chunked_array([["12", "closed", "7"]]))
    True
    """
    texts = cleaned(column.combine_chunks().cast(pa.string())).drop_null()
    counts = texts.value_counts().to_pylist()
    told = (_is_told(entry["values"]) * entry["counts"] for entry in counts)
    return bool(2 * sum(told) > len(texts))


def first_text(column: pa.ChunkedArray) -> tuple[int, str]:
    """Row and text of the first cell that is not a number, range or unknown."""
    cells = column.cast(pa.string()).to_pylist()
    found = (row for row, text in enumerate(cells) if text is not None and not _is_told(text))
    row = next(found, 0)
    return row, cells[row]


def _is_told(text: str) -> bool:
    return cells_of(pa.chunked_array([[text]], pa.string()), "") is not None


def _numbers(texts: pa.Array) -> pa.Array | None:
    """What texts say that are all different; None if one of them is not a number."""
    try:
        return parsed(texts, "numeric")
    except ARROW_ERRORS:
        written, fits = numbers_written(texts, np.ones(len(texts), np.int64))
        if not fits.all() or written.unit not in ("", "%"):
            return None
        return parsed(rewritten(texts, written), "numeric")


def without_thousands(
    table: pa.Table, columns: Sequence[str], bags: pa.Array, spec: LabelSpec, name: str
) -> pa.Table:
    """A label file with 1260 for 1.260 where dots separate thousands, judged by all its numbers.

    They do not in shares that sum to 1 or 100, such as 33.333 and 66.667 beside 100. Where a single
    column could be either, that is an error.
    """
    if spec.kind in ("proportions", "rounded"):
        return table
    repeated = 2 * len(bags.unique()) < len(bags)  # a row for each bag and class
    dots, dotted, totals = Dots(least=1), [], np.zeros(len(bags))
    for column in columns:
        if not is_text(table.schema.field(column).type):
            continue
        texts = cleaned(table.column(column).combine_chunks().cast(pa.string()))
        numbers = pc.match_substring_regex(texts, r"^[+-]?\d[\d.,]*%?$").fill_null(False)
        own = pc.if_else(numbers, texts, None)
        has_dot = bool(pc.any(pc.match_substring(own, "."), min_count=0).as_py())
        if has_dot or not repeated:
            dots.add(own)
        if has_dot:
            dotted.append(column)
        plain = pc.match_substring_regex(own, r"^[+-]?\d+(\.\d+)?$").fill_null(False)
        decimals = parsed(pc.if_else(plain, own, None), "numeric").fill_null(0)
        totals += decimals.to_numpy(zero_copy_only=False)
    if not dots.are_thousands:
        return table
    if spec.kind == "auto":
        _, place = np.unique(bags.to_numpy(zero_copy_only=False), return_inverse=True)
        sums = np.bincount(place, totals)
        if any((np.abs(sums - whole) < 0.01 * whole).all() for whole in (1, 100)):
            return table
        if len(columns) == 1:
            with_dot, bare = dots.examples
            raise InputError(
                f"the column {columns[0]!r} of {name} has numbers such as {with_dot} and {bare}; "
                "the dots may be those of thousands or of decimals. Write the numbers without "
                "dots, or say whether they are counts or proportions with ",
                Option("labels_are"),
                ".",
            )
    for column in dotted:
        place = table.column_names.index(column)
        texts = pc.utf8_trim_whitespace(table.column(column).cast(pa.string()))
        grouped = pc.match_substring_regex(texts, GROUPED)
        table = table.set_column(
            place, column, pc.if_else(grouped, pc.replace_substring(texts, ".", ""), texts)
        )
    return table


def _range(text: str) -> tuple[float, float] | None:
    """The bounds that a text gives; None where it is not a range.

    >>> _range("fewer than 5"), _range("1 to 4"), _range("12")
    ((0, 4), (1, 4), None)
    """
    for pattern, bounds in _RANGES:
        if found := re.fullmatch(pattern, text.strip(), re.IGNORECASE):
            digits = [n.replace(",", "") for n in found.groups()]
            if max(map(len, digits)) <= _LONGEST:
                return bounds(*map(int, digits))
    return None


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
    cells: dict[str, Cells], name: str, spec: LabelSpec
) -> tuple[FloatArray, LabelSpec]:
    """(B, C) numbers of columns, or (B, C, 2) bounds where some are ranges; and what they are."""
    low = np.stack([x.low for x in cells.values()], axis=1)
    high = np.stack([x.high for x in cells.values()], axis=1)
    columns = list(cells)
    ranges = {column: x.example for column, x in cells.items() if x.example}
    if ranges or spec.kind == "ranges":
        _refuse_odd_ranges(ranges, low, high, columns, name, spec)
        return np.stack([low, high], axis=-1), LabelSpec("ranges")
    if np.isnan(low).any() and spec.kind not in ("counts", "rounded", "noisy"):
        row, c = np.argwhere(np.isnan(low))[0]
        word = {"auto": "counts", "proportions": "rounded"}.get(spec.kind)
        remedy = [" If some numbers are not known, say ", Option("labels_are", word)]
        raise InputError(
            f"the column {columns[c]!r} of {name} has no number in row {row + 1}; a count or a "
            "proportion is expected, 0 if there are none.",
            *([*remedy, f": {UNKNOWN} and empty cells are then unknown."] if word else []),
        )
    return low, spec.with_rounding(low)


def _refuse_odd_ranges(
    ranges: dict[str, str],
    low: FloatArray,
    high: FloatArray,
    columns: list[str],
    name: str,
    spec: LabelSpec,
) -> None:
    """Ranges stand among counts, and are not upside down; a note says that they were read."""
    if not ranges:
        if (low == high).all():
            raise InputError(
                f"{name} has no ranges: neither columns such as {columns[0] + LOW!r} and "
                f"{columns[0] + HIGH!r} nor cells such as 1-4. Say ",
                Option("labels_are", "counts"),
                ".",
            )
        return
    column, example = next(iter(ranges.items()))
    if spec.kind not in ("auto", "counts", "ranges"):
        raise InputError(
            f"the column {column!r} of {name} has the range {example!r}, but ranges are read among "
            "counts only. Empty such cells, or say ",
            Option("labels_are", "ranges"),
            ".",
        )
    if ((low != np.rint(low)) & ~np.isnan(low)).any():
        row, c = np.argwhere((low != np.rint(low)) & ~np.isnan(low))[0]
        raise InputError(
            f"{name} has {example!r} in the column {column!r}, a range of counts, but "
            f"{low[row, c]:g} in {columns[c]!r} is not a count; ranges of shares are not read. "
            "Leave such cells empty and say ",
            Option("labels_are", "rounded"),
            ".",
        )
    if (low > high).any():
        row, c = np.argwhere(low > high)[0]
        raise InputError(
            f"the column {columns[c]!r} of {name} has {low[row, c]:g}-{high[row, c]:g} in row "
            f"{row + 1}; the lower bound comes first."
        )
    warn_user(f"cells of {name} such as {example!r} are read as ranges of counts.")


def bound_columns(
    columns: Sequence[str], classes: Sequence[str] | None, name: str
) -> dict[str, tuple[str, str]]:
    """The columns of the lower and upper bound of each class; the same one twice where a class has
    a column of its own name.

    >>> bound_columns(["yes_low", "yes_high", "no"], None, "bags.csv")
    {'yes': ('yes_low', 'yes_high'), 'no': ('no', 'no')}
    """
    found = {}
    for column in columns:
        for end, other in ((LOW, HIGH), (HIGH, LOW)):
            label = column.removesuffix(end)
            if label == column or not label:
                continue
            if label + other not in columns:
                raise InputError(
                    f"{name} has a column {column!r}, but no {label + other!r}; ranges have two "
                    "columns for each class, with empty cells where there is no bound."
                )
            found[label] = (label + LOW, label + HIGH)
    both = {column for pair in found.values() for column in pair}
    found |= {column: (column, column) for column in columns if column not in both}
    if classes is None:
        return found
    lacking = [label for label in classes if label not in found]
    if len(lacking) > (len(classes) == 2):  # of two classes, one may have the rest
        raise InputError(
            f"{name} has no columns {lacking[0] + LOW!r} and {lacking[0] + HIGH!r}; it has "
            f"{', '.join(map(repr, columns))}."
        )
    return {label: found[label] for label in classes if label in found}
