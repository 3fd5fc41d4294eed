"""Arrow values as numbers or text, with messages that name column, row and value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import InputError
from bagwise.tables.read.notation import PLAIN, Written, rewritten

# The words for "there is no value" where a number, a truth value or a date is expected, in any
# case and with spaces around them. In names (categories, bags, classes) only a blank cell says so:
# NA may be Namibia.
MISSING = (
    *("", "na", "n/a", "#na", "#n/a", "#n/a n/a", "<na>", "null", "none", "nan", "-nan", "nat"),
    *("1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
)
_TRUE = ("true", "yes", "1", "1.0", "t", "y")
_FALSE = ("false", "no", "0", "0.0", "f", "n")
_EXPECTED = {"numeric": "a number", "boolean": "true or false", "date": "a date"}
_DAY_FIRST = r"^(\d{1,2})\.(\d{1,2})\.(\d{4})($|[T ])"
_WITH_ZONE = r"[T ]\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)$"
ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def numbers_of(
    values: pa.Array,
    kind: str,
    name: str,
    first_row: int = 0,
    infinite: Counter[str] | None = None,
    written: Written = PLAIN,
) -> npt.NDArray[np.float64]:
    """Numbers, booleans (0, 1) or dates (days since 1970) as floats, NaN where there is none.

    Text is parsed, as it is `written`; a word of `MISSING` means that there is no value, and so
    does infinity, which is counted in `infinite`, by name. What cannot be parsed is a ValueError.

    >>> numbers_of(pa.array(["1.5", "NA"]), "numeric", "age")
    array([1.5, nan])
    >>> numbers_of(pa.array(["2.5", "old"]), "numeric", "age")
    Traceback (most recent call last):
    bagwise.errors.InputError: the column 'age' has 'old' in row 2; a number is expected.
    """
    plain = _plain(values)
    try:
        converted = _convert(plain, kind, written)
    except ARROW_ERRORS as error:
        row, value = _first_bad(plain, kind, written)
        raise InputError(
            f"the column {name!r} has {value!r} in row {first_row + row + 1}; "
            f"{_expected(kind, written)} is expected."
        ) from error
    if kind == "date":
        days = converted.cast(pa.int64()).cast(pa.float64(), safe=False)
        converted = pc.divide(days, 86_400e6)
    numbers: npt.NDArray[np.float64] = converted.cast(pa.float64(), safe=False).to_numpy(
        zero_copy_only=False
    )
    if n := int(np.isinf(numbers).sum()):
        if infinite is not None:
            infinite[name] += n
        numbers = np.where(np.isinf(numbers), np.nan, numbers)
    return numbers


def _expected(kind: str, written: Written) -> str:
    example = written.style or ("2024-05-31" if kind == "date" else "")
    unit = f" with {written.unit}" if written.unit else ""
    return _EXPECTED[kind] + (f" such as {example}" if example else "") + unit


def _convert(plain: pa.Array, kind: str, written: Written) -> pa.Array:
    """To float64, bool or timestamp; an Arrow error where a value is not of this kind."""
    if is_text(plain.type):
        return parsed(rewritten(cleaned(plain), written) if written.style else plain, kind)
    if kind == "numeric":
        return plain.cast(pa.float64(), safe=False)
    if kind == "boolean":
        if pa.types.is_boolean(plain.type):
            return plain
        numbers = plain.cast(pa.float64(), safe=False)
        numbers = pc.if_else(pc.is_nan(numbers), None, numbers)
        return _truth(numbers, [1.0], [0.0])
    types = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_null)
    if any(test(plain.type) for test in types):
        return plain.cast(pa.timestamp("us"), safe=False)
    raise pa.ArrowInvalid(f"{plain.type} is not a date")


def parsed(texts: pa.Array, kind: str) -> pa.Array:
    """Texts as numbers, booleans or timestamps, null for a word of `MISSING`.

    A text that is none is an Arrow error. This is the only parser: what it says of a text holds in
    every file and every command.

    >>> parsed(pa.array([" 1e3", "#NA"]), "numeric").to_pylist()
    [1000.0, None]
    """
    if kind == "numeric":
        try:
            return texts.cast(pa.float64())
        except pa.ArrowInvalid:  # a null word, spaces, or no number
            return cleaned(texts).cast(pa.float64())
    known = cleaned(texts)
    return _truth(pc.utf8_lower(known), _TRUE, _FALSE) if kind == "boolean" else _dates(known)


def cleaned(texts: pa.Array) -> pa.Array:
    """Texts without the spaces around them, null for a word of `MISSING`."""
    trimmed = pc.utf8_trim_whitespace(texts)
    missing = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(MISSING))
    return pc.if_else(missing, None, trimmed)


def is_all(texts: pa.Array, kind: str) -> bool:
    """Whether all texts are numbers, booleans or dates, or missing, for `parsed`.

    >>> is_all(pa.array(["31.12.2020", "2021-01-01"]), "date")
    True
    """
    try:
        parsed(texts, kind)
    except ARROW_ERRORS:
        return False
    return True


def _truth(values: pa.Array, true: Sequence[Any], false: Sequence[Any]) -> pa.Array:
    is_true, is_false = (pc.is_in(values, value_set=pa.array(words)) for words in (true, false))
    known = pc.or_(pc.or_(is_true, is_false), values.is_null())
    if not pc.all(known, min_count=0).as_py():
        raise pa.ArrowInvalid("neither true nor false")
    return pc.if_else(values.is_null(), None, is_true)


def _dates(texts: pa.Array) -> pa.Array:
    """Dates and times as in ISO 8601 or with the day first and points; with a zone in UTC."""
    try:
        return texts.cast(pa.timestamp("us"))
    except ARROW_ERRORS:  # each text by itself, so that it does not depend on those beside it
        texts = pc.replace_substring_regex(texts, _DAY_FIRST, r"\3-0\2-0\1\4")
        texts = pc.replace_substring_regex(texts, r"^(\d{4}-)0?(\d{2}-)0?(\d{2})", r"\1\2\3")
        texts = pc.replace_substring_regex(texts, r"([T ])(\d:)", r"\10\2")
        texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
        zoned = pc.match_substring_regex(texts, _WITH_ZONE)
        there = pc.if_else(zoned, texts, None).cast(pa.timestamp("us", "UTC"))
        here = pc.if_else(zoned, None, texts).cast(pa.timestamp("us"))
        return pc.coalesce(here, there.cast(pa.timestamp("us")))


def _first_bad(plain: pa.Array, kind: str, written: Written) -> tuple[int, Any]:
    for row in range(len(plain)):
        try:
            _convert(plain.slice(row, 1), kind, written)
        except ARROW_ERRORS:
            return row, plain[row].as_py()
    return 0, str(plain.type)


def category_texts(values: pa.Array) -> pa.Array:
    """Values as text, the same for the same value whichever file type it comes from.

    A name may be any word, also one of `MISSING`; nothing but spaces is none.

    >>> category_texts(pa.array([7, None])).to_pylist(), category_texts(pa.array([7.0])).to_pylist()
    (['7', None], ['7'])
    """
    plain = _plain(values)
    if is_text(plain.type):
        # With None for the nulls, pyarrow before 24 damages slices of texts (apache/arrow#49410).
        nulls = pa.nulls(len(plain), pa.string())
        return pc.if_else(pc.equal(pc.utf8_trim_whitespace(plain), ""), nulls, plain)
    if pa.types.is_floating(plain.type):
        plain = plain.cast(pa.float64())
        plain = pc.if_else(pc.is_nan(plain), None, plain)
        whole = pc.and_(pc.equal(plain, pc.round(plain)), pc.less(pc.abs(plain), 2.0**53))
        integers = plain.cast(pa.int64(), safe=False).cast(pa.string())
        return pc.if_else(whole, integers, plain.cast(pa.string()))
    try:
        return plain.cast(pa.string())
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"values of type {plain.type} cannot be categories.") from error


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
