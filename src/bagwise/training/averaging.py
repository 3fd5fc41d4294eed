"""A moving average of a model's weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model, buffers included, that follows it: a += (1 - decay) (model - a).

    At first, when the average is far off, it follows faster: after t steps the decay is at most
    (1 + t) / (10 + t).

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = averaged(model, 0.99)
    >>> with torch.no_grad():
    ...     _ = model.weight.add_(1)
    >>> before = average.module.weight.clone()
    >>> average.update_parameters(model)
    >>> round((average.module.weight - before).item(), 4)
    0.9
    """
    average = AveragedModel(model, multi_avg_fn=partial(_move, decay), use_buffers=True)
    set_steps(average, 0)
    average.requires_grad_(False)
    return average


def set_steps(average: AveragedModel, steps: int) -> None:
    """How many steps it has followed; it began as a copy, which counts as one average."""
    average.n_averaged.fill_(steps + 1)


@torch.no_grad()
def _move(decay: float, averages: Any, current: Any, n_averaged: Any) -> None:
    steps = int(n_averaged) - 1
    decay = min(decay, (1 + steps) / (10 + steps))
    for average, tensor in zip(averages, current, strict=True):
        if average.is_floating_point():
            average.lerp_(tensor, 1 - decay)
        else:
            average.copy_(tensor)
