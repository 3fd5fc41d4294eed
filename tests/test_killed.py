"""Whatever a command was doing when it was killed, the same command then ends as if it had not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise import InputError, LLPClassifier
from bagwise.cli import app
from bagwise.paper import export, sweep
from bagwise.paper.run import RESULT, execute
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep_file import read_sweep
from bagwise.storage.locks import TakenError, hold, only_one
from bagwise.tables import rows_to_fit
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.sort import store
from bagwise.tables.sort.store import Store
from bagwise.training.run_state import CHECKPOINT
from fitted import fit_table

RUN = RunSettings("digits", "linear", "cc", 8, 1e-2, 1, 0)
COUNTS = ("--bag", "bag", "--labels", "bags.csv")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten bags of six, their counts, a model, and a run."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    rows = [f"B{i % 10},{x:.3f}" for i, x in enumerate(rng.normal(size=60))]
    (folder / "rows.csv").write_text("\n".join(["bag,x", *rows]) + "\n")
    counts = [f"B{b},{b % 5 + 1},{5 - b % 5}" for b in range(10)]
    (folder / "bags.csv").write_text("\n".join(["bag,no,yes", *counts]) + "\n")
    labels = folder / "bags.csv"
    fit_table(folder / "rows.csv", "bag", labels, model="linear", out=folder / "model")
    execute(RUN, folder / "run")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(made, tmp_path / "here"))
    monkeypatch.chdir(folder)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


FIT = ("fit", "rows.csv", *COUNTS, "--model", "linear", "--lr", "0.03", "--epochs", "2")


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.output


class KilledError(BaseException):
    """What ends a process."""


@pytest.mark.parametrize("n", range(6))
def test_a_store_killed_while_it_is_removed_is_a_store_or_an_empty_folder(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "s"
    Store(place).write("reading", "a", 1)
    Store(place).write("sorted", "a", 2)
    (place / "rows").write_bytes(bytes(9))
    (place / "parts").mkdir()
    done: list[str] = []
    real = store.remove

    def stop(path: Path) -> None:
        if len(done) == n:
            raise KilledError
        done.append(path.suffix)
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(store, "remove", stop)
        try:
            Store(place).done()
        except KilledError:
            assert n < 4
        else:
            assert n >= 4
    assert done == [".json", ".json", "", ""][:n]  # no work is said to be done that is not there
    Store(place).done()
    assert names(tmp_path) == []


def test_a_store_killed_before_its_mark_was_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / ".bagwise-store.json.0123abcd.unfinished").touch()
    Store(tmp_path / "s").done()
    assert names(tmp_path) == []


def test_a_store_of_other_things_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").touch()
    with pytest.raises(InputError, match="holds other things"):
        Store(tmp_path / "s")


def test_a_checkpoint_beside_a_finished_result_is_removed_by_the_next_train(here: Path) -> None:
    (here / "run" / CHECKPOINT).write_bytes(b"of the killed process")
    arguments = ("--dataset", "digits", "--model", "linear", "--bag-size", 8, "--lr", 0.01)
    assert run("train", *arguments, "--epochs", 1, "--out", "run")[0] == 0
    assert not (here / "run" / CHECKPOINT).exists()
    assert (here / "run" / RESULT).exists()


def test_a_checkpoint_beside_the_result_of_another_run_is_left_alone(here: Path) -> None:
    (here / "run" / CHECKPOINT).write_bytes(b"of another run")
    assert run("train", "--dataset", "digits", "--epochs", 1, "--out", "run")[0] in (2, 3)
    assert (here / "run" / CHECKPOINT).exists()


def test_what_a_killed_or_a_refused_sweep_left_beside_a_result_is_removed_by_the_next(
    here: Path,
) -> None:
    lists = {"datasets": ["digits"], "models": ["linear"], "methods": ["cc"], "bag_sizes": [8]}
    lines = [f"{name} = {json.dumps(values)}" for name, values in lists.items()]
    lines += ["seeds = [0]", "lrs = [1e-2]", "epochs = 1"]
    (here / "sweep.toml").write_text("\n".join(lines))
    folder = Path(shutil.copytree(here / "run", here / "runs" / RUN.name))
    for left in (CHECKPOINT, sweep.ERROR):
        (folder / left).touch()
    report = sweep.run_sweep(read_sweep(here / "sweep.toml"), here / "runs", progress=False)
    assert report.done == [RUN]
    assert names(folder) == [RESULT]


def test_an_export_that_fails_leaves_the_former_one_whole(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("export", "run", "--out", "e")[0] == 0
    before = {path.name: path.read_bytes() for path in (here / "e").iterdir()}
    execute(replace(RUN, seed=1), here / "run" / "second")
    real, calls = export.fill, []

    def full(*given: object) -> None:
        calls.append(given)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(export, "fill", full)
    assert run("export", "run", "--out", "e")[0] in (2, 3)
    assert {path.name: path.read_bytes() for path in (here / "e").iterdir()} == before


locks = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")


@locks
def test_a_lock_is_held_once_and_free_when_it_is_closed(tmp_path: Path) -> None:
    handle = hold(tmp_path)
    assert handle is not None
    with pytest.raises(TakenError):
        hold(tmp_path)
    os.close(handle)
    again = hold(tmp_path)
    assert again is not None
    os.close(again)


@locks
def test_a_second_fit_to_a_folder_is_refused_while_the_first_is_running(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = (*FIT, "--out", "new")
    said: list[tuple[int, str]] = []
    real = rows_to_fit.read_labels

    def while_it_runs(*given: Any, **named: Any) -> Any:
        if not said:
            said.append((0, ""))
            said.append(run(*fit))
        return real(*given, **named)

    monkeypatch.setattr(rows_to_fit, "read_labels", while_it_runs)
    assert run(*fit)[0] == 0
    assert said[1][0] in (2, 3)
    assert said[1][1].startswith("Error: another fit is writing new;")
    assert run(*fit)[0] == 0  # it has ended
    assert not [name for name in names(here) if name.startswith(".")]


@locks
@pytest.mark.parametrize("command", ["train", "export"])
def test_a_second_process_that_writes_to_the_same_folder_is_refused(
    command: str, here: Path
) -> None:
    arguments = {
        "train": ("train", "--dataset", "digits", "--epochs", 1, "--out", "new"),
        "export": ("export", "run", "--out", "new"),
    }
    with only_one(here / "new", "never"):
        code, output = run(*arguments[command])
    assert (code, output.startswith("Error: another process is")) == (3, True), output


@locks
def test_a_run_that_another_sweep_is_doing_is_reported(here: Path) -> None:
    with (
        only_one(here / "s", "never"),
        pytest.raises(InputError, match="another sweep is doing this run"),
    ):
        sweep._do(RUN, here / "s", None, "cpu")


@locks
@pytest.mark.slow
def test_a_killed_fit_leaves_no_lock(here: Path) -> None:
    program = """
import time, bagwise.tables.rows_to_fit as rows_to_fit
from bagwise.__main__ import main
rows_to_fit.read_labels = lambda *_, **__: (print(flush=True), time.sleep(99))
main()
"""
    fit = (*FIT, "--out", "new")
    with subprocess.Popen([sys.executable, "-c", program, *fit], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, output = run(*fit)
        process.kill()
    assert code in (2, 3)
    assert "another fit is writing" in output
    assert run(*fit)[0] == 0
    assert not [name for name in names(here) if name.startswith(".")]


@pytest.mark.parametrize(
    "error", [RuntimeError("planted"), KeyError("planted"), TypeError("planted")], ids=repr
)
def test_only_a_damaged_checkpoint_is_thrown_away(
    error: Exception, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error in the last training shows, and what is done is kept."""
    fit = (*FIT, "--out", "new")
    with monkeypatch.context() as patch:
        patch.setattr(FittedTable, "save", None)
        CliRunner().invoke(app, fit)
    (checkpoint,) = (here / ".new.fitting").rglob(CHECKPOINT)
    before = checkpoint.read_bytes()

    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(LLPClassifier, "fit_bags", failing)
    assert CliRunner().invoke(app, fit).exception is error
    assert checkpoint.read_bytes() == before
