"""RC, OT and PLL: a loss against weights made from each instance's stored probabilities."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import torch
from torch.nn.functional import log_softmax

from bagwise.autograd.bag_tensors import weighted
from bagwise.autograd.logits import check_logits
from bagwise.checks import check_all, one_of
from bagwise.data import BagData
from bagwise.data.inputs import full
from bagwise.losses import ot_loss, pll_loss
from bagwise.losses.bag_losses import loss_of_bags
from bagwise.methods.base import Batch, Method
from bagwise.posterior import bag_posterior, check_engine
from bagwise.posterior.transport import TRANSPORT_OPTIONS

_BAGS = 4096  # whose instances are given their first probabilities at a time
_RC_OPTIONS = {"instance_loss": one_of("cross_entropy", "squared_error")}

NamedLoss = Literal["cross_entropy", "squared_error"]
"""A loss of labeled instances that settings can name; `rc_loss` takes functions, too."""


class StoredProbabilities(Method):
    """Keeps each instance's probabilities: its bag's proportions at first, then what the model said
    when it last saw the instance. The weights of a batch come from what is stored, then the current
    softmax replaces it.
    """

    def begin(self, data: BagData, device: torch.device) -> None:
        """Store the bag's proportions for every instance."""
        proportions = torch.tensor(data.bags.proportions).float().log()
        stored = full(data.inputs, (len(data), data.bags.n_classes), 0.0)
        sizes = torch.tensor(data.bags.sizes)
        for index in torch.split(torch.arange(len(data.bags)), _BAGS):
            first, last = (int(data.bags.offsets[b]) for b in (index[0], index[-1] + 1))
            stored[first:last] = proportions[index].repeat_interleave(sizes[index], 0)
        self.kept["log_probs"] = stored.to(device)

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The loss under what is stored, which the current log-probabilities then replace."""
        assert batch.bags is not None
        check_logits(logits, batch.bags)
        rows = batch.rows.to(logits.device)
        stored = self.kept["log_probs"][rows]
        value = self.loss_given(logits, batch, stored)
        self.kept["log_probs"][rows] = log_softmax(logits.detach().float(), -1)
        return value

    @abstractmethod
    def loss_given(self, logits: torch.Tensor, batch: Batch, stored: torch.Tensor) -> torch.Tensor:
        """The loss of a batch, given the stored log-probabilities (n, C) of its instances."""


class RC(StoredProbabilities):
    """Risk-consistent learning: weights are the label posterior given the counts.

    Args:
        engine: how the posterior is computed.
        record_gap: also record, as `weight_distance` in the history, how far these weights are
            from the multinomial ones: the mean over instances of sum_c |w[k, c] - w~[k, c]|, from 0
            to 2.
        instance_loss: of an instance with each label, "cross_entropy" or "squared_error".
        **options: of the engine.
    """

    title, color, line, proposed = "RC", "#0b5fa5", "-", True
    joins_groupings = True

    def __init__(
        self,
        engine: str = "auto",
        record_gap: bool = False,
        instance_loss: NamedLoss = "cross_entropy",
        **options: Any,
    ) -> None:
        super().__init__()
        check_engine(engine, options)
        self.engine = engine
        self.record_gap = record_gap
        self.instance_loss = instance_loss
        check_all(_RC_OPTIONS, self)
        self.options = options
        self._gap = [0.0, 0]

    def loss_given(self, logits: torch.Tensor, batch: Batch, stored: torch.Tensor) -> torch.Tensor:
        """`rc_loss`, its weights compared with the multinomial ones if asked to."""
        bags, messages = batch.bags, batch.messages
        assert bags is not None
        if messages is None:
            weights = bag_posterior(stored, bags, self.engine, **self.options).weights
        else:
            weights = messages.posterior(stored, bags, self.engine, self.options).weights
        if self.record_gap:
            approximate = bag_posterior(stored, bags, "multinomial").weights
            distance = (weights - approximate).abs().sum(-1)
            self._gap[0] += weighted(distance, batch.copies).sum().item()
            self._gap[1] += batch.n_instances
        if messages is None:
            return loss_of_bags(weights, logits, bags, self.instance_loss)
        return messages.loss(logits, weights, bags, self.instance_loss)

    def epoch_metrics(self) -> dict[str, float]:
        """The epoch's distance of weights, if recorded."""
        if not self.record_gap:
            return {}
        distance = self._gap[0] / self._gap[1]
        self._gap = [0.0, 0]
        return {"weight_distance": distance}


class RCApprox(RC):
    """RC with the paper's multinomial approximation of the posterior.

    Args:
        instance_loss: of an instance with each label, "cross_entropy" or "squared_error".
    """

    title, color, line = "RC_Approx", "#5aa9e6", "--"
    joins_groupings = False

    def __init__(self, instance_loss: NamedLoss = "cross_entropy") -> None:
        super().__init__(engine="multinomial", instance_loss=instance_loss)


class OT(StoredProbabilities):
    """Pseudo-labels by entropic optimal transport between instances and label counts.

    Args:
        epsilon: strength of the entropy.
        iterations: Sinkhorn iterations.
    """

    title, color, line = "OT", "#8a6d00", "-."

    def __init__(self, epsilon: float = 1.0, iterations: int = 75) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.iterations = iterations
        check_all(TRANSPORT_OPTIONS, self)

    def loss_given(self, logits: torch.Tensor, batch: Batch, stored: torch.Tensor) -> torch.Tensor:
        """`ot_loss`."""
        assert batch.bags is not None
        return ot_loss(logits, batch.bags, stored, self.epsilon, self.iterations)


class PLL(StoredProbabilities):
    """Partial-label learning: which labels occur in a bag, not how often."""

    title, color, line = "PLL", "#8d99ae", ":"

    def loss_given(self, logits: torch.Tensor, batch: Batch, stored: torch.Tensor) -> torch.Tensor:
        """`pll_loss`."""
        assert batch.bags is not None
        return pll_loss(logits, batch.bags, stored)
