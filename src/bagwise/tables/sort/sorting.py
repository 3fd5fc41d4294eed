"""Sorting rows by bag where they are more than memory holds.

Bags are dealt to parts, in their order, each as large as memory allows. One pass over the rows
appends each row to the file of its part; then part after part is put into order and written to its
place. Rows of a bag keep their order: it is a stable sort.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import IntArray
from bagwise.bags.batching import batches_of
from bagwise.limits import LIMITS, Limits
from bagwise.progress import RowProgress
from bagwise.storage.files import naming, sync, write_to
from bagwise.tables.encode.columns import Inputs
from bagwise.tables.sort.store import Store

Batches = Iterator[tuple[IntArray, Callable[[], Inputs]]]
"""Of each batch of rows (n,) the bag of each, -1 for none, and what gives the rows (n, d)."""

_ROWS, _SORTED, _JOURNAL, _PARTS = "rows", "sorted", "sorting", "parts"


def are_sorted(store: Store, identity: Any, sizes: IntArray, width: int) -> bool:
    """Whether the file is there, for the same identity, and complete."""
    total = int(sizes.sum()) * width * 4
    return store.read(_SORTED, identity) is not None and _size(store.folder / _ROWS) == total


def sorted_rows(
    store: Store,
    identity: Any,
    batches: Callable[[], Batches],
    sizes: IntArray,
    width: int,
    part_bytes: int,
    n_rows: int,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> Path:
    """The file with all rows of the bags, float32, bag after bag.

    If it was made before for the same identity, it is there. If that was stopped, it goes on.

    Args:
        batches: gives all rows, the same each time.
        sizes: (B,) rows of each bag.
        part_bytes: that are put into order at a time; the rows of a larger bag are in order.
        n_rows: of all batches together, those of no bag included.
        limits: bytes that are moved at a time, and after which it is noted how far it has come.
    """
    path, total = store.folder / _ROWS, int(sizes.sum()) * width * 4
    if not are_sorted(store, identity, sizes, width):
        store.forget(_SORTED)
        work = _Sorting(store, identity, sizes, width, part_bytes, limits)
        store.require_room(work.room_needed(total))
        work.deal(batches, n_rows, progress)
        work.place(path, total, progress)
        store.write(_SORTED, identity, {"rows": int(sizes.sum()), "width": width})
    # Also what a call left that was killed just here.
    store.forget(_JOURNAL)
    shutil.rmtree(store.folder / _PARTS, ignore_errors=True)
    return path


class _Sorting:
    """A record of a part's file has a bag and the numbers of a row, four bytes each."""

    def __init__(
        self,
        store: Store,
        identity: Any,
        sizes: IntArray,
        width: int,
        part_bytes: int,
        limits: Limits,
    ) -> None:
        self.store, self.width, self.sizes, self.limits = store, width, sizes, limits
        self.folder = store.folder / _PARTS
        rows = max(part_bytes // ((width + 1) * 4), 1)
        dealt = list(batches_of(sizes, np.arange(len(sizes)), rows, 1, None))
        self.part_of_bag = np.repeat(np.arange(len(dealt)), [len(bags) for bags in dealt])
        self.n_bags = [len(bags) for bags in dealt]
        self.lengths = [int(sizes[bags].sum()) for bags in dealt]
        self._identity = [identity, part_bytes]
        # Rows read, records of each part by then, parts that are in their place.
        nothing = {"rows": 0, "records": [0] * len(dealt), "placed": 0}
        found = store.read(_JOURNAL, self._identity)
        if found is None or not self._is_there(found):
            found = None
            store.forget(_JOURNAL)
            shutil.rmtree(self.folder, ignore_errors=True)
            (store.folder / _ROWS).unlink(missing_ok=True)
        self.folder.mkdir(exist_ok=True)
        self.journal: dict[str, Any] = found or nothing

    def _is_there(self, journal: dict[str, Any]) -> bool:
        """Whether the files have all that was noted."""
        record = (self.width + 1) * 4
        return all(
            part < journal["placed"] or _size(self._file(part)) >= n * record
            for part, n in enumerate(journal["records"])
        ) and (not journal["placed"] or (self.store.folder / _ROWS).exists())

    def _file(self, part: int) -> Path:
        return self.folder / f"{part:06d}"

    def room_needed(self, total: int) -> int:
        """Bytes that files will take beyond those that are there."""
        record = (self.width + 1) * 4
        there = sum(_size(self._file(part)) for part in range(len(self.lengths)))
        there += sum(self.lengths[: self.journal["placed"]]) * self.width * 4
        largest = max(self.lengths) * record
        return max(total // self.width * (self.width + 1) + largest - there, 0)

    def deal(self, batches: Callable[[], Batches], n_rows: int, progress: bool) -> None:
        """Append each row to the file of its part."""
        if self.journal["rows"] == n_rows:
            return
        for part, n in enumerate(self.journal["records"]):
            self._cut(part, n)
        row, noted, touched = 0, 0, set()
        records = np.array(self.journal["records"])
        with RowProgress("sorting rows into parts", n_rows, progress) as bar:
            for bags, encode in batches():
                row += len(bags)
                bar.advance(len(bags))
                if row <= self.journal["rows"]:
                    continue
                touched |= self._append(bags, encode(), records)
                noted += len(bags) * (self.width + 1) * 4
                if noted >= self.limits.noted_bytes or row == n_rows:
                    for part in touched:
                        sync(self._file(part))
                    self._note(rows=row, records=records.tolist())
                    noted, touched = 0, set()

    def _append(self, bags: IntArray, rows: Inputs, records: IntArray) -> set[int]:
        """Append a batch; returns the parts that it has rows of."""
        there = np.flatnonzero(bags >= 0)
        if not len(there):
            return set()
        own = np.empty((len(there), self.width + 1), dtype=np.float32)
        part = self.part_of_bag[bags[there]]
        order = np.argsort(part, kind="stable")
        _bags_of(own)[:] = bags[there[order]]
        own[:, 1:] = rows[there[order]]
        found, begins = np.unique(part[order], return_index=True)
        for number, some in zip(found.tolist(), np.split(own, begins[1:]), strict=True):
            with self._file(number).open("ab", buffering=0) as file:
                write_to(file, some.data)
            records[number] += len(some)
        return set(found.tolist())

    def place(self, path: Path, total: int, progress: bool) -> None:
        """Put the rows of each part into order, and write them to their place."""
        if _size(path) != total:
            with naming(path), path.open("ab") as file:
                file.truncate(total)
        begins = np.concatenate([[0], np.cumsum(self.lengths)])
        with RowProgress("sorting parts", int(begins[-1]), progress) as bar:
            for part, n in enumerate(self.lengths):
                if part >= self.journal["placed"]:
                    self._place(part, path, int(begins[part]), n)
                    self._note(placed=part + 1)
                self._file(part).unlink(missing_ok=True)
                bar.advance(n)

    def _place(self, part: int, path: Path, begin: int, n: int) -> None:
        records = np.memmap(self._file(part), np.float32, "r", shape=(n, self.width + 1))
        order = None
        if self.n_bags[part] > 1:
            order = np.argsort(_bags_of(records), kind="stable")
        step = max(self.limits.moved_bytes // (self.width * 4), 1)
        # Written, not mapped: a full disk is an error then, and no end of the process by SIGBUS.
        with path.open("r+b", buffering=0) as file:
            file.seek(begin * self.width * 4)
            for start in range(0, n, step):
                some = slice(start, start + step)
                rows = records[some if order is None else order[some], 1:]
                write_to(file, np.ascontiguousarray(rows).data)
            with naming(path):
                os.fsync(file.fileno())

    def _cut(self, part: int, records: int) -> None:
        """Leave so many records of a part's file."""
        if (size := records * (self.width + 1) * 4) or self._file(part).exists():
            with naming(self._file(part)), self._file(part).open("r+b") as file:
                file.truncate(size)

    def _note(self, **changed: Any) -> None:
        self.journal |= changed
        self.store.write(_JOURNAL, self._identity, self.journal)


def _bags_of(records: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """(n,) the first numbers of records, which are the bags."""
    return records.view(np.int32)[:, 0]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
