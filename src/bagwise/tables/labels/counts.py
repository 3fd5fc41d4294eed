"""Where the counts of rows' bags are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bagwise.errors import InputError, Option
from bagwise.tables.read.paths import columns_of
from bagwise.tables.read.source import Table

if TYPE_CHECKING:
    from bagwise.labels.label_spec import LabelsAre

LabelTables = Table | Mapping[Any, Table]
"""A table of labels, or several by the bag's columns: {"ward": ..., "age_group": ...}."""


@dataclass(frozen=True)
class Counts:
    """Where the counts of rows' bags are.

    Attributes:
        key: the bag's columns.
        labels: the label file.
        labels_are: what its numbers are.
        skip_unmatched: leave out bags that only one of the files has.
        classes: class columns of the label file; None for all but the bag's.
        others: further groupings of the same rows.
        weights: the column that says how many identical rows each row stands for; None if each
            stands for itself.
    """

    key: Sequence[str]
    labels: Table
    labels_are: LabelsAre = "auto"
    skip_unmatched: bool = False
    classes: Sequence[str] | None = None
    others: Sequence[Counts] = ()
    weights: str | None = None

    @property
    def groupings(self) -> list[Counts]:
        """All groupings of the rows, one for most tables."""
        return [self, *self.others]

    @property
    def is_plain(self) -> bool:
        """Whether there is one grouping of single rows."""
        return not self.others and self.weights is None

    @property
    def keys(self) -> list[str]:
        """The columns that name bags, of all groupings."""
        return list(dict.fromkeys(name for part in self.groupings for name in part.key))

    @property
    def arguments(self) -> dict[str, Any]:
        """`bag`, `labels` and `labels_are` as `bagwise.fit` takes them."""
        if not self.others:
            return {"bag": self.key, "labels": self.labels, "labels_are": self.labels_are}
        tables = {tuple(part.key): part.labels for part in self.groupings}
        kinds = {tuple(part.key): part.labels_are for part in self.groupings}
        return {"labels": tables, "labels_are": kinds}

    def refuse_several(self, what: str) -> None:
        """Refuse several groupings where there is no use for them."""
        if self.others:
            raise InputError(
                f"{what} takes one grouping of the rows, and {len(self.groupings)} are given. Give "
                "one table of ",
                Option("labels"),
                ".",
            )


def counts_of(
    bag: str | Iterable[str] | None,
    labels: LabelTables,
    labels_are: LabelsAre | Mapping[Any, LabelsAre] = "auto",
    skip_unmatched: bool = False,
    classes: Sequence[str] | None = None,
    weights: str | None = None,
) -> Counts:
    """The same from what users give: one table of labels, or several by the bag's columns.

    >>> [part.key for part in counts_of(None, {"ward": "a.csv", "age": "b.csv"}).groupings]
    [['ward'], ['age']]
    """
    if not isinstance(labels, Mapping):
        if isinstance(labels_are, Mapping):
            raise InputError(
                Option("labels_are"),
                " differs by grouping, but ",
                Option("labels"),
                " is one table; say what its numbers are.",
            )
        return Counts(columns_of(bag), labels, labels_are, skip_unmatched, classes, (), weights)
    if not labels:
        raise InputError(Option("labels"), " is empty; give a table for each grouping of the rows.")
    keys = [columns_of(name) for name in labels]
    _check_keys(keys, bag)
    if isinstance(labels_are, Mapping):
        kinds = {tuple(columns_of(name)): kind for name, kind in labels_are.items()}
        if unknown := [key for key in kinds if list(key) not in keys]:
            raise InputError(
                Option("labels_are"),
                f" names {','.join(unknown[0])!r}, but ",
                Option("labels"),
                f" has {', '.join(repr(','.join(key)) for key in keys)}.",
            )
    else:
        kinds = {tuple(key): labels_are for key in keys}
    parts = [
        Counts(key, table, kinds.get(tuple(key), "auto"), skip_unmatched, classes)
        for key, table in zip(keys, labels.values(), strict=True)
    ]
    first = parts[0]
    return Counts(
        first.key, first.labels, first.labels_are, skip_unmatched, classes, parts[1:], weights
    )


def _check_keys(keys: list[list[str]], bag: str | Iterable[str] | None) -> None:
    """Refuse groupings by the same columns, and a bag that is none of them."""
    for place, key in enumerate(keys):
        if not key:
            raise InputError("a grouping has no name; name the column that says a row's bag.")
        if sorted(key) in map(sorted, keys[:place]):
            raise InputError(
                "two tables of ",
                Option("labels"),
                f" are about the bags of {','.join(key)!r}; give one for each grouping.",
            )
    if bag is None:
        return
    given = [bag] if isinstance(bag, str) else list(bag)
    own = [columns_of(name) for name in given]
    if own != keys and columns_of(bag) not in keys[: len(keys) == 1]:
        raise InputError(
            Option("bag"),
            f" is {given}, but ",
            Option("labels"),
            f" has tables for {[','.join(key) for key in keys]}. Leave ",
            Option("bag"),
            " out: the names of the tables say it.",
        )
