"""What an engine is made of, and how one is run on arrays; tensors are handed to `autograd`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.bags import Bags, FloatArray
from bagwise.bags.arrays import is_tensor
from bagwise.errors import InputTypeError
from bagwise.posterior._result import Posterior, Values, check_shapes, checked

Fill = Callable[..., FloatArray | None]
"""fill(log_p (N, C), bags, log_likelihood (B,), weights (N, C), *options) fills the two arrays. It
returns the gradient (N, C) of each bag's log-likelihood where `own_gradient` says so."""

Curve = Callable[..., FloatArray]
"""curve(log_p (N, C), bags, direction (N, C), *options): the derivative of the weights in that
direction, (N, C)."""


@dataclass(frozen=True)
class Engine:
    """How a posterior is computed.

    Attributes:
        fill: the likelihoods and weights.
        own_gradient: whether `fill` returns a gradient that is not the weights.
        curve: the second derivative of the log-likelihood, where it is known.
        bound: `Posterior.bound` of every bag; None if `fill` takes an array for it after the
            options.
    """

    fill: Fill
    own_gradient: bool = False
    curve: Curve | None = None
    bound: float | None = np.inf

    def run(
        self, log_probs: FloatArray, bags: Bags, options: Sequence[float]
    ) -> tuple[FloatArray, FloatArray, FloatArray | None, FloatArray]:
        """The log-likelihood (B,), the weights (N, C), the gradient (N, C) if it is not the
        weights, and the bound (B,), of an array in double precision whose values are not checked.
        """
        log_p, shifts = checked(log_probs, bags)
        log_likelihood, weights = np.empty(len(bags)), np.empty(log_p.shape)
        bound = np.full(len(bags), np.inf if self.bound is None else self.bound)
        last = (bound,) if self.bound is None else ()
        gradient = self.fill(log_p, bags, log_likelihood, weights, *options, *last)
        if shifts is not None:
            log_likelihood += shifts
        return log_likelihood, weights, gradient, bound


KERNELS: dict[str, Engine] = {}
"""The engines of this room by name."""


def posterior(
    engine: str, log_probs: Values, bags: Bags, options: Sequence[float] = ()
) -> Posterior[Values]:
    """Check the input and run an engine: in double precision for an array, for a tensor by
    `autograd`.
    """
    numbers = [float(option) for option in options]
    if is_given_tensor(log_probs):
        found: Posterior[Values] = bridge().posterior_of_tensor(engine, log_probs, bags, numbers)
        return found
    log_p = plain(log_probs, bags)
    log_likelihood, weights, _, bound = KERNELS[engine].run(log_p, bags, numbers)
    return Posterior(log_likelihood, weights, bound, engine)  # type: ignore[arg-type]


def is_given_tensor(log_probs: object) -> bool:
    """Whether a tensor was given and not an array; anything else is refused."""
    if isinstance(log_probs, np.ndarray):
        return False
    if not is_tensor(log_probs):
        raise InputTypeError(
            f"log_probs is a {type(log_probs).__name__}; a numpy.ndarray or a torch.Tensor is "
            "expected."
        )
    return True


def plain(log_probs: Any, bags: Bags) -> FloatArray:
    """An array as kernels take it, known labels included."""
    check_shapes(log_probs, bags)
    # Kernels are compiled for arrays of this kind alone.
    found: FloatArray = np.require(bags.others_impossible(log_probs), np.float64, ["C", "W", "A"])
    return found


def bridge() -> Any:
    """The room that computes with tensors, imported when one is given.

    This is the only way from here to PyTorch.
    """
    import bagwise.autograd as autograd

    return autograd
