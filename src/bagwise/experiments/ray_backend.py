"""Runs of a sweep on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bagwise.experiments.run import RESULT, RunResult, execute, write_result
from bagwise.experiments.settings import RunSettings
from bagwise.experiments.sweep import ATTEMPTS, Backend, Outcome
from bagwise.extras import require
from bagwise.registry import PLUGINS, load_plugins


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
        device: where models compute.
    """
    require("ray", "ray")
    import ray

    def outcomes(
        runs: list[RunSettings],
        folder: Path,
        data_dir: str | None,
        show_running: Callable[[int], None],
    ) -> Iterator[Outcome]:
        if not runs:
            return
        settings: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
        if address is None:
            settings |= {"num_cpus": processes or os.cpu_count(), "include_dashboard": False}
        else:
            settings["address"] = address
        try:
            ray.init(**settings)
        except ConnectionError as error:
            raise ValueError(f"there is no Ray cluster at {address}: {error}") from error
        except RuntimeError as error:
            raise ValueError(f"Ray cannot be started here: {error}") from error
        try:
            gpus = int(device.startswith("cuda"))
            do = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS - 1)(run_remotely)
            plugins = os.environ.get(PLUGINS, "").split(",")
            waiting = {do.remote(run, data_dir, plugins, device): run for run in runs}
            while waiting:
                resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
                show_running(min(int(resources.get("CPU", 0)), len(waiting)))
                (finished, *_), _ = ray.wait(list(waiting), num_returns=1)
                run = waiting.pop(finished)
                try:
                    result = ray.get(finished)
                except ray.exceptions.RayTaskError as error:
                    cause = error.cause
                    yield run, f"{type(cause).__name__}: {cause}"
                except ray.exceptions.WorkerCrashedError:
                    yield run, f"its process died {ATTEMPTS} times; out of memory?"
                except ray.exceptions.RayError as error:
                    yield run, f"{type(error).__name__}: {error}"
                else:
                    write_result(folder / run.name / RESULT, result)
                    yield run, None
        finally:
            ray.shutdown()

    return outcomes


def run_remotely(
    run: RunSettings, data_dir: str | None, plugins: list[str], device: str
) -> RunResult:
    """One run, in a Ray worker, which has the plugins as well."""
    torch.set_num_threads(1)
    load_plugins(name for name in plugins if name)
    return execute(run, None, data_dir, device=device)
