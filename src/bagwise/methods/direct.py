"""CC, DLLP, PVC, PLL_CC and supervised learning: losses of the current batch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from bagwise.autograd.bag_tensors import weighted
from bagwise.autograd.logits import check_logits, log_probs
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.losses import cc_loss, dllp_loss, pll_cc_loss, pvc_loss
from bagwise.methods.base import Batch, Method
from bagwise.posterior import check_engine


class CC(Method):
    """Classifier-consistent learning: maximum likelihood of the bags' label counts.

    Args:
        engine: how the likelihood is computed.
        **options: of the engine.
    """

    title, color, line, proposed = "CC", "#b5179e", "-", True
    is_likelihood = joins_groupings = True

    def __init__(self, engine: str = "auto", **options: Any) -> None:
        super().__init__()
        check_engine(engine, options)
        self.engine = engine
        self.options = options

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """`cc_loss`; of groupings that are joined, the batch's share of it."""
        assert batch.bags is not None
        if batch.messages is None:
            return cc_loss(logits, batch.bags, self.engine, **self.options)
        check_logits(logits, batch.bags)
        log_p = log_probs(logits)
        found = batch.messages.posterior(log_p, batch.bags, self.engine, self.options)
        # Messages that have settled do not change the likelihood, and its gradient is this one's.
        loss = batch.messages.loss(logits, found.weights, batch.bags)
        value = -found.log_likelihood / batch.messages.n_instances(batch.bags)
        return value + (loss - loss.detach())


class CCApprox(CC):
    """CC with the paper's multinomial approximation of the likelihood."""

    title, color, line = "CC_Approx", "#e58bd5", "--"
    is_likelihood = joins_groupings = False

    def __init__(self) -> None:
        super().__init__(engine="multinomial")


class DLLP(Method):
    """Cross-entropy of mean probabilities and proportions."""

    title, color, line = "DLLP", "#2a9d3a", "-."

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """`dllp_loss`."""
        assert batch.bags is not None
        return dllp_loss(logits, batch.bags)


class PVC(Method):
    """The likelihood of each class's count apart from the others'."""

    title, color, line = "PVC", "#d35400", "-."
    needs_whole_bags = True

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """`pvc_loss`."""
        assert batch.bags is not None
        return pvc_loss(logits, batch.bags)


class PLLCC(Method):
    """Partial-label learning in its classifier-consistent form: which labels occur in a bag."""

    title, color, line = "PLL_CC", "#6c757d", "--"

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """`pll_cc_loss`."""
        assert batch.bags is not None
        return pll_cc_loss(logits, batch.bags)


class Supervised(Method):
    """Cross-entropy against the true labels: the ceiling that bag methods are compared with."""

    title, color, line, needs_labels = "Supervised", "#555555", ":", True

    def begin(self, data: BagData, device: torch.device) -> None:
        """Check that there are labels."""
        if data.labels is None:
            raise InputError(
                "supervised learning needs labels of instances; "
                "only the bags' counts are given. Choose a bag method, for instance cc."
            )

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Cross-entropy of the instances whose label is known."""
        assert batch.labels is not None
        known = batch.labels >= 0
        of_rows = cross_entropy(logits, batch.labels, ignore_index=-1, reduction="none")
        total = weighted(of_rows, batch.copies).sum()
        return total / weighted(known.to(total), batch.copies).sum().clamp(min=1)
