"""What a table has, in numbers: its rows, bags and classes; a part of what a fit found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

LARGE = 1e100  # nothing that is measured is larger; NaN is outside, too
Number = Annotated[float, Meta(ge=-LARGE, le=LARGE)]
Amount = Annotated[float, Meta(ge=0, le=LARGE)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Text = Annotated[str, Meta(pattern=r"\A[^\ud800-\udfff]*\Z")]  # that can be written again


@dataclass(frozen=True)
class Histogram:
    """Numbers of bags by size.

    Attributes:
        counts: bags in each range.
        edges: of the ranges, one more, growing.
    """

    counts: Annotated[Sequence[Count], Meta(min_length=1)]
    edges: Sequence[Amount]


@dataclass(frozen=True)
class BagSizes:
    """How many rows the bags have."""

    smallest: Positive
    median: Annotated[float, Meta(ge=1, le=LARGE)]
    largest: Positive
    histogram: Histogram


@dataclass(frozen=True)
class GroupingFacts:
    """One of several ways in which rows were counted.

    Attributes:
        bag_columns: name the bag of a row.
        n_bags: used.
        rows: in one of these.
        labels: see `DataFacts`.
        inexact_bags: how many have counts that are not exact.
    """

    bag_columns: Annotated[Sequence[Text], Meta(min_length=1)]
    n_bags: Positive
    rows: Count
    labels: dict[str, Any]
    inexact_bags: Count = 0

    @property
    def name(self) -> str:
        """What people call it."""
        return ",".join(self.bag_columns)


@dataclass(frozen=True)
class DataFacts:
    """What was learned from.

    Attributes:
        files: of the table; none for a data frame.
        bag_columns: name the bag of a row.
        rows: of the table.
        rows_used: in a bag whose counts are known.
        n_bags: used.
        bags_left_out: how many are in only one of the files.
        bags_left_out_names: of the first of these.
        classes: class labels.
        shares: (C,) of all rows used.
        sizes: of the bags.
        rounding: largest difference between a proportion as given and one of the counts.
        n_features: encoded columns.
        labels: what the numbers of the label file are: `LabelSpec.to_json`; empty where old models
            do not say it. Of several groupings, the first one's.
        inexact_bags: how many bags have counts that are not exact.
        labeled_rows: with a known label.
        groupings: of the rows, where there are several; `bag_columns` are then the first one's.
        weights: the column that says how many identical rows each row of the table stands for. They
            are counted in `rows`, `rows_used` and the sizes of bags.
        table_rows: rows of the table, where they have weights.
    """

    files: Sequence[Text]
    bag_columns: Annotated[Sequence[Text], Meta(min_length=1)]
    rows: Count
    rows_used: Count
    n_bags: Positive
    bags_left_out: Count
    bags_left_out_names: Sequence[Text]
    classes: Annotated[Sequence[Text], Meta(min_length=2)]
    shares: Sequence[Share]
    sizes: BagSizes
    rounding: Amount
    n_features: Positive
    labels: dict[str, Any] = field(default_factory=dict)
    inexact_bags: Count = 0
    labeled_rows: Count = 0
    groupings: Sequence[GroupingFacts] = field(default_factory=list)
    weights: Text | None = None
    table_rows: Count | None = None
