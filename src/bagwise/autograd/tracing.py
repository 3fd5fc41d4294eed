"""Who looks on while a tensor is computed with."""

from __future__ import annotations

from typing import Any

import torch

from bagwise.errors import InputError


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether someone looks on who must see one operation: a compiler, a tracer, or a tensor that
    is not plain. To be seen costs a quarter of a millisecond a call.
    """
    return (
        torch.compiler.is_compiling()
        or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or tensor.is_meta
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
    )


def refuse_forward_mode(ctx: Any, *grad_inputs: Any) -> Any:
    """What a function does when its forward-mode derivative is wanted."""
    raise RuntimeError(
        "a bag's log-likelihood has no forward-mode derivative (jvp, jacfwd, torch.func.hessian"
        "); use reverse mode: backward, vjp, jacrev, jacrev(jacrev(f)) for a Hessian."
    )


def refuse_empty(n: int) -> None:
    """Refuse to be mapped over nothing."""
    if n == 0:
        raise InputError("vmap is over an empty dimension; at least one set of logits is needed.")
