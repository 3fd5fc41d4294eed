"""Predictions for many files by Ray Data: a Parquet file for each, several at a time."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from bagwise.errors import BagwiseError, InputError
from bagwise.extras import require
from bagwise.progress import RowProgress
from bagwise.storage.files import unfinished
from bagwise.storage.model_folder import replace_folder
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.model.table_model import TableModel
from bagwise.tables.read.paths import Paths
from bagwise.tables.read.source import open_rows
from bagwise.tables.use.predict import Written, is_prediction, kept_columns, predict_rows
from bagwise.training.ray_cluster import cluster


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
    fitted = TableModel.load(model)
    source = open_rows(data)
    _check_folder(out, source.files, model, fitted.classes, force)
    source.require([*key, *fitted.columns.names])
    settings = {
        "model": model.absolute(),
        "schema": source.schema,
        "kept": kept_columns(source, fitted, keep),
        "bag_columns": fitted.bag_columns(source.schema.names, key),
    }
    require("ray", "ray")
    require("pandas", "ray")  # which Ray Data needs
    place = out.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(place, folder=True) as new:
        with (
            cluster(address, workers) as cores,
            RowProgress("predicting", source.rows, progress) as bar,
        ):
            total = Written(0, Surprises(), of_known_bags=0 if fitted.known_bags else None)
            n = min(workers or cores, cores, len(source.files))
            for found in _results(source.files, new, settings, n):
                total = _sum(total, found)
                bar.advance(found["rows"])
        if not total.rows:
            raise InputError(f"{source.name} has no rows.")
        replace_folder(new, place)
    return total


def _check_folder(
    out: Path, inputs: list[Path], model: Path, classes: Sequence[str], force: bool
) -> None:
    if out.suffix:
        raise InputError(
            f"{out} has the name of a file; with Ray --out is a folder, which gets a Parquet file "
            "for each file of the input."
        )
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is no folder; choose another name.")
    if out.samefile(model):
        raise InputError(f"{out} is the model itself; choose another folder for the output.")
    for entry in sorted(out.iterdir()):
        if any(entry.samefile(file) for file in inputs):
            raise InputError(f"{entry} is an input itself; choose another folder for the output.")
        if not entry.is_file():
            raise InputError(f"{out} holds {entry.name}, which is no file; choose another folder.")
        if not (force or is_prediction(entry, classes)):
            raise InputError(
                f"{out} holds {entry.name}, which is no prediction of such a model; choose another "
                "folder, or replace it with --force."
            )


def _results(
    files: list[Path], new: Path, settings: dict[str, Any], workers: int
) -> Iterator[dict[str, Any]]:
    """What was found in each file, in their order, as soon as it is known."""
    digits = max(5, len(str(len(files))))
    items = [
        {
            "file": str(file.absolute()),
            "out": str(new / f"{place:0{digits}d}-{file.name.partition('.')[0]}.parquet"),
        }
        for place, file in enumerate(files)
    ]
    for row in _mapped(items, settings, workers):
        result = json.loads(row["found"])
        if "error" in result:
            raise InputError(result["error"])
        yield result


def _mapped(
    items: list[dict[str, str]], settings: dict[str, Any], workers: int
) -> Iterator[dict[str, str]]:
    """`_predicted` of each item by Ray Data, in their order."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are said below
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    found = ray.data.from_items(items, override_num_blocks=len(items)).map(
        _predicted,  # type: ignore[arg-type]  # the other arguments follow
        fn_kwargs=settings,
        num_cpus=1,
        concurrency=workers,
    )
    try:
        yield from found.iter_rows()
    except ray.exceptions.RayTaskError:
        raise  # a bug: what a user can put right comes back as a message
    except ray.exceptions.RayError as error:
        raise InputError(f"Ray Data failed: {str(error).strip().splitlines()[-1]}") from error


def _predicted(
    item: dict[str, Any], model: Path, schema: pa.Schema, kept: list[str], bag_columns: list[str]
) -> dict[str, str]:
    """Write the predictions for one file, in a process of Ray."""
    torch.set_num_threads(1)
    try:
        file, out = Path(item["file"]), Path(item["out"])
        if not out.parent.is_dir():
            raise InputError(
                f"{out.parent.parent} is not there on the machine {platform.node()} of the "
                "cluster; files, model and output have to be on a disk that all see."
            )
        written = predict_rows(
            _loaded(model),
            open_rows(file),
            schema,
            out,
            kept,
            bag_columns,
            watch=lambda rows: None,
            may_be_empty=True,
        )
    except (BagwiseError, OSError) as error:  # Ray Data would show where it arose
        return {"found": json.dumps({"error": str(error)})}
    known, surprises = written.of_known_bags, vars(written.surprises)
    return {"found": json.dumps({"rows": written.rows, "known": known, "surprises": surprises})}


@lru_cache(maxsize=1)
def _loaded(model: Path) -> TableModel:
    """Read once by each process; these end with the command."""
    return TableModel.load(model)


def _sum(total: Written, found: dict[str, Any]) -> Written:
    for name, counts in found["surprises"].items():
        getattr(total.surprises, name).update(counts)
    known = None if total.of_known_bags is None else total.of_known_bags + found["known"]
    return total._replace(rows=total.rows + found["rows"], of_known_bags=known)
