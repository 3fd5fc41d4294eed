"""What a table has: its bags, classes and sizes, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bagwise.bags import Bags, Groupings, IntArray
from bagwise.tables.assess.baseline import overall_shares
from bagwise.tables.labels.counts import Counts
from bagwise.tables.match.bag_table import MatchedRows
from bagwise.tables.model.table_facts import BagSizes, DataFacts, GroupingFacts, Histogram


def data_facts(files: Sequence[str], counts: Counts, rows: MatchedRows) -> DataFacts:
    """What a model was fitted to."""
    targets, sizes = rows.targets, rows.targets.bags.totals
    known: Bags | Groupings = targets.bags if rows.groupings is None else rows.groupings
    labels = known.row_labels
    return DataFacts(
        files=list(files),
        bag_columns=list(counts.key),
        rows=rows.n_instances,
        rows_used=int(known.copies.sum()),
        n_bags=len(targets.bags),
        bags_left_out=len(rows.left_out),
        bags_left_out_names=rows.left_out[:20],
        classes=targets.classes.tolist(),
        shares=overall_shares(targets.bags).tolist(),
        sizes=BagSizes(
            smallest=int(sizes.min()),
            median=float(np.median(sizes)),
            largest=int(sizes.max()),
            histogram=_histogram(sizes),
        ),
        rounding=targets.rounding,
        n_features=len(rows.columns.encoded_names),
        labels=rows.label_spec.to_json(),
        inexact_bags=int((~targets.bags.is_sharp).sum()),
        labeled_rows=int(known.copies[labels >= 0].sum()) if labels is not None else 0,
        groupings=_grouping_facts(rows),
        weights=counts.weights,
        table_rows=None if counts.weights is None else rows.n_rows,
    )


def _grouping_facts(rows: MatchedRows) -> list[GroupingFacts]:
    """What is said of each of several groupings."""
    if rows.groupings is None:
        return []
    return [
        GroupingFacts(
            bag_columns=list(table.key),
            n_bags=len(g.bags),
            rows=g.bags.total,
            labels=table.label_spec.to_json(),
            inexact_bags=int((~g.bags.is_sharp).sum()),
        )
        for g, table in zip(rows.groupings, rows.tables, strict=False)
    ]


def _histogram(sizes: IntArray) -> Histogram:
    """Numbers of bags by size: single sizes, or up to twenty ranges, even or growing."""
    low, high = int(sizes.min()), int(sizes.max())
    if high - low < 30:
        edges = np.arange(low - 0.5, high + 1)
    elif high < 20 * low:
        edges = np.linspace(low - 0.5, high + 0.5, 21)
    else:
        edges = np.geomspace(low - 0.5, high + 0.5, 21)
    counts, _ = np.histogram(sizes, edges)
    return Histogram(counts.tolist(), edges.tolist())
