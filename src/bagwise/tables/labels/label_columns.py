"""Columns of a label file that are not classes: numbers of rows, totals, columns without a name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bagwise.bags import FloatArray
from bagwise.errors import BagwiseWarning, InputError, Option, warn_user
from bagwise.labels.counts_or_shares import shares_unit
from bagwise.labels.label_spec import LabelSpec

TOTALS = ("total", "size", "count", "n")
"""Names of a column that says how many there are."""
_SUMS = ("all", "sum", "totals", "grand total")  # of one that is the sum of the others
_NO_NAME = re.compile(r"(unnamed: \d+)?", re.IGNORECASE)


def named_columns(table: pa.Table, columns: Sequence[str], file: str) -> list[str]:
    """The columns with a name; one without is a number of the row, or empty, or an error.

    Spreadsheets leave empty columns behind, and pandas and R write the number of each row.
    """
    found = []
    for column in columns:
        if not _NO_NAME.fullmatch(column.strip()):
            found.append(column)
            continue
        cells = table.column(column).cast(pa.string()).to_pylist()
        texts = [(cell or "").strip() for cell in cells]
        numbered = [[str(first + n) for n in range(len(texts))] for first in (0, 1)]
        if any(texts) and texts not in numbered:
            row = next(n for n, text in enumerate(texts) if text)
            raise InputError(
                f"{file} has a column without a name, {texts[row]!r} in row {row + 1}. Give it the "
                "name of its class, leave it out, or name the class columns with ",
                Option("classes"),
                ".",
            )
    return found


def total_name(column: str) -> bool:
    """Whether a name says that a column is a total."""
    return column.strip().lower() in (*TOTALS[:-1], *_SUMS)  # n may be short for no


def without_total(
    names: list[str], numbers: FloatArray | None, spec: LabelSpec, what: str, file: str
) -> list[str]:
    """The names without that of a total, which is said.

    Args:
        names: of columns, or of classes in a long file.
        numbers: (B, C) what stands there; None where some of it is not exact or not known.
        spec: what these are.
        what: "column" or "class".
        file: for the message.
    """
    place = _total(names, numbers, spec)
    if place is None:
        return names
    warn_user(
        BagwiseWarning(
            f"the {what} {names[place]!r} of {file} is taken for a total of the others. If it is a "
            "class, name all classes with ",
            Option("classes"),
            ".",
        )
    )
    return names[:place] + names[place + 1 :]


def _total(names: list[str], numbers: FloatArray | None, spec: LabelSpec) -> int | None:
    """Where a total is among names of classes.

    That is one whose name says so and which is the sum of the others, or says how many rows their
    shares are of; or, by any name, one that is their sum in at least five bags. Where numbers are
    not exact, the name alone tells.
    """
    if len(names) < 3:
        return None
    lower = [name.strip().lower() for name in names]
    named = [c for word in (*TOTALS, *_SUMS) for c, name in enumerate(lower) if name == word]
    if numbers is None or not (spec.is_plain or spec.kind == "sample"):
        return next((c for c in named if total_name(names[c])), None)
    order: list[int] = [*named, *range(len(names))]
    for c in order:
        rest, own = np.delete(numbers, c, axis=1), numbers[:, c]
        is_sum = bool(np.allclose(rest.sum(axis=1), own, rtol=1e-9, atol=1e-9) and own.any())
        if (c in named and (is_sum or shares_unit(rest))) or (is_sum and len(own) >= 5):
            return c
    return None
