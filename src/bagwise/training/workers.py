"""Processes that do one task at a time, so that the death of one is known to be its own task's."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

import torch

K = TypeVar("K")


class DiedError(Exception):
    """The process of a task ended before the task did."""


@dataclass
class _Worker(Generic[K]):
    process: BaseProcess
    connection: Connection
    task: K | None = None


class Workers(Generic[K]):
    """Up to so many processes, each with one thread; all are gone when the block ends.

    A worker also ends by itself when this process does, however that happens, and leaves Ctrl-C to
    it. One that dies is replaced when there is something to do; the others notice nothing.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._workers: list[_Worker[K]] = []

    def __enter__(self) -> Workers[K]:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()

    @property
    def busy(self) -> int:
        """How many have a task."""
        return sum(worker.task is not None for worker in self._workers)

    def submit(self, task: K, function: Callable[..., None], *arguments: Any) -> bool:
        """Give a free worker a task; False if none is free."""
        idle = [worker for worker in self._workers if worker.task is None]
        if not idle and len(self._workers) == self._processes:
            return False
        worker = idle[0] if idle else self._start()
        worker.task = task
        with suppress(BrokenPipeError):  # it has died: `next` will find out
            worker.connection.send((function, arguments))
        return True

    def next(self) -> tuple[K, str | None]:
        """Wait for a task to end: the task, and what went wrong with it, if anything did.

        Raises:
            DiedError: a worker is dead; the error's first argument is its task.
        """
        at_work = {worker.connection: worker for worker in self._workers if worker.task is not None}
        worker = at_work[wait(list(at_work))[0]]  # type: ignore[index]  # only connections
        task, worker.task = worker.task, None
        try:
            error: str | None = worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.process.join()
            worker.connection.close()
            raise DiedError(task) from None
        assert task is not None
        return task, error

    def _start(self) -> _Worker[K]:
        context = multiprocessing.get_context("spawn")
        own, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        with _no_interrupts():
            process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        worker = _Worker[K](process, own)
        self._workers.append(worker)
        return worker


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes started within ignore Ctrl-C, also while they are still importing."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change that, and only it is interrupted
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: Connection) -> None:
    """Do tasks until there are no more, or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        error = None
        try:
            function(*arguments)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        connection.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
