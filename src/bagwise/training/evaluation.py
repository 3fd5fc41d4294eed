"""How good a model is: on bags without labels, and on instances where labels are known."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from bagwise.autograd.bag_tensors import tensors_of, weighted
from bagwise.data import BagData, Inputs
from bagwise.data.inputs import feed, on_device
from bagwise.posterior import log_likelihoods

_CHUNK = 1024
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


def totals(
    model: nn.Module, data: BagData | None, device: torch.device | str = "cpu", workers: int = 0
) -> torch.Tensor:
    """(4,) what parts of the data, None for nothing, have to add up: -log P(S|X), right and known
    labels, and whether the model's output is not finite.
    """
    if data is None:
        return torch.zeros(4, dtype=torch.float64)
    logits = predict_logits(model, data.inputs, device, workers)
    if not logits.isfinite().all():
        return torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    found = [-log_likelihoods(logits.numpy(), data.bags).sum(), 0, 0, 0]
    if data.labels is not None:
        weights = tensors_of(data.bags).weights
        found[1] = int(weighted((logits.argmax(-1) == data.labels).long(), weights).sum())
        found[2] = int(weighted((data.labels >= 0).long(), weights).sum())
    return torch.tensor(found, dtype=torch.float64)


def measures(totals: torch.Tensor, data: BagData) -> dict[str, float]:
    """`bag_loss`, the mean -log P(S|X) / K per instance, and `accuracy` where labels are known,
    from the sum of the `totals` of all parts of the data.

    >>> from bagwise import Bags
    >>> data = BagData(torch.zeros(2, 4), Bags([2], [[1, 1]]))
    >>> model = nn.Linear(4, 2, bias=False)
    >>> round(measures(totals(model, data), data)["bag_loss"], 4)
    0.3466
    """
    loss, right, known, broken = totals.tolist()
    if broken:  # a diverged model is worse than any other
        return {"bag_loss": float("inf")} | ({} if data.labels is None else {"accuracy": 0.0})
    accuracy = right / known if known else float("nan")
    return {"bag_loss": loss / data.bags.total} | (
        {} if data.labels is None else {"accuracy": accuracy}
    )
