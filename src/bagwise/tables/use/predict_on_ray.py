"""Predictions for many files by Ray: a Parquet file for each, several at a time."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bagwise.errors import BagwiseError, InputError, Option
from bagwise.progress import RowProgress
from bagwise.ray_cluster import cluster, do_all
from bagwise.storage.files import unfinished
from bagwise.storage.model_folder import replace_folder
from bagwise.storage.uris import refuse_uri
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.databases import is_database
from bagwise.tables.read.paths import Paths
from bagwise.tables.read.source import open_rows
from bagwise.tables.read.table_files import TableFile, local
from bagwise.tables.use.copied_types import copied_schema
from bagwise.tables.use.predict import predict_rows
from bagwise.tables.use.prediction_file import Destination, Written, is_prediction, kept_columns


class _Settings(NamedTuple):
    """What is the same for all files: where the model is, and columns that were checked."""

    model: Path
    schema: pa.Schema
    kept: list[str]
    bag_columns: list[str]
    key: list[str]


def predict_on_ray(
    model: Path,
    data: Paths,
    out: Path,
    keep: Sequence[str] | None = None,
    progress: bool = False,
    *,
    key: Sequence[str] = (),
    address: str | None = None,
    workers: int | None = None,
    force: bool = False,
) -> Written:
    """Write predictions as `predict_table` does, but a Parquet file for each file of the input.

    They are in the order of their names, and so are the rows of all of them together. The folder
    appears when it is complete. Every process of Ray reads the model once, and has a core and a
    thread; one that dies is replaced, and its file done again.

    Args:
        model: the folder of a fitted one; like the files, and `out`, on a disk that all see.
        data: files with the model's feature columns.
        out: a folder; one that holds predictions and nothing else is replaced.
        keep: columns to copy; those that are not features if not given.
        progress: show a bar, on a terminal.
        key: the bag's columns, see `predict_table`.
        address: HOST:PORT of a Ray cluster; None starts Ray on this machine.
        workers: at most; one for each core if not given.
        force: replace also a folder that holds other files.
    """
    fitted = FittedTable.load(model)
    if is_database(data):
        raise InputError(
            "Ray predicts for files, several at a time; leave ", Option("ray"), " out."
        )
    source = fitted.with_context(open_rows(data), key)
    _check_folder(out, source.files, model, fitted.classes, force)
    source.require([*key, *fitted.columns.names])
    kept = kept_columns(source, fitted, keep)
    names = fitted.bag_columns(source.schema.names, key)
    schema = copied_schema(source, kept, Path("all.parquet"))  # the same in every file
    settings = _Settings(model.absolute(), schema, kept, names, list(key))
    place = out.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(place, folder=True) as new:
        with cluster(address, workers), RowProgress("predicting", source.rows, progress) as bar:
            total = Written(0, Surprises(), of_known_bags=0 if fitted.known_bags else None)
            for found in _results(source.files, new, settings, workers, bar):
                total = _sum(total, found)
        if not total.rows:
            raise InputError(f"{source.name} has no rows.")
        replace_folder(new, place)
    return total


def _check_folder(
    out: Path, inputs: Sequence[TableFile], model: Path, classes: Sequence[str], force: bool
) -> None:
    refuse_uri(out)
    if out.suffix:
        raise InputError(
            f"{out} has the name of a file; with Ray the output is a folder, which gets a Parquet "
            "file for each file of the input."
        )
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is not a folder; choose another name.")
    if out.samefile(model):
        raise InputError(f"{out} is the model itself; choose another folder for the output.")
    for entry in sorted(out.iterdir()):
        if any(entry.samefile(file) for file in local(inputs)):
            raise InputError(f"{entry} is an input itself; choose another folder for the output.")
        if not entry.is_file():
            raise InputError(f"{out} holds {entry.name}, which is not a file; choose a new folder.")
        if not (force or is_prediction(entry, classes)):
            raise InputError(
                f"{out} holds {entry.name}, which is not a prediction of such a model; choose a "
                "new folder, or replace it with ",
                Option("force", True),
                ".",
            )


def _results(
    files: Sequence[TableFile],
    new: Path,
    settings: _Settings,
    workers: int | None,
    bar: RowProgress,
) -> list[Written]:
    """What was found in each file, in their order."""
    digits = max(5, len(str(len(files))))
    names = [
        f"{place:0{digits}d}-{file.name.partition('.')[0]}.parquet"
        for place, file in enumerate(files)
    ]
    tasks = {
        place: (file.absolute(), new / name)
        for place, (file, name) in enumerate(zip(files, names, strict=True))
    }
    results: dict[int, Written] = {}
    for place, found, error in do_all(_predicted, tasks, settings, at_once=workers):
        if error is not None:
            raise InputError(f"Ray failed at {files[place]}: {error}")
        if isinstance(found, str):
            raise InputError(found)
        results[place] = found
        bar.advance(found.rows)
    return [results[place] for place in tasks]


def _predicted(settings: _Settings, file: TableFile, out: Path) -> Written | str:
    """Write the predictions for one file, in a process of Ray; or say what a user can put right."""
    try:
        if not out.parent.is_dir():
            raise InputError(
                f"{out.parent.parent} is not there on the machine {platform.node()} of the "
                "cluster; files, model and output have to be on a disk that all see."
            )
        model = _loaded(settings.model)
        return predict_rows(
            model,
            model.with_context(open_rows(file), settings.key),
            settings.schema,
            Destination(out),
            settings.kept,
            settings.bag_columns,
            watch=lambda rows: None,
            may_be_empty=True,
        )
    except (BagwiseError, OSError) as error:
        return str(error)


@lru_cache(maxsize=1)
def _loaded(model: Path) -> FittedTable:
    """Read once by each process; these end with the command."""
    return FittedTable.load(model)


def _sum(total: Written, found: Written) -> Written:
    total.surprises.update(found.surprises)
    known = None
    if total.of_known_bags is not None and found.of_known_bags is not None:
        known = total.of_known_bags + found.of_known_bags
    return total._replace(rows=total.rows + found.rows, of_known_bags=known)
