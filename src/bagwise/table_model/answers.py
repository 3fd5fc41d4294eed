"""Answers of a model as columns: the same in frames, in CSV files and in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bagwise.wording import table_words

if TYPE_CHECKING:
    from bagwise.tables.use.effects import Effect
    from bagwise.tables.use.estimate import GroupShare
    from bagwise.tables.use.importance import Importance

Answer = dict[str, list[Any]]
"""Columns by name."""


def effect_columns(found: Sequence[Effect]) -> Answer:
    """Effects with their intervals: standardized, and for one unit."""
    columns: Answer = {
        "column": [e.column for e in found],
        "class": [e.label for e in found],
        "effect": [e.effect for e in found],
        "standard_error": [e.error for e in found],
        "low": [e.low for e in found],
        "high": [e.high for e in found],
    }
    for place, name in enumerate(("per_unit", "per_unit_low", "per_unit_high")):
        columns[name] = [e.per_unit[place] for e in found]
    return {**columns, "unit": [table_words.unit(e) for e in found]}


def importance_columns(found: Sequence[Importance]) -> Answer:
    """How important columns are, with intervals."""
    fields = {"column": "column", "fall": "fall", "standard_error": "error"}
    fields |= {"low": "low", "high": "high"}
    return {name: [getattr(i, field) for i in found] for name, field in fields.items()}


def share_columns(found: Sequence[GroupShare], by: Sequence[str]) -> Answer:
    """Shares of classes in groups that the columns `by` make, and how sure they are, if known."""
    columns: Answer = {name: [s.group[place] for s in found] for place, name in enumerate(by)}
    columns["class"] = [s.label for s in found]
    columns["rows"] = [s.rows for s in found]
    columns["share"] = [s.share for s in found]
    for field, names in (("interval", ("low", "high")), ("bounds", ("least", "most"))):
        if getattr(found[0], field) is not None:
            for place, name in enumerate(names):
                columns[name] = [getattr(s, field)[place] for s in found]
    if found[0].robustness is not None:
        columns["robustness"] = [s.robustness for s in found]
    return columns


def records(columns: Answer) -> list[dict[str, Any]]:
    """The same, row by row.

    >>> records({"class": ["no", "yes"], "share": [0.25, 0.75]})
    [{'class': 'no', 'share': 0.25}, {'class': 'yes', 'share': 0.75}]
    """
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
