"""Bags that are too large for a batch and are trained in parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from bagwise.autograd.bag_tensors import weighted
from bagwise.bags import Bags
from bagwise.data import Inputs
from bagwise.data.inputs import full
from bagwise.methods import Batch

_MEMORY = 0.1  # share of the newest part in the running mean of a large bag, at least
_LEAST = 1e-9


@dataclass
class _Large:
    """A large bag: its rows, where they are kept, and in an epoch the sums of what is kept.

    Sums are over instances: a row counts as often as its weight says.
    """

    n: int
    total: int
    offset: int
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
        self._copies = None if bags.weights is None else torch.tensor(bags.weights)
        self._large = {
            int(bag): _Large(
                n=int(bags.sizes[bag]),
                total=int(bags.totals[bag]),
                offset=int(bags.offsets[bag]),
                begin=int(begins[place]),
                place=place,
            )
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
        rows = batch.rows - large.offset
        now = logits.detach().float().softmax(-1).cpu()
        rest = self._rest(large, rows, now)
        whole = self._bags.select([batch.part_of])
        return replace(batch, bags=whole.part(rows.numpy(), rest.numpy()))

    def _rest(self, large: _Large, rows: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
        """(C,) in proportion to the mean probabilities of the bag's other rows; keeps those of
        these.
        """
        whole = slice(large.begin, large.begin + large.n)
        probs, seen_at = self._kept["part_probs"][whole], self._kept["part_seen_at"][whole]
        step, copies = int(self._kept["part_steps"]), None
        if self._copies is not None:
            copies = self._copies[large.offset : large.offset + large.n]
        if large.sum is None:
            large.sum = weighted(probs.double(), copies).sum(0)
            large.seen_at = int(weighted(seen_at, copies).sum())
            large.unseen = int((probs[:, 0] < 0).sum())
        copies = None if copies is None else copies[rows]
        shares, n = self._kept["part_shares"][large.place], large.total
        n_part = len(rows) if copies is None else int(copies.sum())
        rate = max(n_part / n, _MEMORY)
        sum_now = weighted(now.double(), copies).sum(0)
        mean = (sum_now / n_part).float()
        shares.copy_(mean if shares[0] < 0 else (1 - rate) * shares + rate * mean)
        first = large.unseen > 0
        change = weighted((now - probs[rows]).double(), copies).sum(0)
        since = int(weighted(step - seen_at[rows], copies).sum())
        large.unseen -= int((probs[rows, 0] < 0).sum())
        probs[rows] = now
        seen_at[rows] = step
        large.sum += change
        large.seen_at += since
        total = n * shares.double()
        if not first:
            age = (n * step - large.seen_at) / since
            total = large.sum + age * change
        return (total - sum_now).clamp(min=_LEAST * n)
