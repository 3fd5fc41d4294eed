"""Bags that are too large for a batch and are trained in parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from bagwise.bags import Bags
from bagwise.methods import Batch

_MEMORY = 0.1  # share of the newest part in the running mean of a large bag, at least


class Parts:
    """What the model says of large bags on average, and with it what is known of their parts.

    The counts of a whole bag say of a part of it: the others are likely to have these labels, so
    many are left for the part. What the others are likely to have is a running mean of what the
    model said of the bag's latest parts. It has to be of late: were it an epoch old, each part
    would push the model where all the parts before it have pushed it already.

    Args:
        bags: the training bags.
        room: the largest bag that is not divided.
        kept: where the running means are kept, as a part of checkpoints.
    """

    def __init__(self, bags: Bags, room: int, kept: dict[str, torch.Tensor]) -> None:
        large = np.flatnonzero(bags.sizes > room)
        self._bags = bags
        self._place = {int(bag): place for place, bag in enumerate(large)}
        self._whole: dict[int, Bags] = {}
        self._kept = kept
        if len(large):
            kept["part_shares"] = torch.full((len(large), bags.n_classes), -1.0)

    def completed(self, batch: Batch, logits: torch.Tensor) -> Batch:
        """The batch with its bags, where it is a part of one."""
        if batch.part_of is None:
            return batch
        bag = batch.part_of
        if bag not in self._whole:
            self._whole[bag] = self._bags.select([bag])
        whole = self._whole[bag]
        shares = self._kept["part_shares"][self._place[bag]]
        now = logits.detach().softmax(-1).mean(0).to(shares)
        rate = max(len(batch.rows) / whole.n_instances, _MEMORY)
        shares.copy_(now if shares[0] < 0 else (1 - rate) * shares + rate * now)
        rows = batch.rows.numpy() - self._bags.offsets[bag]
        return replace(batch, bags=whole.part(rows, shares.double().numpy()))
