"""How good a model is: on bags without labels, and on instances where labels are known."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from bagwise.bags import Bags
from bagwise.data import BagData, Inputs
from bagwise.data.inputs import feed, on_device
from bagwise.posterior import bag_posterior

_CHUNK = 1024
_BAG_CHUNK = 500_000  # instances of bags whose likelihood is computed at a time
_FEW = 32  # rows below which matrix products are rounded differently, according to their number


@torch.no_grad()
def predict_logits(
    model: nn.Module, inputs: Inputs, device: torch.device | str = "cpu", workers: int = 0
) -> torch.Tensor:
    """(N, C) logits in evaluation mode, computed piece by piece, on the CPU.

    The inputs are a tensor or what else `BagData` takes; `workers` processes fetch a `Dataset`'s.

    A few rows are filled up with zeros, so that the logits of a row predicted alone are those it
    has among a few others, to the last digit.

    >>> predict_logits(nn.Linear(2, 3), torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """
    was_training = model.training
    model.eval()
    parts = []
    if isinstance(inputs, torch.Tensor):
        pieces: Iterable[torch.Tensor] = torch.split(inputs, _CHUNK)
    else:
        pieces = feed(inputs, torch.split(torch.arange(len(inputs)), _CHUNK), workers)
    for part in pieces:
        added = part.new_zeros(max(_FEW - len(part), 0), *part.shape[1:])
        parts.append(model(on_device(torch.cat([part, added]), device))[: len(part)].cpu())
    model.train(was_training)
    return torch.cat(parts)


@torch.no_grad()
def log_likelihoods(logits: torch.Tensor, bags: Bags) -> torch.Tensor:
    """(B,) log P(S|X) of each bag, in double precision, computed for some bags at a time.

    >>> log_likelihoods(torch.zeros(3, 2), Bags([2, 1], [[1, 1], [1, 0]]))
    tensor([-0.6931, -0.6931], dtype=torch.float64)
    """
    parts = []
    for index in bags.batches(_BAG_CHUNK):
        log_probs = logits[torch.from_numpy(bags.rows(index))].double().log_softmax(-1)
        parts.append(bag_posterior(log_probs, bags.select(index)).log_likelihood)
    return torch.cat(parts)


def evaluate(
    model: nn.Module, data: BagData, device: torch.device | str = "cpu", workers: int = 0
) -> dict[str, float]:
    """`bag_loss`, the mean -log P(S|X) / K per instance, and `accuracy` where labels are known.

    >>> from bagwise import Bags
    >>> data = BagData(torch.zeros(2, 4), Bags([2], [[1, 1]]))
    >>> model = nn.Linear(4, 2, bias=False)
    >>> round(evaluate(model, data)["bag_loss"], 4)
    0.3466
    """
    logits = predict_logits(model, data.inputs, device, workers)
    if not logits.isfinite().all():  # a diverged model is worse than any other
        return {"bag_loss": float("inf")} | ({} if data.labels is None else {"accuracy": 0.0})
    measured = {"bag_loss": -log_likelihoods(logits, data.bags).sum().item() / len(data)}
    if data.labels is not None:
        known = data.labels >= 0
        right = logits.argmax(-1)[known] == data.labels[known]
        measured["accuracy"] = right.double().mean().item()
    return measured
