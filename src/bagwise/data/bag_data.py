"""Instances and their bags, side by side."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from bagwise.bags import Bags, IntArray
from bagwise.bags.row_labels import refuse_wrong_labels
from bagwise.data import inputs as reading
from bagwise.data.inputs import Inputs
from bagwise.errors import InputError, InputTypeError
from bagwise.storage.stored_rows import StoredRows


@dataclass(frozen=True, eq=False)
class BagData:
    """Instances sorted by bag, the bags' label counts, and the labels where they are known.

    Attributes:
        inputs: one row an instance: a tensor (N, ...), a numpy array, also a memory-mapped file, or
            a map-style `Dataset` of instances, such as images that are read when they are needed.
        bags: sizes and counts of the bags of these N instances.
        labels: (N,) integers 0 .. C-1, and -1 where the label is not known; or None, as when none
            is. They serve supervised training, methods that ask for them, and the measurement of
            accuracy; the paper's bag methods never look at them.

    >>> data = BagData(torch.randn(5, 3), Bags([3, 2], [[2, 1], [0, 2]]))
    >>> len(data), data.shape
    (5, (3,))
    """

    inputs: Inputs
    bags: Bags
    labels: torch.Tensor | None = None

    def __post_init__(self) -> None:
        reading.check_inputs(self.inputs)
        self.bags.refuse_weights("training")
        if len(self.inputs) != self.bags.n_instances:
            raise InputError(
                f"there are {len(self.inputs)} rows of inputs, but the bags have "
                f"{self.bags.n_instances} instances; give one row for each, sorted by bag."
            )
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
            refuse_wrong_labels(found, bags.offsets, bags.least, bags.most, bags.copies)
        except InputError as contradiction:
            warnings.warn(
                f"labels and counts contradict each other: {contradiction} Bags are learnt from "
                "counts, and accuracies are measured by labels; are both sorted by bag?",
                UserWarning,
                stacklevel=4,  # whoever made it
            )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one instance."""
        return reading.shape_of(self.inputs)

    def select(self, index: IntArray) -> BagData:
        """These bags only, in this order. What lies in a file or a `Dataset` is not copied."""
        if isinstance(self.inputs, StoredRows) and self.labels is None:
            return BagData(self.inputs.select(index), self.bags.select(index))
        rows = torch.from_numpy(self.bags.rows(index))
        labels = None if self.labels is None else self.labels[rows]
        return BagData(reading.select(self.inputs, rows), self.bags.select(index), labels)

    def fingerprint(self) -> str:
        """A short digest of inputs, bags and labels.

        Of a `Dataset` it has the class and the length only, and what its own `fingerprint()`
        returns, if there is such a method.
        """
        digest = hashlib.blake2b(self.bags.fingerprint().encode(), digest_size=8)
        reading.fingerprint(digest, self.inputs)
        if self.labels is not None:
            reading.fingerprint(digest, self.labels)
        return digest.hexdigest()
