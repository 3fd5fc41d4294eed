"""Cells of a label file: numbers, ranges such as "<5" or "1-4", and what nobody knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bagwise.bags import FloatArray
from bagwise.tabular.inference import inferred
from bagwise.tabular.values import ARROW_ERRORS, cleaned, is_text, numbers_of, parsed
from bagwise.tabular.written import numbers_written, rewritten

UNKNOWN = "*"  # published in place of a number that must not be known
LOW, HIGH = "_low", "_high"  # how the names of columns of bounds end
_RANGES = (
    # what is written, and the bounds that a number n (or two) of it gives
    (r"(?:<|fewer than|less than|under|below)\s*(\d+)", lambda n: (0, n - 1)),
    (r"(?:<=|=<|≤|at most|up to|no more than)\s*(\d+)", lambda n: (0, n)),
    (r"(\d+)\s*or (?:fewer|less)", lambda n: (0, n)),
    (r"(\d+)\s*(?:-|\u2013|\u2014|to|\.\.)\s*(\d+)", lambda n, m: (n, m)),
    (r"(?:>|more than|over|above)\s*(\d+)", lambda n: (n + 1, np.nan)),
    (r"(?:>=|=>|≥|at least)\s*(\d+)", lambda n: (n, np.nan)),
    (r"(\d+)\s*(?:\+|or more)", lambda n: (n, np.nan)),
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

    Numbers may be written 1,234 or 1.234 or 0,25, and with a percent sign, all in one way.

    >>> cells_of(pa.chunked_array([["1,234", "<5", "870"]]), "yes").high
    array([1234.,    4.,  870.])
    >>> cells_of(pa.chunked_array([["12.5 %", "100%"]]), "yes").low
    array([ 12.5, 100. ])
    """
    typed = inferred(column) if is_text(column.type) else column
    if not is_text(typed.type):
        try:
            numbers = numbers_of(typed, "numeric", name)
        except ValueError:
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
    bounds[plain] = found.to_numpy(zero_copy_only=False)[:, None]
    low, high = bounds[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)].T
    return Cells(low, high, ranges[0] if ranges else None, bool(plain))


def _numbers(texts: pa.Array) -> pa.Array | None:
    """What texts say that are all different; None if one of them is no number."""
    try:
        return parsed(texts, "numeric")
    except ARROW_ERRORS:
        written, fits = numbers_written(texts, np.ones(len(texts), np.int64))
        if not fits.all() or written.unit not in ("", "%"):
            return None
        return parsed(rewritten(texts, written), "numeric")


def _range(text: str) -> tuple[float, float] | None:
    """The bounds that a text gives; None where it is no range.

    >>> _range("fewer than 5"), _range("1 to 4"), _range("12")
    ((0, 4), (1, 4), None)
    """
    for pattern, bounds in _RANGES:
        if found := re.fullmatch(pattern, text.strip(), re.IGNORECASE):
            return bounds(*map(int, found.groups()))
    return None


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
                raise ValueError(
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
        raise ValueError(
            f"{name} has no columns {lacking[0] + LOW!r} and {lacking[0] + HIGH!r}; it has "
            f"{', '.join(map(repr, columns))}."
        )
    return {label: found[label] for label in classes if label in found}
