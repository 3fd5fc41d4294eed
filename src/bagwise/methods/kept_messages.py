"""Messages between groupings, kept per row from batch to batch: learning from all jointly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.data import SharedRows
from bagwise.losses.instance_losses import InstanceLoss, weighted_loss
from bagwise.posterior import bag_posterior
from bagwise.posterior._kernels import kernel

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
        kept: where the messages (N, G, C) lie, as a part of checkpoints.
    """

    def __init__(self, shared: SharedRows, n_classes: int, kept: dict[str, torch.Tensor]) -> None:
        self._shared = shared
        self._kept = kept
        kept["messages"] = torch.zeros(shared.n_rows, shared.n_groupings, n_classes)

    def of(self, rows: torch.Tensor) -> BatchMessages:
        """Those of a batch's rows (n,)."""
        row, grouping, degrees = (known[rows].numpy() for known in self._shared[:3])
        return BatchMessages(self._kept["messages"].numpy(), row, grouping, degrees)


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
        kept: (N, G, C) all messages.
        row: (n,) which row each of the batch's rows is.
        grouping: (n,) the grouping that its bag is of.
        degrees: (n,) in how many groupings it is.
    """

    kept: FloatArray
    row: IntArray
    grouping: IntArray
    degrees: IntArray

    def cavity(self, log_probs: torch.Tensor) -> FloatArray:
        """(n, C) what is known of rows without their bags in this batch."""
        cavity: FloatArray = log_probs.detach().cpu().double().numpy().copy()
        _add_others(self.kept, self.row, self.grouping, cavity)
        return cavity

    def posterior(
        self, log_probs: torch.Tensor, bags: Bags, engine: str, options: dict[str, Any]
    ) -> JointPosterior:
        """The posterior under (n, C) log-probabilities; keeps what the bags say for others."""
        cavity = bags.others_impossible(self.cavity(log_probs))
        found = bag_posterior(cavity, bags, engine, **options)
        of_rows = _keep(self.kept, self.row, self.grouping, cavity, found.weights, _DAMPING)
        value = found.log_likelihood.sum()
        value -= (bags.copies * (1 - 1 / self.degrees) * of_rows).sum()
        return JointPosterior(torch.from_numpy(found.weights).to(log_probs), float(value))

    def loss(
        self,
        logits: torch.Tensor,
        weights: torch.Tensor,
        bags: Bags,
        instance_loss: InstanceLoss = "cross_entropy",
    ) -> torch.Tensor:
        """The mean per instance against the weights; a row counts once in all its groupings."""
        shares = torch.from_numpy(bags.copies / self.degrees).to(weights)
        shared = weights * shares[:, None]
        return weighted_loss(logits, shared, instance_loss, reduction="sum") / shares.sum()

    def n_instances(self, bags: Bags) -> float:
        """How many instances the batch's rows count as, of all that they count as in an epoch."""
        return float((bags.copies / self.degrees).sum())


@kernel
def _add_others(kept: FloatArray, row: IntArray, grouping: IntArray, log_p: FloatArray) -> None:
    """Add to log_p (n, C) what the other groupings say."""
    for i in range(len(row)):
        for g in range(kept.shape[1]):
            if g != grouping[i]:
                for c in range(kept.shape[2]):
                    log_p[i, c] += kept[row[i], g, c]


@kernel
def _keep(
    kept: FloatArray,
    row: IntArray,
    grouping: IntArray,
    cavity: FloatArray,
    weights: FloatArray,
    damping: float,
) -> FloatArray:
    """Replace messages; returns (n,) log sum_c p[k, c] prod_g m_g[k, c] of those before."""
    n, C = cavity.shape
    found = np.empty(n)
    new = np.empty(C)
    for i in range(n):
        own = kept[row[i], grouping[i]]
        top, largest, total = -np.inf, -np.inf, 0.0
        for c in range(C):
            top = max(top, cavity[i, c] + own[c])
            new[c] = -np.inf
            if cavity[i, c] > -np.inf and weights[i, c] > 0.0:
                new[c] = np.log(weights[i, c]) - cavity[i, c]
                largest = max(largest, new[c])
        for c in range(C):
            total += np.exp(cavity[i, c] + own[c] - top)
            if cavity[i, c] > -np.inf:
                sent = max(new[c] - largest, _LEAST)
                own[c] = sent + damping * (own[c] - sent)
        found[i] = top + np.log(total)
    return found
