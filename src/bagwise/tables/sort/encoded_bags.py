"""The encoded rows of a table and their bags, side by side."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.in_pieces import Keep, LikelihoodInPieces, Read, SummedLikelihood
from bagwise.likelihood.linear_fit import occurring
from bagwise.limits import Limits
from bagwise.storage.stored_rows import StoredRows

_FEWER = 0.5  # of the rows, from which on identical ones are taken together
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
NUMBER = 64  # bytes of memory that one of these takes in all, where memory is limited


@dataclass(frozen=True, eq=False)
class EncodedBags:
    """Encoded rows, sorted by bag, and what is known of the bags.

    Attributes:
        inputs: (N, d) numbers, in memory or in a file.
        rows: (N,) which row of several groupings each is, where rows are there more than once.

    >>> data = EncodedBags(np.zeros((5, 3), np.float32), Bags([3, 2], [[2, 1], [0, 2]]))
    >>> len(data), data.width, len(data.select(np.array([1])))
    (5, 3, 2)
    """

    inputs: npt.NDArray[Any] | StoredRows
    bags: Bags
    rows: IntArray | None = None

    def __len__(self) -> int:
        return self.bags.n_instances

    @property
    def width(self) -> int:
        """d, how many numbers a row has."""
        return int(self.inputs.shape[1])

    def select(self, index: IntArray) -> EncodedBags:
        """These bags only, in this order."""
        if isinstance(self.inputs, StoredRows):
            return EncodedBags(self.inputs.select(index), self.bags.select(index))
        own = self.bags.rows(index)
        rows = None if self.rows is None else self.rows[own]
        return EncodedBags(self.inputs[own], self.bags.select(index), rows)

    def reader(self, index: IntArray) -> Read:
        """Gives the rows of these bags by their number among them, in double precision."""
        if isinstance(self.inputs, StoredRows):
            rows = self.inputs.select(index)
        else:  # in memory they are not copied
            begins, sizes = self.bags.offsets[index], self.bags.sizes[index]
            rows = StoredRows(self.inputs, begins, sizes, sys.maxsize)
        return lambda begin, end: rows.take(np.arange(begin, end)).astype(np.float64)

    def in_pieces(
        self, index: IntArray, most: int, keep: Keep | None = None
    ) -> tuple[SummedLikelihood, IntArray]:
        """The likelihood of these bags, and the classes that they have; rows are read anew in each
        pass, up to `most` at a time.
        """
        bags, classes = occurring(self.bags.select(index))
        return LikelihoodInPieces(self.reader(index), self.width, bags, most, keep), classes

    def apply(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        watch: Callable[[int, int], None] | None = None,
    ) -> Any:
        """What a function says of these bags and the arguments; `watch` is told how far it is."""
        more = {} if watch is None else {"watch": watch}
        return function(self, *arguments, **more)

    def double(self) -> FloatArray:
        """(N, d) all rows, in memory and in double precision."""
        if isinstance(self.inputs, StoredRows):
            return self.inputs.double()
        return self.inputs.astype(np.float64)

    def compact(self) -> EncodedBags:
        """The same with identical rows of a bag as one row with a weight, if less than half of the
        rows are left; else as it is.

        >>> rows = np.array([[0], [1], [0], [0], [0]], np.float32)
        >>> EncodedBags(rows, Bags([5], [[2, 3]])).compact().bags.weights
        array([4, 1])
        """
        labeled = self.bags.row_labels is not None
        if isinstance(self.inputs, StoredRows) or self.rows is not None or labeled:
            return self
        bags = self.bags
        codes = _codes(self.inputs) + bags.bag_of_row.astype(np.uint64) * _FACTOR
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        if len(first) >= _FEWER * len(self):
            return self
        order = np.argsort(first)  # by bag
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, place = first[order], rank[place]
        alike = np.array_equal(bags.bag_of_row[first][place], bags.bag_of_row)
        if not (alike and np.array_equal(self.inputs[first][place], self.inputs)):
            return self  # two different rows have the same code
        sizes = np.bincount(bags.bag_of_row[first], minlength=len(bags))
        weights = np.zeros(len(first), dtype=np.int64)
        np.add.at(weights, place, bags.copies)
        if bags.potentials is None:
            found = Bags.of_arrays(sizes, bags.min_counts, weights)
        else:
            found = Bags.of_potentials(bags.potentials, sizes, weights)
        return EncodedBags(self.inputs[first], found)

    def written_out(self) -> EncodedBags:
        """The same with each row as often as its weight says."""
        if self.bags.weights is None:
            return self
        assert not isinstance(self.inputs, StoredRows)
        return EncodedBags(
            np.repeat(self.inputs, self.bags.copies, axis=0), self.bags.written_out()
        )

    def per_row(self, n_columns: int, value: float) -> npt.NDArray[Any]:
        """(N, n_columns) numbers to be kept of each row: in a file where the rows are in one."""
        shape = len(self), n_columns
        if isinstance(self.inputs, StoredRows):
            return self.inputs.full(shape, value)
        return np.full(shape, value, dtype=np.float32)

    def fits(self, limits: Limits) -> bool:
        """Whether all rows may be in memory in double precision."""
        return len(self) * (self.width + 1) <= self.most_numbers(limits)

    def most_numbers(self, limits: Limits) -> int:
        """Cells of rows that may be in memory in double precision."""
        if isinstance(self.inputs, StoredRows):
            return min(limits.linear_cells, self.inputs.budget // NUMBER)
        return limits.linear_cells

    def fingerprint(self) -> str:
        """A short digest of rows and bags."""
        digest = hashlib.blake2b(self.bags.fingerprint().encode(), digest_size=8)
        if isinstance(self.inputs, StoredRows):
            digest.update(self.inputs.fingerprint().encode())
        else:
            digest.update(repr((self.inputs.shape, self.inputs.dtype.str)).encode())
            digest.update(np.ascontiguousarray(self.inputs).data)
        if self.rows is not None:
            digest.update(self.rows.tobytes())
        return digest.hexdigest()


def _codes(inputs: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """(N,) a number for each row, the same for identical ones and hardly ever for others."""
    bits = np.ascontiguousarray(inputs, dtype=np.float32).view(np.uint32)
    codes = np.zeros(len(bits), dtype=np.uint64)
    for column in range(bits.shape[1]):
        codes = (codes ^ bits[:, column]) * _FACTOR
        codes ^= codes >> np.uint64(29)
    return codes
