"""How a model of a table is made: fitted to frames or files, or read from its folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise.errors import InputTypeError, harmless
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
    r"""Fit a classifier of the rows of a table to the label counts or proportions of their bags.

    Columns without information are left out. `TableModel.summary()` lists them and the bags that
    were skipped, and so does `logging` at level INFO.

    Args:
        rows: the table: a data frame (pandas, polars, pyarrow or another Arrow table), or CSV, TSV,
            Parquet and Arrow files: a path, a folder, a pattern, a URI (s3://, gs://) or a list of
            these. Or a table or query of a database, such as "warehouse.duckdb::voters".
        bag: the column that names the bag of each row, or several columns.
        labels: the counts or proportions of each bag: a frame or a file with the bag's columns and
            a column for each class, or with a bag, a class and a number in each row. The bag's
            columns may be the index of a pandas frame, or, with the class, that of a pandas series:
            `rows.groupby("ward")["label"].value_counts()`. If the same rows are counted in several
            ways, a table for each, by the bag's columns: `{"ward": by_ward, "age_group": by_age}`;
            `bag` is then left out.
        labels_are: what the numbers are: "counts", "proportions" or "relative" (counts with another
            total); for inexact counts, a noise such as `bagwise.Laplace(4)`, "ranges", "rounded" or
            "sample". "auto" chooses between counts and proportions. Groupings may differ:
            `{"age_group": bagwise.Laplace(4)}`.
        classes: class columns of `labels`. Default: all except the bag's.
        row_labels: a column with the labels of some rows, and empty cells for the others.
        weights: a column with the number of identical rows that each row represents. It is not used
            as a feature.
        features: columns to use as features. Default: all except the bag's.
        exclude: columns not to use as features.
        categorical: columns of numbers to read as categories.
        ordered: columns of ordered categories, such as `{"size": ["S", "M", "L"]}`.
        context: features of bags: columns of `labels`, or `"mean(age)"` for the mean of a column of
            the rows over each bag. `summary()` says whether they make held-out bags more likely.
        skip_unmatched: leave out bags that are in only one of the tables, instead of an error.
        model: "linear", "mlp", or "auto", the better one on held-out bags.
        bag_effects: give each bag its own intercept (linear model).
        seed: random seed.
        out: a folder for the model. An interrupted fit resumes from there.
        memory: for files larger than memory, the memory that rows may use, such as "2GB".
        progress: show progress bars in a terminal or notebook.
        **more: further options, see `bagwise.tables.fit_options`. `joint`: with several groupings,
            use all counts together (True) or each grouping separately (False); None lets held-out
            bags choose. `method`, `engine`, `method_options`, `lr` and `epochs`: how models are
            trained step by step. `ray=True` uses Ray on this machine, `ray="HOST:PORT"` a cluster;
            with `memory`, or for a linear model, its workers divide the rows. `workers` is their
            number. `store`: a folder for sorted rows. `keep_counts`: whether the
            model stores the counts of single bags. `limits` and `command` are for internal use.

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
        _log.info(harmless(line))
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
    """Load a model that `fit` or `TableModel.save` has written.

    >>> load("model")
    Traceback (most recent call last):
    bagwise.errors.InputError: there is no folder model; give the folder of a fitted model.
    """
    return TableModel(FittedTable.load(Path(folder)))
