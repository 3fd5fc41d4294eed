"""Sweeps whose processes are killed: who is blamed, who goes on, who is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import bagwise.training.loop
from bagwise.paper.run import execute
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep import ATTEMPTS, local_backend, run_sweep
from bagwise.paper.sweep_file import read_sweep

pytestmark = pytest.mark.slow

RUN = RunSettings("digits", "linear", "cc", 8, 1e-2, 1, 0)
PATIENCE = 240  # seconds after which a test has failed; nothing waits for that long
SWEEP = """
datasets = ["digits"]
models = ["linear"]
methods = ["cc"]
bag_sizes = [8]
seeds = [0, 1]
lrs = [1e-2]
epochs = 1
"""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _seed_one_always_dies(
    run: RunSettings, folder: Path, data_dir: str | None, device: str
) -> None:
    """The run beside it begins before it dies, and ends after it has died for the last time."""
    starts = folder.parent / "starts"
    starts.mkdir(exist_ok=True)
    (starts / f"{run.seed}-{os.getpid()}").touch()
    if run.seed == 1:
        wait_for(lambda: bool(list(starts.glob("0-*"))))
        os.kill(os.getpid(), signal.SIGKILL)
    if run.seed == 0:
        wait_for(lambda: len(list(starts.glob("1-*"))) == ATTEMPTS)


def test_only_the_run_whose_own_process_dies_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.paper.sweep._do", _seed_one_always_dies)
    runs = [replace(RUN, seed=seed) for seed in range(3)]
    outcomes = dict(local_backend(2)(runs, tmp_path, None, lambda _: None))
    assert outcomes.pop(runs[1]) == "its process died 3 times; out of memory?"
    assert outcomes == {runs[0]: None, runs[2]: None}
    starts = [path.name.split("-")[0] for path in (tmp_path / "starts").iterdir()]
    assert sorted(starts) == ["0", "1", "1", "1", "2"]  # who is beside is not begun again


def _fails(run: RunSettings, folder: Path, data_dir: str | None, device: str) -> None:
    raise RuntimeError("no luck")


def test_an_error_of_a_run_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.paper.sweep._do", _fails)
    outcomes = dict(local_backend(1)([RUN], tmp_path, None, lambda _: None))
    assert outcomes == {RUN: "RuntimeError: no luck"}


def test_the_note_of_an_earlier_failure_is_gone_when_the_run_is_done(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP.replace("[0, 1]", "[0]"))
    folder = tmp_path / "runs" / read_sweep(path).runs[0].name
    folder.mkdir(parents=True)
    (folder / "error.txt").write_text("out of luck")
    report = run_sweep(read_sweep(path), tmp_path / "runs", progress=False)
    assert len(report.done) == 1
    assert [file.name for file in folder.iterdir()] == ["result.json"]


def _waits(run: RunSettings, folder: Path, data_dir: str | None, device: str) -> None:
    """A run without end, which says who does it."""
    (folder.parent / f"pid-{os.getpid()}").touch()
    while True:
        time.sleep(1)


START = """
import sys
sys.path.insert(0, {tests!r})
import test_sweep_processes
from bagwise.cli import app
from bagwise.paper import sweep
if __name__ == "__main__":
    sweep._do = test_sweep_processes._waits
    app(["sweep", {file!r}, "--out", {out!r}, "--processes", "2"])
"""


def begun(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A sweep in a process of its own, and its two workers, both at work."""
    (folder / "sweep.toml").write_text(SWEEP)
    out = folder / "runs"
    code = START.format(
        tests=str(Path(__file__).parent), file=str(folder / "sweep.toml"), out=str(out)
    )
    script = folder / "start.py"
    script.write_text(code)
    process = subprocess.Popen(
        [sys.executable, str(script)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(lambda: len(list(out.glob("pid-*"))) == 2)
    return process, [int(path.name.removeprefix("pid-")) for path in out.glob("pid-*")]


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    try:  # an orphan that nobody has waited for yet
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_workers_end_when_the_sweep_is_killed(tmp_path: Path) -> None:
    process, workers = begun(tmp_path)
    process.kill()
    process.communicate()
    wait_for(lambda: all(is_gone(worker) for worker in workers))


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_ends_the_workers_and_is_one_line(tmp_path: Path) -> None:
    process, workers = begun(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, errors = process.communicate(timeout=PATIENCE)
    assert errors == "Stopped. What is done is kept; rerun the command to resume.\n"
    assert process.returncode == 130
    wait_for(lambda: all(is_gone(worker) for worker in workers))


def test_the_seconds_of_a_run_are_those_of_all_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(RUN, epochs=3)
    clock = iter(range(10_000))
    monkeypatch.setattr(bagwise.training.loop.time, "perf_counter", lambda: float(next(clock)))
    whole = execute(run, tmp_path / "whole")
    original = bagwise.training.loop.save_run

    def killed_after_two(folder: Path, state: object, identity: object) -> None:
        original(folder, state, identity)  # type: ignore[arg-type]
        if len(state.history) == 2:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    monkeypatch.setattr(bagwise.training.loop, "save_run", killed_after_two)
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path / "parts")
    monkeypatch.setattr(bagwise.training.loop, "save_run", original)
    parts = execute(run, tmp_path / "parts")
    assert parts.seconds == whole.seconds == sum(row["seconds"] for row in parts.history) > 0
