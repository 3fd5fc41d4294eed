"""What the texts of a CSV column are: numbers, truth values, dates, times of day or names."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from bagwise.tables.read.notation import Dots
from bagwise.tables.read.values import ARROW_ERRORS, cleaned, parsed

_TRUTH = ("true", "false", "0", "1")  # yes, no, t, f ... may as well be names


def inferred(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of text in the first of the types that all its values are.

    float64, bool, timestamp, time64, or text as it stands; null where no row has a value. Numbers
    whose dots separate thousands are text here.

    >>> inferred(pa.chunked_array([["1", "NA"], ["2.5"]])).to_pylist()
    [1.0, None, 2.5]
    >>> inferred(pa.chunked_array([["1", "NA"], ["old"]])).to_pylist()
    ['1', 'NA', 'old']
    """
    if not any(_has_value(chunk) for chunk in column.chunks):
        return pa.chunked_array([pa.nulls(len(column))])
    dots = Dots()
    for chunk in column.chunks:
        _add(dots, chunk)
    for as_type in () if dots.are_thousands else (_numbers, _truths, _dates, _times):
        try:
            return pa.chunked_array([as_type(chunk) for chunk in column.chunks])
        except ARROW_ERRORS:
            continue
    return column


class Inference:
    """The same of texts that come in parts.

    >>> found = Inference()
    >>> found.add(pa.array(["1", "NA"]))
    >>> found.add(pa.array(["2.5"]))
    >>> found.type, found.converted(pa.array(["7"])).to_pylist()
    (DataType(double), [7.0])
    """

    def __init__(self) -> None:
        self._left = [_numbers, _truths, _dates, _times]
        self._empty = True
        self._dots = Dots()

    def add(self, texts: pa.Array) -> None:
        """Take more texts into account."""
        self._empty = self._empty and not _has_value(texts)
        self._left = [as_type for as_type in self._left if _fits(as_type, texts)]
        _add(self._dots, texts)

    @property
    def type(self) -> pa.DataType:
        """The first that all texts are; null where no row has a value."""
        return pa.null() if self._empty else self.converted(pa.array([], pa.string())).type

    def converted(self, texts: pa.Array) -> pa.Array:
        """Some of the texts in this type."""
        return texts if self._dots.are_thousands or not self._left else self._left[0](texts)


def _fits(as_type: Callable[[pa.Array], pa.Array], texts: pa.Array) -> bool:
    try:
        as_type(texts)
    except ARROW_ERRORS:
        return False
    return True


def _add(dots: Dots, texts: pa.Array) -> None:
    """Most often the first texts tell."""
    for part in (texts[:100], texts[100:]):
        if dots.may_be_thousands:
            dots.add(cleaned(part))


def _has_value(texts: pa.Array) -> bool:
    """Whether a text is not a word for a missing value; most often one of the first."""
    return any(cleaned(part).null_count < len(part) for part in (texts[:100], texts[100:]))


def _numbers(texts: pa.Array) -> pa.Array:
    return parsed(texts, "numeric")


def _truths(texts: pa.Array) -> pa.Array:
    words = pc.utf8_lower(cleaned(texts)).drop_null()
    if not pc.all(pc.is_in(words, value_set=pa.array(_TRUTH)), min_count=0).as_py():
        raise pa.ArrowInvalid("neither true nor false")
    return parsed(texts, "boolean")


def _dates(texts: pa.Array) -> pa.Array:
    return parsed(texts, "date")


def _times(texts: pa.Array) -> pa.Array:
    """Arrow parses a time of day only together with a day."""
    known = pc.binary_join_element_wise("1970-01-01", cleaned(texts), "T")
    return known.cast(pa.timestamp("us")).cast(pa.time64("us"))
