"""The rows of a table, encoded and sorted by bag: in memory, or in a file if they are too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from bagwise.bags import IntArray
from bagwise.data import BagData, Inputs
from bagwise.labels.targets import NumbersAre
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import bytes_of, refuse_more_than_memory, shown_size
from bagwise.tables.encode.columns import Columns
from bagwise.tables.encode.learn_columns import Ordered, ordered_of
from bagwise.tables.labels.label_file import LabelTable, read_labels
from bagwise.tables.match.bag_table import (
    MatchedRows,
    encode_rows,
    match_rows,
    without_absent_classes,
)
from bagwise.tables.match.heavy_tails import with_useful_logs
from bagwise.tables.read.frames import is_frame
from bagwise.tables.read.paths import Paths, columns_of, is_parquet, paths_of
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.read.streaming import StreamedSource
from bagwise.tables.sort.sorted_table import read_sorted
from bagwise.tables.sort.store import Store


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
    labels_are: NumbersAre = "auto",
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
        bag: the bag's columns.
        labels: the label file.
        store: a new or empty folder, or that of an earlier call.
        memory: how much memory may be used for the table: "2GB", "500 MB", or bytes.
        features: the columns to learn from.
        exclude: columns not to learn from.
        categorical: columns of numbers that are categories.
        ordered: columns of ordered categories.
        classes: class columns of the label file.
        labels_are: what the numbers in the label file are.
        skip_unmatched: leave out bags that only one of the files has.
        seed: of the bags by which it is judged whether a column with a heavy tail gets a logarithm.
        progress: show bars, on a terminal.
        limits: sizes of what is read and sorted at a time.

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
    known = read_labels(labels, asked.key, columns_of(classes) or None, numbers_are=labels_are)
    kept = Store(Path(store), keep=True)
    _, rows, inputs = rows_in_store(data, known, asked, kept, budget, progress)
    targets = rows.targets
    return StoredBags(BagData(inputs, targets.bags), targets.classes, targets.ids, rows.columns)


@dataclass(frozen=True)
class Asked:
    """What to read.

    Attributes:
        key: the bag's columns.
        features: see `bagwise.read_bags`, also for the others.
        exclude: columns not to learn from.
        categorical: columns of numbers that are categories.
        ordered: columns of ordered categories.
        row_labels: a column with labels of some rows.
        skip_unmatched: leave out bags that only one of the files has.
        seed: of the bags by which logarithms are judged.
        limits: sizes of what is read and sorted at a time.
    """

    key: list[str]
    features: list[str]
    exclude: list[str]
    categorical: list[str]
    ordered: Ordered
    row_labels: str | None
    skip_unmatched: bool
    seed: int
    limits: Limits = LIMITS

    @property
    def as_text(self) -> list[str]:
        """Columns of CSV files that are text in any case."""
        own = [] if self.row_labels is None else [self.row_labels]
        return [*self.key, *own, *self.categorical, *self.ordered]


def rows_in_memory(
    data: Table, labels: LabelTable, asked: Asked, progress: bool
) -> tuple[Sequence[Path], MatchedRows, torch.Tensor]:
    """The files, the bags and what the columns mean, and (N, width) the rows."""
    files = [] if is_frame(data) else paths_of(data)
    texts = [file for file in files if not is_parquet(file)]
    refuse_more_than_memory(sum(file.stat().st_size for file in texts), "the table")
    source = open_rows(data, typed=True, as_text=asked.as_text, keys=asked.key, limits=asked.limits)
    rows = match_rows(
        source,
        asked.key,
        labels,
        features=asked.features,
        exclude=asked.exclude,
        categorical=asked.categorical,
        ordered=asked.ordered,
        row_labels=asked.row_labels,
        skip_unmatched=asked.skip_unmatched,
        progress=progress,
    )
    rows = without_absent_classes(rows, labels.source)
    targets, given = rows.targets, rows.columns

    def encode(index: IntArray) -> np.ndarray:
        order = targets.order[targets.bags.rows(index)]
        return encode_rows(source, given, order, rows.n_rows)[0]

    rows = replace(rows, columns=with_useful_logs(rows, asked.seed, encode))
    cells = len(targets.order) * len(rows.columns.encoded_names)
    refuse_more_than_memory(4 * cells, "the table, encoded,")
    inputs, _ = encode_rows(source, rows.columns, targets.order, rows.n_rows, progress)
    return source.files, rows, torch.from_numpy(inputs)


def rows_in_store(
    data: Paths, labels: LabelTable, asked: Asked, store: Store, budget: int, progress: bool
) -> tuple[list[Path], MatchedRows, Inputs]:
    """The same within a budget of memory, the rows in a store."""

    def say(size: int, are_there: bool) -> None:
        text = f"Rows are sorted by bag into {store.folder}, which will take {shown_size(size)}."
        if are_there:
            text = f"Rows are in {store.folder} already, sorted by bag ({shown_size(size)})."
        Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)

    with store.alone():
        source = StreamedSource(data, asked.as_text, budget, asked.limits)
        rows, inputs = read_sorted(
            source,
            asked.key,
            labels,
            store,
            budget,
            features=asked.features,
            exclude=asked.exclude,
            categorical=asked.categorical,
            ordered=asked.ordered,
            skip_unmatched=asked.skip_unmatched,
            seed=asked.seed,
            progress=progress,
            say=say if progress else lambda size, are_there: None,
        )
    return source.files, rows, inputs
