"""A fitted model in a folder: config.json and model.safetensors, written in one step.

A model that was fitted to a table has columns.json, fit.json and held_out_bags.csv beside them, a
linear one intervals.safetensors, one with bag effects effects.safetensors, and one that learned
from columns of bags context.json. manifest.json has the digests of all of them but
held_out_bags.csv: that is for people, who may open it in a spreadsheet and save it, and nothing is
read from it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bagwise.checks import shown
from bagwise.errors import InputError
from bagwise.storage.array_files import Arrays, save_arrays
from bagwise.storage.config import check_config
from bagwise.storage.files import unfinished, write_atomically
from bagwise.storage.json_file import read_json as parse
from bagwise.storage.manifest import MANIFEST, check_manifest, write_manifest
from bagwise.storage.uris import refuse_uri

CONFIG = "config.json"
TENSORS = "model.safetensors"
COLUMNS = "columns.json"
FIT = "fit.json"
INTERVALS = "intervals.safetensors"
EFFECTS = "effects.safetensors"
CONTEXT = "context.json"
HELD_OUT = "held_out_bags.csv"
# Of config.json. Since 2 there is a manifest, and maximum likelihood is said; since 3 the kind of
# the model is said, and a linear one of a table is kept without what a network needs; since 4 it
# may have draws of its coefficients, over which predictions are means.
FORMAT = 4
OLDEST = 1
TENSORS_FORMAT = 1
_NAMES = {CONFIG, TENSORS, COLUMNS, FIT, INTERVALS, EFFECTS, CONTEXT, HELD_OUT, MANIFEST}

Write = Callable[[Path], None]
"""Writes a file of a model to a path."""


def as_json(content: Mapping[str, Any]) -> Write:
    """Writes JSON."""
    return partial(write_atomically, content=json.dumps(content, indent=1).encode())


def as_arrays(arrays: Arrays) -> Write:
    """Writes arrays."""
    return partial(save_arrays, arrays=arrays, facts={"format": TENSORS_FORMAT})


def save_folder(path: Path, files: Mapping[str, Write]) -> None:
    """Write a model to `path`, replacing a model that is already there.

    Args:
        path: a folder that is not there yet, or holds a model and nothing else.
        files: what writes each of its files, by name.
    """
    refuse_other_things(path)
    place = path.resolve()  # a link stays, and what it leads to is replaced
    place.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(place, folder=True) as new:
        for name, write in files.items():
            write(new / name)
        write_manifest(new, apart=[HELD_OUT])
        replace_folder(new, place)


def replace_folder(new: Path, place: Path) -> None:
    """Move a folder to a place; what is there now is gone when the new one is there."""
    shutil.rmtree(_aside(place), ignore_errors=True)  # a killed process may have left it
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        shutil.rmtree(new)  # the old one, which has got its name
    else:
        old = _aside(place)
        place.rename(old)
        try:
            new.rename(place)
        except OSError:
            old.rename(place)
            raise
        shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, so that a kill finds either; False where that cannot be done.

    Only Linux has it, and Python has no name for it.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "renameat2"):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    names = os.fsencode(one), os.fsencode(other)
    return bool(libc.renameat2(here, names[0], here, names[1], exchange) == 0)


def _aside(place: Path) -> Path:
    """Where the old folder waits while the new one takes its place, if it has to."""
    return place.with_name(f".{place.name}.aside")


def recover(path: Path) -> None:
    """Bring back a model that `save` had put aside when it was killed before the new one was there.

    That happens only where folders cannot be swapped in one step.
    """
    place = Path(os.path.realpath(path))  # also of a link that leads to itself
    if not place.exists() and _aside(place).is_dir():
        _aside(place).rename(place)


def refuse_other_things(path: Path) -> None:
    """A folder may be replaced only if it holds a Bagwise model and nothing else."""
    refuse_uri(path)
    recover(path)
    if not path.exists():
        return
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else {path.name}
    if path.is_dir() and names <= _NAMES:
        if CONFIG in names:
            read_config(path)
        return
    raise InputError(f"{path} holds other things than a Bagwise model; choose another folder.")


def check_files(path: Path, apart: Collection[str] = ()) -> None:
    """Refuse a folder whose files are not those that were saved; older ones cannot tell.

    To be called when all that can be said about single files has been said.
    """
    if read_json(path / CONFIG, FORMAT, OLDEST)["format"] >= 2:
        check_manifest(path, [HELD_OUT, *apart])


def read_config(path: Path) -> tuple[str, dict[str, Any]]:
    """The kind of model in a folder, and its config.json; what is missing, damaged or too new is a
    ValueError that says so.
    """
    config = read_json(path / CONFIG, FORMAT, OLDEST)
    return check_config(path / CONFIG, config), config


def require_files(path: Path) -> None:
    """Refuse a folder without a model."""
    recover(path)
    for name in (CONFIG, TENSORS):
        if not (path / name).is_file():
            raise InputError(f"{path} has no {name}; it is not a complete Bagwise model folder.")


def read_json(path: Path, version: int, oldest: int | None = None) -> dict[str, Any]:
    """A JSON file that says which format it has; another one is a ValueError.

    Args:
        path: the file.
        version: the newest format that is known.
        oldest: the oldest that is; the same if not given.
    """
    content = parse(path)
    if not isinstance(content, dict) or "format" not in content:
        raise InputError(f"{path} is damaged or was not written by Bagwise: it has no format.")
    known = range(version if oldest is None else oldest, version + 1)
    if type(content["format"]) is not int or content["format"] not in known:
        raise InputError(
            f"{path} has format {shown(content['format'])}; this version of Bagwise reads "
            f"{version}. Update Bagwise, or make the model again."
        )
    return content
