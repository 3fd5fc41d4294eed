"""The types that columns of CSV files get where they are copied into a Parquet file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.table_files import is_parquet, is_text_file
from bagwise.tables.read.values import ARROW_ERRORS, cleaned, is_text

_TYPES = (
    # what all texts of a column look like; numbers with leading zeros are names
    (r"^(0|-?[1-9]\d{0,17})$", pa.int64()),
    (r"^-?(0|[1-9]\d{0,14})(\.\d+)?([eE][-+]?\d+)?$", pa.float64()),
    (r"^(true|false|True|False|TRUE|FALSE)$", pa.bool_()),
    (r"^\d{4}-\d{2}-\d{2}$", pa.date32()),
    (r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}$", pa.timestamp("s")),
)


def copied_schema(source: RowSource, kept: list[str], out: object) -> pa.Schema:
    """The types of columns in an output; a Parquet file made of CSV files gets those of the texts.

    That takes a reading of the columns of its own.

    Args:
        source: the rows.
        kept: columns that are copied.
        out: a path, or something else that predictions go to.
    """
    schema = source.schema
    of_text = source.files and all(map(is_text_file, source.files))
    if not (isinstance(out, Path) and is_parquet(out) and of_text):
        return schema
    left = {name: list(_TYPES) for name in kept if is_text(schema.field(name).type)}
    has_value = dict.fromkeys(left, False)
    for batch in source.batches(list(left)) if left else ():
        for name, types in left.items():
            if not types and has_value[name]:
                continue
            texts = cleaned(batch.column(name)).drop_null()
            has_value[name] |= len(texts) > 0
            left[name] = [known for known in types if _fits(texts, *known)]
    for name, types in left.items():
        if types and has_value[name]:
            schema = schema.set(schema.get_field_index(name), pa.field(name, types[0][1]))
    return schema


def copied(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that it gets.

    >>> copied(pa.array(["7", "NA"]), pa.int64()).to_pylist()
    [7, None]
    """
    if is_text(column.type) and not is_text(kind):
        column = cleaned(column)
    return column.cast(kind)


def _fits(texts: pa.Array, pattern: str, kind: pa.DataType) -> bool:
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        return False
    try:
        texts.cast(kind)
    except ARROW_ERRORS:
        return False
    return True
