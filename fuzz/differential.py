"""The same question asked in several ways: data frames and files, commands and Python, models of
earlier versions and today's code. One input is one answer that is compared with another.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
from texts import GOLDEN
from typer.testing import CliRunner

import bagwise
from bagwise.cli import app
from bagwise.errors import InputError
from bagwise.tables import read_bags
from bagwise.tables.read.source import open_rows

INPUTS = GOLDEN / "inputs"
SAME = 1e-9
MODELS = {  # the rows that a golden model is asked about, its bag, and its label file
    "linear2": ("patients", "ward", "patients_counts.csv"),
    "linear3": ("wines", "region,cellar", "wines_long.csv"),
    "ranges": ("patients", "ward", "patients_ranges.csv"),
    "rounded": ("shops", "chain", "shops_shares.csv"),
    "effects": ("schools", "school", "schools_counts.csv"),
}
GROUPS = {"patients": "town", "wines": "region", "shops": "online", "schools": "sex"}
Step = Callable[[int], int]


def typed_rows(name: str, bag: str) -> pa.Table:
    """Rows of a golden table with their types, bags as text."""
    source = open_rows(INPUTS / name, typed=True, as_text=bag.split(","))
    return pa.Table.from_batches(list(source.batches()), source.schema)


def some_rows(rng: np.random.Generator, table: pa.Table) -> pa.Table:
    """Some of the rows in any order, a few of them twice."""
    index = rng.integers(len(table), size=int(rng.choice([1, 2, 10, 40])))
    return table.take(pa.array(index))


def forms(table: pa.Table, folder: Path, as_text: bool) -> dict[str, Any]:
    """The same table as frames of three packages and as files of three kinds."""
    parquet, arrow, text = (folder / f"rows.{kind}" for kind in ("parquet", "arrow", "csv"))
    pq.write_table(table, parquet)
    feather.write_feather(table, arrow, compression="uncompressed")
    pcsv.write_csv(table, text)
    found = {
        "pyarrow": table,
        "pandas": table.to_pandas(),
        "polars": pl.from_arrow(table),
        "Parquet": parquet,
        "Arrow": arrow,
    }
    return found | ({"CSV": text} if as_text else {})


def random_table(rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Rows with columns of all types, values missing here and there, and counts of their bags."""
    n = int(rng.choice([4, 12, 50]))
    bags = rng.integers(int(rng.choice([1, 2, 6])), size=n)
    words = rng.choice(["", "0", "A b", "é", "x,y", 'q"'], size=6)
    names = np.array([f"{word}{i}" for i, word in enumerate(words)])
    days = np.datetime64("2020-01-01") + rng.integers(0, 3000, size=n)
    columns: dict[str, Any] = {
        "whole": rng.integers(-5, 1000, size=n),
        "number": np.round(rng.standard_normal(n) * 10.0 ** rng.integers(-3, 6), 6),
        "kind": rng.choice(["red", "green", "blue", "none of these"], size=n),
        "flag": rng.random(n) < 0.5,
        "day": days,
    }
    columns = {name: columns[name] for name in columns if rng.random() < 0.8} or columns
    arrays = {}
    for name, values in columns.items():
        missing = rng.random(n) < rng.choice([0.0, 0.0, 0.2])
        arrays[name] = pa.array(values, mask=missing)
    rows = pa.table({"bag": pa.array(names[bags]), **arrays})
    labels = rng.integers(2, size=n)
    there = np.unique(bags)
    no, yes = ([int(((bags == b) & (labels == y)).sum()) for b in there] for y in (0, 1))
    return rows, pa.table({"bag": names[there], "no": no, "yes": yes})


def frames_and_files(folder: Path) -> Step:
    """Encoded rows of random tables, and what models say of rows of golden ones."""
    models = {name: bagwise.load(GOLDEN / "models" / name) for name in MODELS}
    tables = {name: typed_rows(f"{given[0]}.csv", given[1]) for name, given in MODELS.items()}

    def step(seed: int) -> int:
        rng = np.random.default_rng(seed)
        rows, counts = random_table(rng)
        given, labels = forms(rows, folder, True), forms(counts, folder / "labels", True)
        done = 0
        kinds = rng.permutation(list(labels))
        wanted = encoded(rows, counts)
        for kind, of_labels in zip(given, kinds, strict=True):
            same(encoded(given[kind], labels[of_labels]), wanted, f"read_bags of {kind}")
            done += 1
        name = list(models)[rng.integers(len(models))]
        rows = some_rows(rng, tables[name])
        asked = answers(models[name], rows)
        for kind, form in forms(rows, folder, False).items():
            same(answers(models[name], form), asked, f"{name} of {kind}")
            done += len(asked)
        return done

    (folder / "labels").mkdir()
    return step


def encoded(rows: Any, labels: Any) -> dict[str, Any]:
    """What `read_bags` makes of them, or the text of its error."""
    try:
        X, bags, proportions, columns = read_bags(rows, "bag", labels)
    except InputError as error:
        return {"error": type(error).__name__}
    return {
        "X": np.asarray(X, np.float64),
        "bags": bags.tolist(),
        "proportions": proportions,
        "names": columns.encoded_names,
    }


def answers(model: bagwise.TableModel, rows: Any) -> dict[str, Any]:
    """What a model says of rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "predict_proba": np.asarray(model.predict_proba(rows), np.float64),
            "predict": [str(label) for label in model.predict(rows)],
        }


def same(found: dict[str, Any], wanted: dict[str, Any], what: str) -> None:
    """Refuse answers that differ."""
    assert found.keys() == wanted.keys(), f"{what}: {found} and {wanted}"
    for name, value in wanted.items():
        if isinstance(value, np.ndarray):
            assert found[name].shape == value.shape, f"{what}: {name} has another shape"
            off = np.abs(found[name] - value).max(initial=0)
            assert off <= SAME, f"{what}: {name} is {off:.3g} apart"
        else:
            assert found[name] == value, f"{what}: {name} is {found[name]}, not {value}"


def command_and_python(folder: Path) -> Step:
    """What commands write to a file, and what methods return."""
    models = {name: bagwise.load(GOLDEN / "models" / name) for name in MODELS}
    tables = {name: typed_rows(f"{given[0]}.csv", given[1]) for name, given in MODELS.items()}
    out, path = folder / "out.csv", folder / "rows.parquet"

    def command(*arguments: object) -> pd.DataFrame:
        done = CliRunner().invoke(app, [*map(str, arguments), "--out", str(out), "--force"])
        if done.exit_code:
            raise AssertionError(f"{arguments}: {done.output}") from done.exception
        return pd.read_csv(out, dtype=str, keep_default_na=False, na_values=[""])

    def step(seed: int) -> int:
        rng = np.random.default_rng(seed)
        name = list(models)[rng.integers(len(models))]
        table, bag, labels = MODELS[name]
        model, place = models[name], GOLDEN / "models" / name
        rows = some_rows(rng, tables[name])
        pq.write_table(rows, path)
        frame = rows.to_pandas()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alike(command("predict", place, path), model.predict_proba(frame), "p_")
            by = ("--by", GROUPS[table])
            if name != "effects":  # that of a table may lack some bags, which is an error there
                shares = model.estimate(frame, by=GROUPS[table])
                alike(command("estimate", place, path, *by), shares, "")
            if name == "rounded" or seed % 20:
                return 2
            source = INPUTS / f"{table}.csv"
            counted = ("--bag", bag, "--labels", INPUTS / labels)
            are = ("--labels-are", "counts") if name == "ranges" else ()
            said = command("label", place, source, *counted, *are)
            known = {"labels_are": "counts"} if are else {}
            alike(said, model.label(source, INPUTS / labels, bag=bag, **known), "")
        return 3

    return step


def alike(written: pd.DataFrame, found: pd.DataFrame, prefix: str) -> None:
    """Refuse a file that has other values than a frame in columns that both have."""
    assert len(written) == len(found), f"{len(written)} and {len(found)} rows"
    names = [name for name in found.columns if prefix + str(name) in written.columns]
    assert names, f"no columns in common: {list(written)} and {list(found)}"
    for name in names:
        one, other = written[f"{prefix}{name}"], found[name]
        if pd.api.types.is_numeric_dtype(other):
            close = np.isclose(pd.to_numeric(one), other, rtol=1e-6, atol=2e-6, equal_nan=True)
            assert close.all(), f"{name} differs in row {np.argmin(close)}"
        else:
            assert one.astype(str).tolist() == other.astype(str).tolist(), f"{name} differs"


def old_models(folder: Path) -> Step:
    """Predictions of kept models for some rows, and those that version 0.1 wrote down for all; by
    the folder as it was, and as today's code writes it.
    """
    said = json.loads((GOLDEN / "transcripts.json").read_text(encoding="utf-8"))
    asked = {}
    for one in said:
        if "names" in one or not one["name"].endswith(" predict"):
            continue
        command = one["command"]
        if (GOLDEN / command[1]).exists():
            wanted = pd.read_csv(GOLDEN / command[command.index("--out") + 1])
            name = command[1].split("/")[1]
            again = folder / name
            shutil.rmtree(again, ignore_errors=True)
            old = bagwise.load(GOLDEN / command[1])
            old.save(again)
            rows = open_rows(GOLDEN / command[2])
            texts = pa.Table.from_batches(list(rows.batches()), rows.schema)
            asked[name] = (old, bagwise.load(again), texts, wanted)

    def step(seed: int) -> int:
        rng = np.random.default_rng(seed)
        name = list(asked)[rng.integers(len(asked))]
        old, new, rows, wanted = asked[name]
        index = rng.integers(len(rows), size=int(rng.choice([1, 7, 30])))
        path = folder / "rows.csv"
        pcsv.write_csv(rows.take(pa.array(index)), path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for model in (old, new):
                found = model.predict_proba(path)
                for label in model.classes:
                    off = np.abs(
                        found[label].to_numpy() - wanted[f"p_{label}"].to_numpy()[index]
                    ).max()
                    assert off < 2e-6, f"{name}: {label} is {off:.3g} apart"
        return 2

    return step


MAKE = {
    "frames and files": frames_and_files,
    "command and Python": command_and_python,
    "old models": old_models,
}
