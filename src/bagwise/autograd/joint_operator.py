"""The joint posterior of several groupings, with a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bagwise.autograd.bag_tensors import weighted
from bagwise.bags import FloatArray, Groupings
from bagwise.posterior.joint import JointPosterior


def tensor_like(array: FloatArray, tensor: torch.Tensor) -> torch.Tensor:
    """An array as a tensor of the type and on the device of another."""
    kind = torch.float32 if tensor.dtype.itemsize < 4 else tensor.dtype
    return torch.as_tensor(array).to(kind).to(tensor.device)


def refuse_transforms(log_probs: torch.Tensor) -> None:
    """Refuse a tensor whose numbers a transform of torch.func hides."""
    if torch._C._functorch.is_functorch_wrapped_tensor(log_probs):
        raise RuntimeError(
            "several groupings are not for the transforms of torch.func (grad, vmap, ...); use "
            "backward or torch.autograd.grad, and a loop for several models."
        )


def joint_of_tensor(
    by_rounds: Callable[[FloatArray], JointPosterior[FloatArray]],
    log_probs: torch.Tensor,
    groupings: Groupings,
) -> JointPosterior[torch.Tensor]:
    """The joint posterior of a tensor; `by_rounds` computes that of an array."""
    refuse_transforms(log_probs)
    found = by_rounds(log_probs.detach().cpu().double().numpy())
    weights = tensor_like(found.weights, log_probs)
    copies = None if groupings.weights is None else torch.tensor(groupings.weights)
    value = tensor_like(found.log_likelihood, log_probs)
    log_likelihood = _Value.apply(log_probs, value, weighted(weights, copies))  # type: ignore[no-untyped-call]
    return JointPosterior(log_likelihood, weights, *found[2:])


class _Value(torch.autograd.Function):
    """A number whose gradient by log_probs is known."""

    @staticmethod
    def forward(
        ctx: Any, log_probs: torch.Tensor, value: torch.Tensor, gradient: torch.Tensor
    ) -> torch.Tensor:
        ctx.kind = log_probs.dtype
        ctx.save_for_backward(log_probs, gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        log_probs, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradient = _NoSecond.apply(log_probs, gradient)  # type: ignore[no-untyped-call]
        return (grad * gradient).to(ctx.kind), None, None


class _NoSecond(torch.autograd.Function):
    """A gradient that cannot be differentiated: an error is better than a wrong number."""

    @staticmethod
    def forward(ctx: Any, log_probs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        raise RuntimeError("the log-likelihood of several groupings can be differentiated once.")
