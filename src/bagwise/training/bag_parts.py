"""Bags that are too large for a batch and are trained in parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from bagwise.bags import Bags
from bagwise.data import Inputs
from bagwise.data.inputs import full
from bagwise.methods import Batch

_MEMORY = 0.1  # share of the newest part in the running mean of a large bag, at least
_LEAST = 1e-9


@dataclass
class _Large:
    """A large bag: its rows, where they are kept, and in an epoch the sums of what is kept."""

    n: int
    begin: int
    place: int
    sum: torch.Tensor | None = None
    seen_at: int = 0
    unseen: int = 0


class Parts:
    """What the model says of large bags, and with it what is known of their parts.

    The counts of a whole bag say of a part of it: the others are likely to have these labels, so
    many are left for the part. For that the sum of the model's probabilities over the others has to
    be known, and for the model as it is now: were it an epoch old, each part would push the model
    where all the parts before it have pushed it already. So what the model said of each row when it
    last saw it is kept, and corrected by how much it has changed its mind about the rows at hand,
    in proportion to the steps since then:

        sum over the others ~ sum of what is kept
                              + (now - kept, the mean over the part) (steps since, the sum over the
                                others) / (steps since, the mean over the part)

    In the first epoch a running mean of the parts serves instead.

    Args:
        room: the largest bag that is not divided.
        kept: where all that is kept lies, as a part of checkpoints.
        inputs: the rows of the bags; where they lie in a file, so does what is kept of each.
    """

    def __init__(
        self, bags: Bags, room: int, kept: dict[str, torch.Tensor], inputs: Inputs = None
    ) -> None:
        large = np.flatnonzero(bags.sizes > room)
        begins = np.concatenate([[0], np.cumsum(bags.sizes[large])])
        self._bags = bags
        self._large = {
            int(bag): _Large(int(bags.sizes[bag]), int(begins[place]), place)
            for place, bag in enumerate(large)
        }
        self._kept = kept
        if len(large):
            kept["part_shares"] = torch.full((len(large), bags.n_classes), -1.0)
            n = int(begins[-1])
            kept["part_probs"] = full(inputs, (n, bags.n_classes), -1.0)
            kept["part_seen_at"] = full(inputs, (n,), 0, torch.int64)
            kept["part_steps"] = torch.zeros(1, dtype=torch.int64)

    def begin_epoch(self) -> None:
        """Add up anew what is kept, so that it does not matter where a run was stopped."""
        for large in self._large.values():
            large.sum = None

    def completed(self, batch: Batch, logits: torch.Tensor) -> Batch:
        """The batch with its bags, where it is a part of one."""
        if self._large:
            self._kept["part_steps"] += 1
        if batch.part_of is None:
            return batch
        large = self._large[batch.part_of]
        rows = batch.rows - int(self._bags.offsets[batch.part_of])
        now = logits.detach().float().softmax(-1).cpu()
        rest = self._rest(large, rows + large.begin, now)
        whole = self._bags.select([batch.part_of])
        return replace(batch, bags=whole.part(rows.numpy(), rest.numpy()))

    def _rest(self, large: _Large, rows: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
        """(C,) in proportion to the mean probabilities of the bag's other rows; keeps those of
        these.
        """
        n, probs, seen_at = large.n, self._kept["part_probs"], self._kept["part_seen_at"]
        step = int(self._kept["part_steps"])
        if large.sum is None:
            whole = slice(large.begin, large.begin + n)
            large.sum = probs[whole].double().sum(0)
            large.seen_at = int(seen_at[whole].sum())
            large.unseen = int((probs[whole, 0] < 0).sum())
        shares = self._kept["part_shares"][large.place]
        rate = max(len(rows) / n, _MEMORY)
        mean = now.mean(0)
        shares.copy_(mean if shares[0] < 0 else (1 - rate) * shares + rate * mean)
        first = large.unseen > 0
        change, since = (now - probs[rows]).double(), step - seen_at[rows]
        large.unseen -= int((probs[rows, 0] < 0).sum())
        probs[rows] = now
        seen_at[rows] = step
        large.sum += change.sum(0)
        large.seen_at += int(since.sum())
        total = n * shares.double()
        if not first:
            age = (n * step - large.seen_at) / float(since.double().mean())
            total = large.sum + age * change.mean(0)
        return (total - now.double().sum(0)).clamp(min=_LEAST * n)
