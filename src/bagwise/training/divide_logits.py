"""A temperature in the weights of a network."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from bagwise.bags import FloatArray


@torch.no_grad()
def divide_logits(
    model: nn.Module,
    temperature: float,
    example: torch.Tensor | None = None,
    shares: FloatArray | None = None,
) -> bool:
    """Have a model's last layer divide the logits; False, and nothing is changed, if it cannot.

    It can if it is linear and nothing follows it, as in all models of Bagwise.

    Args:
        example: inputs on which a model of someone else is tried out.
        shares: (C,) see `likelihood.temperature.fit_temperature`.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Softplus())
    >>> divide_logits(model, 2.0, torch.zeros(1, 2))
    False
    """
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        return False
    bias = linear[-1].bias
    if shares is not None and (bias is None or len(bias) != len(shares)):
        return False
    added = torch.zeros(()) if shares is None else torch.from_numpy(np.log(shares))
    added = (added * (1 - 1 / temperature)).to(linear[-1].weight)
    before = [parameter.clone() for parameter in linear[-1].parameters()]
    wanted = None if example is None else model(example) / temperature + added
    for parameter in linear[-1].parameters():
        parameter.div_(temperature)
    if shares is not None:
        bias.add_(added)
    if wanted is None or torch.allclose(model(example), wanted, rtol=1e-3, atol=1e-4):
        return True
    for parameter, old in zip(linear[-1].parameters(), before, strict=True):
        parameter.copy_(old)
    return False
