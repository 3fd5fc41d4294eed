"""Runs as two tidy CSV files: one row for each run, one row for each epoch."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bagwise.checkpoint import write_atomically
from bagwise.experiments.run import RunResult, read_results
from bagwise.experiments.settings import RunSettings
from bagwise.training import Row

RUNS = "runs.csv"
EPOCHS = "epochs.csv"
_SETTINGS = [field.name for field in fields(RunSettings)]
_WHOLE = ("bag_size", "epochs", "seed", "batch_instances")
_REAL = ("lr", "weight_decay", "average")


def export_runs(results: list[RunResult], folder: Path) -> list[Path]:
    """Write the runs to `runs.csv` and their histories to `epochs.csv`.

    `runs.csv` has the settings, for both selections (accuracy, bag_loss) the epoch they choose with
    its validation and test accuracy, the seconds of training and the versions. Numbers have eight
    digits. `read_runs` reads both files again.
    """
    runs, epochs = [], []
    for result in results:
        name = result.settings.name
        row: dict[str, Any] = {"run": name, **asdict(result.settings)}
        for select in ("accuracy", "bag_loss"):
            best = result.best_row(select)
            row[f"epoch_by_{select}"] = int(best["epoch"])
            row[f"val_accuracy_by_{select}"] = best["val_accuracy"]
            row[f"test_accuracy_by_{select}"] = best["test_accuracy"]
        runs.append(row | {"seconds": round(result.seconds, 2), **result.versions})
        epochs += [{"run": name, **epoch} for epoch in result.history]
    return [_write(folder / RUNS, runs), _write(folder / EPOCHS, epochs)]


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()})
    write_atomically(path, text.getvalue().encode())
    return path


def read_runs(folder: Path) -> list[RunResult]:
    """All results below a folder: of a sweep, of single runs, or exported."""
    if not (folder / RUNS).exists():
        return read_results(folder)
    try:
        histories: dict[str, list[Row]] = {}
        with (folder / EPOCHS).open(newline="") as file:
            for row in csv.DictReader(file):
                history = histories.setdefault(row.pop("run"), [])
                history.append({name: float(value) for name, value in row.items() if value})
        with (folder / RUNS).open(newline="") as file:
            return [_result(row, histories) for row in csv.DictReader(file)]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / RUNS} or {EPOCHS} beside it is damaged: {error}.") from error


def _result(row: dict[str, str], histories: dict[str, list[Row]]) -> RunResult:
    settings: dict[str, Any] = {name: row[name] for name in _SETTINGS}
    settings |= {name: int(row[name]) for name in _WHOLE}
    settings |= {name: float(row[name]) if row[name] else None for name in _REAL}
    found = RunSettings.from_dict(settings)
    if found.name != row["run"]:
        raise ValueError(f"the settings of {row['run']} are not those of its name")
    versions = {name: row[name] for name in ("bagwise", "torch", "numpy", "python")}
    return RunResult(found, histories[row["run"]], float(row["seconds"]), versions)
