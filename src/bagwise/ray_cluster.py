"""Ray, on this machine or on a cluster, for as long as a command needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bagwise.errors import InputError
from bagwise.extras import require
from bagwise.registry import PLUGINS, load_plugins

ATTEMPTS = 3  # of work whose process dies

K = TypeVar("K")


@contextmanager
def cluster(address: str | None = None, cores: int | None = None) -> Iterator[int]:
    """Within, Ray is there, and its processes know the plugins of this one.

    Yields:
        how many cores it has.

    Args:
        address: HOST:PORT of a cluster; None starts Ray on this machine, and ends it after.
        cores: to use on this machine; all of them if not given.
    """
    require("ray", "ray")
    import ray

    settings: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if address is None:
        # One of its own, whether or not another Ray runs on this machine.
        settings |= {"address": "local", "include_dashboard": False}
        settings["num_cpus"] = cores or os.cpu_count()
    else:
        settings["address"] = address
    settings["runtime_env"] = _plugins()
    try:
        ray.init(**settings)
    except ConnectionError as error:
        raise InputError(f"there is no Ray cluster at {address}: {error}") from error
    except Exception as error:  # of a node that does not start, Ray raises no class of its own
        if address is not None and isinstance(error, ValueError):
            raise InputError(
                f"the address of Ray is {address}; HOST:PORT is expected ({error})."
            ) from error
        reason = " ".join(str(error).split()) or type(error).__name__
        todo = "look at the logs in /tmp/ray, or do without Ray"
        raise InputError(f"Ray cannot be started here: {reason} ({todo}).") from error
    try:
        yield n_cores()
    finally:
        ray.shutdown()


def n_cores(kind: str = "CPU") -> int:
    """Cores, or GPUs, of the cluster at this moment."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get(kind, 0))


def _plugins() -> dict[str, Any]:
    """Sends plugins that lie in the current folder to all processes of Ray, which load them."""
    load_plugins()
    names = [name for name in os.environ.get(PLUGINS, "").split(",") if name]
    modules = (sys.modules[name.partition(".")[0]] for name in dict.fromkeys(names))
    sent = []
    for module in modules:
        file = Path(module.__file__ or "/")
        if file.is_relative_to(Path.cwd()) and "site-packages" not in file.parts:
            sent.append(module)  # the user's own; others are installed on every machine
    return {"py_modules": sent, "env_vars": {PLUGINS: ",".join(names)}} if names else {}


def do_all(
    function: Callable[..., Any],
    tasks: Mapping[K, tuple[Any, ...]],
    *shared: Any,
    gpus: int = 0,
    at_once: int | None = None,
) -> Iterator[tuple[K, Any, str | None]]:
    """Calls of a function, each with a core and a thread of its own, in any order.

    A process that dies is replaced, and its call made again.

    Args:
        function: called with `shared` and the arguments of a task.
        tasks: arguments of each call.
        *shared: arguments of all, sent to each machine once.
        at_once: calls at most; as many as there are cores if not given.

    Yields:
        a task, what its call returned, and what went wrong, if anything did.
    """
    import ray

    do = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS - 1)(_with_one_thread)
    do = do.options(name=function.__name__)
    sent = [ray.put(value) for value in shared]
    left = list(tasks)
    waiting: dict[Any, K] = {}
    while left or waiting:
        while left and (at_once is None or len(waiting) < at_once):
            task = left.pop(0)
            waiting[do.remote(function, *sent, *tasks[task])] = task
        (finished, *_), _ = ray.wait(list(waiting), num_returns=1)
        task = waiting.pop(finished)
        try:
            yield task, ray.get(finished), None
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            yield task, None, f"{type(cause).__name__}: {cause}"
        except ray.exceptions.WorkerCrashedError:
            yield task, None, f"its process died {ATTEMPTS} times; out of memory?"
        except ray.exceptions.RayError as error:
            yield task, None, f"{type(error).__name__}: {error}"


def _with_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    if (torch := sys.modules.get("torch")) is not None:  # the function's module has imported it
        torch.set_num_threads(1)
    return function(*arguments)
