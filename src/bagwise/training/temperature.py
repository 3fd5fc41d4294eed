"""A temperature for the probabilities of a model, fitted to held-out bags."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import nn

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.posterior import bag_posterior
from bagwise.training.evaluation import log_likelihoods

HOTTEST = 10.0  # and its inverse is the coldest
_CHUNK = 500_000  # instances of bags whose posterior is computed at a time
_SUSPICIOUS = 2.0  # standard errors of the slope from which a temperature is looked for
_CLEARLY = 2.0  # standard errors of what is gained from which it is kept


def fit_temperature(log_probs: torch.Tensor, bags: Bags, shares: FloatArray | None = None) -> float:
    """The temperature under which bags are most probable, if they clearly are; else 1.

    At temperature T, class probabilities are softmax(log p / T). Above 1, the model was too sure of
    itself; below, not sure enough. "Clearly" is by two standard errors, over bags, of what is
    gained.

    It is looked for only where the slope at 1, sum_k (w - p)'log p over the rows of each bag, is
    larger than two of its own standard errors over bags: one posterior says so.

    Args:
        log_probs: (N, C) of rows of bags that the model has not seen.
        bags: sizes and counts.
        shares: (C,) probabilities p0 towards which a hot model goes: at temperature T the class
            probabilities are then softmax(log p0 + (log p - log p0) / T), with T from 1 to 100. It
            is not below 1: few held-out bags, all of them right, would make the model as sure as
            can be, and two mistakes in a bag that cancel do not show.

    >>> bags = Bags([2] * 50, [[2, 0], [1, 1], [1, 1], [0, 2], [1, 1]] * 10)
    >>> sure = torch.tensor([[9., 0.], [0., 9.]]).log_softmax(-1).repeat(50, 1)
    >>> fit_temperature(sure, bags) > 2
    True
    >>> fit_temperature(torch.zeros(100, 2).log_softmax(-1), bags)
    1.0
    """
    slopes = _slopes(log_probs, bags, shares)
    if len(bags) < 2 or abs(slopes.sum()) <= _SUSPICIOUS * math.sqrt((slopes**2).sum()):
        return 1.0

    def at(T: float) -> torch.Tensor:
        return log_likelihoods(_divided(log_probs, T, shares), bags)

    end = math.log(HOTTEST)
    found = minimize_scalar(
        lambda log_T: -float(at(math.exp(log_T)).sum()),
        bounds=(-end, end) if shares is None else (0.0, 2 * end),
        method="bounded",
        options={"xatol": 0.01},
    )
    T = math.exp(found.x)
    gains = at(T) - at(1.0)
    mean, error = mean_per_instance(gains.numpy(), bags)
    return round(T, 4) if mean > _CLEARLY * error else 1.0


def _divided(log_probs: torch.Tensor, T: float, shares: FloatArray | None) -> torch.Tensor:
    if shares is None:
        return log_probs / T
    middle = torch.from_numpy(np.log(shares)).to(log_probs.dtype)
    return middle + (log_probs - middle) / T


def _slopes(log_probs: torch.Tensor, bags: Bags, shares: FloatArray | None = None) -> np.ndarray:
    """(B,) the derivative of log P(S|X) by 1 / T, at 1."""
    parts = []
    middle = torch.zeros(()) if shares is None else torch.from_numpy(np.log(shares))
    for index in bags.batches(_CHUNK):
        some = bags.select(index)
        own = log_probs[torch.from_numpy(bags.rows(index))].double()
        weights = bag_posterior(own, some).weights
        of_rows = ((weights - own.exp()) * (own - middle).clamp(min=-1e6)).sum(-1).numpy()
        parts.append(np.add.reduceat(of_rows, some.offsets[:-1]))
    return np.concatenate(parts)


def tempered(log_probs: torch.Tensor, temperature: float) -> torch.Tensor:
    """(N, C) the log-probabilities at a temperature.

    >>> tempered(torch.tensor([[.8, .2]]).log(), 2.0).exp()
    tensor([[0.6667, 0.3333]])
    """
    return log_probs if temperature == 1 else (log_probs / temperature).log_softmax(-1)


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
        model: whose weights are changed.
        temperature: to divide by.
        example: inputs on which a model of someone else is tried out.
        shares: (C,) see `fit_temperature`.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Softplus())
    >>> divide_logits(model, 2.0, torch.zeros(1, 2))
    False
    """
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear or (shares is not None and not _has_biases(linear[-1], len(shares))):
        return False
    added = torch.zeros(()) if shares is None else torch.from_numpy(np.log(shares))
    added = (added * (1 - 1 / temperature)).to(linear[-1].weight)
    before = [parameter.clone() for parameter in linear[-1].parameters()]
    wanted = None if example is None else model(example) / temperature + added
    for parameter in linear[-1].parameters():
        parameter.div_(temperature)
    if shares is not None:
        linear[-1].bias.add_(added)
    if wanted is None or torch.allclose(model(example), wanted, rtol=1e-3, atol=1e-4):
        return True
    for parameter, old in zip(linear[-1].parameters(), before, strict=True):
        parameter.copy_(old)
    return False


def _has_biases(layer: nn.Linear, n: int) -> bool:
    return layer.bias is not None and len(layer.bias) == n
