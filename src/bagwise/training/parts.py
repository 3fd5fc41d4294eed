"""Bags that are too large for a batch and are trained in parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from bagwise.bags import Bags
from bagwise.methods import Batch

_MEMORY = 0.1  # share of the newest part in the running mean of a large bag, at least
_LEAST = 1e-9


@dataclass
class _Large:
    """A large bag: itself, where its rows are kept, and in an epoch the sum of what is kept."""

    bag: Bags
    begin: int
    place: int
    sum: torch.Tensor | None = None
    unseen: int = 0


class Parts:
    """What the model says of large bags, and with it what is known of their parts.

    The counts of a whole bag say of a part of it: the others are likely to have these labels, so
    many are left for the part. For that the sum of the model's probabilities over the others has to
    be known, and for the model as it is now: were it an epoch old, each part would push the model
    where all the parts before it have pushed it already. So what the model said of each row when it
    last saw it is kept, and corrected by how much it has changed its mind about the rows at hand.
    These were seen an epoch ago, the others half an epoch ago on average:

        mean over the bag ~ mean of what is kept + (now - kept, the mean over the part) / 2

    In the first epoch a running mean of the parts serves instead.

    Args:
        bags: the training bags.
        room: the largest bag that is not divided.
        kept: where all that is kept lies, as a part of checkpoints.
    """

    def __init__(self, bags: Bags, room: int, kept: dict[str, torch.Tensor]) -> None:
        large = np.flatnonzero(bags.sizes > room)
        begins = np.concatenate([[0], np.cumsum(bags.sizes[large])])
        self._offsets = bags.offsets
        self._large = {
            int(bag): _Large(bags.select([bag]), int(begins[place]), place)
            for place, bag in enumerate(large)
        }
        self._kept = kept
        if len(large):
            kept["part_shares"] = torch.full((len(large), bags.n_classes), -1.0)
            kept["part_probs"] = torch.full((int(begins[-1]), bags.n_classes), -1.0)

    def begin_epoch(self) -> None:
        """Add up anew what is kept, so that it does not matter where a run was stopped."""
        for large in self._large.values():
            large.sum = None

    def completed(self, batch: Batch, logits: torch.Tensor) -> Batch:
        """The batch with its bags, where it is a part of one."""
        if batch.part_of is None:
            return batch
        large = self._large[batch.part_of]
        rows = batch.rows - int(self._offsets[batch.part_of])
        now = logits.detach().float().softmax(-1).cpu()
        rest = self._rest(large, rows + large.begin, now)
        return replace(batch, bags=large.bag.part(rows.numpy(), rest.numpy()))

    def _rest(self, large: _Large, rows: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
        """(C,) in proportion to the mean probabilities of the bag's other rows; keeps those of
        these.
        """
        n, probs = large.bag.n_instances, self._kept["part_probs"]
        if large.sum is None:
            whole = probs[large.begin : large.begin + n]
            large.sum = whole.double().sum(0)
            large.unseen = int((whole[:, 0] < 0).sum())
        shares = self._kept["part_shares"][large.place]
        rate = max(len(rows) / n, _MEMORY)
        mean = now.mean(0)
        shares.copy_(mean if shares[0] < 0 else (1 - rate) * shares + rate * mean)
        before = probs[rows]
        total = n * shares.double()
        if large.unseen == 0:
            total = large.sum + n * (now - before).double().mean(0) / 2
        probs[rows] = now
        large.sum += (now - before).double().sum(0)
        large.unseen -= int((before[:, 0] < 0).sum())
        return (total - now.double().sum(0)).clamp(min=_LEAST * n)
