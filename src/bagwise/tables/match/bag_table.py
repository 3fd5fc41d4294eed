"""A table and a label file together: instances in bags, ready to learn from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bagwise.bags import Groupings, IntArray
from bagwise.errors import InputError, Option, warn_user
from bagwise.labels.label_spec import LabelsAre, LabelSpec
from bagwise.labels.targets import BagTargets, sorted_by_bag
from bagwise.progress import RowProgress
from bagwise.tables.encode.columns import Columns, Inputs, Surprises
from bagwise.tables.encode.learn_columns import ColumnLearner, Ordered, ordered_of
from bagwise.tables.labels.bag_context import BagContext
from bagwise.tables.labels.bag_names import plain_name
from bagwise.tables.labels.label_file import LabelTable, read_labels
from bagwise.tables.labels.one_class import completed
from bagwise.tables.labels.row_count_column import row_counts
from bagwise.tables.labels.row_label_column import RowLabels, with_row_labels
from bagwise.tables.match.bag_codes import read_bag_codes
from bagwise.tables.match.grouped_rows import naming_grouping, of_classes, stacked
from bagwise.tables.read.paths import columns_of
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import Table, open_rows
from bagwise.wording import counted, listed


class BagTable(NamedTuple):
    """What `LLPClassifier.fit` takes, and what the columns mean.

    Attributes:
        X: (N, width) encoded features, in the order of the file.
        bags: (N,) the name of each row's bag.
        proportions: name of a bag -> {class: count}; of counts that are not exact {class: number}
            as the label file has it, for `fit(..., labels_are=labels_are)`, and of ranges a pair
            of these, lower and upper bounds, for `labels_are="ranges"`.
        columns: encodes further rows in the same way.
    """

    X: Inputs
    bags: npt.NDArray[Any]
    proportions: Any
    columns: Columns


@dataclass(frozen=True)
class MatchedRows:
    """What a first reading of a table says: which bag each row is in, and what the columns mean.

    Attributes:
        targets: the rows in the order of their bags, these in that of their names, and what is
            known of them. With several groupings, rows are there once for each.
        columns: how the features are encoded.
        n_rows: of the table, those of no bag included.
        left_out: names of the bags that only one of the two files has.
        tables: of labels, one for each grouping.
        alone: how many of the bags, the last ones, are labeled rows of no bag.
        groupings: of the rows that are used, in the order of the table; None for one grouping.
        n_instances: rows that those of the table stand for.
        context: columns of bags that rows have beside their own; None without.
    """

    targets: BagTargets
    columns: Columns
    n_rows: int
    left_out: list[str]
    tables: Sequence[LabelTable]
    alone: int
    groupings: Groupings | None
    n_instances: int
    context: BagContext | None = None

    @property
    def label_spec(self) -> LabelSpec:
        """What the numbers are, of the first grouping."""
        return self.tables[0].label_spec

    @property
    def degree(self) -> float:
        """The number of bags that an average row is in."""
        rows = self.targets.bags.n_instances
        return 1.0 if self.groupings is None else rows / self.groupings.n_instances


def read_bags(
    data: Table,
    bag: str | Iterable[str],
    labels: Table,
    *,
    features: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    ordered: str | Iterable[str] | Ordered | None = None,
    classes: str | Iterable[str] | None = None,
    labels_are: LabelsAre = "auto",
    skip_unmatched: bool = False,
) -> BagTable:
    r"""Read a table of instances and the label counts or proportions of its bags.

    Args:
        data: CSV, TSV or Parquet with a row for each instance; a folder, a pattern or a list for
            several. Folders such as year=2020 add a column.
        bag: the column that says which bag a row is in; several where it takes several.
        labels: a file with the bag's columns and a column of counts or proportions for each class;
            or with the bag, a class and a number in each row.
        features: the columns to learn from; all but the bag's if not given.
        exclude: columns not to learn from.
        categorical: columns of numbers that are categories.
        ordered: columns of ordered categories: {"size": ["S", "M", "L"]}, or "size=S<M<L".
        classes: class columns of the label file; all but the bag's if not given.
        labels_are: "counts", "proportions", "relative" (counts of another total), or "auto"; or how
            they are known where they are not exact, see `bagwise.labels.label_spec.LabelsAre`:
            `Laplace(4)`, "ranges", "rounded", "sample".
        skip_unmatched: leave out bags that only one of the files has; otherwise they are an error.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "voters.csv").write_text("precinct,age\nA,20\nA,60\nB,40\n")
    >>> _ = (folder / "results.csv").write_text("precinct,no,yes\nA,1,1\nB,0,1\n")
    >>> X, bags, proportions, columns = read_bags(
    ...     folder / "voters.csv", "precinct", folder / "results.csv")
    >>> X.shape, bags.tolist(), proportions["A"]
    ((3, 1), ['A', 'A', 'B'], {'no': 1, 'yes': 1})
    """
    key, categories, levels = columns_of(bag), columns_of(categorical), ordered_of(ordered)
    source = open_rows(data, typed=True, as_text=[*key, *categories, *levels], keys=key)
    known = read_labels(labels, key, columns_of(classes) or None, labels_are=labels_are)
    found = match_rows(
        source,
        [known],
        features=columns_of(features),
        exclude=columns_of(exclude),
        categorical=categories,
        ordered=levels,
        skip_unmatched=skip_unmatched,
    )
    targets, columns = found.targets, found.columns.without_logs()
    order, names = targets.in_order_given()
    X, _ = encode_rows(source, columns, order, found.n_rows)
    ids, classes_ = targets.ids.tolist(), targets.classes.tolist()

    def by_name(numbers: npt.NDArray[Any]) -> dict[str, dict[str, Any]]:
        rows = (dict(zip(classes_, row, strict=True)) for row in numbers.tolist())
        return dict(zip(ids, rows, strict=True))

    if LabelSpec.of(labels_are).is_plain and targets.bags.is_sharp.all():
        return BagTable(X, names, by_name(targets.bags.counts), columns)
    places_ = {name: b for b, name in enumerate(known.ids)}
    given = known.numbers[[places_[name] for name in ids]]
    if known.label_spec.kind == "ranges":
        return BagTable(X, names, (by_name(given[..., 0]), by_name(given[..., 1])), columns)
    return BagTable(X, names, by_name(given), columns)


def match_rows(
    source: RowSource,
    tables: Sequence[LabelTable],
    *,
    columns: Columns | None = None,
    features: Iterable[str] = (),
    exclude: Iterable[str] = (),
    categorical: Iterable[str] = (),
    ordered: Ordered | None = None,
    row_labels: str | None = None,
    weights: str | None = None,
    skip_unmatched: bool = False,
    progress: bool = False,
) -> MatchedRows:
    """Read the rows once, to learn what the columns mean and which bag of the labels each is in.

    With `columns`, these are used and nothing is learned about the columns. With `row_labels`, that
    column has labels of some rows; those without a bag become bags of one. With `weights`, that
    column says how many identical rows each row stands for. With several tables of labels, a row
    may be in no bag of some groupings.
    """
    own = [name for name in (row_labels, weights) if name is not None]
    key = list(dict.fromkeys(name for table in tables for name in table.key))
    source.require([*key, *own])
    if weights is not None and weights in (*key, row_labels):
        raise InputError(
            Option("weights"),
            f" is the column {weights!r}, which names bags or has labels; choose another one.",
        )
    copies = None if weights is None else row_counts(source, weights)
    learner = None
    if columns is None:
        unused = [*key, *own, *exclude]
        learner = ColumnLearner(
            source.schema,
            features,
            unused,
            categorical,
            ordered,
            source.limits,
            source.bag_columns,
        )
    else:
        source.require(columns.names)
    found = RowLabels(row_labels, tables[0].classes) if row_labels is not None else None
    with RowProgress("reading", source.rows, progress) as bar:
        in_groupings = read_bag_codes(
            source, [list(table.key) for table in tables], learner, bar, found, copies
        )
    columns = columns or learner.finish()  # type: ignore[union-attr]  # one of them is there
    known = None if found is None else found.finish()
    nowhere = np.all([codes < 0 for codes, _ in in_groupings], axis=0)
    alone = np.zeros(len(nowhere), dtype=np.bool_) if known is None else nowhere & (known >= 0)
    nameless, left_out, parts = int((nowhere & ~alone).sum()), [], []
    for (codes, names), labels in zip(in_groupings, tables, strict=True):
        with naming_grouping(labels.grouping if len(tables) > 1 else ""):
            index, missing = match_names(nameless, names, labels, source.name, skip_unmatched)
            left_out += missing if len(tables) == 1 else [f"{labels.grouping}={x}" for x in missing]
            nameless = 0  # is said once
            bag_of_row = np.where(codes >= 0, index[codes], -1)
            totals = _totals(bag_of_row, len(labels.ids), copies)
            parts.append(
                sorted_by_bag(
                    bag_of_row,
                    np.array(labels.ids, dtype=object),
                    np.array(labels.classes, dtype=np.str_),
                    completed(labels, totals),
                    labels.label_spec,
                    copies,
                )
            )
    targets, groupings = parts[0], None
    if len(tables) > 1:
        targets, groupings = stacked(tables, parts, known, np.flatnonzero(alone), copies)
    elif known is not None:
        targets = with_row_labels(targets, known, np.flatnonzero(alone), copies)
    return MatchedRows(
        targets,
        columns,
        n_rows=len(nowhere),
        left_out=left_out,
        tables=tables,
        alone=int(alone.sum()),
        groupings=groupings,
        n_instances=len(nowhere) if copies is None else int(copies.sum()),
    )


def _totals(bag_of_row: IntArray, n_bags: int, copies: IntArray | None) -> IntArray:
    """(n_bags,) rows of each bag, those with weights as often as they stand for rows."""
    there = bag_of_row >= 0
    of_rows = None if copies is None else copies[there]
    return np.bincount(bag_of_row[there], of_rows, n_bags).astype(np.int64)


def without_absent_classes(rows: MatchedRows, source: str) -> MatchedRows:
    """The same without classes that no row has: nothing can be learned about them."""
    targets = rows.targets
    from bagwise.likelihood.linear_fit import occurring  # compiled; only fits need it

    bags, there = occurring(targets.bags)
    if len(there) == len(targets.classes):
        return rows
    if len(there) == 1:
        raise InputError(
            f"every row is of the class {str(targets.classes[there[0]])!r} by {source}; there is "
            "nothing to tell apart."
        )
    absent = ", ".join(repr(str(name)) for name in np.delete(targets.classes, there))
    warn_user(f"{source} has no row of the class {absent}; it is left out of the model.")
    groupings = rows.groupings if rows.groupings is None else of_classes(rows.groupings, there)
    targets = replace(targets, bags=bags, classes=targets.classes[there])
    return replace(rows, targets=targets, groupings=groupings)


def match_some(
    source: RowSource,
    key: list[str],
    labels: LabelTable,
    skip_unmatched: bool,
    progress: bool = False,
) -> tuple[IntArray, list[str]]:
    """(N,) the bag of the label file that each row is in, -1 for none, and the bags of the rows
    that it does not have; those that have no row here do not matter.
    """
    source.require(key)
    with RowProgress("reading", source.rows, progress) as bar:
        ((codes, names),) = read_bag_codes(source, [key], None, bar)
    name = source.name
    nameless = int((codes < 0).sum())
    index, left_out = match_names(nameless, names, labels, name, skip_unmatched, some=True)
    return np.where(codes >= 0, index[codes], -1), left_out


def encode_rows(
    source: RowSource, columns: Columns, order: IntArray, n_rows: int, progress: bool = False
) -> tuple[Inputs, Surprises]:
    """Read the rows once more, and put those of `order`, encoded, into this order.

    Returns:
        (len(order), width), and what the rows have that the columns did not expect.
    """
    once, again = np.unique(order, return_inverse=True)
    if len(once) < len(order):  # with several groupings
        inputs, surprises = encode_rows(source, columns, once, n_rows, progress)
        return inputs[again], surprises
    place = places(order, n_rows)
    inputs = np.empty((len(order), len(columns.encoded_names)), dtype=np.float32)
    surprises = Surprises()
    row = 0
    with RowProgress("encoding", n_rows, progress) as bar:
        for batch in source.batches(columns.names):
            own = place[row : row + batch.num_rows]
            there = own >= 0
            inputs[own[there]] = columns.encode(batch, row, surprises)[there]
            row += batch.num_rows
            bar.advance(batch.num_rows)
    return inputs, surprises


def places(order: IntArray, n_rows: int) -> IntArray:
    """(n_rows,) where in `order` each row of a table is, -1 where it is not.

    >>> places(np.array([2, 0]), 4)
    array([ 1, -1,  0, -1])
    """
    found = np.full(n_rows, -1, dtype=np.int64)
    found[order] = np.arange(len(order))
    return found


def match_names(
    nameless: int,
    names: list[str],
    labels: LabelTable,
    data_name: str,
    skip: bool,
    some: bool = False,
) -> tuple[IntArray, list[str]]:
    """The label file's row of each of the table's bags, -1 for none; and what does not match.

    `nameless` rows of the table are in no bag, where they should be. With `some`, the table may
    have rows of some of the bags only.
    """
    rows = {name: b for b, name in enumerate(labels.ids)}
    if not rows.keys() >= set(names) and _all_differ(names) and _all_differ(labels.ids):
        names_there = {plain_name(name): name for name in names}
        rows = {names_there.get(plain_name(name), name): b for name, b in rows.items()}
    index = np.array([rows.get(name, -1) for name in names], dtype=np.int64)
    without_labels = [name for name, b in zip(names, index, strict=True) if b < 0]
    known = set(index.tolist())
    without_rows = [name for b, name in enumerate(labels.ids) if b not in known and not some]
    if not (index >= 0).any():
        raise InputError(
            f"no bag is in both files: {data_name} has {listed(names)}; "
            f"{labels.source} has {listed(labels.ids)}."
        )
    problems = []
    if without_labels:
        problems.append(f"{labels.source} does not have {listed(without_labels)}")
    if without_rows:
        problems.append(f"{data_name} has no rows of {listed(without_rows)}")
    if nameless:
        problems.append(f"in {counted(nameless, 'row', 'rows')} of {data_name} no bag is named")
    if problems and not skip:
        raise InputError(
            f"the bags of the two files do not match: {'; '.join(problems)}. Fix the files, or "
            "leave these out with ",
            Option("skip_unmatched", True),
            ".",
        )
    if nameless:
        warn_user(
            f"{counted(nameless, 'row', 'rows')} of {data_name} "
            f"{'has no bag and is' if nameless == 1 else 'have no bag and are'} left out."
        )
    return index, without_labels + without_rows


def _all_differ(names: list[str]) -> bool:
    """Whether no two names are the same number, as 9 and 9.0 are."""
    return len({plain_name(name) for name in names}) == len(names)
