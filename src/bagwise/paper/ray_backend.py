"""Runs on a Ray cluster: those of a sweep, a core each, or one by several workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bagwise.extras import require
from bagwise.paper.run import RESULT, RunResult, execute, read_result, write_result
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep import Backend, Outcome
from bagwise.ray_cluster import cluster, do_all, n_cores
from bagwise.training.ray_training import train_on_ray


def ray_backend(
    address: str | None = None, processes: int | None = None, device: str = "cpu"
) -> Backend:
    """Runs as Ray tasks of one core each, and of one GPU where the device is one.

    A worker that dies is replaced and its run done again.

    Results come back to this process, which writes them: the nodes need no common disk, only
    Bagwise and the data sets ($BAGWISE_DATA, the cache, or the same data folder).

    Args:
        address: HOST:PORT of a cluster; None starts Ray on this machine.
        processes: cores to use on this machine; all of them if not given.
    """
    require("ray", "ray")

    def outcomes(
        runs: list[RunSettings],
        folder: Path,
        data_dir: str | None,
        show_running: Callable[[int], None],
    ) -> Iterator[Outcome]:
        if not runs:
            return
        tasks = {run: (run, data_dir, device) for run in runs}
        with cluster(address, processes):
            left = len(runs)
            show_running(min(n_cores(), left))
            gpus = int(device.startswith("cuda"))
            for run, result, error in do_all(run_remotely, tasks, gpus=gpus):
                if error is None:
                    write_result(folder / run.name / RESULT, result)
                left -= 1
                show_running(min(n_cores(), left))
                yield run, error

    return outcomes


def run_remotely(run: RunSettings, data_dir: str | None, device: str) -> RunResult:
    """One run, in a Ray worker."""
    return execute(run, None, data_dir, device=device)


def execute_on_ray(
    settings: RunSettings,
    folder: Path,
    data_dir: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    device: str = "cpu",
) -> RunResult:
    """Do a run by several workers, see `train_on_ray`, or read its result where it is done."""
    if not (folder / RESULT).exists():
        folder = folder.absolute()
        place = None if data_dir is None else str(Path(data_dir).absolute())
        work = partial(execute, settings, folder, place, keep_model=True)
        train_on_ray(work, folder, workers, settings.method, settings.epochs, address, device)
    return read_result(folder / RESULT)
