"""Losses as modules of PyTorch: each keeps the options of a loss function, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from bagwise.errors import InputTypeError
from bagwise.losses import bag_losses, instance_losses, multisets


class LossModule(torch.nn.Module):
    """A loss function with its options: `CCLoss(engine="bethe")(logits, bags)` is
    `cc_loss(logits, bags, engine="bethe")`.

    It has no parameters and no state, also where the function takes stored probabilities: these are
    given at each call. A call takes the arguments of the function, options too.

    >>> from bagwise import Bags
    >>> loss = CCLoss(reduction="sum")
    >>> loss, loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))
    (CCLoss(reduction='sum'), tensor(0.6931))
    """

    function: ClassVar[Callable[..., torch.Tensor]]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        parameters = inspect.signature(self.function).parameters.values()
        known = [p.name for p in parameters if p.default is not p.empty]
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        data = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        for name in options:
            if name in data or not (takes_all or name in known):
                raise InputTypeError(
                    f"{type(self).__name__} has no option {name!r}; it takes {', '.join(known)}"
                    f"{' and those of the engine' if takes_all else ''}."
                )
        self.options = options

    def forward(self, *given: Any, **options: Any) -> torch.Tensor:
        """The loss of what the function takes: logits, bags, ..."""
        return self.function(*given, **(self.options | options))

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class CCLoss(LossModule):
    """`cc_loss` as a module: `CCLoss(engine="bethe")(logits, bags)`."""

    function = staticmethod(bag_losses.cc_loss)


class CCSquaredLoss(LossModule):
    """`cc_squared_loss` as a module: `CCSquaredLoss()(logits, bags)`."""

    function = staticmethod(multisets.cc_squared_loss)


class DLLPLoss(LossModule):
    """`dllp_loss` as a module: `DLLPLoss()(logits, bags)`."""

    function = staticmethod(bag_losses.dllp_loss)


class LLPFCLoss(LossModule):
    """`llpfc_loss` as a module: `LLPFCLoss()(logits, noisy_labels, transitions)`."""

    function = staticmethod(instance_losses.llpfc_loss)


class OTLoss(LossModule):
    """`ot_loss` as a module: `OTLoss()(logits, bags, stored_log_probs)`."""

    function = staticmethod(bag_losses.ot_loss)


class PLLCCLoss(LossModule):
    """`pll_cc_loss` as a module: `PLLCCLoss()(logits, bags)`."""

    function = staticmethod(bag_losses.pll_cc_loss)


class PLLLoss(LossModule):
    """`pll_loss` as a module: `PLLLoss()(logits, bags, stored_log_probs)`."""

    function = staticmethod(bag_losses.pll_loss)


class PVCLoss(LossModule):
    """`pvc_loss` as a module: `PVCLoss()(logits, bags)`."""

    function = staticmethod(bag_losses.pvc_loss)


class RCLoss(LossModule):
    """`rc_loss` as a module: `RCLoss()(logits, bags, stored_log_probs)`."""

    function = staticmethod(bag_losses.rc_loss)


class ViewLoss(LossModule):
    """`view_loss` as a module: `ViewLoss()(logits, weights)`."""

    function = staticmethod(instance_losses.view_loss)
