"""Where the counts of rows' bags are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagwise.tables.read.source import Table

if TYPE_CHECKING:
    from bagwise.labels.label_spec import LabelsAre


@dataclass(frozen=True)
class Counts:
    """Where the counts of rows' bags are.

    Attributes:
        key: the bag's columns.
        labels: the label file.
        labels_are: what its numbers are.
        skip_unmatched: leave out bags that only one of the files has.
        classes: class columns of the label file; None for all but the bag's.
    """

    key: Sequence[str]
    labels: Table
    labels_are: LabelsAre = "auto"
    skip_unmatched: bool = False
    classes: Sequence[str] | None = None
