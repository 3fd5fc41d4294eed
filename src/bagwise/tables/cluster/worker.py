"""What a worker of a cluster does: read a share of a table, and keep whole bags of it.

A worker reads some of the rows, wherever their bags are, and deals them to the workers that keep
these bags. Everything it does follows from its arguments, so that another one can do it again.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from threadpoolctl import threadpool_limits

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.in_pieces import LikelihoodInPieces
from bagwise.limits import Limits
from bagwise.progress import RowProgress
from bagwise.storage.files import write_to
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.assess.surprising import surprising_in_pieces
from bagwise.tables.cluster.folders import new_folder, remove_folders
from bagwise.tables.cluster.shares import MUCH, SharedSource, require_files
from bagwise.tables.encode.columns import Columns, Inputs
from bagwise.tables.encode.learn_columns import ColumnLearner
from bagwise.tables.match.bag_codes import bag_codes
from bagwise.tables.match.heavy_tails import log_gain
from bagwise.tables.model.fit_facts import SurprisingBag
from bagwise.tables.read.streaming import Look
from bagwise.tables.read.table_files import TableFile
from bagwise.tables.sort.encoded_bags import EncodedBags
from bagwise.tables.sort.sorted_table import (
    encoded_batches,
    learner_for,
    parts_of,
    rows_of_bags,
)
from bagwise.tables.sort.sorting import Batches, sorted_rows
from bagwise.tables.sort.store import Store
from bagwise.tables.sort.table_rows import Asked

Predict = Callable[[Inputs], FloatArray]
"""Log-probabilities (n, C) of encoded rows (n, d)."""

_IN_MEMORY = 4  # a shard that takes no more than one part in so many of its memory is in memory
_TWICE = 2  # while it is put into order
_ROWS = 1 << 16  # of records that are put into order, or predicted, at a time


class ShareOfRows(NamedTuple):
    """What a worker has read.

    Attributes:
        rows_of: (bags + 1,) rows of each bag, in the order in which they come; last, of none.
        learner: of the columns, which has seen these rows.
        notes: parts of warnings.
    """

    rows_of: IntArray
    learner: ColumnLearner
    notes: list[list[Any]]


class Worker:
    """The class of an actor of Ray. It has one thread.

    Args:
        home: the driver's current folder, from which files are named.
        place: the folder in which it makes one for its rows; None for that of temporary files.
        job: how the names of the folders of all workers begin.
    """

    def __init__(self, home: Path, place: Path | None, job: str) -> None:
        with suppress(OSError):  # a file that is not there is named when it is needed
            os.chdir(home)
        os.environ["OMP_NUM_THREADS"] = "1"
        threadpool_limits(1)
        pa.set_cpu_count(1)
        self._place, self._job = place, job
        self._likelihood: tuple[IntArray, IntArray, LikelihoodInPieces] | None = None

    @cached_property
    def _folder(self) -> Path:
        return new_folder(self._place, self._job)

    def ping(self) -> int:
        """Whether it is there: the number of its process."""
        return os.getpid()

    def close(self) -> None:
        """Remove its folder, and those that workers have left which died on this machine."""
        remove_folders(self._place, self._job)

    # --- reading

    def look(
        self, files: list[TableFile], as_text: list[str], limits: Limits
    ) -> dict[TableFile, Look]:
        """What the columns of CSV files hold."""
        require_files(files)
        return {file: SharedSource([file], as_text, MUCH, limits).look_of(file) for file in files}

    def read(self, share: SharedSource, asked: Asked) -> ShareOfRows:
        """Read a share for the first time: bags of rows, and what the columns mean."""
        self._share = share
        require_files(share.files)
        self._numbers: dict[str, int] = {}
        learner, numbers = learner_for(share, asked, share.first_row), self._numbers
        rows_of = np.zeros(1, dtype=np.int64)
        notes: list[list[Any]] = []
        if share.files:
            with (
                warnings.catch_warnings(record=True) as noted,
                RowProgress("", None, show=False) as bar,
                self._codes.open("wb", buffering=0) as file,
            ):
                warnings.simplefilter("always", UserWarning)
                for (codes,) in bag_codes(share, [asked.key], learner, bar, [numbers]):
                    write_to(file, codes.data)
                    rows_of = np.append(rows_of, np.zeros(len(numbers) + 1 - len(rows_of), int))
                    # -1 for no bag becomes 0 here, and moves to the end below.
                    rows_of += np.bincount(codes + 1, minlength=len(rows_of))
            notes = [parts_of(w.message) for w in noted if issubclass(w.category, UserWarning)]
        return ShareOfRows(np.roll(rows_of, -1), learner, notes)

    def names(self) -> list[str]:
        """Of the bags in its share, in the order in which they come."""
        return list(self._numbers)

    def known(self, ids: pa.Array) -> IntArray:
        """(bags,) the place of each bag's name among these, -1 where it is not there."""
        self._label = np.full(len(self._numbers), -1)
        for place, name in enumerate(ids.to_pylist()):
            if (number := self._numbers.get(name)) is not None:
                self._label[number] = place
        return self._label

    def match(self, bag_of_label: IntArray | None, bag_of_code: IntArray | None = None) -> None:
        """Keep which bag each name is: its number among all, -1 for none, and, last, -1.

        Args:
            bag_of_label: the same of the names that `known` was given, and, last, -1; None if
                `bag_of_code` says it of its own.
        """
        if bag_of_label is not None:
            bag_of_code = np.append(bag_of_label[self._label], -1)
        self._bag_of_code = bag_of_code
        self._numbers, self._label = {}, np.empty(0, dtype=np.int64)

    @property
    def _codes(self) -> Path:
        return self._folder / "codes"

    def _batches(self, columns: Columns) -> Batches:
        if not self._share.files:
            return iter(())
        codes = np.memmap(self._codes, np.int32, "r")
        assert self._bag_of_code is not None
        return encoded_batches(
            self._share, codes, self._bag_of_code, columns, self._share.first_row
        )

    def some(self, columns: Columns, n_bags: int, index: IntArray) -> tuple[IntArray, Inputs]:
        """The rows of its share that are in some bags, see `rows_of_bags`."""
        return rows_of_bags(self._batches(columns), n_bags, index)

    def judge(
        self, is_log: npt.NDArray[np.bool_], bags: Bags, seed: int, *parts: tuple[IntArray, Inputs]
    ) -> tuple[float, float]:
        """`log_gain` of the rows of bags that all workers have read."""
        places = np.concatenate([place for place, _ in parts])
        rows = np.concatenate([rows for _, rows in parts if len(rows)])
        X = rows[np.argsort(places, kind="stable")].astype(np.float64)
        return log_gain(X, is_log, bags, seed)

    # --- dealing rows to those who keep their bags

    def deal(self, columns: Columns, begins: IntArray, receivers: list[int]) -> dict[int, int]:
        """Write the rows of its share into a file for each receiver; the rows of each.

        Args:
            begins: the first bag of each worker, and, last, the number of bags.
        """
        width = len(columns.encoded_names)
        rows = dict.fromkeys(receivers, 0)
        for receiver in receivers:
            self._dealt(receiver).unlink(missing_ok=True)
        for bags, encode in self._batches(columns):
            owner = np.where(bags >= 0, np.searchsorted(begins, bags, side="right") - 1, -1)
            order = np.argsort(owner, kind="stable")
            first = np.searchsorted(owner[order], receivers, side="left")
            last = np.searchsorted(owner[order], receivers, side="right")
            encoded = encode() if (first < last).any() else None
            for receiver, begin, end in zip(receivers, first, last, strict=True):
                if encoded is None or begin == end:
                    continue
                there = order[begin:end]
                records = np.empty((len(there), width + 1), dtype=np.float32)
                _bags_of(records)[:] = bags[there] - begins[receiver]
                records[:, 1:] = encoded[there]
                with self._dealt(receiver).open("ab", buffering=0) as file:
                    write_to(file, records.data)
                rows[receiver] += len(there)
        return rows

    def give(self, receiver: int, width: int, begin: int, end: int) -> npt.NDArray[np.float32]:
        """(end - begin, width + 1) records of a receiver."""
        record = 4 * (width + 1)
        found = np.fromfile(
            self._dealt(receiver), np.float32, (end - begin) * (width + 1), offset=begin * record
        )
        return found.reshape(-1, width + 1)

    def _dealt(self, receiver: int) -> Path:
        return self._folder / f"to-{receiver}"

    def _taken(self, giver: int) -> Path:
        return self._folder / f"from-{giver:06d}"

    def begin_to_take(self) -> None:
        """Forget what it was given before."""
        for file in self._folder.glob("from-*"):
            file.unlink()

    def take(self, giver: int, records: npt.NDArray[np.float32]) -> None:
        """Take records from a giver, after those that it gave before."""
        with self._taken(giver).open("ab", buffering=0) as file:
            write_to(file, np.ascontiguousarray(records).data)

    def forget_dealt(self) -> None:
        """Remove the files for receivers, who have their rows now."""
        for file in self._folder.glob("to-*"):
            file.unlink()

    def settle(self, bags: Bags, width: int, memory: int | None, limits: Limits) -> None:
        """Put the rows of its bags into order: in memory, or in a file if they are too many."""
        size = 4 * bags.n_instances * (width + 1)
        self._likelihood = None
        if memory is None or _TWICE * size <= memory // _IN_MEMORY:
            begins = np.cumsum(bags.sizes) - bags.sizes
            stored = StoredRows(
                self._in_memory(width), begins, bags.sizes, memory or sys.maxsize, limits=limits
            )
        else:
            store = Store(self._folder / "store")
            path = sorted_rows(
                store,
                "shard",
                partial(self._records, width),
                bags.sizes,
                width,
                memory // limits.sorting_part,
                bags.n_instances,
                limits=limits,
            )
            stored = StoredRows.of_file(path, bags.sizes, width, memory, "", limits)
        self.begin_to_take()
        self._inputs, self._data = stored, EncodedBags(stored, bags)

    def _given(self, width: int) -> Iterator[npt.NDArray[np.float32]]:
        """All records, in the order of the table's rows."""
        for file in sorted(self._folder.glob("from-*")):
            yield np.memmap(file, np.float32, "r").reshape(-1, width + 1)

    def _in_memory(self, width: int) -> Inputs:
        parts = list(self._given(width))
        place = np.argsort(np.argsort(np.concatenate([_bags_of(p) for p in parts]), kind="stable"))
        rows = np.empty((len(place), width), dtype=np.float32)
        done = 0
        for part in parts:
            for begin in range(0, len(part), _ROWS):
                some = part[begin : begin + _ROWS, 1:]
                rows[place[done : done + len(some)]] = some
                done += len(some)
        return rows

    def _records(self, width: int) -> Batches:
        for part in self._given(width):
            for begin in range(0, len(part), _ROWS):
                some = part[begin : begin + _ROWS]
                yield _bags_of(some).astype(np.int64), partial(_rows_of, some)

    # --- what the driver wants to know of its bags, by their numbers here

    def rows(self, index: IntArray) -> Inputs:
        """The rows of some bags."""
        return self._inputs.take(self._data.bags.rows(index))

    def apply(
        self, function: Callable[..., Any], bags: Bags, arguments: tuple[Any, ...], *rows: Inputs
    ) -> Any:
        """What a function says of bags whose rows several workers have."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of a fit that is hard to end
            return function(EncodedBags(np.concatenate(rows), bags), *arguments)

    def likelihood(
        self, index: IntArray, classes: IntArray, most: int, name: str, *arguments: Any
    ) -> Any:
        """What a method of `LikelihoodInPieces` says of some of its bags.

        Args:
            classes: that some bag has, here or elsewhere.
            most: rows that are read at a time.
        """
        kept = self._likelihood
        if not (kept and np.array_equal(kept[0], index) and np.array_equal(kept[1], classes)):
            bags = self._data.bags.select(index)
            bags = bags if len(classes) == bags.n_classes else bags.of_classes(classes)
            read = self._data.reader(index)
            likelihood = LikelihoodInPieces(read, self._data.width, bags, most)
            kept = self._likelihood = index, classes, likelihood
        return getattr(kept[2], name)(*arguments)

    def meet(self, rows: IntArray) -> tuple[str, Inputs]:
        """HOST:PORT where others may meet it, which is free now, and some of its rows."""
        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return f"{host}:{port}", self._inputs.take(rows)

    def with_own(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function says of all its bags."""
        return function(self._data, *arguments)

    def log_probs(self, predict: Predict, rows: IntArray) -> npt.NDArray[np.float32]:
        """(n, C) what a model says of some of its rows."""
        found = [
            predict(self._inputs.take(rows[i : i + _ROWS])) for i in range(0, len(rows), _ROWS)
        ]
        return np.concatenate(found).astype(np.float32)

    def surprising(self, predict: Predict, temperature: float) -> list[SurprisingBag]:
        """The bags that surprise a model most, named by their numbers."""
        bags = self._data.bags

        def log_probs(first: int, last: int) -> FloatArray:
            found: Any = self.log_probs(predict, np.arange(first, last))
            return found  # type: ignore[no-any-return]  # in single precision, as everywhere

        return surprising_in_pieces(log_probs, temperature, bags, np.arange(len(bags)))


def _bags_of(records: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """(n,) the first numbers of records, which are the bags."""
    return records.view(np.int32)[:, 0]


def _rows_of(records: npt.NDArray[np.float32]) -> Inputs:
    return records[:, 1:]
