"""LLPFC: bags in groups as noisy labels, with forward correction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bagwise.autograd.bag_tensors import weighted
from bagwise.bags import Bags
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.losses import llpfc_loss
from bagwise.methods.base import Batch, Method


def transition_matrices(proportions: torch.Tensor) -> torch.Tensor:
    """T[g, i, c] = gamma[i, c] / (C mean_i gamma[i, c]) of each group g of C bags.

    P(noisy label i | true label c) when the bags of a group are equally likely. A class that no bag
    of the group has keeps a column of zeros: no instance of the group can be of that class.

    Args:
        proportions: (G, C, C) gamma: bag i of group g has the share gamma[g, i, c] of class c.

    >>> transition_matrices(torch.tensor([[[.75, .25], [.25, .75]]]))
    tensor([[[0.7500, 0.2500],
             [0.2500, 0.7500]]])
    """
    totals = proportions.sum(dim=1, keepdim=True)
    return torch.where(totals > 0, proportions / totals.clamp(min=1e-30), 0.0)


class LLPFC(Method):
    """LLPFC-uniform: C bags at random make a group; bag i of it gives its instances noisy label i.

    Bags left over wait for the next grouping. Batches are of single instances. All bags weigh the
    same, whatever their sizes, as the transition matrices suppose that they are equally likely.

    Args:
        regroup_every: epochs between new groups.
    """

    title, color, line = "LLPFC", "#e07a00", "-."

    def __init__(self, regroup_every: int = 20) -> None:
        super().__init__()
        if regroup_every < 1:
            raise InputError(f"regroup_every is {regroup_every}; it must be at least 1.")
        self.regroup_every = regroup_every

    def begin(self, data: BagData, device: torch.device) -> None:
        """Check that there is at least one group's worth of bags."""
        C = data.bags.n_classes
        if data.bags.row_labels is not None:
            raise InputError(
                "LLPFC learns from bags alone, and some instances have known labels; use cc or rc."
            )
        if len(data.bags) < C:
            raise InputError(
                f"LLPFC puts {C} bags (one for each class) into a group, but there are only "
                f"{len(data.bags)} bags; use more bags or another method."
            )
        self._bags: Bags = data.bags
        self._bag_of_row = torch.tensor(data.bags.bag_of_row)
        self._proportions = torch.tensor(data.bags.proportions).float()
        self._device = device
        # The group (or -1) and the noisy label of every bag; filled when the first epoch begins.
        self.kept["group"] = torch.full((len(data.bags),), -1)
        self.kept["label"] = torch.zeros(len(data.bags), dtype=torch.int64)

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        """New groups at the first epoch and every `regroup_every` epochs."""
        if (epoch - 1) % self.regroup_every == 0:
            B, C = len(self._bags), self._bags.n_classes
            order = torch.randperm(B, generator=generator)[: B // C * C]
            self.kept["group"].fill_(-1)
            self.kept["group"][order] = torch.arange(len(order)) // C
            self.kept["label"][order] = torch.arange(len(order)) % C
        grouped = torch.argsort(self.kept["group"] * self._bags.n_classes + self.kept["label"])
        grouped = grouped[self.kept["group"][grouped] >= 0]
        gamma = self._proportions[grouped]
        C = self._bags.n_classes
        self._transitions = transition_matrices(gamma.reshape(-1, C, C)).to(self._device)
        # Of the instances of each bag; their mean over all instances of groups is 1.
        sizes = torch.tensor(self._bags.totals).double()
        self._weights = (sizes[grouped].mean() / sizes).float()

    def batches(
        self,
        data: BagData,
        instances: int,
        generator: torch.Generator,
        bags: int = 1,
        most: int | None = None,
    ) -> Iterator[Batch]:
        """Random batches of the instances whose bags are in a group; they mix many bags anyway."""
        rows = np.flatnonzero(self.kept["group"].numpy()[data.bags.bag_of_row] >= 0)
        shuffled = torch.from_numpy(rows)[torch.randperm(len(rows), generator=generator)]
        for start in range(0, len(shuffled), instances):
            yield Batch(shuffled[start : start + instances], None)

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """`llpfc_loss`."""
        bag = self._bag_of_row[batch.rows]
        total = llpfc_loss(
            logits,
            self.kept["label"][bag].to(logits.device),
            self._transitions,
            self.kept["group"][bag].to(logits.device),
            weights=weighted(self._weights[bag].to(logits.device), batch.copies),
            reduction="sum",
        )
        return total / batch.n_instances
