"""How good a model is: on bags without labels, and on instances where labels are known."""

from __future__ import annotations

import torch
from torch import nn

from bagwise.data import BagData
from bagwise.losses import cc_loss

_CHUNK = 1024
_FEW = 32  # rows below which matrix products are rounded differently, according to their number


@torch.no_grad()
def predict_logits(
    model: nn.Module, inputs: torch.Tensor, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """(N, C) logits in evaluation mode, computed piece by piece, on the CPU.

    A few rows are filled up with zeros, so that the logits of a row predicted alone are those it
    has among a few others, to the last digit.

    >>> predict_logits(nn.Linear(2, 3), torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """
    was_training = model.training
    model.eval()
    parts = []
    for part in torch.split(inputs, _CHUNK):
        added = part.new_zeros(max(_FEW - len(part), 0), *part.shape[1:])
        parts.append(model(torch.cat([part, added]).to(device))[: len(part)].cpu())
    model.train(was_training)
    return torch.cat(parts)


def evaluate(
    model: nn.Module, data: BagData, device: torch.device | str = "cpu"
) -> dict[str, float]:
    """`bag_loss`, the mean -log P(S|X) / K per instance, and `accuracy` where labels are known.

    >>> from bagwise import Bags
    >>> data = BagData(torch.zeros(2, 4), Bags([2], [[1, 1]]))
    >>> model = nn.Linear(4, 2, bias=False)
    >>> round(evaluate(model, data)["bag_loss"], 4)
    0.3466
    """
    logits = predict_logits(model, data.inputs, device)
    if not logits.isfinite().all():  # a diverged model is worse than any other
        return {"bag_loss": float("inf")} | ({} if data.labels is None else {"accuracy": 0.0})
    measured = {"bag_loss": cc_loss(logits.double(), data.bags).item()}
    if data.labels is not None:
        measured["accuracy"] = (logits.argmax(-1) == data.labels).double().mean().item()
    return measured
