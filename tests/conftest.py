from __future__ import annotations

import multiprocessing.process
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

import bagwise
import fitted

# `make test` tries the same examples every time; `make fuzz` tries many new ones.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.register_profile("fuzz", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("BAGWISE_PROFILE", "repeatable"))


def pytest_configure(config: pytest.Config) -> None:
    """Drop compiled kernels that are older than a source file they may have been compiled from.

    numba looks only at the file of a kernel itself, not at the files of the helpers it calls.
    """
    if hasattr(config, "workerinput"):
        # pytest-xdist's workers share the cores; more threads than cores wait for each other.
        torch.set_num_threads(1)
        return
    package = Path(bagwise.__file__).parent
    newest = max(source.stat().st_mtime for source in package.rglob("*.py"))
    for compiled in package.rglob("*.nb[ic]"):
        if compiled.stat().st_mtime < newest:
            compiled.unlink()


_in_quick_test = False
_start = multiprocessing.process.BaseProcess.start


def _is_question(program: Any, command: Any, *_: Any) -> bool:
    """Whether a library asks what machine this is: cores, C library, fonts, GPUs (Ray)."""
    ray_asks = "cat /sys/module/amdgpu/initstate |grep live"
    asks = program in ("lscpu", "uname", "/sbin/ldconfig", "fc-list")
    return asks or list(command) == ["/bin/sh", "-c", ray_asks]


def _watch(event: str, arguments: tuple[Any, ...] = ()) -> None:
    """Fail a quick test that starts a process; libraries may ask what machine this is."""
    if _in_quick_test and event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "start"):
        if arguments and _is_question(*arguments):
            return
        pytest.fail("the test starts a process; mark it with @pytest.mark.slow")


def _watched_start(self: Any) -> None:
    _watch("start")  # multiprocessing has no audit event of its own
    _start(self)


sys.addaudithook(_watch)
multiprocessing.process.BaseProcess.start = _watched_start  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch quick tests: they stay in one process, so that `make test` takes minutes."""
    global _in_quick_test
    _in_quick_test = item.get_closest_marker("slow") is None
    try:
        return (yield)
    finally:
        _in_quick_test = False


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """This process and those it starts hear Ctrl-C, which shells have background jobs ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


Shared = Callable[[Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Makes a folder by a function of `fitted`, once for all tests; they only read there."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def folder(make: Callable[[Path], None]) -> Path:
        place, done = root / make.__name__, root / f"{make.__name__}.done"
        with FileLock(root / f"{make.__name__}.lock"):
            if not done.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                make(place)
                done.touch()
        return place

    return folder


@pytest.fixture(scope="session")
def patients(shared: Shared) -> Path:
    return shared(fitted.patients)


@pytest.fixture(scope="session")
def precincts(shared: Shared) -> Path:
    return shared(fitted.precincts)


@pytest.fixture(scope="session")
def wards(shared: Shared) -> Path:
    return shared(fitted.wards)


@pytest.fixture(scope="session")
def schools(shared: Shared) -> Path:
    return shared(fitted.schools)
