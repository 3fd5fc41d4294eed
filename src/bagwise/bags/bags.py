"""Ragged bags: how many instances each bag has, and what is known of their labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bagwise.bags import make_potentials as known
from bagwise.bags.arrays import (
    FloatArray,
    IntArray,
    bag_table,
    check_table,
    first,
    plain_array,
    refuse_fractions,
    row_weights,
    shown_row,
    totals_of,
    whole_numbers,
)
from bagwise.bags.batching import batches_of
from bagwise.bags.constructors import Constructors
from bagwise.bags.pickled import refuse_damaged, to_bytes, whole_numbers_of
from bagwise.bags.potentials import join, of_counts
from bagwise.bags.row_labels import others_impossible, refuse_wrong_labels
from bagwise.bags.sub_bags import known_of_part
from bagwise.errors import InputError, Place
from bagwise.extras import require


class Bags(Constructors):
    """Sizes and label counts of B bags, whose instances are sorted by bag.

    Instance arrays that go with it have N = sum(sizes) rows: the first sizes[0] rows are bag 0, the
    next sizes[1] rows are bag 1, and so on.

    Where the counts are not known exactly, other constructors say what is: `from_noisy_counts`,
    `from_ranges`, `from_proportions` with `decimals`, `from_sample`. What they know becomes
    `potentials` over the counts, which losses and engines use in place of counts.

    Args:
        sizes: (B,) instances per bag, each at least 1.
        counts: (B, C) instances of each label; row b sums to sizes[b]. NaN where a count is not
            known: what the others leave over is then shared by the classes without one.
        weights: (N,) how many identical rows each row stands for, whole numbers from 1 on; None if
            each stands for itself. `sizes` then counts the rows that are there, and the counts of
            bag b sum to totals[b], the sum of its weights. (A survey's weight is another thing: the
            row was counted once, and is to speak for others.)

    >>> bags = Bags(sizes=[3, 2], counts=[[2, 1], [0, 2]])
    >>> bags
    Bags(2 bags, 5 instances, 2 classes, sizes 2 to 3)
    >>> bags.offsets
    array([0, 3, 5])
    >>> Bags(sizes=[2], counts=[[30, 10]], weights=[25, 15]).totals
    array([40])
    """

    def __init__(self, sizes: ArrayLike, counts: ArrayLike, weights: ArrayLike | None = None):
        sizes_ = whole_numbers(sizes, "sizes", ndim=1)
        plain = plain_array(counts, "counts", ndim=2)
        if plain.dtype.kind == "f" and np.isnan(plain).any():
            found = bag_table(plain, sizes_, "counts", gaps=True)
            refuse_fractions(found, "counts")
            weights_ = row_weights(weights, sizes_)
            potentials = known.of_ranges(found, found, totals_of(sizes_, weights_))
            self._know(potentials, sizes_, weights_)
            return
        counts_ = whole_numbers(plain, "counts", ndim=2)
        check_table(counts_, sizes_, "counts")
        if (bad := first((counts_ < 0).any(axis=1))) is not None:
            raise InputError(
                Place("bag", bad),
                f" has a negative count: {shown_row(counts_[bad])}; counts must be 0 or more, and "
                "NaN where nobody knows one.",
            )
        weights_ = row_weights(weights, sizes_)
        totals, sums = totals_of(sizes_, weights_), counts_.sum(axis=1)
        if (bad := first(sums != totals)) is not None:
            size = "its size is" if weights_ is None else "its weights sum to"
            raise InputError(
                "the counts of ",
                Place("bag", bad),
                f" sum to {sums[bad]}, but {size} {totals[bad]}: {shown_row(counts_[bad])}; "
                "every instance carries exactly one label.",
            )
        self._set(sizes_, counts_, None, weights_)

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
        joined = join(
            [part.potentials or of_counts(part.min_counts, part.totals) for part in parts]
        )
        sizes, weights = np.concatenate([part.sizes for part in parts]), None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate([part.copies for part in parts])
        labels = [
            np.full(part.n_instances, -1) if part.row_labels is None else part.row_labels
            for part in parts
        ]
        return cls.of_potentials(joined, sizes, weights)._labeled(np.concatenate(labels))

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
        of_labels = refuse_wrong_labels(
            found, self.offsets, self.min_counts, self.max_counts, self.copies
        )
        if self.potentials is None:
            return self._labeled(found)
        potentials = self.potentials.given_labels(of_labels)
        return Bags.of_potentials(potentials, self.sizes, self.weights)._labeled(found)

    def others_impossible(self, log_probs: FloatArray) -> FloatArray:
        """log_probs (N, C) with -inf for what known labels rule out."""
        return others_impossible(log_probs, self.row_labels)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies have arrays like these, read-only: for others, kernels are compiled anew."""
        packed = None if self.potentials is None else self.potentials.packed()
        arrays = (self.sizes, self.min_counts, packed, self.row_labels, self.weights)
        return bags_of_bytes, tuple(map(to_bytes, arrays))

    def written_out(self) -> Bags:
        """The same bags with every row as often as its weight says, in place: `np.repeat(rows,
        bags.copies, axis=0)` goes with it.

        >>> Bags([2], [[2, 1]], weights=[1, 2]).written_out()
        Bags(1 bag, 3 instances, 2 classes, all of size 3)
        """
        found = Bags.of_potentials(self.potentials or of_counts(self.min_counts, self.totals))
        labels = self.row_labels
        return found if labels is None else found._labeled(np.repeat(labels, self.copies))

    def to(self, device: Any, non_blocking: bool = False) -> Bags:
        """The same bags, of which the device has all that losses read there; sent once.

        Losses do so by themselves. To call it earlier, for instance beside the batch's inputs, lets
        the transfer overlap with other work, and a compiled step needs it. Nothing is to be done
        for the CPU.

        Args:
            device: a name or a `torch.device`.
            non_blocking: do not wait for the transfer; after `pin_memory`.

        >>> bags = Bags([2], [[1, 1]])
        >>> bags.to("cpu") is bags
        True
        """
        require("torch", "torch")
        import bagwise.autograd as autograd  # tensors, for those who have them

        autograd.move(self, device, non_blocking)
        return self

    def pin_memory(self) -> Bags:
        """The same bags, with what `to` sends in pinned memory: then the host need not wait for the
        transfer. A `DataLoader` with `pin_memory=True` calls it.
        """
        require("torch", "torch")
        import bagwise.autograd as autograd

        autograd.pin(self)
        return self

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
        sizes = self.sizes[index_]
        weights = None if self.weights is None else self.weights[self.rows(index_)]
        if self.potentials is None:
            found = Bags.of_arrays(sizes, self.min_counts[index_], weights)
        else:
            found = Bags.of_potentials(self.potentials.select(index_), sizes, weights)
        if self.row_labels is not None:
            found = found._labeled(self.row_labels[self.rows(index_)])
        return found

    def _labeled(self, labels: IntArray) -> Bags:
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
        rows_ = whole_numbers(rows, "rows", ndim=1)
        known = known_of_part(self, rows_, shares)
        weights = None if self.weights is None else self.weights[rows_]
        bags = Bags.of_potentials(known, np.array([len(rows_)]), weights)
        return bags if self.row_labels is None else bags._labeled(self.row_labels[rows_])

    def of_classes(self, classes: IntArray) -> Bags:
        """The same bags with these classes only; the others must not occur in any of them."""
        if self.potentials is None:
            counts = np.ascontiguousarray(self.min_counts[:, classes])
            found = Bags.of_arrays(self.sizes.copy(), counts, self.weights)
        else:
            known = self.potentials.of_classes(classes)
            found = Bags.of_potentials(known, self.sizes.copy(), self.weights)
        if self.row_labels is not None:
            places = np.append(np.searchsorted(classes, np.arange(self.n_classes)), -1)
            found = found._labeled(places[self.row_labels])
        return found

    def batches(
        self,
        max_instances: int,
        order: ArrayLike | None = None,
        bags: int = 1,
        most: int | None = None,
    ) -> Iterator[IntArray]:
        """Indexes of whole bags, in `order`, each batch holding at most `max_instances` instances.

        A bag that is larger than the budget is a batch of its own, unless several are asked for.

        Args:
            max_instances: the budget of a batch.
            order: of the bags; their own if not given.
            bags: every batch holds at least this many, beyond the budget too, as far as there are
                so many bags and they have no more than `most` instances.
            most: instances up to which `bags` goes before `max_instances`; None for any number.

        >>> bags = Bags([3, 2, 2, 9, 1], [[3], [2], [2], [9], [1]])
        >>> list(bags.batches(max_instances=5))
        [array([0, 1]), array([2]), array([3]), array([4])]
        >>> list(bags.batches(max_instances=5, bags=2))
        [array([0, 1]), array([2, 3, 4])]
        """
        order_ = np.arange(len(self)) if order is None else self._bag_index(order)
        return batches_of(self.sizes[order_], order_, max_instances, bags, most)

    def _bag_index(self, index: ArrayLike) -> IntArray:
        if plain_array(index, "index", 1).dtype == np.bool_:
            raise IndexError("index is a mask of booleans; numbers of bags are expected.")
        index_ = whole_numbers(index, "index", ndim=1)
        if (bad := first((index_ < 0) | (index_ >= len(self)))) is not None:
            raise IndexError(f"there is no bag {index_[bad]}; there are {len(self)} bags.")
        return index_


def bags_of_bytes(
    sizes: bytes,
    low: bytes,
    packed: bytes | None,
    labels: bytes | None,
    weights: bytes | None,
) -> Bags:
    """Bags from what a copy or a pickled file of them holds."""
    sizes_, low_ = whole_numbers_of(sizes), whole_numbers_of(low)
    packed_ = None if packed is None else np.frombuffer(packed, "<f8").astype(np.float64)
    labels_, weights_ = (None if x is None else whole_numbers_of(x) for x in (labels, weights))
    refuse_damaged(sizes_, low_, packed_, labels_, weights_)
    bags = Bags.of_packed(sizes_, low_.reshape(len(sizes_), -1), packed_, weights_)
    return bags if labels_ is None else bags._labeled(labels_)
