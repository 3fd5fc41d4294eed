"""Folders of models, of today's and of earlier formats, of which a file was damaged: JSON, and
arrays with JSON in their header. One input is one folder that is read.

It is refused by a message of one line that names a file, or the model predicts probabilities. In
half of the folders the manifest fits the damaged file, so that what it holds alone must tell.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
from damage import damaged
from texts import GOLDEN, attempt

import bagwise
from bagwise.errors import InputError
from bagwise.storage.manifest import MANIFEST, write_manifest
from bagwise.storage.model_folder import HELD_OUT
from bagwise.tables.read.source import open_rows

OLD = GOLDEN.parent / "old_models"
AT_A_TIME = 10  # folders of a seed
_TABLES = {"linear2": "patients", "linear3": "wines", "effects": "schools"}


def make(folder: Path) -> Callable[[int], int]:
    """Copies of the models, whose files are damaged in turn."""
    places = [*(GOLDEN / "models").iterdir(), *OLD.iterdir()]
    places = sorted(place for place in places if (place / "columns.json").exists())
    copies = [folder / place.name for place in places]
    for place, copy in zip(places, copies, strict=True):
        shutil.copytree(place, copy)
    rows = {name: first_rows(GOLDEN / "inputs" / f"{x}_new.csv") for name, x in _TABLES.items()}

    def step(seed: int) -> int:
        rng = Random(f"folders {seed}")
        copy = rng.choice(copies)
        kept = {file: file.read_bytes() for file in copy.iterdir()}
        files = sorted(file for file in kept if file.name != HELD_OUT)
        for _ in range(AT_A_TIME):
            file = rng.choice(files)
            content = damaged(kept[file], file.suffix, rng)

            def read(content: bytes, rng: Random, file: Path = file) -> None:
                file.write_bytes(content)
                if file.name != MANIFEST and (copy / MANIFEST).exists() and rng.random() < 0.5:
                    write_manifest(copy, [HELD_OUT])
                use(copy, rows.get(copy.name), file.name)

            try:
                attempt(read, content, rng)
            finally:
                for changed in {file, copy / MANIFEST} & kept.keys():
                    changed.write_bytes(kept[changed])
        return AT_A_TIME

    return step


def first_rows(path: Path) -> pa.RecordBatch:
    """Some rows of a table, which are quick to predict."""
    return next(open_rows(path, typed=True).batches())[:20]


def use(folder: Path, rows: pa.RecordBatch | None, damaged_name: str) -> None:
    """Load a model, look at its facts, and predict."""
    try:
        model = bagwise.load(folder)
        if damaged_name == "fit.json":
            json.dumps(str(model.summary()))
        elif damaged_name == "intervals.safetensors":
            _ = model.fitted.intervals
    except InputError as error:
        named = any(name in str(error) for name in (damaged_name, MANIFEST))
        if not named and damaged_name != MANIFEST:  # that of a manifest names what does not fit it
            raise AssertionError(f"the message does not name {damaged_name}") from error
        raise
    if rows is not None:
        p = np.asarray(model.predict_proba(rows))
        assert np.isfinite(p).all(), "probabilities are not finite"
        assert np.abs(p.sum(axis=1) - 1).max() < 1e-4, "probabilities do not sum to 1"


MAKE = {"model folders": make}
