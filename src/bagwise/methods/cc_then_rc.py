"""CC first, then RC, which begins with the probabilities that CC has learned."""

from __future__ import annotations

from typing import Any

import torch

from bagwise.checks import check_all, number
from bagwise.data import BagData
from bagwise.methods.base import Batch
from bagwise.methods.direct import CC
from bagwise.methods.stored_probabilities import RC

_OPTIONS = {"switch": number(0, 1)}


class CCThenRC(RC):
    """Begins as CC and goes on as RC.

    While CC learns, each instance's probabilities are stored as RC stores them, so that the first
    weights of RC come from what CC has learned. A run that resumes with more epochs still switches
    where it was going to.

    Args:
        switch: after which share of the epochs RC begins, from 0 (RC alone) to 1 (CC alone).
        engine: how likelihood and posterior are computed.
        **options: of the engine.
    """

    title, color, line, proposed = "CC then RC", "#3a0ca3", "-", False

    def __init__(self, switch: float = 0.5, engine: str = "auto", **options: Any) -> None:
        super().__init__(engine=engine, **options)
        self.switch = switch
        check_all(_OPTIONS, self)
        self._cc = CC(engine, **options)
        self._is_rc = False

    def begin(self, data: BagData, device: torch.device) -> None:
        """Store the proportions, and when RC begins."""
        super().begin(data, device)
        self.kept["cc_epochs"] = torch.tensor(round(self.switch * self.n_epochs))

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        """CC or RC."""
        self._is_rc = epoch > int(self.kept["cc_epochs"])

    def loss_given(self, logits: torch.Tensor, batch: Batch, stored: torch.Tensor) -> torch.Tensor:
        """The loss of CC, then that of RC."""
        if self._is_rc:
            return super().loss_given(logits, batch, stored)
        return self._cc.loss(logits, batch)


class CCApproxThenRCApprox(CCThenRC):
    """CC_Approx first, then RC_Approx.

    Args:
        switch: after which share of the epochs RC_Approx begins, from 0 to 1.
    """

    title, color, line = "CC_Approx then RC_Approx", "#9d7fe0", "--"
    joins_groupings = False

    def __init__(self, switch: float = 0.5) -> None:
        super().__init__(switch, engine="multinomial")
