"""Engines of users: functions of tensors, written with PyTorch's own operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from bagwise.bags import Bags
from bagwise.errors import InputError, InputTypeError
from bagwise.posterior._result import Posterior, check_shapes


def posterior_by_users_engine(
    function: Callable[..., Posterior[torch.Tensor]],
    name: str,
    log_probs: Any,
    bags: Bags,
    options: Mapping[str, Any],
) -> Posterior[Any]:
    """What the engine returns, if it is a posterior of these bags; arrays for an array.

    Weighted rows are written out for it.
    """
    is_array = isinstance(log_probs, np.ndarray)
    given = torch.tensor(log_probs, dtype=torch.float64) if is_array else log_probs
    if bags.weights is not None:
        check_shapes(given, bags)
        places = torch.tensor(np.cumsum(bags.copies) - 1, device=given.device)
        given = given[torch.tensor(np.repeat(np.arange(len(given)), bags.copies))]
        bags = bags.written_out()
    found = function(given, bags, **options)
    _check(found, given, bags, name)
    if bags.n_instances > len(log_probs):
        found = found._replace(weights=found.weights[places])
    if not is_array:
        return found
    bound = None if found.bound is None else found.bound.numpy()
    log_likelihood = found.log_likelihood.detach().numpy()
    return Posterior(log_likelihood, found.weights.numpy(), bound, found.asked)


def _check(found: object, log_probs: torch.Tensor, bags: Bags, name: str) -> None:
    if not isinstance(found, Posterior):
        raise InputTypeError(
            f"engine {name!r} returns a {type(found).__name__}; a Posterior is expected."
        )
    shapes = tuple(found.log_likelihood.shape), tuple(found.weights.shape)
    if shapes != ((len(bags),), tuple(log_probs.shape)):
        raise InputError(
            f"engine {name!r} returns a log-likelihood of shape {shapes[0]} and weights of shape "
            f"{shapes[1]}; ({len(bags)},) and {tuple(log_probs.shape)} are expected, for "
            f"{len(bags)} bags."
        )
