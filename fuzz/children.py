"""Command lines in child processes that are forked from this one, which has imported everything."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import matplotlib.pyplot  # noqa: F401  # this and what follows once, for all children
import ray
import torch
import torch._dynamo
from crash_commands import CLUSTER, MODELS, RUNS, Command, write_inputs
from file_shim import Act, Shim

import bagwise.cli.fit_command
import bagwise.cli.terminal
import bagwise.paper.figures
import bagwise.paper.ray_backend
import bagwise.paper.sweep_page
import bagwise.reports.model_page
import bagwise.tables.use.estimate
import bagwise.tables.use.importance  # noqa: F401
from bagwise import Bags, cc_loss
from bagwise.cli import app

_SECONDS = 300  # more is taken for blocked
Tree = dict[str, str]
"""Digests of all files below a folder, by path; folders have none."""


@dataclass(frozen=True)
class Outcome:
    """How a child ended.

    Attributes:
        code: its exit code; negative for a signal, None where it was blocked.
        operations: that it has done.
    """

    code: int | None
    output: str
    errors: str
    operations: int


@dataclass(frozen=True)
class Child:
    """A running one."""

    pid: int
    home: Path
    name: str
    shim: Shim

    def wait(self) -> Outcome:
        """Its end."""
        end = time.monotonic() + _SECONDS
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code: int | None = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > end:
                os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                code = None
                break
            time.sleep(0.002)
        texts = ((self.home / f"{self.name}.{kind}").read_text() for kind in ("out", "err"))
        return Outcome(code, *texts, self.shim.count)


class Sandbox:
    """Folders for a command to work in, which are made anew for each trial.

    Args:
        home: a new folder; within, `place` has the folder in which commands run, that of temporary
            files and the user's cache.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.place, self._made = home, home / "place", home / "made"
        self.cluster = ""
        torch.set_num_threads(1)
        cc_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))  # loads its kernels
        for name in ("work", "tmp", "cache"):
            (self._made / name).mkdir(parents=True)
        write_inputs(self._made / "work")
        self.reset()
        for arguments in (*MODELS, *RUNS):
            self.must(Command("", arguments))
        shutil.rmtree(self._made)
        shutil.copytree(self.place, self._made)

    def move(self, home: Path) -> None:
        """Go to another folder."""
        shutil.copytree(self._made, home / "made")
        self.home, self.place, self._made = home, home / "place", home / "made"

    def warm(self, command: Command) -> None:
        """Run a command in this process, so that children find loaded what it needs."""
        self.reset()
        with (
            contextlib.chdir(self.place / "work"),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            app([*command.arguments, "--quiet"])

    def must(self, command: Command, act: Act = lambda _: None) -> Outcome:
        """Run a command, which must work."""
        done = self.start(command, act).wait()
        if done.code != 0:
            raise RuntimeError(f"{command}: {done}")
        return done

    def reset(self, command: Command | None = None) -> None:
        """What is there before a command, and nothing else."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self._made, self.place)
        if command is not None and command.before:
            self.must(Command("", command.before))

    def restore(self, kept: Path) -> None:
        """The folders as they were copied to `kept`."""
        shutil.rmtree(self.place)
        shutil.copytree(kept, self.place)

    def start(
        self,
        command: Command,
        act: Act = lambda _: None,
        name: str = "child",
        before: Callable[[], object] = lambda: None,
    ) -> Child:
        """Begin a command in a child process, where `before` is called first."""
        shim = Shim(str(self.place), act)
        pid = os.fork()
        if pid:
            return Child(pid, self.home, name, shim)
        try:
            before()
            self._run(command, shim, name)
        finally:
            os._exit(99)

    def _run(self, command: Command, shim: Shim, name: str) -> None:
        os.setsid()
        os.chdir(self.place / "work")
        tempfile.tempdir = str(self.place / "tmp")
        os.environ["TMPDIR"] = str(self.place / "tmp")
        os.environ["XDG_CACHE_HOME"] = str(self.place / "cache")
        stdin = os.open(command.stdin or os.devnull, os.O_RDONLY)
        os.dup2(stdin, 0)
        for number, kind in ((1, "out"), (2, "err")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(self.home / f"{name}.{kind}", flags, 0o666), number)
        sys.stdin = open(0)  # noqa: SIM115
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
        # Recorded times would differ; the processes of a sweep would not have this one's shim.
        time.perf_counter = lambda: 0.0
        own = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda _=None: own  # type: ignore[assignment]
        arguments = [self.cluster if x == CLUSTER else x for x in command.arguments]
        sys.argv = ["bagwise", *arguments]
        shim.install()
        code = 1
        try:
            app(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def start_cluster(self) -> None:
        """Start Ray in a process of its own, which ends with this one."""
        address, parent = self.home / "address", os.getpid()
        if not os.fork():
            ray.init(address="local", num_cpus=3, include_dashboard=False, logging_level="error")
            address.with_suffix(".new").write_text(ray.get_runtime_context().gcs_address)
            address.with_suffix(".new").replace(address)
            while os.getppid() == parent:
                time.sleep(1)
            ray.shutdown()
            os._exit(0)
        while not address.exists():
            time.sleep(1)
        self.cluster = address.read_text()

    def tree(self) -> Tree:
        """What is there, in the folder of temporary files, too, hidden files included."""
        return {
            str(path.relative_to(self.place)): (
                "" if path.is_dir() else blake2b(path.read_bytes(), digest_size=8).hexdigest()
            )
            for path in sorted(self.place.rglob("*"))
        }
