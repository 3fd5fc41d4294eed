"""Batch normalization over the instances of all workers, on any device.

PyTorch's `SyncBatchNorm` is for GPUs alone. What it does matters more for bags than elsewhere: the
statistics of one worker's few instances are closer to those of single bags, and to normalize by
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
    if input.dtype.itemsize < 4:  # of mixed precision: sums over rows need more digits
        rest = running_mean, running_var, weight, bias, training, momentum, eps
        return shared_batch_norm(input.float(), *rest).to(input.dtype)
    with torch.no_grad():
        # PyTorch's own step of batch normalization; var_mean takes 5 to 20 times as long.
        if len(input):
            mean, var = torch.batch_norm_update_stats(input, None, None, 0.0)
        else:  # a worker may have no rows of a batch
            mean = var = input.new_zeros(input.shape[1])
        count = input.numel() / input.shape[1]
        own = torch.stack([torch.full_like(mean, count), mean, var])
        counts, means, variances = _of_all(own).unbind(1)  # (workers, channels) each
        shares = counts / counts.sum(0)
        mean = (shares * means).sum(0)
        var = (shares * (variances + (means - mean).square())).sum(0)
        count = counts[:, 0].sum().item()
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean), momentum)
            running_var.lerp_((var * count / (count - 1)).to(running_var), momentum)
    normalized: torch.Tensor = _Normalize.apply(input, weight, bias, mean, var, eps, count)  # type: ignore[no-untyped-call]
    return normalized


class _Normalize(torch.autograd.Function):
    r"""(x - m) / s * w + b for channels of given mean m and deviation s, of N rows of all workers.

    With x' = (x - m) / s and the gradient g of the result, that of x is

    .. math:: \frac{w}{s}\Bigl(g - \frac1N\sum g - x'\,\frac1N\sum g x'\Bigr),

    sums over the rows of all workers, because m and s are of all of them. Those of w and b are this
    worker's sums; they are added up with the gradients of all other weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor,
        var: torch.Tensor,
        eps: float,
        count: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight, mean, var)
        ctx.eps, ctx.count = eps, count
        return batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, var = ctx.saved_tensors
        ones = torch.ones_like(mean) if weight is None else weight
        of_weight = of_bias = torch.zeros_like(mean)
        if len(x):
            _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
                gradient, x, ones, mean, var, None, None, False, ctx.eps, [False, True, True]
            )
        with_x, alone = _of_all(torch.stack([of_weight, of_bias])).sum(0) / ctx.count
        scale = torch.rsqrt(var + ctx.eps)
        # The gradient of x is a g + b x + c, with numbers a, b and c for each channel.
        a = ones * scale
        b = -a * scale * with_x
        c = -a * alone - b * mean
        shape = [-1 if dim == 1 else 1 for dim in range(x.dim())]
        a, b, c = (part.reshape(shape) for part in (a, b, c))
        of_x = torch.addcmul(c, x, b).addcmul_(gradient, a)
        given = (of_weight, of_bias) if weight is not None else (None, None)
        return of_x, *given, None, None, None, None


def _of_all(own: torch.Tensor) -> torch.Tensor:
    """(workers, ...) what each worker has, in one message.

    Small ones, as here, are gathered by gloo in half the time that it takes to reduce them.
    """
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return torch.stack(parts)
