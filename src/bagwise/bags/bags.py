"""Ragged bags: how many instances each bag has, and what is known of their labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from bagwise.bags import make_potentials as known
from bagwise.bags.arrays import (
    FloatArray,
    IntArray,
    bag_table,
    check_table,
    first,
    numbers,
    plain_array,
    refuse_fractions,
    shown_row,
    whole_numbers,
)
from bagwise.bags.batching import batches_of
from bagwise.bags.constructors import Constructors
from bagwise.bags.potentials import Potentials, join, of_counts, unpacked
from bagwise.bags.row_labels import refuse_wrong_labels
from bagwise.bags.sub_bags import check_part, potentials_of_part
from bagwise.errors import InputError, Place


class Bags(Constructors):
    """Sizes and label counts of B bags whose instances lie one bag after the other.

    Instance arrays that go with it have N = sum(sizes) rows: the first sizes[0] rows are bag 0, the
    next sizes[1] rows are bag 1, and so on.

    Where the counts are not known exactly, other constructors say what is: `from_noisy_counts`,
    `from_ranges`, `from_proportions` with `decimals`, `from_sample`. What they know becomes
    `potentials` over the counts, which losses and engines use in place of counts.

    Args:
        sizes: (B,) instances per bag, each at least 1.
        counts: (B, C) instances of each label; row b sums to sizes[b]. NaN where a count is not
            known: what the others leave over is then shared by the classes without one.

    >>> bags = Bags(sizes=[3, 2], counts=[[2, 1], [0, 2]])
    >>> bags
    Bags(2 bags, 5 instances, 2 classes, sizes 2 to 3)
    >>> bags.offsets
    array([0, 3, 5])
    """

    sizes: IntArray
    potentials: Potentials | None
    """What is known of the counts, where they are not known exactly; else None."""
    row_labels: IntArray | None
    """(N,) labels of instances that are known, -1 for the others; None if none is."""
    n_instances: int
    """N, the number of instances of all bags together."""
    n_classes: int
    """C, the number of classes."""
    n_bags: int
    """B, the number of bags."""
    tensors: Any = None
    """What `autograd` keeps with the object, see there."""
    when_made: ClassVar[list[Callable[[Bags], None]]] = []
    """Called with every new object: so `autograd`, once it is imported, sets `tensors`."""

    def __init__(self, sizes: ArrayLike, counts: ArrayLike):
        sizes_ = whole_numbers(sizes, "sizes", ndim=1)
        plain = plain_array(counts, "counts", ndim=2)
        if plain.dtype.kind == "f" and np.isnan(plain).any():
            found = bag_table(plain, sizes_, "counts", gaps=True)
            refuse_fractions(found, "counts")
            self._know(known.of_ranges(found, found, sizes_))
            return
        counts_ = whole_numbers(plain, "counts", ndim=2)
        check_table(counts_, sizes_, "counts")
        if (bad := first((counts_ < 0).any(axis=1))) is not None:
            raise InputError(
                Place("bag", bad),
                f" has a negative count: {shown_row(counts_[bad])}; counts must be 0 or more.",
            )
        totals = counts_.sum(axis=1)
        if (bad := first(totals != sizes_)) is not None:
            raise InputError(
                "the counts of ",
                Place("bag", bad),
                f" sum to {totals[bad]}, but its size is {sizes_[bad]}: {shown_row(counts_[bad])}; "
                "every instance carries exactly one label.",
            )
        self._set(sizes_, counts_)

    def _set(self, sizes: IntArray, counts: IntArray, potentials: Potentials | None = None) -> None:
        self.sizes, self.least = np.ascontiguousarray(sizes), np.ascontiguousarray(counts)
        self.potentials = potentials
        self.row_labels = None
        # What compiled training steps read must not be computed from arrays when they read it.
        self.n_bags, self.n_classes = (int(n) for n in counts.shape)
        self.n_instances = int(sizes.sum())
        if potentials is not None:
            for array in (potentials.begins, potentials.log_f, potentials.expected):
                array.setflags(write=False)
        self._made()
        # Derived arrays are cached and kernels read these from several threads: nobody may write.
        self.sizes.setflags(write=False)
        self.least.setflags(write=False)

    def _made(self) -> None:
        for function in self.when_made:
            function(self)

    def _know(self, potentials: Potentials) -> None:
        """Take potentials, or counts where that is what they come to."""
        sharp = potentials.is_sharp.all()
        self._set(potentials.sizes, potentials.low, None if sharp else potentials)

    @classmethod
    def of_potentials(cls, potentials: Potentials) -> Self:
        """Bags of which potentials are known."""
        bags = cls.__new__(cls)
        bags._know(potentials)
        return bags

    @classmethod
    def of_arrays(cls, sizes: IntArray, counts: IntArray) -> Bags:
        """Bags from arrays known to be right, without checking them again."""
        bags = cls.__new__(cls)
        bags._set(sizes, counts)
        return bags

    @classmethod
    def of_packed(cls, sizes: IntArray, low: IntArray, packed: FloatArray | None) -> Bags:
        """Bags from sizes and counts, or least counts and what `Potentials.packed` gave."""
        bags = cls.__new__(cls)
        bags._set(sizes, low, None if packed is None else unpacked(sizes, low, packed))
        return bags

    @classmethod
    def join(cls, parts: Iterable[Bags]) -> Bags:
        """The bags of all parts, one after the other; what is known of them may differ in kind.

        >>> Bags.join([Bags([1], [[0, 1]]), Bags.from_ranges([[0, 1]], [[2, 2]], [2])])
        Bags(2 bags, 3 instances, 2 classes, sizes 1 to 2, counts of 1 bag not exact)
        """
        parts = list(parts)
        if not parts:
            raise InputError("there are no bags to join; at least one part is needed.")
        if len({part.n_classes for part in parts}) > 1:
            raise InputError(
                f"bags of {[part.n_classes for part in parts]} classes cannot be joined; "
                "parts with the same number of classes are needed."
            )
        joined = join([part.potentials or of_counts(part.least, part.sizes) for part in parts])
        labels = [
            np.full(part.n_instances, -1) if part.row_labels is None else part.row_labels
            for part in parts
        ]
        return cls.of_potentials(joined)._labelled(np.concatenate(labels))

    def with_labels(self, labels: ArrayLike) -> Bags:
        """The same bags, of whose instances some labels are known.

        Engines then count only labelings with these labels: the known instances have weights of 0
        and 1, and `cc_loss` and `rc_loss` learn from them as from labels.

        Args:
            labels: (N,) integers 0 .. C-1, and -1 where a label is not known.

        >>> bags = Bags([3], [[1, 2]]).with_labels([-1, 1, -1])
        >>> from bagwise import bag_posterior
        >>> bag_posterior(np.zeros((3, 2)), bags).weights
        array([[0.5, 0.5],
               [0. , 1. ],
               [0.5, 0.5]])
        """
        found = whole_numbers(labels, "labels", ndim=1)
        of_labels = refuse_wrong_labels(found, self.offsets, self.least, self.most)
        if self.potentials is None:
            return self._labelled(found)
        return Bags.of_potentials(self.potentials.given_labels(of_labels))._labelled(found)

    def others_impossible(self, log_probs: FloatArray) -> FloatArray:
        """log_probs (N, C) with -inf for what known labels rule out."""
        if self.row_labels is None:
            return log_probs
        labels = self.row_labels[:, None]
        other = (labels >= 0) & (labels != np.arange(self.n_classes))
        return np.where(other, -np.inf, log_probs)

    def __len__(self) -> int:
        return self.n_bags

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies have arrays like these, read-only: for others, kernels are compiled anew."""
        packed = None if self.potentials is None else self.potentials.packed()
        return _copied, (self.sizes, self.least, packed, self.row_labels)

    def __repr__(self) -> str:
        low, high = self.sizes.min(), self.sizes.max()
        spread = f"all of size {low}" if low == high else f"sizes {low} to {high}"
        if self.potentials is not None:
            soft = int((~self.potentials.is_sharp).sum())
            where = "" if soft == len(self) else f" of {soft} bag{'s' * (soft > 1)}"
            spread += f", counts{where} not exact"
        return (
            f"Bags({len(self)} bag{'s' * (len(self) > 1)}, {self.n_instances} instances, "
            f"{self.n_classes} classes, {spread})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bags):
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
        """(N,) the bag each instance lies in."""
        return np.repeat(np.arange(len(self)), self.sizes)

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
                f" are not known exactly: from {shown_row(self.least[bad])} to "
                f"{shown_row(self.potentials.high[bad])}. Use expected_counts or potentials.",
            )
        return self.least

    @cached_property
    def is_sharp(self) -> npt.NDArray[np.bool_]:
        """(B,) whether the counts of the bag are known exactly."""
        if self.potentials is None:
            return np.ones(len(self), dtype=np.bool_)
        return self.potentials.is_sharp

    @property
    def most(self) -> IntArray:
        """(B, C) the largest possible counts."""
        return self.least if self.potentials is None else self.potentials.high

    @property
    def expected_counts(self) -> FloatArray:
        """(B, C) the counts, or what they are on average given what is known of the bag."""
        if self.potentials is None:
            return self.least.astype(np.float64)
        return self.potentials.expected

    @cached_property
    def proportions(self) -> FloatArray:
        """(B, C) share of each label in each bag, or the expected share."""
        shares: FloatArray = self.expected_counts / self.sizes[:, None]
        return shares

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        known = self.potentials
        more = () if known is None else (known.begins, known.log_f)
        return (
            self.sizes,
            self.least,
            *more,
            *(() if self.row_labels is None else (self.row_labels,)),
        )

    def fingerprint(self) -> str:
        """A short digest of sizes and counts (or potentials), the same for equal bags.

        >>> Bags([1], [[1, 0]]).fingerprint() == Bags([1], [[0, 1]]).fingerprint()
        False
        """
        digest = hashlib.sha256()
        for array in self._arrays():
            kind = "<i8" if array.dtype.kind == "i" else "<f8"
            digest.update(repr(array.shape).encode() + array.astype(kind).tobytes())
        return digest.hexdigest()[:16]

    def rows(self, index: ArrayLike) -> IntArray:
        """Rows of the instances of the bags in `index`, bag after bag.

        >>> Bags([3, 2, 1], [[3], [2], [1]]).rows([2, 0])
        array([5, 0, 1, 2])
        """
        index_ = self._bag_index(index)
        sizes = self.sizes[index_]
        ends = np.cumsum(sizes)
        shift = self.offsets[index_] - (ends - sizes)
        return np.repeat(shift, sizes) + np.arange(ends[-1] if len(ends) else 0)

    def select(self, index: ArrayLike) -> Bags:
        """The bags in `index`, in that order; `rows(index)` are their instances.

        >>> Bags([3, 2, 1], [[3, 0], [2, 0], [0, 1]]).select([2, 0]).counts
        array([[0, 1],
               [3, 0]])
        """
        index_ = self._bag_index(index)
        if len(index_) == 0:
            raise InputError("index selects no bag; at least one is needed.")
        if self.potentials is None:
            found = Bags.of_arrays(self.sizes[index_], self.least[index_])
        else:
            found = Bags.of_potentials(self.potentials.select(index_))
        if self.row_labels is not None:
            found = found._labelled(self.row_labels[self.rows(index_)])
        return found

    def _labelled(self, labels: IntArray) -> Bags:
        """The same bags with labels that are known to fit."""
        if (labels < 0).all():
            return self
        found = Bags.__new__(Bags)
        found.__dict__.update(self.__dict__)
        found.row_labels = labels
        found._made()
        labels.setflags(write=False)
        return found

    def part(self, rows: ArrayLike, shares: ArrayLike) -> Bags:
        """Some instances of the only bag, as a bag of its own.

        What its counts say of them depends on what the others are likely to be: their labels are
        taken as independent with probabilities `shares`. With known labels among the others, only
        the rest of them is uncertain.

        Args:
            rows: (n,) instances of the bag, each once.
            shares: (C,) mean class probabilities of the others, as a model sees them.

        >>> bags = Bags([6], [[4, 2]]).part([0, 1, 2], shares=[0.5, 0.5])
        >>> bags.potentials.low, bags.potentials.high
        (array([[1, 0]]), array([[3, 2]]))
        >>> bags.expected_counts
        array([[2., 1.]])
        """
        if len(self) != 1:
            raise InputError(f"there are {len(self)} bags; select one of them first.")
        rows_, shares_ = whole_numbers(rows, "rows", ndim=1), numbers(shares, "shares", ndim=1)
        check_part(rows_, self.n_instances, shares_, self.n_classes)
        K, rest, C = len(rows_), self.n_instances - len(rows_), self.n_classes
        low, expected = self.least[0], self.expected_counts[0]
        windows = [np.zeros(1)] * C
        if self.potentials is not None:
            windows = np.split(self.potentials.log_f, self.potentials.begins[1:-1])
        labels, inside = None, np.zeros(C, dtype=np.int64)
        if self.row_labels is not None:
            labels = self.row_labels[rows_]
            inside = np.bincount(labels + 1, minlength=C + 1)[1:]
            others = np.bincount(np.delete(self.row_labels, rows_) + 1, minlength=C + 1)[1:]
            rest -= others.sum()
            expected = expected - inside - others
            beyond = np.maximum(others - low, 0)  # counts that the others have already
            windows = [w[b:] for w, b in zip(windows, beyond, strict=True)]
            low = np.maximum(low - others, 0)
        unknown = K - inside.sum()  # has its share of what is expected of all without a label
        expected = inside + expected * (unknown / max(unknown + rest, 1))
        bags = Bags.of_potentials(potentials_of_part(low, windows, K, rest, shares_, expected))
        return bags if labels is None else bags._labelled(labels)

    def of_classes(self, classes: IntArray) -> Bags:
        """The same bags with these classes only; the others must not occur in any of them."""
        if self.potentials is None:
            found = Bags.of_arrays(self.sizes.copy(), np.ascontiguousarray(self.least[:, classes]))
        else:
            found = Bags.of_potentials(self.potentials.of_classes(classes))
        if self.row_labels is not None:
            places = np.append(np.searchsorted(classes, np.arange(self.n_classes)), -1)
            found = found._labelled(places[self.row_labels])
        return found

    def batches(
        self,
        instances: int,
        order: ArrayLike | None = None,
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
        order_ = np.arange(len(self)) if order is None else self._bag_index(order)
        return batches_of(self.sizes[order_], order_, instances, bags, most)

    def _bag_index(self, index: ArrayLike) -> IntArray:
        if plain_array(index, "index", 1).dtype == np.bool_:
            raise IndexError("index is a mask of booleans; numbers of bags are expected.")
        index_ = whole_numbers(index, "index", ndim=1)
        if (bad := first((index_ < 0) | (index_ >= len(self)))) is not None:
            raise IndexError(f"there is no bag {index_[bad]}; there are {len(self)} bags.")
        return index_


def _copied(
    sizes: IntArray, low: IntArray, packed: FloatArray | None, labels: IntArray | None
) -> Bags:
    """Bags from what a copy or a pickled file of them holds."""
    bags = Bags.of_packed(sizes.copy(), low.copy(), packed)
    return bags if labels is None else bags._labelled(labels.copy())
