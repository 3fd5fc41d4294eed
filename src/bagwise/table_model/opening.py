"""How a model of a table is made: fitted to frames or files, or read from its folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise.errors import InputTypeError
from bagwise.table_model.arguments import check_arguments
from bagwise.table_model.model import TableModel
from bagwise.table_model.pictures import Names
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.frames import FrameMaker
from bagwise.tables.read.paths import columns_of
from bagwise.wording import fit_words

if TYPE_CHECKING:
    from bagwise.labels.label_spec import LabelsAre
    from bagwise.tables.encode.learn_columns import Ordered
    from bagwise.tables.labels.counts import LabelTables
    from bagwise.tables.read.source import Table


def fit(
    rows: Table,
    bag: Names | None = None,
    labels: LabelTables | None = None,
    *,
    labels_are: LabelsAre | Mapping[str, LabelsAre] = "auto",
    classes: Names | None = None,
    row_labels: str | None = None,
    weights: str | None = None,
    features: Names | None = None,
    exclude: Names | None = None,
    categorical: Names | None = None,
    ordered: Names | Ordered | None = None,
    context: Names | None = None,
    skip_unmatched: bool = False,
    model: str = "auto",
    bag_effects: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    memory: str | int | None = None,
    progress: bool = True,
    **more: Any,
) -> TableModel:
    r"""Learn to classify the rows of a table from the label counts or proportions of their bags.

    Columns that say nothing are left out: `TableModel.summary()` lists them with the bags that were
    skipped, and so does `logging` at level INFO.

    Args:
        rows: the table: a data frame (pandas, polars, pyarrow or anything else that speaks Arrow),
            or CSV, TSV, Parquet and Arrow files: a path, a folder, a pattern, a URI (s3://, gs://)
            or a list of these; or a table or query of a database, "warehouse.duckdb::voters".
        bag: the column that says which bag a row is in; several where it takes several.
        labels: what is known of each bag: a frame or a file with the bag's columns and a column of
            counts or proportions for each class; or with the bag, a class and a number in each row.
            The bag's columns may be the index of a pandas frame, or, with the class, that of a
            pandas series: `rows.groupby("ward")["label"].value_counts()`. Where the same rows are
            counted in several ways, a table for each, by the bag's columns: `{"ward": by_ward,
            "age_group": by_age}`; `bag` is then left out.
        labels_are: what the numbers are: "counts", "proportions", "relative" (counts of another
            total), or how they are known where they are not exact: `bagwise.Laplace(4)`, "ranges",
            "rounded", "sample". "auto" tells counts from proportions. Of several groupings it may
            differ: `{"age_group": bagwise.Laplace(4)}`.
        classes: class columns of `labels`; all but the bag's if not given.
        row_labels: a column with the labels of some rows, empty where they are not known.
        weights: a column of whole numbers, how many identical rows each row stands for. It is no
            feature.
        features: the columns to learn from; all but the bag's if not given.
        exclude: columns not to learn from.
        categorical: columns of numbers that are categories.
        ordered: columns of ordered categories: {"size": ["S", "M", "L"]}.
        context: columns of bags to learn from, beside those of rows: columns of `labels`, and
            `"mean(age)"` for the mean of a column of the rows over each bag. They can absorb
            differences between bags; `summary()` says whether held-out bags become more likely.
        skip_unmatched: leave out bags that only one of the tables has; otherwise they are an error.
        model: "linear", "mlp", or "auto", the better one on held-out bags.
        bag_effects: give each bag an intercept of its own (linear model).
        seed: random seed.
        out: a folder in which the model is saved; an interrupted fit resumes from there.
        memory: for files larger than memory, how much of it may be used: "2GB". Not for frames.
        progress: show progress bars, on a terminal or in a notebook.
        **more: `joint`, with several groupings: learn from all counts together (True), from each
            grouping by itself (False), or as held-out bags prefer it (None); how models are trained
            step by step (`method`, `engine`, `method_options`, `lr`, `epochs`); where the work is
            done (`store`, `ray`, `workers`, `limits`, `command`), and whether the model keeps the
            counts of single bags (`keep_counts`), see `bagwise.tables.fit_options`. `ray=True` is
            Ray on this machine, and `ray="HOST:PORT"` a cluster, whose workers share the rows with
            `memory`, or of a linear model.

    >>> import pyarrow as pa
    >>> rows = pa.table({"ward": ["A", "B", "C", "D"] * 3, "age": [20, 60, 30, 65, *range(30, 38)]})
    >>> rows = pa.concat_tables([rows, pa.table({"ward": ["B", "D"] * 4, "age": [60, 70] * 4})])
    >>> counts = pa.table({"ward": list("ABCD"), "no": [3, 2, 3, 2], "yes": [0, 5, 0, 5]})
    >>> model = fit(rows, bag="ward", labels=counts, model="linear", progress=False)
    >>> model.classes
    ['no', 'yes']
    >>> model.predict(pa.table({"age": [33, 58]})).to_pylist()
    ['no', 'yes']
    """
    from bagwise.memory_size import bytes_of
    from bagwise.tables.encode.learn_columns import ordered_of
    from bagwise.tables.fit_options import ColumnOptions, ModelOptions, WorkOptions
    from bagwise.tables.fitting import fit_table
    from bagwise.tables.labels.counts import counts_of
    from bagwise.tables.search.step_by_step import StepByStep

    if labels is None:
        raise InputTypeError("fit needs labels: a table with what is known of each bag.")
    names = columns_of(classes) or None
    counts = counts_of(bag, labels, labels_are, skip_unmatched, names, weights)
    columns = ColumnOptions(
        columns_of(features),
        columns_of(exclude),
        columns_of(categorical),
        ordered_of(ordered),
        row_labels,
        columns_of(context),
    )
    training = {name: more.pop(name) for name in _TRAINING if name in more}
    options = dict(training.pop("method_options", None) or {})
    steps = StepByStep(**training, options=options, seed=seed)
    joint = more.pop("joint", None)
    place = {name: more.pop(name) for name in _PLACE if name in more}
    if place.get("store") is not None:
        place["store"] = Path(place["store"])
    place["ray"] = _ray_of(place.get("ray"), place.get("workers"))
    check_arguments("fit", more, [*signature(fit).parameters, "joint", *_TRAINING, *_PLACE])
    work = WorkOptions(
        out=None if out is None else Path(out),
        memory=None if memory is None else bytes_of(memory),
        progress=progress,
        **place,
    )
    options_of_model = ModelOptions(model, bag_effects, joint, steps)
    fitted = fit_table(rows, counts, columns, options_of_model, work)
    for line in fit_words.left_out(fitted.facts, fitted.columns.left_out):
        _log.info(line)
    return TableModel(fitted, FrameMaker(FrameMaker.like(rows).kind))


_log = logging.getLogger("bagwise")
_TRAINING = ("method", "engine", "method_options", "lr", "epochs")
_PLACE = ("store", "ray", "workers", "limits", "command", "keep_counts")


def _ray_of(given: Any, workers: int | None) -> Any:
    """Where there is Ray, as `WorkOptions.ray` has it."""
    from bagwise.ray_cluster import cluster

    if given is None or given is False:
        return None
    if isinstance(given, str):
        return cluster(given)
    if given is True:
        return cluster(None, workers)
    if not hasattr(given, "__enter__"):
        raise InputTypeError(
            f'ray is {given!r}; True, or the address of a cluster, "HOST:PORT", is expected.'
        )
    return given


def load(folder: str | Path) -> TableModel:
    """A model that `fit` or `TableModel.save` has written.

    >>> load("model")
    Traceback (most recent call last):
    bagwise.errors.InputError: there is no folder model; give the folder of a fitted model.
    """
    return TableModel(FittedTable.load(Path(folder)))
