"""Losses: pure functions of logits and bags.

Logits are flat (N, C), sorted by bag. By default every loss is an average per instance: for bags of
one size it is the paper's value, and for bags of different sizes a batch's loss is the mean of its
bags' losses weighted by their sizes, so that it does not depend on how bags are batched. A row with
a weight (`Bags.weights`) is as many instances as that says.

`reduction` says what becomes of the bags' losses, each the sum over its instances:

    "mean"    their sum divided by the number of instances N
    "sum"     their sum
    "none"    (B,) as they are; `llpfc_loss` and `weighted_cross_entropy`, which know no bags: (N,)

Logits of NaN or infinity give a loss and gradients of NaN, as those of PyTorch do: mixed precision
(`torch.amp.GradScaler`) then leaves the step out. Logits of -inf rule a class out.

Means of parts of different sizes do not average to the mean of the whole. So, to accumulate over
parts of a batch, or over the workers of a distributed step, take sums and divide them by the number
of instances of all parts together (`docs/pytorch.md` shows both).
"""

from __future__ import annotations

from bagwise.losses.bag_losses import (
    cc_loss,
    dllp_loss,
    ot_loss,
    pll_cc_loss,
    pll_loss,
    pvc_loss,
    rc_loss,
)
from bagwise.losses.instance_losses import llpfc_loss, view_loss, weighted_cross_entropy
from bagwise.losses.modules import (
    CCLoss,
    CCSquaredLoss,
    DLLPLoss,
    LLPFCLoss,
    LossModule,
    OTLoss,
    PLLCCLoss,
    PLLLoss,
    PVCLoss,
    RCLoss,
    ViewLoss,
)
from bagwise.losses.multisets import cc_squared_loss

__all__ = [
    "CCLoss",
    "CCSquaredLoss",
    "DLLPLoss",
    "LLPFCLoss",
    "LossModule",
    "OTLoss",
    "PLLCCLoss",
    "PLLLoss",
    "PVCLoss",
    "RCLoss",
    "ViewLoss",
    "cc_loss",
    "cc_squared_loss",
    "dllp_loss",
    "llpfc_loss",
    "ot_loss",
    "pll_cc_loss",
    "pll_loss",
    "pvc_loss",
    "rc_loss",
    "view_loss",
    "weighted_cross_entropy",
]
