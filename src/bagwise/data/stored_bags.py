"""A table that memory does not hold, in bags, for training of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from bagwise.data.bag_data import BagData
from bagwise.labels.label_spec import LabelsAre
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import bytes_of
from bagwise.tables.encode.columns import Columns
from bagwise.tables.encode.learn_columns import Ordered, ordered_of
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.read.paths import Paths, columns_of
from bagwise.tables.sort.store import Store
from bagwise.tables.sort.table_rows import Asked, rows_in_store


class StoredBags(NamedTuple):
    """A table whose rows lie in a file, sorted by bag, and what its columns mean.

    Attributes:
        data: what `bagwise.train` and `LLPClassifier.fit_bags` take; `data.select` has some bags.
        classes: (C,) names of the classes, in the order of the counts.
        ids: (B,) names of the bags, in their order.
        columns: encodes further rows in the same way.
    """

    data: BagData
    classes: npt.NDArray[Any]
    ids: npt.NDArray[Any]
    columns: Columns


def stored_bags(
    data: Paths,
    bag: str | Iterable[str],
    labels: Paths,
    store: str | Path,
    memory: str | int = "2GB",
    *,
    features: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    ordered: str | Iterable[str] | Ordered | None = None,
    classes: str | Iterable[str] | None = None,
    labels_are: LabelsAre = "auto",
    skip_unmatched: bool = False,
    seed: int = 0,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> StoredBags:
    r"""Sort a table that memory does not hold into a folder, to train a model of your own on it.

    The rows are read a few at a time, encoded as `bagwise fit --memory` encodes them and sorted by
    bag into `store`; training then takes whole bags from there, within the same budget. A call that
    was stopped goes on, and the same one again finds the rows as they lie; so does `bagwise fit
    --store`.

    Args:
        data: see `bagwise.read_bags`, also for the others.
        store: a new or empty folder, or that of an earlier call.
        memory: how much memory may be used for the table: "2GB", "500 MB", or bytes.
        labels_are: what the numbers in the label file are.
        seed: of the bags by which it is judged whether a column with a heavy tail gets a logarithm.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "voters.csv").write_text("precinct,age\nA,20\nB,40\nA,60\n")
    >>> _ = (folder / "results.csv").write_text("precinct,no,yes\nA,1,1\nB,0,1\n")
    >>> table = stored_bags(
    ...     folder / "voters.csv", "precinct", folder / "results.csv", folder / "sorted")
    >>> table.data.bags, table.ids.tolist(), table.classes.tolist()
    (Bags(2 bags, 3 instances, 2 classes, sizes 1 to 2), ['A', 'B'], ['no', 'yes'])
    >>> from bagwise import LLPClassifier
    >>> model = LLPClassifier(epochs=1, random_state=0).fit_bags(table.data, table.classes)
    """
    budget = bytes_of(memory)
    asked = Asked(
        key=columns_of(bag),
        features=columns_of(features),
        exclude=columns_of(exclude),
        categorical=columns_of(categorical),
        ordered=ordered_of(ordered),
        row_labels=None,
        skip_unmatched=skip_unmatched,
        seed=seed,
        limits=limits,
    )
    known = read_labels(labels, asked.key, columns_of(classes) or None, labels_are=labels_are)
    kept = Store(Path(store), keep=True)
    _, rows, inputs = rows_in_store(data, known, asked, kept, budget, progress)
    targets = rows.targets
    return StoredBags(BagData(inputs, targets.bags), targets.classes, targets.ids, rows.columns)
