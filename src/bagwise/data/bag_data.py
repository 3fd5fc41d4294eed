"""Instances and their bags, side by side."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from bagwise.bags import Bags, Groupings, IntArray
from bagwise.bags.row_labels import refuse_wrong_labels
from bagwise.data import inputs as reading
from bagwise.data.inputs import Inputs
from bagwise.errors import InputError, InputTypeError, warn_user
from bagwise.storage.stored_rows import StoredRows


class SharedRows(NamedTuple):
    """Which rows of bags are the same, where several groupings count them.

    Attributes:
        row: (M,) what each row of the bags is a copy of, 0 .. n_rows - 1.
        grouping: (M,) the grouping that its bag is of.
        degrees: (M,) in how many groupings it is.
        n_rows: how many rows there are apart from copies.
        n_groupings: how many groupings there are.
    """

    row: torch.Tensor
    grouping: torch.Tensor
    degrees: torch.Tensor
    n_rows: int
    n_groupings: int


@dataclass(frozen=True, eq=False)
class BagData:
    """Instances sorted by bag, the bags' label counts, and known labels.

    Where several groupings count the same instances, `BagData.of_groupings` makes it.

    Attributes:
        inputs: one row an instance: a tensor (N, ...), a numpy array, also a memory-mapped file, or
            a map-style `Dataset` of instances, such as images that are read when they are needed.
        bags: sizes and counts of the bags of these N instances.
        labels: (N,) integers 0 .. C-1, and -1 where the label is not known; or None, as when none
            is. They serve supervised training, methods that ask for them, and the measurement of
            accuracy; the paper's bag methods never look at them. The label of a row with a weight
            is that of all instances it stands for.
        groupings: where the bags are those of several, in which case `inputs`, `bags` and `labels`
            are those of `Groupings.stacked`; else None.
        joint: whether groupings are learned from jointly.
        shared: set by `joined`.

    >>> data = BagData(torch.randn(5, 3), Bags([3, 2], [[2, 1], [0, 2]]))
    >>> len(data), data.shape
    (5, (3,))
    """

    inputs: Inputs
    bags: Bags
    labels: torch.Tensor | None = None
    groupings: Groupings | None = None
    joint: bool = False
    shared: SharedRows | None = None

    @classmethod
    def of_groupings(
        cls,
        inputs: Inputs,
        groupings: Groupings,
        labels: torch.Tensor | None = None,
        *,
        joint: bool = True,
    ) -> BagData:
        """Instances that several groupings count.

        Args:
            inputs: one row an instance, in the order of the rows of `groupings`. None is copied.
            labels: (N,) as above, in the same order.
            joint: whether cc and rc learn from all groupings together; False takes the bags of all
                groupings one by one, as if each were of rows of its own, with any method.

        >>> ward, age = [0, 0, 1, 1], [0, 1, 0, 1]
        >>> groupings = Groupings({
        ...     "ward": (ward, Bags([2, 2], [[1, 1], [2, 0]])),
        ...     "age": (age, Bags([2, 2], [[1, 1], [2, 0]])),
        ... })
        >>> BagData.of_groupings(torch.randn(4, 3), groupings).bags
        Bags(4 bags, 8 instances, 2 classes, all of size 2)
        """
        if not isinstance(groupings, Groupings):
            raise InputTypeError(
                f"groupings is a {type(groupings).__name__}; bagwise.Groupings is expected."
            )
        reading.check_inputs(inputs)
        _check_length(inputs, groupings.n_instances, "groupings", "in their order")
        rows, bags = groupings.stacked()
        index = torch.from_numpy(rows)
        some = None if labels is None else labels[index]
        return cls(reading.lookup(inputs, index), bags, some, groupings, joint)

    def __post_init__(self) -> None:
        reading.check_inputs(self.inputs)
        _check_length(self.inputs, self.bags.n_instances, "bags", "sorted by bag")
        if self.labels is not None:
            self._check_labels(self.labels)

    def _check_labels(self, labels: object) -> None:
        if not isinstance(labels, torch.Tensor):
            raise InputTypeError(
                f"labels is a {type(labels).__name__}; a torch.Tensor is expected."
            )
        if labels.shape != (len(self.inputs),):
            raise InputError(
                f"labels has shape {tuple(labels.shape)}; "
                f"({len(self.inputs)},) is expected, one label for each instance."
            )
        if labels.is_floating_point() or labels.is_complex():
            raise InputError(f"labels has dtype {labels.dtype}; integers are expected.")
        wrong = (labels < -1) | (labels >= self.bags.n_classes)
        if wrong.any():
            row = int(wrong.int().argmax())
            raise InputError(
                f"the label of row {row} is {int(labels[row])}; labels lie in 0 .. "
                f"{self.bags.n_classes - 1}, and -1 says that one is not known."
            )
        if (labels < 0).all():
            object.__setattr__(self, "labels", None)
            return
        try:
            found = labels.cpu().numpy().astype(np.int64)
            bags = self.bags
            refuse_wrong_labels(found, bags.offsets, bags.min_counts, bags.max_counts, bags.copies)
        except InputError as contradiction:
            warn_user(
                f"labels and counts contradict each other: {contradiction} Bags are learned from "
                "counts, and accuracies are measured by labels; are both sorted by bag?"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one instance."""
        return reading.shape_of(self.inputs)

    def select(self, index: IntArray) -> BagData:
        """These bags only, in this order. What lies in a file or a `Dataset` is not copied.

        Bags of several groupings stay in their own order.
        """
        if self.groupings is not None:
            index = np.sort(index)
            rows = torch.from_numpy(self.bags.rows(index))
            labels = None if self.labels is None else self.labels[rows]
            part = reading.select(self.inputs, rows)
            groupings = self.groupings.select(index)
            return BagData(part, self.bags.select(index), labels, groupings, self.joint)
        if isinstance(self.inputs, StoredRows) and self.labels is None:
            return BagData(self.inputs.select(index), self.bags.select(index))
        rows = torch.from_numpy(self.bags.rows(index))
        labels = None if self.labels is None else self.labels[rows]
        return BagData(reading.select(self.inputs, rows), self.bags.select(index), labels)

    def distinct(self) -> tuple[Inputs, IntArray | None]:
        """The inputs, each row once, and the rows' weights, if they have any."""
        if self.groupings is None:
            return self.inputs, self.bags.weights
        return reading.looked_up(self.inputs), self.groupings.weights

    def joined(self) -> BagData:
        """What is trained on: the same, or what `Groupings.unnested` makes of groupings that are
        to be learned from jointly, with what they share.
        """
        if self.groupings is None or not self.joint:
            return self
        left, _, degrees = self.groupings.unnested
        begins = np.cumsum([0, *(len(g.rows) for g in self.groupings)])
        copies = []  # of the rows of each grouping, among all copies
        for place, g in left:
            copy_of = np.empty(self.groupings.n_instances, np.int64)
            copy_of[self.groupings.groupings[place].rows] = np.arange(*begins[place : place + 2])
            copies.append(torch.from_numpy(copy_of[g.rows]))
        index, rows = torch.cat(copies), np.concatenate([g.rows for _, g in left])
        return BagData(
            reading.lookup(self.inputs, index),
            Bags.join(g.bags for _, g in left),
            None if self.labels is None else self.labels[index],
            self.groupings,
            True,
            SharedRows(
                torch.from_numpy(rows),
                torch.cat([torch.full((len(some),), n) for n, some in enumerate(copies)]),
                torch.from_numpy(degrees[rows]),
                self.groupings.n_instances,
                len(left),
            ),
        )

    def fingerprint(self) -> str:
        """A short digest of inputs, bags and labels.

        Of a `Dataset` it has the class and the length only, and what its own `fingerprint()`
        returns, if there is such a method.
        """
        digest = hashlib.blake2b(self.bags.fingerprint().encode(), digest_size=8)
        if self.shared is not None:
            for tensor in self.shared[:3]:
                reading.fingerprint(digest, tensor)
        reading.fingerprint(digest, self.inputs)
        if self.labels is not None:
            reading.fingerprint(digest, self.labels)
        return digest.hexdigest()


def _check_length(inputs: Inputs, n: int, of: str, order: str) -> None:
    if len(inputs) != n:
        raise InputError(
            f"there are {len(inputs)} rows of inputs, but the {of} have {n} instances; give one "
            f"row for each, {order}."
        )
