"""Instances and their bags, side by side."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from bagwise.bags import Bags, IntArray


@dataclass(frozen=True)
class BagData:
    """Instances sorted by bag, the bags' label counts, and the labels where they are known.

    Attributes:
        inputs: (N, ...) one row an instance.
        bags: sizes and counts of the bags of these N instances.
        labels: (N,) integers 0 .. C-1, or None. Bag methods never look at them; they serve
            supervised training and the measurement of accuracy.

    >>> data = BagData(torch.randn(5, 3), Bags([3, 2], [[2, 1], [0, 2]]))
    >>> len(data)
    5
    """

    inputs: torch.Tensor
    bags: Bags
    labels: torch.Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("inputs", "labels"):
            value = getattr(self, name)
            if not (isinstance(value, torch.Tensor) or (name == "labels" and value is None)):
                raise TypeError(f"{name} is a {type(value).__name__}; a torch.Tensor is expected.")
        if len(self.inputs) != self.bags.n_instances:
            raise ValueError(
                f"there are {len(self.inputs)} rows of inputs, but the bags have "
                f"{self.bags.n_instances} instances; give one row for each, sorted by bag."
            )
        if self.labels is not None and self.labels.shape != (len(self.inputs),):
            raise ValueError(
                f"labels has shape {tuple(self.labels.shape)}; "
                f"({len(self.inputs)},) is expected, one label for each instance."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def select(self, index: IntArray) -> BagData:
        """These bags only, in this order."""
        rows = torch.from_numpy(self.bags.rows(index))
        labels = None if self.labels is None else self.labels[rows]
        return BagData(self.inputs[rows], self.bags.select(index), labels)

    def fingerprint(self) -> str:
        """A short digest of inputs, bags and labels."""
        digest = hashlib.blake2b(self.bags.fingerprint().encode(), digest_size=8)
        for tensor in (self.inputs, self.labels):
            if tensor is not None:
                digest.update(repr((tensor.shape, tensor.dtype)).encode())
                digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()
