"""Runs as two tidy CSV files: one row for each run, one row for each epoch."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from bagwise.checks import number, wrong
from bagwise.errors import DamagedError, InputError
from bagwise.paper.run import VERSIONS, RunResult, check_history, read_results, without_copies
from bagwise.paper.settings import LATER, PAIRS, RunSettings
from bagwise.storage.files import begins, fill, refuse_foreign, unfinished
from bagwise.training import Row

RUNS = "runs.csv"
EPOCHS = "epochs.csv"
_SETTINGS = [field.name for field in fields(RunSettings)]
_NEEDED = [field.name for field in fields(RunSettings) if field.default is MISSING]
_KINDS = get_type_hints(RunSettings)


def export_runs(results: list[RunResult], folder: Path, force: bool = False) -> list[Path]:
    """Write the runs to `runs.csv` and their histories to `epochs.csv`.

    `runs.csv` has the settings, for both selections (accuracy, bag_loss) the epoch they choose with
    its validation and test accuracy, the seconds of training and the versions. Settings are written
    exactly, what was measured with eight digits. `read_runs` reads both files again.
    Files of these names that were not written by it are replaced only with `force`.
    """
    runs, epochs = [], []
    for result in without_copies((f"result {i + 1}", result) for i, result in enumerate(results)):
        name = result.settings.name
        settings = {
            key: repr(value) if isinstance(value, float) else value
            for key, value in asdict(result.settings).items()
        }
        for key, value in LATER.items():
            if settings[key] == value:
                del settings[key]
            elif key in PAIRS:
                settings[key] = json.dumps(dict(getattr(result.settings, key)))
        row: dict[str, Any] = {"run": name, **settings}
        for select in ("accuracy", "bag_loss"):
            best = result.best_row(select)
            row[f"epoch_by_{select}"] = int(best["epoch"])
            row[f"val_accuracy_by_{select}"] = best["val_accuracy"]
            row[f"test_accuracy_by_{select}"] = best["test_accuracy"]
        runs.append(row | {"seconds": round(result.seconds, 2), **result.versions})
        epochs += [{"run": name, **epoch} for epoch in result.history]
    refuse_foreign(folder / RUNS, lambda path: _has(path, {"run", *_NEEDED}), force)
    refuse_foreign(folder / EPOCHS, lambda path: _has(path, {"run", "epoch"}), force)
    folder.mkdir(parents=True, exist_ok=True)
    # Both are complete before either takes its place, and runs.csv, without which there is no
    # export, comes last.
    with unfinished(folder / RUNS) as new_runs, unfinished(folder / EPOCHS) as new_epochs:
        fill(new_runs, [_table(runs)])
        fill(new_epochs, [_table(epochs)])
        new_epochs.replace(folder / EPOCHS)
        new_runs.replace(folder / RUNS)
    return [folder / RUNS, folder / EPOCHS]


def _has(path: Path, names: set[str]) -> bool:
    """Whether the first line of a file has these names, with commas between."""
    header = begins(path).partition(b"\n")[0].decode(errors="replace")
    return names <= set(header.split(","))


def _table(rows: list[dict[str, Any]]) -> bytes:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue().encode()


def read_runs(folder: Path) -> list[RunResult]:
    """All results below a folder: of a sweep, of single runs, or exported."""
    if not (folder / RUNS).exists():
        return read_results(folder)
    histories: dict[str, list[Row]] = {}
    for place, row in _rows(folder / EPOCHS, ["run", "epoch"]):
        with _damage(place):
            history = histories.setdefault(row.pop("run"), [])
            history.append({name: _number(name, value) for name, value in row.items() if value})
    found = []
    for place, row in _rows(folder / RUNS, ["run", *_NEEDED, "seconds", *VERSIONS]):
        with _damage(place):
            settings = _settings(row)
            if row["run"] not in histories:
                raise InputError(f"{EPOCHS} has no epoch of the run {row['run']!r}.")
            seconds = _number("seconds", row["seconds"])
            number(0)(seconds, "seconds")
        with _damage(f"{folder / EPOCHS}, run {row['run']}"):
            check_history(histories[row["run"]], settings.epochs)
        versions = {name: row[name] for name in VERSIONS}
        found.append((place, RunResult(settings, histories[row["run"]], seconds, versions)))
    return without_copies(found)


@contextmanager
def _damage(place: str) -> Iterator[None]:
    """Say where an error was."""
    try:
        yield
    except InputError as error:
        raise DamagedError(f"{place} is damaged: {error} Export the runs again.") from error


def _rows(path: Path, needed: list[str]) -> list[tuple[str, dict[str, str]]]:
    """The rows of a CSV file, each with its place; every row has all columns of the header."""
    with _damage(str(path)):
        try:
            reader = csv.reader(io.StringIO(path.read_bytes().decode(), newline=""), strict=True)
            lines = [(reader.line_num, values) for values in reader if values]
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{error}.") from error
        header = lines[0][1] if lines else []
        if missing := [name for name in needed if name not in header]:
            raise InputError(f"it has no column {missing[0]}.")
        if len(set(header)) < len(header):
            raise InputError("it has a column twice.")
        for line, values in lines[1:]:
            if len(values) != len(header):
                raise InputError(f"line {line} has {len(values)} values, not {len(header)}.")
    return [
        (f"{path}, line {line},", dict(zip(header, values, strict=True)))
        for line, values in lines[1:]
    ]


def _settings(row: dict[str, str]) -> RunSettings:
    """The settings of a row; a column that is not there has its default."""
    there = {name: _value(name, row[name]) for name in _SETTINGS if name in row}
    settings = RunSettings.from_dict(there, check_names=False)
    if settings.name != row["run"]:
        raise InputError(f"the settings of the run {row['run']!r} are not those of its name.")
    return settings


def _value(name: str, text: str) -> Any:
    """A setting from its text: a number where the settings have one, nothing where it is empty."""
    if name in PAIRS:
        try:
            return json.loads(text or "{}")
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is not JSON ({error}).") from error
    if not text and name in LATER:
        return LATER[name]
    kinds = get_args(_KINDS[name]) or (_KINDS[name],)
    if not text and type(None) in kinds:
        return None
    if float in kinds:
        return _number(name, text)
    if bool in kinds:
        return {"True": True, "False": False}.get(text, text)
    if int not in kinds:
        return text
    try:
        return int(text)
    except ValueError:
        raise wrong(text, name, "a whole number") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise wrong(text, name, "a number") from None
