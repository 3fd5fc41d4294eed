"""Text that a spreadsheet would take for a formula when it opens a CSV file."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?[0-9][0-9.,]*([eE][+-]?[0-9]+)?$"


def escaped(text: str) -> str:
    """The text with ' before it, if it begins like a formula and is no number.

    >>> [escaped(text) for text in ("=1+1", "@sum", "-1.5", "+1 (555)", "ward 7")]
    ["'=1+1", "'@sum", '-1.5', "'+1 (555)", 'ward 7']
    """
    is_formula = re.match(_FORMULA, text) and not re.match(_NUMBER, text)
    return f"'{text}" if is_formula else text


def escaped_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with texts, and names of columns, escaped."""
    names = [escaped(name) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(list(map(_escaped_column, batch.columns)), names)


def _escaped_column(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        dictionary = _escaped_column(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, dictionary)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    is_formula = pc.and_not(
        pc.match_substring_regex(column, _FORMULA), pc.match_substring_regex(column, _NUMBER)
    )
    quoted = pc.binary_join_element_wise(
        pa.scalar("'", column.type), column, pa.scalar("", column.type)
    )
    return pc.if_else(is_formula, quoted, column)
