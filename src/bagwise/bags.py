"""Ragged bags: how many instances each bag has, and how many of them carry each label."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# A count is read off a proportion when size * proportion is this close to a whole number. It allows
# for proportions held in single precision in bags of thousands.
_COUNT_TOLERANCE = 1e-3


class Bags:
    """Sizes and label counts of B bags whose instances lie one bag after the other.

    Instance arrays that go with it have N = sum(sizes) rows: the first sizes[0] rows are bag 0, the
    next sizes[1] rows are bag 1, and so on.

    Args:
        sizes: (B,) instances per bag, each at least 1.
        counts: (B, C) instances of each label; row b sums to sizes[b].

    >>> bags = Bags(sizes=[3, 2], counts=[[2, 1], [0, 2]])
    >>> bags
    Bags(2 bags, 5 instances, 2 classes, sizes 2 to 3)
    >>> bags.offsets
    array([0, 3, 5])
    """

    sizes: IntArray
    counts: IntArray
    n_instances: int
    """N, the number of instances of all bags together."""
    n_classes: int
    """C, the number of classes."""
    tensors: tuple[torch.Tensor, torch.Tensor]
    """`sizes` and `counts` as tensors, which share their memory; not to be written to."""

    def __init__(self, sizes: npt.ArrayLike | torch.Tensor, counts: npt.ArrayLike | torch.Tensor):
        sizes_ = _whole_numbers(sizes, "sizes", ndim=1)
        counts_ = _whole_numbers(counts, "counts", ndim=2)
        if len(sizes_) != len(counts_):
            raise ValueError(
                f"sizes describes {len(sizes_)} bags and counts {len(counts_)}; "
                "give one row of counts for each bag."
            )
        if len(sizes_) == 0 or counts_.shape[1] == 0:
            raise ValueError(
                f"counts has shape {counts_.shape}; at least one bag and one class are needed."
            )
        if (bad := _first(sizes_ < 1)) is not None:
            raise ValueError(f"bag {bad} has size {sizes_[bad]}; leave empty bags out.")
        if (bad := _first((counts_ < 0).any(axis=1))) is not None:
            raise ValueError(
                f"bag {bad} has a negative count: {_row(counts_[bad])}; counts must be 0 or more."
            )
        totals = counts_.sum(axis=1)
        if (bad := _first(totals != sizes_)) is not None:
            raise ValueError(
                f"the counts of bag {bad} sum to {totals[bad]}, but its size is {sizes_[bad]}: "
                f"{_row(counts_[bad])}; every instance carries exactly one label."
            )
        self._set(sizes_, counts_)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _set(self, sizes: IntArray, counts: IntArray) -> None:
        self.sizes = np.ascontiguousarray(sizes)
        self.counts = np.ascontiguousarray(counts)
        # What compiled training steps read must not be computed from arrays when they read it.
        self.n_instances, self.n_classes = int(sizes.sum()), int(counts.shape[1])
        self.tensors = torch.from_numpy(self.sizes), torch.from_numpy(self.counts)
        # Derived arrays are cached and kernels read these from several threads: nobody may write.
        self.sizes.setflags(write=False)
        self.counts.setflags(write=False)

    @classmethod
    def of_arrays(cls, sizes: IntArray, counts: IntArray) -> Bags:
        """Bags from arrays known to be right, without checking them again."""
        bags = cls.__new__(cls)
        bags._set(sizes, counts)
        return bags

    @classmethod
    def of_tensors(cls, sizes: torch.Tensor, counts: torch.Tensor) -> Bags:
        """Bags again from their `tensors`, nothing copied, nothing checked."""
        return cls.of_arrays(sizes.numpy(), counts.numpy())

    @classmethod
    def from_labels(
        cls,
        labels: npt.ArrayLike | torch.Tensor,
        sizes: npt.ArrayLike | torch.Tensor,
        n_classes: int | None = None,
    ) -> Bags:
        """Count the labels of each bag.

        Args:
            labels: (N,) labels 0 .. C-1 of the instances, sorted by bag.
            sizes: (B,) instances per bag; they sum to N.
            n_classes: C; the largest label plus one if not given.

        >>> Bags.from_labels([0, 0, 1, 1, 1], sizes=[3, 2]).counts
        array([[2, 1],
               [0, 2]])
        """
        labels_ = _whole_numbers(labels, "labels", ndim=1)
        sizes_ = _whole_numbers(sizes, "sizes", ndim=1)
        if (bad := _first(sizes_ < 1)) is not None:
            raise ValueError(f"bag {bad} has size {sizes_[bad]}; leave empty bags out.")
        if sizes_.sum() != len(labels_):
            raise ValueError(
                f"sizes sum to {sizes_.sum()}, but there are {len(labels_)} labels; "
                "give one label for each instance."
            )
        if n_classes is None:
            n_classes = int(labels_.max()) + 1 if len(labels_) else 0
        if (bad := _first((labels_ < 0) | (labels_ >= n_classes))) is not None:
            raise ValueError(
                f"the label of row {bad} is {labels_[bad]}; "
                f"labels must lie in 0 .. {n_classes - 1} (n_classes={n_classes})."
            )
        cells = np.repeat(np.arange(len(sizes_)), sizes_) * n_classes + labels_
        counts = np.bincount(cells, minlength=len(sizes_) * n_classes)
        return cls(sizes_, counts.reshape(len(sizes_), n_classes))

    @classmethod
    def from_proportions(
        cls,
        proportions: npt.ArrayLike | torch.Tensor,
        sizes: npt.ArrayLike | torch.Tensor,
        rounding: Literal["exact", "nearest"] = "exact",
    ) -> Bags:
        """Turn each bag's label proportions into counts.

        Args:
            proportions: (B, C), each row summing to 1.
            sizes: (B,) instances per bag.
            rounding: "exact" wants size * proportion to be whole numbers; "nearest" rounds by
                largest remainder, for proportions that were themselves rounded: each count is
                rounded down, and the instances left over go to the largest fractions (ties to the
                class that comes first).

        >>> Bags.from_proportions([[.25, .75]], sizes=[4]).counts
        array([[1, 3]])
        >>> Bags.from_proportions([[.33, .33, .34]], sizes=[10], rounding="nearest").counts
        array([[3, 3, 4]])
        """
        if rounding not in ("exact", "nearest"):
            raise ValueError(f'rounding is {rounding!r}; choose "exact" or "nearest".')
        shares = _numbers(proportions, "proportions", ndim=2)
        sizes_ = _whole_numbers(sizes, "sizes", ndim=1)
        if len(sizes_) != len(shares):
            raise ValueError(
                f"sizes describes {len(sizes_)} bags and proportions {len(shares)}; "
                "give one row of proportions for each bag."
            )
        if (bad := _first((shares < 0).any(axis=1))) is not None:
            raise ValueError(
                f"bag {bad} has a negative proportion: {_row(shares[bad])}; "
                "proportions must be 0 or more."
            )
        totals = shares.sum(axis=1)
        slack = 1e-4 if rounding == "exact" else rounding_slack(shares)
        if (bad := _first(np.abs(totals - 1) > slack)) is not None:
            raise ValueError(
                f"the proportions of bag {bad} sum to {totals[bad]:.6g}: {_row(shares[bad])}; they "
                "must sum to 1 (if these are counts, use Bags(sizes, counts))."
            )
        expected = shares * sizes_[:, None]
        if rounding == "nearest":
            return cls(sizes_, _largest_remainder(expected / totals[:, None], sizes_))
        counts = np.rint(expected)
        off = np.abs(counts - expected).max(axis=1, initial=0)
        if (bad := _first(off > _COUNT_TOLERANCE)) is not None:
            raise ValueError(
                f"the proportions of bag {bad} times its size {sizes_[bad]} are not whole numbers: "
                f'{_row(expected[bad])}; use rounding="nearest" if they were rounded.'
            )
        return cls(sizes_, counts)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __repr__(self) -> str:
        low, high = self.sizes.min(), self.sizes.max()
        spread = f"all of size {low}" if low == high else f"sizes {low} to {high}"
        return (
            f"Bags({len(self)} bags, {self.n_instances} instances, {self.n_classes} classes, "
            f"{spread})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bags):
            return NotImplemented
        return np.array_equal(self.sizes, other.sizes) and np.array_equal(self.counts, other.counts)

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
        """(N,) the bag each instance lies in."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def proportions(self) -> FloatArray:
        """(B, C) share of each label in each bag."""
        shares: FloatArray = self.counts / self.sizes[:, None]
        return shares

    def fingerprint(self) -> str:
        """A short digest of sizes and counts, the same for equal bags on any machine.

        >>> Bags([1], [[1, 0]]).fingerprint() == Bags([1], [[0, 1]]).fingerprint()
        False
        """
        digest = hashlib.sha256()
        for array in (self.sizes, self.counts):
            digest.update(repr(array.shape).encode() + array.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def rows(self, index: npt.ArrayLike | torch.Tensor) -> IntArray:
        """Rows of the instances of the bags in `index`, bag after bag.

        >>> Bags([3, 2, 1], [[3], [2], [1]]).rows([2, 0])
        array([5, 0, 1, 2])
        """
        index_ = self._bag_index(index)
        sizes = self.sizes[index_]
        ends = np.cumsum(sizes)
        shift = self.offsets[index_] - (ends - sizes)
        return np.repeat(shift, sizes) + np.arange(ends[-1] if len(ends) else 0)

    def select(self, index: npt.ArrayLike | torch.Tensor) -> Bags:
        """The bags in `index`, in that order; `rows(index)` are their instances.

        >>> Bags([3, 2, 1], [[3, 0], [2, 0], [0, 1]]).select([2, 0]).counts
        array([[0, 1],
               [3, 0]])
        """
        index_ = self._bag_index(index)
        if len(index_) == 0:
            raise ValueError("index selects no bag; at least one is needed.")
        return Bags.of_arrays(self.sizes[index_], self.counts[index_])

    def batches(
        self,
        instances: int,
        order: npt.ArrayLike | torch.Tensor | None = None,
        bags: int = 1,
        most: int | None = None,
    ) -> Iterator[IntArray]:
        """Indexes of whole bags, in `order`, each batch holding at most `instances` instances.

        A bag that is larger than the budget is a batch of its own, unless several are asked for.

        Args:
            instances: the budget of a batch.
            order: of the bags; their own if not given.
            bags: every batch holds at least this many, beyond the budget too, as far as there are
                so many bags and they have no more than `most` instances.
            most: instances up to which `bags` goes before `instances`; None for any number.

        >>> bags = Bags([3, 2, 2, 9, 1], [[3], [2], [2], [9], [1]])
        >>> list(bags.batches(instances=5))
        [array([0, 1]), array([2]), array([3]), array([4])]
        >>> list(bags.batches(instances=5, bags=2))
        [array([0, 1]), array([2, 3, 4])]
        """
        if instances < 1:
            raise ValueError(f"instances is {instances}; a batch needs room for at least one.")
        if bags < 1:
            raise ValueError(f"bags is {bags}; a batch needs at least one.")
        order_ = np.arange(len(self)) if order is None else self._bag_index(order)
        ends = np.cumsum(self.sizes[order_])
        starts = np.concatenate([[0], ends])  # the first row of each bag, in this order
        limit = int(starts[-1]) if most is None else most

        def bags_up_to(rows: int) -> int:
            return int(np.searchsorted(ends, rows, side="right"))

        begin = end = 0  # the batch that is not yet given away
        while end < len(order_):
            row = int(starts[end])
            several = min(end + bags, bags_up_to(row + limit))
            stop = max(end + 1, bags_up_to(row + instances), several)
            joins = begin < end and stop - end < bags and starts[stop] - starts[begin] <= limit
            if begin < end and not joins:
                yield order_[begin:end]
                begin = end
            end = stop
        if begin < end:
            yield order_[begin:end]

    def _bag_index(self, index: npt.ArrayLike | torch.Tensor) -> IntArray:
        if _array(index, "index", 1).dtype == np.bool_:
            raise IndexError("index is a mask of booleans; numbers of bags are expected.")
        index_ = _whole_numbers(index, "index", ndim=1)
        if (bad := _first((index_ < 0) | (index_ >= len(self)))) is not None:
            raise IndexError(f"there is no bag {index_[bad]}; there are {len(self)} bags.")
        return index_


def _numbers(values: npt.ArrayLike | torch.Tensor, name: str, ndim: int) -> FloatArray:
    array = _array(values, name, ndim).astype(np.float64)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"{name}[{_place(bad)}] is {array[tuple(bad)]}; finite numbers are needed."
        )
    return array


def _whole_numbers(values: npt.ArrayLike | torch.Tensor, name: str, ndim: int) -> IntArray:
    array = _array(values, name, ndim)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    numbers = _numbers(array, name, ndim)
    if (np.abs(numbers) > 2**53).any():
        bad = np.argwhere(np.abs(numbers) > 2**53)[0]
        raise ValueError(f"{name}[{_place(bad)}] is {numbers[tuple(bad)]:g}; that is too large.")
    whole = np.rint(numbers)
    if (numbers != whole).any():
        bad = np.argwhere(numbers != whole)[0]
        hint = "; if these are proportions, use Bags.from_proportions" if name == "counts" else ""
        raise ValueError(
            f"{name}[{_place(bad)}] is {numbers[tuple(bad)]:g}; whole numbers are needed{hint}."
        )
    return whole.astype(np.int64)


def _array(values: npt.ArrayLike | torch.Tensor, name: str, ndim: int) -> npt.NDArray[Any]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} has rows of different lengths; give a full table.") from error
    if array.ndim != ndim:
        expected = {1: "one dimension is", 2: "two dimensions (bags, classes) are"}[ndim]
        raise ValueError(f"{name} has shape {array.shape}; {expected} expected.")
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {array.dtype} values; numbers are needed.")
    return array


def rounding_slack(shares: FloatArray) -> float:
    """How far from 1 the row sums may be if the shares were rounded to two decimals: at most .05.

    Every share counts: one of 0 may have been rounded too.

    >>> round(rounding_slack(np.array([[.33, .33, .33], [0, 0, .99]])), 3)
    0.015
    """
    return float(min(0.005 * shares.shape[1], 0.05) + 1e-6)


def _largest_remainder(expected: FloatArray, sizes: IntArray) -> IntArray:
    counts = np.floor(expected + 1e-9)
    left_over = sizes - counts.sum(axis=1)
    rank = np.argsort(np.argsort(counts - expected, axis=1, kind="stable"), axis=1, kind="stable")
    rounded: IntArray = (counts + (rank < left_over[:, None])).astype(np.int64)
    return rounded


def _first(bad: npt.NDArray[np.bool_] | np.bool_) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


def _place(index: npt.NDArray[np.intp]) -> str:
    return ", ".join(str(int(i)) for i in index)


def _row(values: npt.NDArray[Any]) -> str:
    shown = ", ".join(f"{value:g}" for value in values[:12])
    return f"[{shown}{', ...' if len(values) > 12 else ''}]"
