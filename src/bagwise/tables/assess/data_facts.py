"""What a table has: its bags, classes and sizes, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bagwise.bags import IntArray
from bagwise.tables.assess.baseline import overall_shares
from bagwise.tables.match.bag_table import MatchedRows
from bagwise.tables.model.fit_facts import BagSizes, DataFacts, Histogram


def data_facts(files: Sequence[Path], key: list[str], rows: MatchedRows) -> DataFacts:
    """What a model was fitted to."""
    targets, sizes = rows.targets, rows.targets.bags.sizes
    labels = targets.bags.row_labels
    return DataFacts(
        files=[str(file) for file in files],
        bag_columns=key,
        rows=rows.n_rows,
        rows_used=targets.bags.n_instances,
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
        labeled_rows=int((labels >= 0).sum()) if labels is not None else 0,
    )


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
