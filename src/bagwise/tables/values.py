"""Arrow values as numbers or text, with messages that name column, row and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_TRUE = ("true", "yes", "1", "t", "y")
_FALSE = ("false", "no", "0", "f", "n")
_MISSING = ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none")
_EXPECTED = {"numeric": "a number", "boolean": "true or false", "date": "a date such as 2024-05-31"}
_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def numbers_of(
    values: pa.Array, kind: str, name: str, first_row: int = 0
) -> npt.NDArray[np.float64]:
    """Numbers, booleans (0, 1) or dates (days since 1970) as floats, NaN where there is none.

    Text is parsed; nothing, NA, NaN and null mean that there is no value. What cannot be parsed is
    a ValueError.

    >>> numbers_of(pa.array(["1.5", "NA"]), "numeric", "age")
    array([1.5, nan])
    >>> numbers_of(pa.array(["2.5", "old"]), "numeric", "age")
    Traceback (most recent call last):
    ValueError: the column 'age' has 'old' in row 2; a number is expected.
    """
    plain = _plain(values)
    if is_text(plain.type):
        plain = pc.utf8_trim_whitespace(plain)
        missing = pc.is_in(pc.utf8_lower(plain), value_set=pa.array(_MISSING))
        plain = pc.if_else(missing, None, plain)
    try:
        converted = _convert(plain, kind)
    except _ERRORS as error:
        row, value = _first_bad(plain, kind)
        raise ValueError(
            f"the column {name!r} has {value!r} in row {first_row + row + 1}; "
            f"{_EXPECTED[kind]} is expected."
        ) from error
    numbers: npt.NDArray[np.float64] = (
        converted.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
    )
    if np.isinf(numbers).any():
        numbers = np.where(np.isinf(numbers), np.nan, numbers)
    return numbers


def _convert(plain: pa.Array, kind: str) -> pa.Array:
    if kind == "numeric":
        return plain.cast(pa.float64(), safe=False)
    if kind == "boolean":
        if pa.types.is_boolean(plain.type):
            return plain
        if is_text(plain.type):
            words = pc.utf8_lower(plain)
            true, false = (pc.is_in(words, value_set=pa.array(w)) for w in (_TRUE, _FALSE))
        else:
            numbers = plain.cast(pa.float64(), safe=False)
            true, false = pc.equal(numbers, 1.0), pc.equal(numbers, 0.0)
        known = pc.or_(pc.or_(true, false).fill_null(True), pc.is_null(plain))
        if not pc.all(known).as_py():
            raise pa.ArrowInvalid("neither true nor false")
        return pc.if_else(pc.is_null(plain), None, true)
    if is_text(plain.type):
        stamp = _parsed_dates(plain)
    elif pa.types.is_date(plain.type) or pa.types.is_timestamp(plain.type):
        stamp = plain.cast(pa.timestamp("us"), safe=False)
    else:
        raise pa.ArrowInvalid(f"{plain.type} is no date")
    return pc.divide(stamp.cast(pa.int64()).cast(pa.float64(), safe=False), 86_400e6)


def _parsed_dates(texts: pa.Array) -> pa.Array:
    """ISO dates and times, with or without a time zone."""
    for kind in (pa.timestamp("ns"), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return texts.cast(kind).cast(pa.timestamp("us"), safe=False)
        except _ERRORS as error:
            last = error
    raise last


def _first_bad(plain: pa.Array, kind: str) -> tuple[int, Any]:
    for row in range(len(plain)):
        try:
            _convert(plain.slice(row, 1), kind)
        except _ERRORS:
            return row, plain[row].as_py()
    return 0, str(plain.type)


def category_texts(values: pa.Array) -> pa.Array:
    """Values as text, the same for the same value whichever file type it comes from.

    >>> category_texts(pa.array([7, None])).to_pylist(), category_texts(pa.array([7.0])).to_pylist()
    (['7', None], ['7'])
    """
    plain = _plain(values)
    if is_text(plain.type):
        return pc.if_else(pc.equal(plain, ""), None, plain)
    if pa.types.is_floating(plain.type):
        plain = plain.cast(pa.float64())
        plain = pc.if_else(pc.is_nan(plain), None, plain)
        whole = pc.and_(pc.equal(plain, pc.round(plain)), pc.less(pc.abs(plain), 2.0**53))
        integers = plain.cast(pa.int64(), safe=False).cast(pa.string())
        return pc.if_else(whole, integers, plain.cast(pa.string()))
    try:
        return plain.cast(pa.string())
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"values of type {plain.type} cannot be categories.") from error


def _plain(values: pa.Array) -> pa.Array:
    """One array, categories decoded, every kind of text the same."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()) if is_text(values.type) else values


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, categories of text included."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in texts)
