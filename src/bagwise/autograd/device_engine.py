"""The device engine: posteriors of tensors in PyTorch's own operations, with a gradient."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from bagwise.autograd.bag_tensors import is_moved, weighted
from bagwise.autograd.device_bags import DeviceBags, PaddedIndex, on_device
from bagwise.autograd.device_bethe import PaddedBags, bethe_of_padded
from bagwise.autograd.device_lattice import Lattices, exact_of_padded
from bagwise.bags import Bags
from bagwise.posterior.device import LEAST_INSTANCES, MOST_PADDED
from bagwise.posterior._result import Posterior, check_shapes

_LEAST = -1e4  # log-probabilities relative to the row's largest; smaller ones become that
_Solve = Callable[
    [torch.Tensor, DeviceBags, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]
]


def posterior_on_device(
    log_probs: Any, bags: Bags, max_states: float, compiled: bool | None
) -> Posterior[Any]:
    """The posterior of a tensor, where it lies; arrays for an array."""
    if isinstance(log_probs, np.ndarray):
        given = torch.from_numpy(np.require(log_probs, np.float64, "W"))
        found = posterior_on_device(given, bags, max_states, compiled)
        bound = None if found.bound is None else found.bound.numpy()
        arrays = found.log_likelihood.numpy(), found.weights.numpy()
        return Posterior(*arrays, bound, found.asked)
    check_shapes(log_probs, bags)
    known = on_device(bags, log_probs.device, max_states)
    if compiled is None:
        compiled = not torch.compiler.is_compiling() and _can_compile(log_probs.device.type)
    log_likelihood, weights = _Posterior.apply(log_probs, known, compiled)  # type: ignore[no-untyped-call]
    return Posterior(log_likelihood, weights.detach(), known.bound, "device")


def is_for_device(engine: str, log_probs: torch.Tensor, bags: Bags) -> bool:
    """Whether the device engine computes what this engine is asked for."""
    if engine != "auto" or log_probs.is_cpu:
        return engine == "device"
    here = not torch.compiler.is_compiling() or is_moved(bags, log_probs.device)
    padded = len(bags) * int(bags.sizes.max()) * bags.n_classes
    fits = bags.n_instances >= LEAST_INSTANCES and padded <= MOST_PADDED
    return here and fits and bags.potentials is None


class _Posterior(torch.autograd.Function):
    """Log-likelihoods (B,) and weights (N, C), which are the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_probs: torch.Tensor, known: DeviceBags, compiled: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(log_probs.device.type, enabled=False):
            return _computed(log_probs, known, compiled)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        log_probs, known, _ = inputs
        ctx.kind = log_probs.dtype
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(log_probs, weighted(output[1], known.known.weights), known.bag_of_row)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None, _: Any) -> tuple[torch.Tensor | None, ...]:
        if grad is None:
            return None, None, None
        log_probs, gradient, bag_of_row = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradient = _NoSecond.apply(log_probs, gradient)  # type: ignore[no-untyped-call]
        return (grad[bag_of_row][:, None] * gradient).to(ctx.kind), None, None


class _NoSecond(torch.autograd.Function):
    """A gradient that cannot be differentiated: an error is better than a wrong number."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_probs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        raise RuntimeError(
            "the engine 'device' has no second derivative of the log-likelihood; "
            'use engine="exact", which has.'
        )


def _computed(
    log_probs: torch.Tensor, known: DeviceBags, compiled: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    kind = torch.float32 if log_probs.dtype.itemsize < 4 else log_probs.dtype
    log_p = log_probs.to(kind)
    N, C = log_p.shape
    log_likelihood = log_p.new_zeros(known.known.sizes.shape[0])
    flat = log_p.new_zeros(N * C + 1)  # one more, which nobody reads, for padding
    for index, solve in ((known.large, _bethe), (known.small, _lattice)):
        if index is not None:
            run = _compiled(solve) if compiled else solve
            given = (index, known.known.labels, known.known.weights)
            log_likelihood, flat = run(log_p, *given, log_likelihood, flat)
    return log_likelihood, flat[:-1].view(N, C)


def _bethe(
    log_p: torch.Tensor,
    index: PaddedIndex,
    labels: torch.Tensor | None,
    weights: torch.Tensor | None,
    log_likelihood: torch.Tensor,
    flat: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    padded, places, shift = _padded(log_p, index, labels, weights)
    value, found = bethe_of_padded(padded)
    return _entered(index, value + shift, found, places, log_likelihood, flat)


def _lattice(
    log_p: torch.Tensor,
    index: PaddedIndex,
    labels: torch.Tensor | None,
    weights: torch.Tensor | None,
    log_likelihood: torch.Tensor,
    flat: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    padded, places, shift = _padded(log_p, index, labels, weights)
    lattices = Lattices(index.states, index.strides)
    value, found = exact_of_padded(padded.log_p, padded.copies, padded.counts, lattices)
    return _entered(index, value + shift, found, places, log_likelihood, flat)


def _padded(
    log_p: torch.Tensor,
    index: PaddedIndex,
    labels: torch.Tensor | None,
    weights: torch.Tensor | None,
) -> tuple[PaddedBags, torch.Tensor, torch.Tensor]:
    """The padded bags, the places (G, K, A) of their entries among those of (N, C), and what (G,)
    making each row's largest entry 0 takes from log P(S|X).
    """
    N, C = log_p.shape
    is_there = index.rows < index.sizes[:, None]
    rows = index.begins[:, None] + torch.where(is_there, index.rows, 0)
    places = rows[..., None] * C + index.classes[:, None]
    occurs = (index.counts > 0)[:, None]
    found = log_p.reshape(-1)[places].masked_fill(~occurs, -torch.inf)
    if labels is not None:
        label = labels[rows][..., None]
        found = found.masked_fill((label >= 0) & (label != index.classes[:, None]), -torch.inf)
    top = found.amax(-1, keepdim=True)
    found = (found - top).clamp(min=_LEAST).masked_fill(~occurs, -torch.inf)
    copies = is_there.to(log_p.dtype)
    if weights is not None:
        copies = copies * weights[rows]
    padded = PaddedBags(
        found,
        copies[..., None],
        index.counts.to(log_p.dtype),
        index.is_factor > 0,
        index.nodes if log_p.dtype == torch.float32 else _twice(index.nodes),
    )
    shift = (copies * top[..., 0]).sum(1)
    return padded, torch.where(is_there[..., None] & occurs, places, N * C), shift


def _twice(nodes: torch.Tensor) -> torch.Tensor:
    """Points enough for double precision."""
    return torch.arange(2 * nodes.shape[0] - 1, device=nodes.device)


def _entered(
    index: PaddedIndex,
    value: torch.Tensor,
    found: torch.Tensor,
    places: torch.Tensor,
    log_likelihood: torch.Tensor,
    flat: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The answers of all bags with those of these."""
    return (
        log_likelihood.scatter(0, index.bags, value),
        flat.scatter(0, places.flatten(), found.flatten()),
    )


@cache
def _compiled(solve: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(solve, dynamic=True)


@cache
def _can_compile(device: str) -> bool:
    return device in ("cuda", "xpu") and importlib.util.find_spec("triton") is not None
