"""The posterior as an operator of PyTorch: engines run inside it, gradients and compilers see it.

`torch.ops.bagwise.posterior(log_probs, *tensors_of(bags).known, engine, options)`
returns each bag's log-likelihood (B,), the weights (N, C), the gradient (N, C) where that is not
the weights (else it is empty; both are of one copy of a weighted row), and what is proved of each
bag's answer (B,), which stays on the CPU, as training does not use it. An operator has a shape that
compilers can reason about without running it, so a compiled training step calls it like any other.
"""

from __future__ import annotations

from typing import Any

import torch

from bagwise.autograd.bag_tensors import bags_of_tensors, others_impossible, tensors_of, weighted
from bagwise.autograd.device_engine import is_for_device, posterior_on_device
from bagwise.autograd.tracing import is_traced, refuse_empty, refuse_forward_mode
from bagwise.bags import Bags, FloatArray
from bagwise.posterior import most_probable_labeling
from bagwise.posterior._engine import KERNELS
from bagwise.posterior._result import Posterior, check_shapes, checked
from bagwise.posterior.auto import BY_TIME
from bagwise.posterior.device import MAX_STATES


def posterior_of_tensor(
    engine: str, log_probs: torch.Tensor, bags: Bags, options: list[float]
) -> Posterior[torch.Tensor]:
    """Check the input, run an engine (CPU, double precision), bring back tensors."""
    check_shapes(log_probs, bags)
    if is_for_device(engine, log_probs, bags, None if options[:1] == [BY_TIME] else 0):
        return posterior_on_device(log_probs, bags, MAX_STATES, None)
    possible = others_impossible(log_probs, bags)
    if is_traced(possible):
        found = _operator(possible, *tensors_of(bags).known, engine, options)
    elif not torch._C._are_functorch_transforms_active():
        found = _PlainPosterior.apply(possible, bags, engine, options)  # type: ignore[no-untyped-call]
    else:
        found = _Posterior.apply(possible, bags, engine, options)  # type: ignore[no-untyped-call]
    log_likelihood, weights, _, bound = found
    return Posterior(log_likelihood, weights.detach(), bound.detach(), engine)


def labeling_of_tensor(log_probs: torch.Tensor, bags: Bags) -> torch.Tensor:
    """`most_probable_labeling` of a tensor, on its device."""
    check_shapes(log_probs, bags)
    return torch.from_numpy(most_probable_labeling(_array(log_probs), bags)).to(log_probs.device)


def _array(tensor: torch.Tensor) -> FloatArray:
    found: FloatArray = tensor.detach().cpu().double().contiguous().numpy()
    return found


def _computed(
    log_probs: torch.Tensor, bags: Bags, engine: str, options: list[float]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    log_likelihood, weights, gradient, bound = KERNELS[engine].run(_array(log_probs), bags, options)
    kind = _precision(log_probs)

    def like_logits(array: FloatArray) -> torch.Tensor:
        # The type first: not every device has double precision.
        return torch.from_numpy(array).to(kind).to(log_probs.device)

    own = log_probs.new_empty(0, dtype=kind) if gradient is None else like_logits(gradient)
    return like_logits(log_likelihood), like_logits(weights), own, torch.from_numpy(bound)


@torch.library.custom_op("bagwise::posterior", mutates_args=())
def _operator(
    log_probs: torch.Tensor,
    sizes: torch.Tensor,
    counts: torch.Tensor,
    packed: torch.Tensor | None,
    row_weights: torch.Tensor | None,
    engine: str,
    options: list[float],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    bags = bags_of_tensors(sizes, counts, packed, row_weights)
    return _computed(log_probs, bags, engine, options)


def _precision(log_probs: torch.Tensor) -> torch.dtype:
    # Half precision has three digits: a log-likelihood of -300 would lose its decimals.
    return torch.float32 if log_probs.dtype.itemsize < 4 else log_probs.dtype


@_operator.register_fake
def _(
    log_probs: torch.Tensor,
    sizes: torch.Tensor,
    counts: torch.Tensor,
    packed: torch.Tensor | None,
    row_weights: torch.Tensor | None,
    engine: str,
    options: list[float],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    weights = torch.empty_like(
        log_probs, dtype=_precision(log_probs), memory_format=torch.contiguous_format
    )
    gradient = torch.empty_like(weights) if KERNELS[engine].own_gradient else weights.new_empty(0)
    B = sizes.shape[0]
    return weights.new_empty(B), weights, gradient, torch.empty(B, dtype=torch.float64)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    log_probs, *known, ctx.engine, ctx.options = inputs
    gradient = output[2] if KERNELS[ctx.engine].own_gradient else output[1]
    ctx.save_for_backward(log_probs, weighted(gradient, known[3]), *known)


def _backward(ctx: Any, grad: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    log_probs, gradient, *known = ctx.saved_tensors
    if torch.is_grad_enabled():  # someone wants to differentiate the gradient
        found = _Gradient.apply(  # type: ignore[no-untyped-call]
            log_probs, grad, gradient.detach(), ctx.engine, ctx.options, *known
        )
    else:
        found = _by_row(grad, known[0], log_probs.shape[0]) * gradient
    return found.to(log_probs.dtype), *([None] * 6)


_operator.register_autograd(_backward, setup_context=_keep)


class _Posterior(torch.autograd.Function):
    """The operator without its ceremony, for the transforms of torch.func."""

    @staticmethod
    def forward(
        log_probs: torch.Tensor, bags: Bags, engine: str, options: list[float]
    ) -> tuple[torch.Tensor, ...]:
        return _computed(log_probs, bags, engine, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        log_probs, bags, engine, options = inputs
        _keep(ctx, (log_probs, *tensors_of(bags).known, engine, options), output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None,) * 4 if grads[0] is None else _backward(ctx, *grads)[:4]

    jvp = staticmethod(refuse_forward_mode)

    @staticmethod
    def vmap(
        info: Any,
        dims: tuple[Any, ...],
        log_probs: torch.Tensor,
        bags: Bags,
        engine: str,
        options: list[float],
    ) -> tuple[tuple[torch.Tensor, ...], int]:
        refuse_empty(info.batch_size)
        found = [
            _Posterior.apply(one, bags, engine, options)  # type: ignore[no-untyped-call]
            for one in log_probs.unbind(dims[0])
        ]
        return tuple(torch.stack(outputs) for outputs in zip(*found, strict=True)), 0


class _PlainPosterior(torch.autograd.Function):
    """The same for ordinary training. Where `forward` is apart from `setup_context`, PyTorch looks
    at its signature in every call, which takes as long as a small batch.
    """

    @staticmethod
    def forward(
        ctx: Any, log_probs: torch.Tensor, bags: Bags, engine: str, options: list[float]
    ) -> tuple[torch.Tensor, ...]:
        output = _computed(log_probs, bags, engine, options)
        _Posterior.setup_context(ctx, (log_probs, bags, engine, options), output)
        return output

    backward = _Posterior.backward
    jvp = staticmethod(refuse_forward_mode)


def _by_row(of_bags: torch.Tensor, sizes: torch.Tensor, rows: int) -> torch.Tensor:
    """(N, 1) the value of each row's bag."""
    repeats = sizes.to(of_bags.device)
    return of_bags.repeat_interleave(repeats, output_size=rows)[:, None]


class _Gradient(torch.autograd.Function):
    """grad[bag of k] * gradient[k, c], as a function of log_probs and grad."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_probs: torch.Tensor,
        grad: torch.Tensor,
        gradient: torch.Tensor,
        engine: str,
        options: list[float],
        *known: torch.Tensor,
    ) -> torch.Tensor:
        return _by_row(grad, known[0], log_probs.shape[0]) * gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        log_probs, grad, gradient, ctx.engine, ctx.options, *known = inputs
        ctx.save_for_backward(log_probs, grad, gradient, *known)

    @staticmethod
    def backward(ctx: Any, direction: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        log_probs, grad, gradient, *known = ctx.saved_tensors
        if torch.is_grad_enabled():
            log_probs, gradient = _NoThird.apply(log_probs, gradient)  # type: ignore[no-untyped-call]
        v = direction * _by_row(grad, known[0], log_probs.shape[0])
        second = _Curve.apply(log_probs, v, ctx.engine, ctx.options, *known)  # type: ignore[no-untyped-call]
        bag = _by_row(torch.arange(len(grad)), known[0], log_probs.shape[0])[:, 0]
        of_bags = torch.zeros_like(grad).index_add(
            0, bag.to(grad.device), (direction * gradient).sum(1)
        )
        return second, of_bags, *([None] * 7)


class _NoThird(torch.autograd.Function):
    """What second derivatives are computed from, and cannot be differentiated by: an error is
    better than a wrong number.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_probs: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return log_probs.clone(), gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        raise RuntimeError("a bag's log-likelihood can be differentiated twice, not three times.")


class _Curve(torch.autograd.Function):
    """The derivative of the log-likelihood's gradient in a direction, in which it is linear."""

    @staticmethod
    def forward(
        log_probs: torch.Tensor,
        direction: torch.Tensor,
        engine: str,
        options: list[float],
        *known: torch.Tensor,
    ) -> torch.Tensor:
        curve = KERNELS[engine].curve
        if curve is None:
            raise RuntimeError(
                f"the engine {engine!r} has no second derivative of the log-likelihood; "
                'use engine="exact", which has.'
            )
        bags = bags_of_tensors(*known)
        log_p, _ = checked(_array(log_probs), bags)
        bent = bags.copies[:, None] * curve(log_p, bags, _array(direction), *options)
        return torch.from_numpy(bent).to(log_probs.dtype).to(log_probs.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        log_probs, direction, ctx.engine, ctx.options, *known = inputs
        ctx.kind = direction.dtype
        ctx.save_for_backward(log_probs, *known)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        log_probs, *known = ctx.saved_tensors
        # Second derivatives are symmetric: by the direction it is the same once more. What goes to
        # log_probs is refused by `_NoThird`.
        again = _Curve.apply(log_probs, grad, ctx.engine, ctx.options, *known)  # type: ignore[no-untyped-call]
        return torch.zeros_like(log_probs), again.to(ctx.kind), *([None] * 6)

    @staticmethod
    def vmap(
        info: Any,
        dims: tuple[Any, ...],
        log_probs: torch.Tensor,
        direction: torch.Tensor,
        *others: Any,
    ) -> tuple[torch.Tensor, int]:
        pairs = zip(
            *(
                [tensor] * info.batch_size if dim is None else tensor.unbind(dim)
                for tensor, dim in zip((log_probs, direction), dims[:2], strict=True)
            ),
            strict=True,
        )
        found = [_Curve.apply(one, v, *others) for one, v in pairs]  # type: ignore[no-untyped-call]
        return torch.stack(found), 0
