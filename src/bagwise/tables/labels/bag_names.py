"""The names of rows' bags, made of one or several columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import InputError
from bagwise.tables.read.values import category_texts

JOINT = " / "  # between the parts of a bag's name, where it has several


def bag_ids(batch: pa.RecordBatch | pa.Table, key: Sequence[str]) -> pa.Array:
    """The name of each row's bag; null where a part of it is missing.

    >>> rows = pa.RecordBatch.from_pydict({"state": ["TX"], "county": [7]})
    >>> bag_ids(rows, ["state", "county"]).to_pylist()
    ['TX / 7']
    """
    parts = [category_texts(batch.column(name)) for name in key]
    if len(parts) == 1:
        return parts[0]
    for name, part in zip(key, parts, strict=True):
        if any(JOINT in (text or "") for text in part.unique().to_pylist()):
            raise InputError(
                f"a value of {name!r} contains {JOINT!r}, which stands between the parts of a "
                "bag's name; replace it."
            )
    return pc.binary_join_element_wise(*parts, JOINT)


def plain_name(name: str) -> str:
    """A bag's name as it is where a whole number has not become a decimal one: 9.0 is 9.

    >>> plain_name("9.0"), plain_name("TX / 7.0"), plain_name("v1.0")
    ('9', 'TX / 7', 'v1.0')
    """
    parts = (re.sub(r"^(-?\d+)\.0+$", r"\1", part) for part in name.split(JOINT))
    return JOINT.join(parts)
