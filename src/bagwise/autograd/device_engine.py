"""The device engine: posteriors of tensors in PyTorch's own operations, with a gradient."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from bagwise.autograd.bag_tensors import is_moved, weighted
from bagwise.autograd.device_bags import DeviceBags, PaddedIndex, on_device, suits_device
from bagwise.autograd.device_bethe import PaddedBags, balanced, bethe_of_padded, circle_of
from bagwise.autograd.device_lattice import Lattices, exact_of_padded
from bagwise.autograd.tracing import is_traced, refuse_empty, refuse_forward_mode
from bagwise.bags import Bags
from bagwise.posterior._result import Posterior, check_shapes, checked

_HAS_TRITON = importlib.util.find_spec("triton") is not None
_LEAST = -1e4  # log-probabilities relative to the row's largest; smaller ones become that


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
        compiled = _HAS_TRITON and log_probs.device.type in ("cuda", "xpu")
    if is_traced(log_probs):
        log_likelihood, weights = _operator(log_probs, *known.tensors, compiled)
    else:
        log_likelihood, weights = _Posterior.apply(log_probs, bags, known, compiled)  # type: ignore[no-untyped-call]
    return Posterior(log_likelihood, weights.detach(), known.bound, "device")


def is_for_device(
    engine: str, log_probs: torch.Tensor, bags: Bags, max_states: float | None = None
) -> bool:
    """Whether the device engine computes what this engine is asked for; with `max_states`, `auto`
    is asked for the engines of the host.
    """
    if engine != "auto" or log_probs.is_cpu or max_states is not None:
        return engine == "device"
    if is_moved(bags, log_probs.device):
        return bool(bags.on_device.suits)
    return not torch.compiler.is_compiling() and suits_device(bags)


@torch.library.custom_op("bagwise::device_posterior", mutates_args=())
def _operator(
    log_probs: torch.Tensor,
    bag_of_row: torch.Tensor,
    sizes: torch.Tensor,
    labels: torch.Tensor | None,
    row_weights: torch.Tensor | None,
    large: list[torch.Tensor],
    small: list[torch.Tensor],
    compiled: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The engine as one operation for those who look on, as in `autograd.operator`: compilers need
    not follow its thousand small ones in each of their programs.
    """
    return _computed(log_probs, sizes, labels, row_weights, large, small, compiled)


@_operator.register_fake
def _(
    log_probs: torch.Tensor,
    bag_of_row: torch.Tensor,
    sizes: torch.Tensor,
    labels: torch.Tensor | None,
    row_weights: torch.Tensor | None,
    large: list[torch.Tensor],
    small: list[torch.Tensor],
    compiled: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    weights = torch.empty_like(
        log_probs, dtype=_precision(log_probs), memory_format=torch.contiguous_format
    )
    return weights.new_empty(sizes.shape[0]), weights


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    log_probs, bag_of_row, _, _, row_weights, large, small, _ = inputs
    ctx.lengths = len(large), len(small)
    ctx.save_for_backward(log_probs, weighted(output[1], row_weights), bag_of_row)


def _backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    log_probs, gradient, bag_of_row = ctx.saved_tensors
    if torch.is_grad_enabled():
        gradient = _NoSecond.apply(log_probs, gradient)  # type: ignore[no-untyped-call]
    found = (grad[bag_of_row][:, None] * gradient).to(log_probs.dtype)
    lists = ([None] * length for length in ctx.lengths)
    return found, None, None, None, None, *lists, None


_operator.register_autograd(_backward, setup_context=_keep)


class _Posterior(torch.autograd.Function):
    """The same without the ceremony, for ordinary training and the transforms of torch.func."""

    @staticmethod
    def forward(
        log_probs: torch.Tensor, bags: Bags, known: DeviceBags, compiled: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if log_probs.is_cpu:  # elsewhere a look at the numbers would make the host wait
            checked(bags.others_impossible(log_probs.detach().double().numpy()), bags)
        _, sizes, labels, weights, large, small = known.tensors
        return _computed(log_probs, sizes, labels, weights, large, small, compiled)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        log_probs, _, known, compiled = inputs
        _keep(ctx, (log_probs, *known.tensors, compiled), output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor | None, ...]:
        return None if grads[0] is None else _backward(ctx, *grads)[0], None, None, None

    jvp = staticmethod(refuse_forward_mode)

    @staticmethod
    def vmap(
        info: Any, dims: tuple[Any, ...], log_probs: torch.Tensor, *others: Any
    ) -> tuple[tuple[torch.Tensor, ...], int]:
        refuse_empty(info.batch_size)
        found = [
            _Posterior.apply(one, *others)  # type: ignore[no-untyped-call]
            for one in log_probs.unbind(dims[0])
        ]
        return tuple(torch.stack(outputs) for outputs in zip(*found, strict=True)), 0


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


def _precision(log_probs: torch.Tensor) -> torch.dtype:
    return torch.float32 if log_probs.dtype.itemsize < 4 else log_probs.dtype


def _computed(
    log_probs: torch.Tensor,
    sizes: torch.Tensor,
    labels: torch.Tensor | None,
    row_weights: torch.Tensor | None,
    large: list[torch.Tensor],
    small: list[torch.Tensor],
    compiled: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    call = _compiled if compiled else _as_it_is
    log_p = log_probs.detach().to(_precision(log_probs))
    N, C = log_p.shape
    log_likelihood = log_p.new_zeros(sizes.shape[0])
    flat = log_p.new_zeros(N * C + 1)  # one more, which nobody reads, for padding
    for group in (large, small):
        if group:
            index = PaddedIndex(*group)
            *padded, places, shift = call(_padded)(log_p, index, labels, row_weights)
            bags = PaddedBags(*padded)
            if group is large:
                value, log_w = bethe_of_padded(bags, call)
            else:
                lattices = Lattices(index.states, index.strides)
                value, log_w = exact_of_padded(bags, lattices, call)
            log_likelihood, flat = call(_entered)(
                index.bags,
                value + shift,
                log_w,
                bags.copies,
                bags.counts,
                places,
                log_likelihood,
                flat,
            )
    return log_likelihood, flat[:-1].view(N, C)


def _padded(
    log_p: torch.Tensor,
    index: PaddedIndex,
    labels: torch.Tensor | None,
    weights: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """The fields of `PaddedBags`, the places (G, K, A) of their entries among those of (N, C), and
    what (G,) making each row's largest entry 0 takes from log P(S|X).
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
    return (
        found,
        copies[..., None],
        index.counts.to(log_p.dtype),
        index.is_factor > 0,
        circle_of(
            index.nodes if log_p.dtype == torch.float32 else _twice(index.nodes), log_p.dtype
        ),
        torch.where(is_there[..., None] & occurs, places, N * C),
        (copies * top[..., 0]).sum(1),
    )


def _twice(nodes: torch.Tensor) -> torch.Tensor:
    """Points enough for double precision."""
    return torch.arange(2 * nodes.shape[0] - 1, device=nodes.device)


def _entered(
    index: torch.Tensor,
    value: torch.Tensor,
    log_w: torch.Tensor,
    copies: torch.Tensor,
    counts: torch.Tensor,
    places: torch.Tensor,
    log_likelihood: torch.Tensor,
    flat: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The answers of all bags with those of these."""
    weights = balanced(log_w, copies, counts)
    return (
        log_likelihood.scatter(0, index, value),
        flat.scatter(0, places.flatten(), weights.flatten()),
    )


def _as_it_is(solve: Callable[..., Any]) -> Callable[..., Any]:
    return solve


@cache
def _compiled(solve: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(solve, dynamic=True)
