"""What is known of a batch beside its bags: labels, weights, messages, and of parts of bags."""

from __future__ import annotations

from dataclasses import replace

import torch

from bagwise.data import BagData
from bagwise.methods import Batch
from bagwise.methods.kept_messages import Messages
from bagwise.training.bag_parts import Parts


class Known:
    """Completes batches.

    Args:
        kept: what the method keeps, to which the messages between groupings are added.
    """

    def __init__(
        self, data: BagData, parts: Parts, kept: dict[str, torch.Tensor], device: torch.device
    ) -> None:
        self._labels = data.labels
        self._copies = None if data.bags.weights is None else torch.tensor(data.bags.weights)
        self._parts = parts
        self._shared = data.shared
        self._messages = None
        if data.shared is not None:
            self._messages = Messages(data.shared, data.bags.n_classes, kept)
        self._device = device

    def begin_epoch(self) -> None:
        """See `Parts`."""
        self._parts.begin_epoch()

    def of_rows(self, batch: Batch) -> Batch:
        """The batch with labels, weights and messages of its rows."""
        rows = batch.rows
        labels, copies = (
            None if known is None else known[rows].to(self._device)
            for known in (self._labels, self._copies)
        )
        messages = None if self._messages is None else self._messages.of(rows)
        return replace(batch, labels=labels, copies=copies, messages=messages)

    def n_instances(self, rows: torch.Tensor) -> float:
        """How many instances the mean loss of a batch of these rows is a mean of."""
        copies = torch.ones(len(rows)) if self._copies is None else self._copies[rows]
        if self._shared is not None:  # in several groupings, and so in several batches
            copies = copies / self._shared.degrees[rows]
        return float(copies.sum())

    def of_bags(self, batch: Batch, logits: torch.Tensor) -> Batch:
        """The batch with its bags, where it is a part of one."""
        if batch.part_of is None or batch.messages is None:
            return self._parts.completed(batch, logits)
        return self._parts.completed(batch, torch.from_numpy(batch.messages.cavity(logits)))
