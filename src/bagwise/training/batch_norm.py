"""Batch normalisation over the instances of all workers, on any device.

PyTorch's `SyncBatchNorm` is for GPUs alone. What it does matters more for bags than elsewhere: the
statistics of one worker's few instances are closer to those of single bags, and to normalise by
them is to take away what bags teach.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode


class SharedBatchNorm(TorchFunctionMode):
    """Within, `torch.nn.functional.batch_norm` in training mode is that of all workers' rows.

    All workers of the default process group must call it, equally often.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every call of a function of PyTorch comes by here."""
        kwargs = kwargs or {}
        if func is batch_norm and kwargs.get("training"):
            return shared_batch_norm(*args, **kwargs)
        return func(*args, **kwargs)


def shared_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.batch_norm` in training mode, with statistics of all workers' rows."""
    dims = [dim for dim in range(input.dim()) if dim != 1]
    shape = [-1 if dim == 1 else 1 for dim in range(input.dim())]
    count = input.new_tensor([input.numel() / input.shape[1]])
    sums = _added(torch.cat([input.sum(dims), count]))
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centred = input - mean.reshape(shape)
    var = _added(centred.square().sum(dims)) / count
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean), momentum)
            running_var.lerp_((var * count / (count - 1)).to(running_var), momentum)
    scaled = centred * torch.rsqrt(var + eps).reshape(shape)
    if weight is not None:
        scaled = scaled * weight.reshape(shape)
    return scaled if bias is None else scaled + bias.reshape(shape)


class _Sum(torch.autograd.Function):
    """The sum over workers; as all of them go on with it, so is its gradient."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor) -> torch.Tensor:
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def _added(own: torch.Tensor) -> torch.Tensor:
    total: torch.Tensor = _Sum.apply(own)  # type: ignore[no-untyped-call]
    return total
