"""Messages between groupings, kept per row from batch to batch: learning from all jointly."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from bagwise.bags import Bags
from bagwise.data import SharedRows
from bagwise.losses import weighted_cross_entropy
from bagwise.posterior import bag_posterior

_DAMPING = 0.25  # share of the former message in a new one
_LEAST = -100.0  # a message's logarithm, relative to its largest: as good as impossible


class Messages:
    """What each grouping has last said of each row: the logarithm of m_g[k, c].

    Each batch asks what the groupings of its bags say, given what the others said when they were
    last asked, and replaces it:

        cavity_g[k, c] = p[k, c] prod over h != g of m_h[k, c]
        w_g            = the posterior of the batch's bags under cavity_g
        m_g[k, c]      = (w_g[k, c] / cavity_g[k, c])^(1 - damping) m_g[k, c]^damping

    That is a round of `bagwise.posterior.joint.posterior_of_groupings`, a few bags at a time.

    Args:
        kept: where the messages lie, as a part of checkpoints.
    """

    def __init__(self, shared: SharedRows, n_classes: int, kept: dict[str, torch.Tensor]) -> None:
        self._shared = shared
        self._kept = kept
        kept["messages"] = torch.zeros(shared.n_groupings, shared.n_rows, n_classes)

    def of(self, rows: torch.Tensor) -> BatchMessages:
        """Those of a batch's rows (n,), as they are now."""
        messages, row, grouping = self._kept["messages"], *self._shared[:2]
        index = grouping[rows], row[rows]
        own = messages[index].double()
        others = messages[:, index[1]].double().sum(0) - own
        return BatchMessages(messages, index, own, others, self._shared.degrees[rows].double())


class JointPosterior(NamedTuple):
    """What a batch's bags and the messages of other groupings say.

    Attributes:
        weights: (n, C) P(Y_k = c | counts of all groupings), in the type of the log-probabilities.
        log_likelihood: of all counts, the batch's share of it.
    """

    weights: torch.Tensor
    log_likelihood: float


class BatchMessages(NamedTuple):
    """The messages of a batch's rows.

    Attributes:
        kept: (G, N, C) all messages.
        place: where in `kept` the messages of the batch's own groupings are.
        own: (n, C) these.
        others: (n, C) sums of what other groupings say.
        degrees: (n,) in how many groupings each row is.
    """

    kept: torch.Tensor
    place: tuple[torch.Tensor, torch.Tensor]
    own: torch.Tensor
    others: torch.Tensor
    degrees: torch.Tensor

    def cavity(self, log_probs: torch.Tensor) -> torch.Tensor:
        """(n, C) what is known of rows without their bags in this batch, in double precision."""
        return log_probs.detach().cpu().double() + self.others

    def posterior(
        self, log_probs: torch.Tensor, bags: Bags, engine: str, options: dict[str, Any]
    ) -> JointPosterior:
        """The posterior under (n, C) log-probabilities; keeps what the bags say for others."""
        cavity = torch.from_numpy(bags.others_impossible(self.cavity(log_probs).numpy()))
        found = bag_posterior(cavity, bags, engine, **options)
        self._keep(cavity, found.weights)
        of_rows = (cavity + self.own).logsumexp(-1) * (1 - 1 / self.degrees)
        value = found.log_likelihood.sum() - (of_rows * torch.tensor(bags.copies)).sum()
        return JointPosterior(found.weights.to(log_probs), float(value))

    def _keep(self, cavity: torch.Tensor, weights: torch.Tensor) -> None:
        impossible = cavity == -torch.inf
        new = (weights.log() - cavity).masked_fill(impossible, -torch.inf)
        new = (new - new.amax(-1, keepdim=True)).clamp(min=_LEAST)
        new = torch.where(impossible, self.own, new + _DAMPING * (self.own - new))
        self.kept[self.place] = new.to(self.kept)

    def cross_entropy(
        self, logits: torch.Tensor, weights: torch.Tensor, bags: Bags
    ) -> torch.Tensor:
        """The mean per instance against the weights; a row counts once in all its groupings."""
        shares = self.shares(bags).to(logits)
        total = weighted_cross_entropy(logits, weights * shares[:, None], reduction="sum")
        return total / shares.sum()

    def shares(self, bags: Bags) -> torch.Tensor:
        """(n,) how much each row counts here, of all that it counts in an epoch."""
        return torch.tensor(bags.copies) / self.degrees
