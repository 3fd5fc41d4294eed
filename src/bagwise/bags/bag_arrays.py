"""The arrays of bags, and what follows from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from bagwise.bags.arrays import FloatArray, IntArray, shown_row, totals_of
from bagwise.bags.potentials import Potentials, unpacked
from bagwise.errors import InputError, Place


class BagArrays:
    """What `Bags` holds, however it was made."""

    sizes: IntArray
    """(B,) rows of each bag."""
    min_counts: IntArray
    """(B, C) the least possible counts: the counts, where they are known exactly."""
    weights: IntArray | None
    """(N,) how many identical rows each row stands for; None if each stands for itself."""
    potentials: Potentials | None
    """What is known of the counts, where they are not known exactly; else None."""
    row_labels: IntArray | None
    """(N,) labels of instances that are known, -1 for the others; None if none is."""
    n_instances: int
    """N, the number of rows of all bags together."""
    total: int
    """Instances of all bags together, every row as often as its weight says."""
    n_classes: int
    """C, the number of classes."""
    n_bags: int
    """B, the number of bags."""
    tensors: Any = None
    """What `autograd` keeps with the object, see there."""
    packed: Any = None
    """What is sent to a device, once it is packed; see `autograd.device_bags`."""
    on_device: Any = None
    """The same on the device to which it was sent last."""
    when_made: ClassVar[list[Callable[[Any], None]]] = []
    """Called with every new object: so `autograd`, once it is imported, sets `tensors`."""

    def _set(
        self,
        sizes: IntArray,
        counts: IntArray,
        potentials: Potentials | None = None,
        weights: IntArray | None = None,
    ) -> None:
        self.sizes, self.min_counts = np.ascontiguousarray(sizes), np.ascontiguousarray(counts)
        self.potentials = potentials
        self.weights = weights
        self.row_labels = None
        # What compiled training steps read must not be computed from arrays when they read it.
        self.n_bags, self.n_classes = (int(n) for n in counts.shape)
        self.n_instances = int(sizes.sum())
        self.total = self.n_instances if weights is None else int(weights.sum())
        if potentials is not None:
            for array in (potentials.begins, potentials.log_f, potentials.expected):
                array.setflags(write=False)
        self._made()
        # Derived arrays are cached and kernels read these from several threads: nobody may write.
        for array in (self.sizes, self.min_counts, *(() if weights is None else (weights,))):
            array.setflags(write=False)

    def _made(self) -> None:
        for function in self.when_made:
            function(self)

    def _know(
        self, potentials: Potentials, sizes: IntArray | None, weights: IntArray | None
    ) -> None:
        """Take potentials, or counts where that is what they come to."""
        sharp = potentials.is_sharp.all()
        sizes = potentials.sizes if sizes is None else sizes
        self._set(sizes, potentials.low, None if sharp else potentials, weights)

    @classmethod
    def of_potentials(
        cls, potentials: Potentials, sizes: IntArray | None = None, weights: IntArray | None = None
    ) -> Self:
        """Bags of which potentials are known; their `sizes` are totals, rows with weights fewer."""
        bags = cls.__new__(cls)
        bags._know(potentials, sizes, weights)
        return bags

    @classmethod
    def of_arrays(cls, sizes: IntArray, counts: IntArray, weights: IntArray | None = None) -> Self:
        """Bags from arrays known to be right, without checking them again."""
        bags = cls.__new__(cls)
        bags._set(sizes, counts, None, weights)
        return bags

    @classmethod
    def of_packed(
        cls,
        sizes: IntArray,
        low: IntArray,
        packed: FloatArray | None,
        weights: IntArray | None = None,
    ) -> Self:
        """Bags from sizes and counts, or least counts and what `Potentials.packed` gave."""
        bags = cls.__new__(cls)
        totals = totals_of(sizes, weights)
        bags._set(sizes, low, None if packed is None else unpacked(totals, low, packed), weights)
        return bags

    def __len__(self) -> int:
        return self.n_bags

    def __repr__(self) -> str:
        low, high = self.sizes.min(), self.sizes.max()
        spread = f"all of size {low}" if low == high else f"sizes {low} to {high}"
        if self.potentials is not None:
            soft = int((~self.potentials.is_sharp).sum())
            where = "" if soft == len(self) else f" of {soft} bag{'s' * (soft > 1)}"
            spread += f", counts{where} not exact"
        rows = "" if self.weights is None else f" in {self.n_instances} rows"
        return (
            f"Bags({len(self)} bag{'s' * (len(self) > 1)}, {self.total} instances{rows}, "
            f"{self.n_classes} classes, {spread})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BagArrays):
            return NotImplemented
        mine, others = self._arrays(), other._arrays()
        return len(mine) == len(others) and all(map(np.array_equal, mine, others))

    __hash__ = None  # type: ignore[assignment]  # compared by value, holds arrays

    @cached_property
    def offsets(self) -> IntArray:
        """(B + 1,) row where each bag begins; bag b has rows offsets[b] .. offsets[b + 1] - 1."""
        offsets = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.sizes, out=offsets[1:])
        offsets.setflags(write=False)
        return offsets

    @cached_property
    def bag_of_row(self) -> IntArray:
        """(N,) the bag each row lies in."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def totals(self) -> IntArray:
        """(B,) instances of each bag, every row as often as its weight says; sums of the counts."""
        return totals_of(self.sizes, self.weights)

    @cached_property
    def copies(self) -> IntArray:
        """(N,) the weights, ones where there are none."""
        copies = np.ones(self.n_instances, np.int64) if self.weights is None else self.weights
        copies.setflags(write=False)
        return copies

    def refuse_weights(self, what: str) -> None:
        """Refuse weighted rows where they cannot be taken yet."""
        if self.weights is not None:
            raise InputError(
                f"some rows have weights, which {what} does not take yet; write the rows out "
                "(Bags.written_out)."
            )

    @property
    def counts(self) -> IntArray:
        """(B, C) instances of each label, where they are known exactly; else an error.

        `expected_counts` are there in any case.
        """
        if self.potentials is not None:
            bad = int(np.argmin(self.potentials.is_sharp))
            raise InputError(
                "the counts of ",
                Place("bag", bad),
                f" are not known exactly: from {shown_row(self.min_counts[bad])} to "
                f"{shown_row(self.potentials.high[bad])}. Use expected_counts or potentials.",
            )
        return self.min_counts

    @cached_property
    def is_sharp(self) -> npt.NDArray[np.bool_]:
        """(B,) whether the counts of the bag are known exactly."""
        if self.potentials is None:
            return np.ones(len(self), dtype=np.bool_)
        return self.potentials.is_sharp

    @property
    def max_counts(self) -> IntArray:
        """(B, C) the largest possible counts: the counts, where they are known exactly."""
        return self.min_counts if self.potentials is None else self.potentials.high

    @property
    def expected_counts(self) -> FloatArray:
        """(B, C) the counts, or what they are on average given what is known of the bag."""
        if self.potentials is None:
            return self.min_counts.astype(np.float64)
        return self.potentials.expected

    @cached_property
    def proportions(self) -> FloatArray:
        """(B, C) share of each label in each bag, or the expected share."""
        shares: FloatArray = self.expected_counts / self.totals[:, None]
        return shares

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        known = self.potentials
        more = () if known is None else (known.begins, known.log_f)
        return (
            self.sizes,
            self.min_counts,
            *more,
            *(() if self.row_labels is None else (self.row_labels,)),
            *(
                () if self.weights is None else (self.weights[:, None],)
            ),  # not to be taken for labels
        )

    def fingerprint(self) -> str:
        """A short digest of sizes and counts (or potentials), the same for equal bags.

        >>> from bagwise import Bags
        >>> Bags([1], [[1, 0]]).fingerprint() == Bags([1], [[0, 1]]).fingerprint()
        False
        """
        digest = hashlib.sha256()
        for array in self._arrays():
            kind = "<i8" if array.dtype.kind == "i" else "<f8"
            digest.update(repr(array.shape).encode() + array.astype(kind).tobytes())
        return digest.hexdigest()[:16]
