"""Losses that know no bags: cross-entropy against weights, a second view, forward correction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch

from bagwise.autograd.logits import check_index, check_same_shape, log_probs, refuse
from bagwise.errors import InputError, InputTypeError

Reduction = Literal["mean", "sum", "none"]
InstanceLoss = Literal["cross_entropy", "squared_error"] | Callable[[torch.Tensor], torch.Tensor]


def weighted_cross_entropy(
    logits: torch.Tensor, weights: torch.Tensor, *, reduction: Reduction = "mean"
) -> torch.Tensor:
    """-1/N sum_k sum_c weights[k, c] log softmax(logits)[k, c]; both are (N, C).

    With `reduction` "sum" it is not divided by N, with "none" it is (N,), a value an instance.

    >>> weighted_cross_entropy(torch.zeros(1, 2), torch.tensor([[0.3, 0.7]]))
    tensor(0.6931)
    """
    check_same_shape(logits, weights, "weights")
    log_p = log_probs(logits).masked_fill(weights == 0, 0)
    return reduced(-weights.to(log_p.dtype) * log_p, reduction, len(logits))


def weighted_loss(
    logits: torch.Tensor,
    weights: torch.Tensor,
    instance_loss: InstanceLoss,
    *,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """1/N sum_k sum_c weights[k, c] loss(logits[k], c); see `rc_loss` for what a loss may be.

    >>> weighted_loss(torch.zeros(1, 2), torch.tensor([[0.3, 0.7]]), "squared_error")
    tensor(0.5000)
    """
    if instance_loss == "cross_entropy":
        return weighted_cross_entropy(logits, weights, reduction=reduction)
    check_same_shape(logits, weights, "weights")
    if instance_loss == "squared_error":
        p = log_probs(logits).exp()
        values = 1 - 2 * p + p.square().sum(-1, keepdim=True)
    elif callable(instance_loss):
        values = instance_loss(logits)
        if not isinstance(values, torch.Tensor) or values.shape != logits.shape:
            kind = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values)
            raise InputError(
                f"instance_loss returned {kind} for logits of shape {tuple(logits.shape)}; return "
                "a tensor of the same shape, the loss of each instance with each label."
            )
        values = values.to(torch.promote_types(values.dtype, torch.float32))
    else:
        raise InputError(
            f'instance_loss is {instance_loss!r}; choose "cross_entropy", "squared_error" or a '
            "function of logits (N, C)."
        )
    # A label that an instance cannot have may have an infinite loss.
    terms = weights.to(values.dtype) * values.masked_fill(weights == 0, 0)
    return reduced(terms, reduction, len(logits))


def view_loss(
    logits: torch.Tensor,
    weights: torch.Tensor,
    sureness: torch.Tensor | None = None,
    *,
    threshold: float = 0.0,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """Cross-entropy of another view of the instances against labels that are more or less sure.

        loss = -1/N sum_k s[k] sum_c w[k, c] log softmax(logits)[k, c],
        s[k] = 1 - entropy of v[k] / log C, or 0 if no v[k, c] reaches the threshold

    Args:
        logits: (N, C) of the other view.
        weights: (N, C) w, probabilities of the labels, for instance the posterior
            `bag_posterior(...).weights` of a first view. No gradient flows into them.
        sureness: (N, C) v, the probabilities that say how sure the labels are; w if None.
        threshold: how probable the likeliest label must be for an instance to count.
        reduction: "mean" per instance, "sum", or "none", (N,) values.

    >>> view_loss(torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0.5, 0.5]]))     # log(2) / 2
    tensor(0.3466)
    """
    for name, given in (("weights", weights), ("sureness", sureness)):
        if given is not None:
            check_same_shape(logits, given, name)
            refuse(given, (given < 0) | given.isnan(), name, "probabilities of 0 or more")
    known = (weights if sureness is None else sureness).detach()
    entropy = -torch.xlogy(known, known).sum(-1)
    sure = (1 - entropy / math.log(max(known.shape[-1], 2))).clamp(0, 1)  # one class is sure
    sure = sure * (known.amax(-1) >= threshold)
    return weighted_cross_entropy(
        logits, weights.detach() * sure[:, None].to(weights), reduction=reduction
    )


def llpfc_loss(
    logits: torch.Tensor,
    noisy_labels: torch.Tensor,
    transitions: torch.Tensor,
    groups: torch.Tensor | None = None,
    *,
    weights: torch.Tensor | None = None,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """LLPFC: forward correction of label noise.

        loss = -1/N sum_k v[k] log sum_c T[noisy_k, c] softmax(logits)[k, c]

    T[i, c] = P(noisy i | c) supposes how likely each noisy label is. The instances of each noisy
    label must weigh that much together, or the true classifier does not minimize the loss. So, if
    the bags of a group are equally likely and differ in size, v[k] is proportional to
    1 / (size of the bag of k).

    Args:
        logits: (N, C) of the model at hand.
        noisy_labels: (N,) each instance's noisy label: which bag of its group it is in.
        transitions: (N, C, C), a matrix for each instance, or (G, C, C), one for each group.
        groups: (N,) the group of each instance, where transitions are given per group.
        weights: (N,) v, the weight of each instance; 1 if not given.
        reduction: "mean" per instance, "sum", or "none", a value for each instance.

    >>> transition = torch.tensor([[[.9, .2], [.1, .8]]])
    >>> llpfc_loss(torch.zeros(1, 2), torch.tensor([0]), transition)      # -log(.55)
    tensor(0.5978)
    """
    if not logits.is_floating_point() or logits.dim() != 2:
        raise InputTypeError(
            f"logits is {logits.dtype} of shape {tuple(logits.shape)}; (N, C) of a floating type "
            "is expected."
        )
    N, C = logits.shape
    if transitions.shape[1:] != (C, C):
        raise InputError(
            f"transitions has shape {tuple(transitions.shape)}; matrices of {C} x {C}, as there "
            f"are {C} classes, are expected."
        )
    if groups is None and len(transitions) != N:
        raise InputError(
            f"there are {len(transitions)} transition matrices for {N} instances; give "
            "one for each instance, or one for each group together with groups."
        )
    if weights is not None and weights.shape != (N,):
        raise InputError(
            f"weights has shape {tuple(weights.shape)}; ({N},) is expected, one for each instance."
        )
    check_index(noisy_labels, N, C, "noisy_labels")
    index = torch.arange(N, device=logits.device)
    if groups is not None:
        check_index(groups, N, len(transitions), "groups")
        index = groups.long()
    log_p = log_probs(logits)
    rows = transitions[index, noisy_labels.long()].to(log_p)
    values = -torch.logsumexp(rows.log() + log_p, -1)
    if weights is not None:
        values = values * weights.to(values)
    return values.mean() if reduction == "mean" else reduced(values, reduction, len(logits))


def reduced(terms: torch.Tensor, reduction: Reduction, n_instances: int) -> torch.Tensor:
    """Terms of a loss, (n,) or (n, C), as `reduction` says."""
    if reduction == "none":
        return terms if terms.dim() == 1 else terms.sum(1)
    if reduction == "sum":
        return terms.sum()
    if reduction == "mean":
        return terms.sum() / n_instances
    raise InputError(f'reduction is {reduction!r}; choose "mean", "sum" or "none".')
