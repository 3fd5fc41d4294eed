"""Labels of some rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.bags import IntArray
from bagwise.errors import InputError, Option
from bagwise.labels.targets import BagTargets
from bagwise.tables.read.values import category_texts


class RowLabels:
    """Reads the column with the labels of some rows, batch by batch.

    Args:
        column: its name.
        classes: the class labels.
    """

    def __init__(self, column: str, classes: Sequence[str]) -> None:
        self.column = column
        self._classes = pa.array(classes, pa.string())
        self._rows = 0
        self._parts: list[IntArray] = []

    def update(self, batch: pa.RecordBatch) -> None:
        """Take more rows; a label that is not a class is an error that names the row."""
        texts = category_texts(batch.column(self.column))
        found = pc.index_in(texts, value_set=self._classes)
        bad = found.is_null().to_numpy(zero_copy_only=False)
        bad &= texts.is_valid().to_numpy(zero_copy_only=False)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"the column {self.column!r} has {texts[row].as_py()!r} in row "
                f"{self._rows + row + 1}; the classes are {', '.join(self._classes.to_pylist())}, "
                "and an empty cell says that a label is not known."
            )
        self._parts.append(found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64))
        self._rows += batch.num_rows

    def finish(self) -> IntArray:
        """(N,) the class of each row, -1 where it is not known."""
        labels = np.concatenate(self._parts)
        if (labels < 0).all():
            raise InputError(
                f"the column {self.column!r} has no label; leave ", Option("row_labels"), " out."
            )
        return labels


def with_row_labels(
    targets: BagTargets, labels: IntArray, alone: IntArray, weights: IntArray | None = None
) -> BagTargets:
    """The same with the labels (N,) of rows that are known, -1 elsewhere.

    Args:
        targets: rows sorted by bag.
        labels: the class of each row of the table.
        alone: labeled rows without a bag, which become bags of one, "row 7" for instance.
        weights: (N,) how many identical rows each stands for; None for one.
    """
    names = np.array([f"row {row + 1}" for row in alone.tolist()], dtype=object)
    return targets.with_codes(labels, alone, names, first_row=1, weights=weights)
