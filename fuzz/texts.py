"""Damaged texts that people write: label files, tables of rows, and options and sweeps in TOML.

One input is one file that is read. It must be read, and what comes of it must be sane; or it must
be refused by a message of one line.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from damage import damaged

import bagwise
from bagwise import Laplace, TableModel
from bagwise.cli.config_file import options_in
from bagwise.errors import BagwiseWarning, InputError, harmless
from bagwise.paper.sweep_file import read_sweep
from bagwise.tables import read_bags
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.read.source import open_rows

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
GOLDEN = HERE.parent / "tests" / "golden"
LABELS_ARE: tuple[Any, ...] = (
    *("auto", "auto", "auto", "auto", "counts", "proportions", "relative"),
    *("ranges", "rounded", "sample", Laplace(2.0)),
)
AT_A_TIME = 10  # files of a seed
Read = Callable[[bytes, Random], None]


def checked(error: InputError) -> None:
    """Refuse a message that is not one line of text, or says nothing."""
    text = str(error)
    assert text.strip(), "an empty message"
    assert harmless(text) == text, f"a message that is not one line of text: {text!r}"
    assert len(text) < 50_000, f"a message of {len(text)} letters: {text[:200]}"


def steps(read: Read, kind: str, corpus: str) -> Callable[[int], int]:
    """Read some damaged files of the corpus for each seed."""
    sound = [path.read_bytes() for path in sorted((CORPUS / corpus).iterdir())]

    def step(seed: int) -> int:
        rng = Random(f"{corpus} {seed}")
        for _ in range(AT_A_TIME):
            attempt(read, damaged(rng.choice(sound), kind, rng), rng)
        return AT_A_TIME

    return step


def attempt(read: Read, content: bytes, rng: Random) -> str:
    """Read a file: "read", or "refused" as it should be; anything else is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)  # of 1e308
        for category in (BagwiseWarning, UserWarning):
            warnings.simplefilter("ignore", category)
        try:
            read(content, rng)
        except InputError as error:
            checked(error)
            return "refused"
    return "read"


def labels(folder: Path) -> Read:
    """Label files."""
    path = folder / "labels.csv"
    rows = pa.table({"ward": [*"aabbccdd", "007"], "x": np.arange(9.0)})

    def read(content: bytes, rng: Random) -> None:
        path.write_bytes(content)
        labels_are = rng.choice(LABELS_ARE)
        classes = rng.choice((None, None, None, ["no", "yes"]))
        if rng.random() < 0.1:
            X, bags, *_ = read_bags(
                rows, "ward", path, labels_are=labels_are, classes=classes, skip_unmatched=True
            )
            assert len(X) == len(bags)
            return
        found = read_labels(path, ["ward"], classes, labels_are=labels_are)
        assert found.classes, "no class"
        assert len(set(found.classes)) == len(found.classes), f"classes {found.classes}"
        assert len(set(found.ids)) == len(found.ids), f"bags {found.ids}"
        assert all(isinstance(name, str) and name for name in found.ids), f"bags {found.ids}"
        assert found.numbers.shape[:2] == (len(found.ids), len(found.classes))
        assert not np.isinf(found.numbers).any(), f"{found.numbers}"
        gaps = np.isnan(found.numbers).reshape(len(found.ids), -1)
        assert not gaps.all(axis=1).any(), "a bag of which nothing is known"

    return read


def rows(folder: Path) -> Read:
    """Tables of rows: read in both ways, matched with labels, and predicted."""
    path = folder / "rows.csv"
    counts = pa.table({"ward": ["a", "b", "007"], "no": [1, 2, 0], "yes": [2, 1, 1]})
    models = [bagwise.load(GOLDEN / "models" / name) for name in ("linear2", "ranges")]

    def read(content: bytes, rng: Random) -> None:
        path.write_bytes(content)
        way = rng.random()
        if way < 0.5:
            as_text = rng.choice(([], ["ward"]))
            typed, plain = (
                sum(len(batch) for batch in open_rows(path, typed=t, as_text=as_text).batches())
                for t in (True, False)
            )
            assert typed == plain, f"{typed} rows with types, {plain} without"
        elif way < 0.75:
            X, bags, *_ = read_bags(path, "ward", counts, skip_unmatched=True)
            assert len(X) == len(bags)
            assert np.isfinite(np.asarray(X)).all(), "encoded rows are not finite"
        else:
            predict(rng.choice(models), path)

    return read


def predict(model: TableModel, path: Path) -> None:
    """Predict the rows of a file, and look at the probabilities."""
    p = np.asarray(model.predict_proba(path))
    assert len(p) == sum(len(batch) for batch in open_rows(path).batches()), "other rows"
    assert np.isfinite(p).all(), "probabilities are not finite"
    assert np.abs(p.sum(axis=1) - 1).max(initial=0) < 1e-4, "probabilities do not sum to 1"


def options(folder: Path) -> Read:
    """Options of a fit, and sweeps: what is TOML is one or the other."""
    path = folder / "fit.toml"
    known = ["bag", "labels", "labels_are", "classes", "features", "data", "out", "seed", "model"]

    def read(content: bytes, rng: Random) -> None:
        path.write_bytes(content)
        if b"bag = " in content:
            assert isinstance(options_in(path, known), dict)
        elif (sweep := read_sweep(path)).pilot is not None:
            try:
                too_many = len(tomllib.loads(content.decode())["lrs"]) > 50
            except (LookupError, TypeError):
                too_many = False
            if not too_many:
                sweep.pilot_runs(0, sweep.rates())

    return read


READ = {"labels": (labels, ".csv"), "rows": (rows, ".csv"), "options": (options, ".toml")}


def _made(name: str) -> Callable[[Path], Callable[[int], int]]:
    make, kind = READ[name]
    return lambda folder: steps(make(folder), kind, name)


MAKE = {name: _made(name) for name in READ}
