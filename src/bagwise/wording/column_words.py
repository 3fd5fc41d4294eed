"""What a fit notes about a column that it reads, in English."""

from __future__ import annotations

from collections.abc import Sequence

from bagwise.errors import BagwiseWarning, Option
from bagwise.wording import counted

_KINDS = {"numeric": "numbers", "boolean": "true and false", "date": "dates"}


def infinite(rows: int) -> str:
    """Values that are infinite."""
    return f"{counted(rows, 'row has', 'rows have')} an infinite value, which is read as missing."


def survey_weights(name: str, whole: bool) -> BagwiseWarning:
    """A column that says how many others a row stands for, whole numbers or not."""
    counts = (
        " Say ",
        Option("weights", name),
        " if it is the number of identical rows that each row represents.",
    )
    return BagwiseWarning(
        f"the column {name!r} looks like survey weights, but is used as an ordinary feature, and "
        "every row counts once. Leave it out with ",
        Option("exclude", name),
        " if it is not a feature.",
        *(counts if whole else ()),
    )


def codes_of_missing(values: Sequence[str], rows: float, estimated: bool) -> str:
    """Numbers such as 999 that stand for missing ones."""
    return (
        f"{_rows(rows, estimated)} {' or '.join(values)}, far from all other values, which is "
        "read as missing; empty these cells, or correct them if it is a mistake."
    )


def far_values(farthest: str, ends: Sequence[str], rows: float, estimated: bool) -> str:
    """Numbers beyond where all others end."""
    return (
        f"{_rows(rows, estimated)} values far from all others, such as {farthest}, which are read "
        f"as {' or '.join(ends)}, where the others end; correct these cells if they are mistakes, "
        "or empty them."
    )


def _rows(rows: float, estimated: bool) -> str:
    return f"{'about ' * estimated}{counted(rows, 'row has', 'rows have')}"


def hashed(values: int, more: bool, own: int, shared: int) -> str:
    """Too many categories for a column each."""
    return (
        f"it has {'more than ' * more}{values:,} different values; the {own} most frequent get a "
        f"column each, and the others are hashed into {shared} columns."
    )


def day_or_month(example: str) -> str:
    """Dates that can be read in two ways."""
    return (
        f"day and month cannot be told apart in dates such as {example!r}, so they are read as "
        "categories; write 2021-12-31, or 31.12.2021 with the day first."
    )


def no_date(example: str) -> str:
    """A text among dates that is none."""
    return (
        f"it is read as categories, not as dates, because {example!r} is not a known form of date; "
        "write 2020-12-31 or 31.12.2020 in every row."
    )


def read_as(kind: str, text: str, value: object) -> str:
    """What texts were read as.

    >>> read_as("numeric", "1,234", 1234)
    "it is read as numbers; '1,234' is 1234."
    """
    return f"it is read as {_KINDS[kind]}; {text!r} is {value}."


def spellings(texts: Sequence[str]) -> str:
    """Categories that differ in capitals or blanks alone."""
    shown = ", ".join(map(repr, texts))
    return f"{shown} are different categories; write them alike if they are not."
