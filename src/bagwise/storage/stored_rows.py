"""Rows that lie in a file because they are more than memory holds, sorted by bag."""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.limits import LIMITS, Limits
from bagwise.storage.files import naming

STATE = "state-"  # names of files for what is kept of each row begin so
_STEP = 2  # the part of the budget that a training step may take
_NEAR = 1 << 16  # bytes of a bag above which reading ahead pays
_PIECE = 1 << 16  # rows that are made double at a time
_HELD = 0.25  # the part of the budget beyond which free memory is given back before a step


class StoredRows:
    """The rows of some bags of a file in which all bags lie one after the other.

    Only the rows that are asked for come into memory. What methods keep of each row lies in files
    beside them.

    Args:
        rows: (M, d) the rows of all bags, mapped from a file or in memory.
        begins: (B,) where in `rows` each bag begins.
        sizes: (B,) rows of each bag.
        budget: bytes of memory that may be used.
        folder: for files of what is kept of each row.
        digest: of the file's content.
        limits: sizes up to which something is in memory.

    Attributes:
        shape: (N, d), N the sum of sizes.

    >>> stored = StoredRows(np.arange(6.0).reshape(6, 1), np.array([0, 4]), np.array([4, 2]), 1)
    >>> stored.select(np.array([1])).take(np.array([1, 0]))
    array([[5.],
           [4.]])
    """

    def __init__(
        self,
        rows: npt.NDArray[Any],
        begins: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        budget: int,
        folder: Path | None = None,
        digest: str = "",
        limits: Limits = LIMITS,
    ) -> None:
        self._rows, self._begins, self._sizes = rows, begins, sizes
        self._ends = np.cumsum(sizes)
        self._shift = begins - (self._ends - sizes)
        self._moved = bool(self._shift.any())
        self.budget, self._folder, self._digest = budget, folder, digest
        self._limits = limits
        self._most = memory_in_use() + _HELD * budget
        self.shape: tuple[int, ...] = (int(self._ends[-1]), *rows.shape[1:])
        self.dtype = rows.dtype

    @classmethod
    def of_file(
        cls,
        path: Path,
        sizes: npt.NDArray[np.int64],
        width: int,
        budget: int,
        digest: str,
        limits: Limits = LIMITS,
    ) -> StoredRows:
        """All bags of a file of float32 numbers; what is kept of rows lies in its folder."""
        mapped = np.memmap(path, np.float32, "r", shape=(int(sizes.sum()), width))
        # Bags come in random order: what lies behind a small one is not what comes next.
        if width * 4 * sizes.mean() < _NEAR and hasattr(mmap, "MADV_RANDOM"):
            mapped._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
        begins = np.cumsum(sizes) - sizes
        return cls(np.asarray(mapped), begins, sizes, budget, path.parent, digest, limits)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        return self.take(np.arange(len(self))[rows].reshape(-1))

    @property
    def step_bytes(self) -> int:
        """Memory that a training step may take."""
        return self.budget // _STEP

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """(n, d) these rows, in their order."""
        if memory_in_use() > self._most:
            give_back()
        if self._moved:
            rows = rows + self._shift[np.searchsorted(self._ends, rows, side="right")]
        return np.take(self._rows, rows, axis=0)

    def double(self) -> npt.NDArray[np.float64]:
        """(N, d) all rows, in memory and in double precision."""
        found = np.empty(self.shape)
        for first in range(0, len(self), _PIECE):
            rows = np.arange(first, min(first + _PIECE, len(self)))
            found[rows] = self.take(rows)
        return found

    def select(self, index: npt.NDArray[np.int64]) -> StoredRows:
        """The rows of these bags; read at once if they take little memory."""
        begins, sizes = self._begins[index], self._sizes[index]
        same, limits = (self.budget, self._folder), self._limits
        found = StoredRows(self._rows, begins, sizes, *same, self._digest, limits)
        if math.prod(found.shape) * self.dtype.itemsize > self.budget // limits.selection_part:
            return found
        own = found.take(np.arange(len(found)))
        digest = found.fingerprint()
        return StoredRows(own, np.cumsum(sizes) - sizes, sizes, *same, digest, limits)

    def full(
        self, shape: tuple[int, ...], value: float, dtype: npt.DTypeLike = np.float32
    ) -> npt.NDArray[Any]:
        """An array filled with a value, in a file if it is large; the file has no name."""
        kind = np.dtype(dtype)
        if self._folder is None or math.prod(shape) * kind.itemsize <= self._limits.state_bytes:
            return np.full(shape, value, dtype=kind)
        handle, name = tempfile.mkstemp(prefix=STATE, dir=self._folder)
        # On a disk that is full, a mapped file without its blocks ends the process by SIGBUS.
        allocate = getattr(os, "posix_fallocate", lambda file, _, size: os.ftruncate(file, size))
        try:
            with naming(self._folder):
                allocate(handle, 0, math.prod(shape) * kind.itemsize)
        finally:
            os.close(handle)
        found = np.memmap(name, kind, "r+", shape=shape)
        with suppress(OSError):  # where a file in use cannot lose its name, the store removes it
            os.unlink(name)
        found.fill(value)
        return np.asarray(found)

    def fingerprint(self) -> str:
        """A digest of the file's content, as it was given, and of which bags of it these are."""
        digest = hashlib.blake2b(self._digest.encode(), digest_size=8)
        digest.update(self._begins.tobytes() + self._sizes.tobytes())
        return digest.hexdigest()


def memory_in_use() -> int:
    """Bytes of this process that no file backs, in use or kept for use; 0 where nobody knows."""
    try:
        with open("/proc/self/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * mmap.PAGESIZE


def give_back() -> None:
    """Let the system have what was freed: steps of many sizes leave holes in memory, which add up
    to several times what any of them takes.
    """
    with suppress(AttributeError, OSError, TypeError):  # only Linux with glibc has it
        ctypes.CDLL(None).malloc_trim(0)
