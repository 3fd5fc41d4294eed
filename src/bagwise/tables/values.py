"""Arrow values as numbers or text, with messages that name column, row and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_TRUE = ("true", "yes", "1", "t", "y")
_FALSE = ("false", "no", "0", "f", "n")
_EXPECTED = {"numeric": "a number", "boolean": "true or false", "date": "a date such as 2024-05-31"}


def numbers_of(
    values: pa.Array, kind: str, name: str, first_row: int = 0
) -> npt.NDArray[np.float64]:
    """Numbers, booleans (0, 1) or dates (days since 1970) as floats, NaN where there is none.

    Text is parsed. What cannot be is a ValueError.

    >>> numbers_of(pa.array(["1.5", None]), "numeric", "age")
    array([1.5, nan])
    >>> numbers_of(pa.array(["2.5", "old"]), "numeric", "age")
    Traceback (most recent call last):
    ValueError: the column 'age' has 'old' in row 2; a number is expected.
    """
    plain = _plain(values)
    if _is_text(plain.type):
        plain = pc.utf8_trim_whitespace(plain)
    try:
        converted = _convert(plain, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
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
        if not _is_text(plain.type):
            return plain.cast(pa.bool_())
        lower = pc.utf8_lower(plain)
        true, false = (pc.is_in(lower, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
        known = pc.or_(pc.or_(true, false), pc.is_null(plain))
        if not pc.all(known).as_py():
            raise pa.ArrowInvalid("neither true nor false")
        return pc.if_else(pc.is_null(plain), None, true)
    if pa.types.is_integer(plain.type) or pa.types.is_floating(plain.type):
        raise pa.ArrowInvalid("a number is no date")
    stamp = plain.cast(pa.timestamp("us"), safe=False)
    return pc.divide(stamp.cast(pa.int64()).cast(pa.float64(), safe=False), 86_400e6)


def _first_bad(plain: pa.Array, kind: str) -> tuple[int, Any]:
    for row in range(len(plain)):
        try:
            _convert(plain.slice(row, 1), kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return row, plain[row].as_py()
    return 0, str(plain.type)


def category_texts(values: pa.Array) -> pa.Array:
    """Values as text, the same for the same value whichever file type it comes from.

    >>> category_texts(pa.array([7, None])).to_pylist(), category_texts(pa.array([7.0])).to_pylist()
    (['7', None], ['7'])
    """
    plain = _plain(values)
    if pa.types.is_floating(plain.type):
        whole = pc.and_(pc.equal(plain, pc.round(plain)), pc.less(pc.abs(plain), 2.0**53))
        integers = plain.cast(pa.int64(), safe=False).cast(pa.string())
        return pc.if_else(whole, integers, plain.cast(pa.string()))
    if pa.types.is_string(plain.type):
        return plain
    try:
        return plain.cast(pa.string())
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"values of type {plain.type} cannot be categories.") from error


def _plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
