"""Doing the runs of a sweep: on this machine's cores, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import torch

from bagwise.checkpoint import write_atomically
from bagwise.experiments.display import SweepDisplay
from bagwise.experiments.run import RESULT, execute, read_result
from bagwise.experiments.settings import RunSettings
from bagwise.experiments.sweep_file import Sweep

ERROR = "error.txt"
ATTEMPTS = 3  # of a run whose worker dies

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
        pilots = sweep.pilot_runs()
        _stage("pilot", pilots, folder, data_dir, backend, report, display)
        scores = {
            run: _score(folder / run.name, sweep.select) for run in pilots if _done(folder, run)
        }
        survivors = sweep.surviving_runs(scores)
        _stage("runs", survivors, folder, data_dir, backend, report, display)
    return report


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
    report.done += [run for run in runs if _done(folder, run)]
    display.stage(name, total=len(runs), done=len(runs) - len(waiting))
    for run, error in backend(waiting, folder, data_dir, display.running):
        if error is None:
            report.done.append(run)
        else:
            report.failed[run] = error
            write_atomically(folder / run.name / ERROR, error.encode())
        display.finished(run, error)


def _done(folder: Path, run: RunSettings) -> bool:
    return (folder / run.name / RESULT).exists()


def _score(folder: Path, select: str) -> float:
    row = read_result(folder / RESULT).best_row(select)
    return row[f"val_{select}"] * (1 if select == "accuracy" else -1)


def local_backend(processes: int) -> Backend:
    """Runs in so many processes on this machine, each with one thread."""

    def outcomes(
        runs: list[RunSettings],
        folder: Path,
        data_dir: str | None,
        show_running: Callable[[int], None],
    ) -> Iterator[Outcome]:
        attempts = dict.fromkeys(runs, 0)
        waiting = list(runs)
        while waiting:
            # A worker that dies takes the whole pool with it: begin a new one with what is left.
            context = multiprocessing.get_context("spawn")
            workers = min(processes, len(waiting))
            show_running(workers)
            with ProcessPoolExecutor(workers, context, initializer=_one_thread) as pool:
                running: dict[Future[None], RunSettings] = {}
                try:
                    for outcome in _work(pool, workers, waiting, running, folder, data_dir):
                        waiting.remove(outcome[0])
                        show_running(len(running))
                        yield outcome
                except BrokenProcessPool:
                    for run in running.values():
                        attempts[run] += 1
                        if attempts[run] >= ATTEMPTS:
                            waiting.remove(run)
                            yield run, f"its process died {ATTEMPTS} times; out of memory?"

    return outcomes


def _work(
    pool: ProcessPoolExecutor,
    workers: int,
    waiting: Iterable[RunSettings],
    running: dict[Future[None], RunSettings],
    folder: Path,
    data_dir: str | None,
) -> Iterator[Outcome]:
    """Keep the workers busy, one run each; `running` always holds what is in their hands."""
    queue = iter(list(waiting))
    for run in queue:
        running[pool.submit(_do, run, folder / run.name, data_dir)] = run
        if len(running) == workers:
            break
    while running:
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                raise error
            run = running.pop(future)
            following = next(queue, None)
            if following is not None:
                job = pool.submit(_do, following, folder / following.name, data_dir)
                running[job] = following
            yield run, None if error is None else f"{type(error).__name__}: {error}"


def _one_thread() -> None:
    torch.set_num_threads(1)


def _do(run: RunSettings, folder: Path, data_dir: str | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ERROR).unlink(missing_ok=True)
    execute(run, folder, data_dir)
