"""What losses take: logits, their log-probabilities, and what goes with them."""

from __future__ import annotations

import math
import warnings
from collections.abc import MutableMapping
from typing import Any

import torch
from torch.nn.functional import log_softmax
from torch.utils.weak import WeakTensorKeyDictionary

from bagwise.autograd.bag_tensors import bag_of_row
from bagwise.autograd.device_bags import bring
from bagwise.autograd.tracing import is_traced
from bagwise.bags import Bags, Groupings, check_bags
from bagwise.bags.arrays import shown_row
from bagwise.errors import InputError, InputTypeError
from bagwise.posterior._result import check_shapes

_MOST_NODES = 10_000  # of a graph that is searched for batch normalization
_NEAR = 16  # nodes next to the logits, among which a parameter tells one model from another
_searched_in_vain: MutableMapping[torch.Tensor, int] = WeakTensorKeyDictionary()
"""Of a model, by such a parameter: how many batches of one bag since one was normalized so."""


def log_probs(logits: torch.Tensor) -> torch.Tensor:
    """log softmax(logits), at least in single precision.

    Half precision has three digits and ends at 65504: sums over instances need more.
    """
    return log_softmax(logits, -1, dtype=torch.float32 if logits.dtype.itemsize < 4 else None)


def log_complement(log_p: torch.Tensor) -> torch.Tensor:
    """(N, C) log(1 - p) from log p: of the likeliest class the sum of the others' p, as its own may
    be too close to 1 for any precision; the others have p up to 1/2.
    """
    likeliest = log_p.argmax(-1, keepdim=True)
    is_likeliest = torch.zeros_like(log_p, dtype=torch.bool).scatter(-1, likeliest, True)
    others = log_p.masked_fill(is_likeliest, -math.inf)
    alone = others.amax(-1, keepdim=True) == -math.inf  # their sum would have no derivative
    rest = others.masked_fill(alone, 0).logsumexp(-1, keepdim=True).masked_fill(alone, -math.inf)
    return torch.where(is_likeliest, rest, torch.log1p(-others.exp()))


def nan_apart(log_p: torch.Tensor, bags: Bags) -> tuple[torch.Tensor, torch.Tensor | float]:
    """log_p (N, C) with even shares in place of rows with NaN, and (B,) NaN for the bags of such
    rows, with a gradient of NaN, and 0 for others: engines refuse NaN.
    """
    # A sum of logarithms of probabilities is NaN if one of them is.
    seen = log_p.is_cpu and not is_out_of_sight(log_p)  # a device would have to be waited for
    if seen and not math.isnan(log_p.detach().sum().item()):
        return log_p, 0.0
    is_nan = log_p.isnan().any(-1)
    rows = torch.where(is_nan, log_p.sum(-1), 0)
    of_bags = rows.new_zeros(len(bags)).index_add(0, bag_of_row(bags, log_p.device), rows)
    return log_p.masked_fill(is_nan[:, None], -math.log(max(bags.n_classes, 1))), of_bags


def check_logits(logits: torch.Tensor, bags: Bags | Groupings) -> None:
    """Refuse what cannot be logits of the instances of these bags.

    Warns of a batch of one bag whose logits were normalized by batch.
    """
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise InputTypeError(f"logits is {kind}; a torch.Tensor of a floating type is expected.")
    check_bags(bags)
    if logits.shape != (bags.n_instances, bags.n_classes):
        raise InputError(
            f"logits has shape {tuple(logits.shape)}, but these bags have {bags.n_instances} "
            f"instances and {bags.n_classes} classes. {_advice(logits, bags)}"
        )
    if isinstance(bags, Bags):
        bring(bags, logits.device)
    if (
        isinstance(bags, Bags)
        and len(bags) == 1
        and not torch.compiler.is_compiling()
        and _is_found_normalized(logits)
    ):
        warnings.warn(
            f"this batch is a single bag (of {bags.n_instances} instances), and the model "
            "normalizes by batch: that takes away what differs between bags, and such a model "
            "hardly learns. Put several bags into a batch (batch_bags), or normalize in another "
            "way (LayerNorm, GroupNorm).",
            UserWarning,
            stacklevel=3,
        )


def _advice(logits: torch.Tensor, bags: Bags | Groupings) -> str:
    """What to do about logits of a wrong shape."""
    if logits.dim() == 2 and logits.shape[1] == bags.n_classes:
        return "Give the logits of all rows of each bag: bags.select(index) has bags.rows(index)."
    single = logits.numel() == bags.n_instances and bags.n_classes == 2
    also = ", also for two: torch.stack([0 * logit, logit], 1)" if single else ""
    return f"A model has one output for each class{also}."


def check_stored(stored_log_probs: object, bags: Bags | Groupings) -> None:
    """Refuse what cannot be stored log-probabilities of the instances of these bags."""
    if not isinstance(stored_log_probs, torch.Tensor):
        kind = type(stored_log_probs).__name__
        raise InputTypeError(f"stored_log_probs is a {kind}; a torch.Tensor is expected.")
    check_shapes(stored_log_probs, bags, "stored_log_probs")


def _is_found_normalized(logits: torch.Tensor) -> bool:
    """Whether a batch normalization is found behind these logits of one bag.

    To search takes longer than the loss if the model is deep. So, where nothing is found, only the
    1st, 2nd, 4th, 8th, ... batch of one bag of a model is searched.
    """
    parameter = _parameter_near(logits)
    n = 1 if parameter is None else 1 + _searched_in_vain.get(parameter, 0)
    found = n & (n - 1) == 0 and _normalized_by_batch(logits)
    if parameter is not None:
        _searched_in_vain[parameter] = 0 if found else n
    return found


def _parameter_near(logits: torch.Tensor) -> torch.Tensor | None:
    """A parameter of the model that is among the nodes next to its logits."""
    waiting = [logits.grad_fn]
    for place in range(_NEAR):
        if place == len(waiting):
            break
        parameter: torch.Tensor | None = getattr(waiting[place], "variable", None)
        if parameter is not None:
            return parameter
        following = getattr(waiting[place], "next_functions", ())
        waiting += [node for node, _ in following]
    return None


def _normalized_by_batch(logits: torch.Tensor) -> bool:
    """Whether a batch normalization in training mode lies behind these logits."""
    waiting, seen = [logits.grad_fn], set[Any]()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        # Normalization of single instances (InstanceNorm) is one of a batch of one, to PyTorch.
        in_training = "BatchNorm" in node.name() and getattr(node, "_saved_training", False)
        if in_training and len(node._saved_input) > 1:  # type: ignore[attr-defined]
            return True
        waiting += [following for following, _ in node.next_functions]
    return False


def check_same_shape(logits: torch.Tensor, given: torch.Tensor, name: str) -> None:
    """Refuse what has not the shape of the logits."""
    if given.shape != logits.shape:
        raise InputError(
            f"logits has shape {tuple(logits.shape)} and {name} {tuple(given.shape)}; "
            "they must be the same."
        )


def check_index(given: torch.Tensor, n: int, end: int, name: str) -> None:
    """Refuse what is not (n,) integers from 0 to end - 1."""
    if not isinstance(given, torch.Tensor):
        raise InputTypeError(f"{name} is a {type(given).__name__}; a torch.Tensor is expected.")
    integers = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    if given.shape != (n,) or not integers:
        raise InputError(
            f"{name} is {given.dtype} of shape {tuple(given.shape)}; ({n},) integers are expected, "
            "one for each instance."
        )
    refuse(given, (given < 0) | (given >= end), name, f"integers from 0 to {end - 1}")


def refuse(given: torch.Tensor, wrong: torch.Tensor, name: str, expected: str) -> None:
    """Refuse numbers where one is wrong; compilers cannot look at numbers."""
    if not is_out_of_sight(given) and wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise InputError(
            f"{name}[{', '.join(map(str, place))}] is {given[place].item():g}; {expected} are "
            "expected."
        )


def is_out_of_sight(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers cannot be looked at."""
    if is_traced(tensor):
        return True
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # of grad, of vmap, of both
        if torch._C._functorch.is_batchedtensor(tensor):
            return True
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return False


def refuse_nan_rows(weights: torch.Tensor, stored: torch.Tensor) -> None:
    """Refuse stored log-probabilities that give no weights."""
    if is_out_of_sight(weights):
        return
    bad = weights.isnan().any(-1)
    if bad.any():
        row = int(bad.int().argmax())
        given = shown_row(stored[row].detach().cpu().double().numpy())
        raise InputError(
            f"stored_log_probs[{row}] is {given}; numbers or -inf are expected, and "
            "not -inf for all classes that its bag has. A model that diverged gives NaN: lower the "
            "learning rate or standardize its inputs."
        )
