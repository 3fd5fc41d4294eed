"""Functions through which Python programs write files, with a moment before each operation.

Within a child process, `install` replaces them by ones that count operations on what lies below a
folder, and at the n-th one kill the process, fail, or wait. Files that pyarrow would open itself
are opened here, so that their writes count, too.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

MAKING = ("create", "mkdir")  # need a place on the disk, as writing does
REMOVING = ("unlink", "rmdir")
NAMING = (*MAKING, *REMOVING, "rename", "exchange")  # need permission in the folder
ALL = (*NAMING, "write", "fsync", "truncate", "allocate")
FAULTS = {
    "ENOSPC": ("write", "truncate", "allocate", "fsync", *MAKING),
    "EIO": tuple(kind for kind in ALL if kind != "exchange"),
    "EACCES": NAMING,
    "short write": ("write",),
}
"""Which operations fail in which way."""

Act = Callable[["Operation"], int | None]
"""What happens at an operation: nothing, an OSError, or for a write, how many bytes are written."""


@dataclass(frozen=True)
class Operation:
    """One of them.

    Attributes:
        number: from 1 on, in all processes of the command.
        size: bytes to be written.
    """

    number: int
    kind: str
    path: str
    size: int = 0


class Shim:
    """Counts operations below a folder, also in processes that are forked later.

    Args:
        folder: what lies outside of it does not count.
        act: called before each operation.
    """

    def __init__(self, folder: str, act: Act) -> None:
        self.folder, self._act = os.path.join(os.path.realpath(folder), ""), act
        self._count = mmap.mmap(-1, 8)

    @property
    def count(self) -> int:
        """Operations so far."""
        found: int = struct.unpack("q", self._count[:8])[0]
        return found

    def before(self, kind: str, path: str, size: int = 0) -> int | None:
        """What `act` says of an operation; None for what lies elsewhere."""
        if not path.startswith(self.folder):
            return None
        self._count[:8] = struct.pack("q", self.count + 1)
        return self._act(Operation(self.count, kind, path, size))

    def install(self) -> None:
        """Replace the functions; there is no way back."""
        for name, kind in {
            "mkdir": "mkdir",
            "rmdir": "rmdir",
            "unlink": "unlink",
            "remove": "unlink",
            "rename": "rename",
            "replace": "rename",
            "fsync": "fsync",
            "posix_fallocate": "allocate",
        }.items():
            setattr(os, name, self._watched(getattr(os, name), kind))
        os.open = self._os_open(os.open)  # type: ignore[assignment]
        self._real = io.open
        io.open = builtins.open = self._open  # type: ignore[assignment]
        self._install_arrow()
        self._install_exchange()

    def _watched(self, real: Callable[..., Any], kind: str) -> Callable[..., Any]:
        @wraps(real)
        def function(path: Any, *more: Any, **named: Any) -> Any:
            place = _path_of(path, named.get("dir_fd"))
            changes = os.path.lexists(place) != (kind == "mkdir")
            if changes or kind in ("fsync", "allocate"):
                self.before(kind, place)
            return real(path, *more, **named)

        return function

    def _os_open(self, real: Callable[..., int]) -> Callable[..., int]:
        def function(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
            place = _path_of(path, dir_fd)
            if flags & os.O_CREAT and not os.path.lexists(place):
                self.before("create", place)
            return real(path, flags, mode, dir_fd=dir_fd)

        return function

    def _open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        place = "" if isinstance(file, int) else _path_of(file)
        if not set(mode) & set("wxa+") or not place.startswith(self.folder):
            return self._real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if not os.path.exists(place):
            self.before("create", place)
        elif "w" in mode and os.path.getsize(place):
            self.before("truncate", place)
        raw = _File(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        raw.shim, raw.place = self, place
        if buffering == 0:
            return raw
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def _install_arrow(self) -> None:
        import pyarrow.csv
        import pyarrow.parquet

        def opening(writer: Any) -> Any:
            class Writer(writer):  # type: ignore[misc]
                def __init__(self, where: Any, *given: Any, **named: Any) -> None:
                    own = isinstance(where, str | Path)
                    self.opened = open(where, "wb") if own else None  # noqa: SIM115
                    super().__init__(self.opened or where, *given, **named)

                def close(self) -> None:
                    super().close()
                    if self.opened is not None:
                        self.opened.close()

                def __enter__(self) -> Any:
                    return self

                def __exit__(self, *_: object) -> None:
                    self.close()

            return Writer

        pyarrow.parquet.ParquetWriter = opening(pyarrow.parquet.ParquetWriter)
        pyarrow.csv.CSVWriter = opening(pyarrow.csv.CSVWriter)

    def _install_exchange(self) -> None:
        from bagwise.storage import model_folder

        real = model_folder._exchange

        def exchange(one: Path, other: Path) -> bool:
            try:
                self.before("exchange", str(one))
            except OSError:
                return False  # as the function says it
            return real(one, other)

        model_folder._exchange = exchange


class _File(io.FileIO):
    shim: Shim
    place: str

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        some = self.shim.before("write", self.place, len(view))
        return super().write(view if some is None else view[:some])

    def truncate(self, size: int | None = None) -> int:
        self.shim.before("truncate", self.place)
        return super().truncate(size)


def _path_of(path: Any, folder: int | None = None) -> str:
    """The absolute path of a name, or of an open file."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    path = os.fsdecode(path)
    if folder is not None:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    parent, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(parent), name)  # rename and unlink do not follow links


def killing(number: int, torn: bool = False) -> Act:
    """An act that ends all processes of the group at an operation; torn: after half a write."""

    def act(operation: Operation) -> int | None:
        if torn and operation.number == number:
            return max(operation.size // 2, 1)
        if operation.number == number + torn:
            os.killpg(0, signal.SIGKILL)
        return None

    return act


def killing_worker(number: int) -> Act:
    """An act that ends the process which comes to an operation, unless it is the command's own."""

    def act(operation: Operation) -> int | None:
        if operation.number == number and os.getpid() != os.getpgrp():
            os.kill(os.getpid(), signal.SIGKILL)
        return None

    return act


def failing(number: int, fault: str) -> Act:
    """An act that fails at an operation.

    A full disk stays full, and a folder stays closed; EIO comes once. A full disk takes half of a
    write first.
    """
    begun: list[Operation] = []

    def act(operation: Operation) -> int | None:
        if operation.number < number:
            return None
        first = operation.number == number
        if first:
            begun.append(operation)
        if fault == "short write":
            return max(operation.size // 2, 1) if first else None
        if fault == "ENOSPC" and first and operation.kind == "write" and operation.size > 1:
            return operation.size // 2
        # In another process than where it began, nothing is known of the folder.
        closed = bool(begun) and os.path.dirname(begun[0].path) == os.path.dirname(operation.path)
        lasts = fault == "ENOSPC" or (fault == "EACCES" and closed)
        if first or (lasts and operation.kind in FAULTS[fault]):
            code = getattr(errno, fault)
            named = () if operation.kind in ("write", "fsync", "allocate") else (operation.path,)
            raise OSError(code, os.strerror(code), *named)
        return None

    return act
