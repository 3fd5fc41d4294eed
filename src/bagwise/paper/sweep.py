"""Doing the runs of a sweep: on this machine's cores, or on a Ray cluster."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

from bagwise.paper.run import RESULT, RunResult, execute, read_result, write_result
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep_file import Sweep
from bagwise.progress import Bar
from bagwise.ray_cluster import ATTEMPTS
from bagwise.storage.files import write_atomically
from bagwise.storage.locks import only_one
from bagwise.training.best import best_score
from bagwise.training.run_state import CHECKPOINT
from bagwise.training.workers import DiedError, Workers

ERROR = "error.txt"

Outcome = tuple[RunSettings, str | None]
"""A run and what went wrong with it, if anything did."""

Backend = Callable[[list[RunSettings], Path, str | None, Callable[[int], None]], Iterator[Outcome]]
"""Does runs in a folder, with data from another, and says how many are running at the moment."""


@dataclass
class SweepReport:
    """What became of a sweep's runs."""

    done: list[RunSettings] = field(default_factory=list)
    failed: dict[RunSettings, str] = field(default_factory=dict)


def run_sweep(
    sweep: Sweep,
    folder: Path,
    data_dir: str | None = None,
    backend: Backend | None = None,
    progress: bool = True,
) -> SweepReport:
    """Do all runs of a sweep that are not done yet.

    Each run has a folder of its own, named after its settings: a sweep that was killed goes on
    where it was, run by run and, within a run, epoch by epoch. A run that fails is reported, and
    tried again by the next call.
    """
    backend = backend or local_backend(processes=os.cpu_count() or 1)
    folder.mkdir(parents=True, exist_ok=True)
    report = SweepReport()
    with SweepDisplay(progress) as display:
        rates = sweep.rates()
        stages = () if sweep.pilot is None else sweep.pilot.stages
        for stage, epochs in enumerate(stages):
            pilots = sweep.pilot_runs(stage, rates)
            name = f"pilot, {epochs} epochs" if len(stages) > 1 else "pilot"
            _stage(name, pilots, folder, data_dir, backend, report, display)
            done = [run for run in pilots if _done(folder, run)]
            scores = {
                run: best_score(read_result(folder / run.name / RESULT).history, sweep.select)
                for run in done
            }
            rates = sweep.surviving_rates(stage, rates, scores)
        _stage("runs", sweep.full_runs(rates), folder, data_dir, backend, report, display)
    return report


def take_over(sweep: Sweep, results: Iterable[RunResult], folder: Path) -> int:
    """Put those of the results that the sweep needs into its folder; returns how many were new."""
    wanted = sweep.possible_runs()
    taken = 0
    for result in results:
        if result.settings in wanted and not _done(folder, result.settings):
            write_result(folder / result.settings.name / RESULT, result)
            taken += 1
    return taken


def _stage(
    name: str,
    runs: list[RunSettings],
    folder: Path,
    data_dir: str | None,
    backend: Backend,
    report: SweepReport,
    display: SweepDisplay,
) -> None:
    if not runs:
        return
    waiting = [run for run in runs if not _done(folder, run)]
    done = [run for run in runs if run not in waiting]
    for run in done:  # of a sweep that was killed, or refused, beside the one that did it
        for left in (CHECKPOINT, ERROR):
            (folder / run.name / left).unlink(missing_ok=True)
    report.done += done
    display.stage(name, total=len(runs), done=len(done))
    for run, error in backend(waiting, folder, data_dir, display.running):
        if error is None:
            report.done.append(run)
            (folder / run.name / ERROR).unlink(missing_ok=True)  # of an earlier sweep
        else:
            report.failed[run] = error
            write_atomically(folder / run.name / ERROR, error.encode())
        display.finished(run, error)


def _done(folder: Path, run: RunSettings) -> bool:
    return (folder / run.name / RESULT).exists()


def local_backend(processes: int, device: str = "cpu") -> Backend:
    """Runs in so many processes on this machine, each with one thread, which share the device."""

    def outcomes(
        runs: list[RunSettings],
        folder: Path,
        data_dir: str | None,
        show_running: Callable[[int], None],
    ) -> Iterator[Outcome]:
        deaths: Counter[RunSettings] = Counter()
        waiting = deque(runs)
        with Workers[RunSettings](processes) as workers:
            while waiting or workers.busy:
                while waiting and workers.submit(
                    run := waiting[0], _do, run, folder / run.name, data_dir, device
                ):
                    waiting.popleft()
                show_running(workers.busy)
                try:
                    outcome = workers.next()
                except DiedError as death:
                    run = death.args[0]
                    deaths[run] += 1
                    if deaths[run] < ATTEMPTS:
                        waiting.append(run)  # last: what it lacked may be there by then
                        continue
                    outcome = run, f"its process died {ATTEMPTS} times; out of memory?"
                show_running(workers.busy)
                yield outcome

    return outcomes


def _do(run: RunSettings, folder: Path, data_dir: str | None, device: str) -> None:
    with only_one(folder, "another sweep is doing this run; wait for it, then start again."):
        execute(run, folder, data_dir, device=device)


class SweepDisplay(Bar):
    """Runs done, running and failed, the time left; failures also off a terminal."""

    def __init__(self, show: bool = True) -> None:
        super().__init__(
            MofNCompleteColumn(),
            TextColumn("{task.fields[running]} running, {task.fields[failed]} failed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            TextColumn("{task.fields[last]}"),
            show=show,
            transient=False,
        )
        self._show = show
        self._failed = 0

    def stage(self, name: str, total: int, done: int) -> None:
        """A stage of so many runs begins, some of them done before."""
        self._failed = 0
        self._task = self._bar.add_task(
            name, total=total, completed=done, running=0, failed=0, last=""
        )

    def running(self, count: int) -> None:
        """So many runs are being worked on."""
        self._bar.update(self._task, running=count)

    def finished(self, run: RunSettings, error: str | None) -> None:
        """A run has ended, well or with an error."""
        self._failed += error is not None
        if error is not None and self._show:
            self._console.print(f"failed {run.name}: {error}", markup=False, highlight=False)
        self._bar.update(self._task, advance=1, failed=self._failed, last=run.name)
