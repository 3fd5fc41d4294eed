"""Rows of bags of which each of several processes has some."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.storage.stored_rows import StoredRows


class SpreadRows(StoredRows):
    """Rows of all bags, of which this process has those of bags one after the other.

    Args:
        own: the rows of the bags that are here.
        begins: (processes + 1,) the first bag of each process, and, last, the number of bags.
        rank: which process this is.
        sizes: (B,) rows of each bag.
        sample: (n, d) rows of all processes, to learn from what rows are like.

    Attributes:
        ends: (processes,) the row after the last one of each process.

    >>> own = StoredRows(np.arange(4.0).reshape(4, 1), np.array([0, 3]), np.array([3, 1]), 1)
    >>> spread = SpreadRows(own, np.array([0, 1, 3]), 1, np.array([2, 3, 1]), np.zeros((1, 1)))
    >>> spread.ends, spread.take(np.array([5, 2]))
    (array([2, 6]), array([[3.],
           [0.]]))
    >>> spread.select(np.array([0, 2])).take(np.array([2]))
    array([[3.]])
    """

    def __init__(
        self,
        own: StoredRows,
        begins: npt.NDArray[np.int64],
        rank: int,
        sizes: npt.NDArray[np.int64],
        sample: npt.NDArray[Any],
    ) -> None:
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        self._own, self._bags, self._rank, self._sizes = own, begins, rank, sizes
        self._first = int(offsets[begins[rank]])
        self.ends = offsets[begins[1:]]
        self.sample = sample
        self.shape = (int(offsets[-1]), *own.shape[1:])
        self.dtype, self.budget = own.dtype, own.budget
        self._folder, self._limits = own._folder, own._limits

    def own_bags(self) -> npt.NDArray[np.int64]:
        """The bags that are here."""
        return np.arange(self._bags[self._rank], self._bags[self._rank + 1])

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """(n, d) these rows, which have to be here."""
        if not len(rows):
            return np.empty((0, *self.shape[1:]), self.dtype)
        return self._own.take(rows - self._first)

    def select(self, index: npt.NDArray[np.int64]) -> SpreadRows:
        """The rows of these bags, in ascending order."""
        begins = np.searchsorted(index, self._bags)
        here = index[begins[self._rank] : begins[self._rank + 1]] - self._bags[self._rank]
        own = self._own.select(here) if len(here) else self._own  # of which none is asked for
        return SpreadRows(own, begins, self._rank, self._sizes[index], self.sample)
