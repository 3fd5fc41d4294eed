"""Mixed precision: the type in which a model computes, and the scale of fp16's gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from bagwise.errors import InputError, Option
from bagwise.training_options import Precision

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LEAST_SCALE = 1e-6  # gradients that are still too large have no size


def computing_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Within, a model computes in this precision, as far as PyTorch holds that to be safe.

    >>> with computing_in("bf16", torch.device("cpu")):
    ...     nn.Linear(2, 1)(torch.zeros(1, 2)).dtype
    torch.bfloat16
    """
    return nullcontext() if precision == "full" else torch.autocast(device.type, HALF[precision])


def check_precision(model: nn.Module, precision: Precision, device: torch.device) -> None:
    """Mixed precision is for weights in single precision, on a device that has it."""
    if precision == "full":
        return
    if not torch.amp.is_autocast_available(device.type):
        raise InputError(
            Option("precision", precision),
            f", but PyTorch has no mixed precision on {device.type}; use ",
            Option("precision", "full"),
            ".",
        )
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.dtype != torch.float32:
            raise InputError(
                Option("precision", precision),
                f" is for weights in float32, and {name} has {weight.dtype}; call model.float() "
                "first, or use ",
                Option("precision", "full"),
                ".",
            )


def new_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """The scale of gradients, which only fp16 needs: others are left as they are.

    >>> new_scaler("bf16", torch.device("cpu")).scale(torch.tensor(3.0))
    tensor(3.)
    """
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def step(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """A step of the optimizer with gradients that are unscaled; False if it was left out because
    they were not finite, in which case the scale is lowered.
    """
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() >= before


def is_hopeless(scaler: torch.amp.GradScaler) -> bool:
    """Whether gradients are not finite at any scale."""
    return scaler.get_scale() < _LEAST_SCALE
