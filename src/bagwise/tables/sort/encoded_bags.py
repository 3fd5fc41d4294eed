"""The encoded rows of a table and their bags, side by side."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.limits import Limits
from bagwise.storage.stored_rows import StoredRows

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

    def double(self) -> FloatArray:
        """(N, d) all rows, in memory and in double precision."""
        if isinstance(self.inputs, StoredRows):
            return self.inputs.double()
        return self.inputs.astype(np.float64)

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
