"""Losses: pure functions of logits and bags.

Logits are flat (N, C), sorted by bag. By default every loss is an average per instance: for bags of
one size it is the paper's value, and for bags of different sizes a batch's loss is the mean of its
bags' losses weighted by their sizes, so that it does not depend on how bags are batched. A row with
a weight (`Bags.weights`) is as many instances as that says.

`reduction` says what becomes of the bags' losses, each the sum over its instances:

    "mean"    their sum divided by the number of instances N
    "sum"     their sum
    "none"    (B,) as they are; `llpfc_loss` and `weighted_cross_entropy`, which know no bags: (N,)

Logits of NaN or infinity give a loss and gradients of NaN, as those of PyTorch do: mixed precision
(`torch.amp.GradScaler`) then leaves the step out. Logits of -inf rule a class out.

Means of parts of different sizes do not average to the mean of the whole. So, to accumulate over
parts of a batch, or over the workers of a distributed step, take sums and divide them by the number
of instances of all parts together (`docs/pytorch.md` shows both).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch

from bagwise.autograd.bag_tensors import (
    bag_of_row,
    expected_counts,
    most,
    others_impossible,
    tensors_of,
    weighted,
)
from bagwise.autograd.logits import (
    check_index,
    check_logits,
    check_same_shape,
    check_stored,
    log_probs,
    nan_apart,
    refuse,
    refuse_nan_rows,
)
from bagwise.autograd.operator import is_traced
from bagwise.bags import Bags
from bagwise.errors import InputError, InputTypeError
from bagwise.posterior import bag_posterior
from bagwise.posterior.exact import MAX_STATES

__all__ = [
    "cc_loss",
    "dllp_loss",
    "llpfc_loss",
    "ot_loss",
    "pll_loss",
    "pvc_loss",
    "rc_loss",
    "view_loss",
    "weighted_cross_entropy",
]

Reduction = Literal["mean", "sum", "none"]


def rc_loss(
    logits: torch.Tensor,
    bags: Bags,
    stored_log_probs: torch.Tensor,
    engine: str = "auto",
    *,
    reduction: Reduction = "mean",
    **options: Any,
) -> torch.Tensor:
    """RC: cross-entropy against the label posterior under the stored probabilities.

        w[k, c] = P(Y_k = c | S, X) under stored_log_probs
        loss    = -1/N sum_k sum_c w[k, c] log softmax(logits)[k, c]

    With engine="multinomial" it is RC_Approx.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        stored_log_probs: (N, C) what the model said when it last saw these instances; before that,
            the logarithms of their bag's proportions. No gradient flows into it.
        engine: how the posterior is computed, see `bagwise.bag_posterior`.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.
        **options: the engine's own.

    >>> bags = Bags([2], [[1, 1]])
    >>> stored = torch.tensor([[.5, .5], [.5, .5]]).log()
    >>> rc_loss(torch.zeros(2, 2), bags, stored)
    tensor(0.6931)
    """
    check_logits(logits, bags)
    check_stored(stored_log_probs, bags)
    weights = bag_posterior(stored_log_probs.detach(), bags, engine, **options).weights
    return _against(weights, logits, bags, reduction)


def cc_loss(
    logits: torch.Tensor,
    bags: Bags,
    engine: str = "auto",
    *,
    reduction: Reduction = "mean",
    **options: Any,
) -> torch.Tensor:
    """CC: the negative log-likelihood of the bags' label counts, per instance.

        loss = -1/N sum over bags of log P(S|X),     P under softmax(logits)

    For bags of one size K that is the mean over bags of -log P(S|X) / K. Its gradient is that of RC
    with the weights of the current model. With engine="multinomial" it is CC_Approx: log P(S|X)
    becomes the mean over the bag's instances k of log sum_y e(y|X_k) P~(S - y | X - X_k), and the
    gradient flows through every term.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        engine: how the likelihood is computed, see `bagwise.bag_posterior`.
        reduction: "mean" per instance, "sum", or "none", -log P(S|X) of each bag.
        **options: the engine's own.

    >>> cc_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))      # -log(1/2) / 2
    tensor(0.3466)
    >>> cc_loss(torch.zeros(3, 2), Bags([2, 1], [[1, 1], [1, 0]]), reduction="none")
    tensor([0.6931, 0.6931])
    """
    check_logits(logits, bags)
    log_p, nan = nan_apart(log_probs(logits), bags)
    log_likelihood = bag_posterior(log_p, bags, engine, **options).log_likelihood
    return _reduced(nan - log_likelihood, reduction, bags.total)


def dllp_loss(logits: torch.Tensor, bags: Bags, *, reduction: Reduction = "mean") -> torch.Tensor:
    """DLLP: cross-entropy of a bag's mean probabilities and its proportions.

        loss = -1/N sum over bags of sum_c n_c log(mean_k softmax(logits)[k, c])

    For bags of one size that is the mean over bags of L_prop. Where counts are not exact, n_c are
    the expected ones.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.

    >>> dllp_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))
    tensor(0.6931)
    """
    check_logits(logits, bags)
    if bags.row_labels is not None:
        raise InputError(
            "DLLP learns from shares alone, and some instances have known labels; use cc or rc."
        )
    log_p = log_probs(logits)
    bag = bag_of_row(bags, logits.device)
    sizes, counts = tensors_of(bags).totals.to(log_p), expected_counts(bags).to(log_p)
    # Sums of exponentials relative to each bag's largest, so that no mean underflows.
    top = log_p.new_full((len(bags), bags.n_classes), -math.inf)
    top = top.scatter_reduce(0, bag[:, None].expand_as(logits), log_p.detach(), "amax")
    top = top.clamp(min=torch.finfo(top.dtype).min)
    terms = weighted((log_p - top[bag]).exp(), tensors_of(bags).weights)
    sums = torch.zeros_like(top).index_add(0, bag, terms)
    sums = sums.masked_fill(counts == 0, 1)  # of no weight, and no mean may be the log of nothing
    log_means = sums.log() + top - sizes[:, None].log()
    return _reduced(-counts * log_means.masked_fill(counts == 0, 0), reduction, bags.total)


def pvc_loss(logits: torch.Tensor, bags: Bags, *, reduction: Reduction = "mean") -> torch.Tensor:
    """PVC: the likelihood of each class's count apart from the others'.

        loss = -1/N sum over bags of sum_c log P(N_c = n_c),     P under softmax(logits)

    N_c, the number of instances of class c, is Poisson-binomial. The counts of a bag are not
    independent: with two classes the one tells the other, and PVC counts it twice. It needs exact
    counts.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.

    >>> pvc_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))      # -log(1/2) twice, / 2
    tensor(0.6931)
    """
    check_logits(logits, bags)
    if bags.row_labels is not None or bags.potentials is not None:
        raise InputError(
            "PVC learns from exact counts alone, and here some are not exact or some labels are "
            "known; use cc or rc."
        )
    log_p, nan = nan_apart(log_probs(logits), bags)
    # All instances for class 0, then class 1, ...: whether they are of it or not.
    log_p = torch.stack([log_p.T.reshape(-1), _log_complement(log_p).T.reshape(-1)], -1)
    if is_traced(log_p):  # a compiled step cannot make bags
        sizes, counts, _, weights = tensors_of(bags).known
        totals, counts = tensors_of(bags).totals.repeat(bags.n_classes), counts.T.reshape(-1)
        pairs = torch.stack([counts, totals - counts], -1)
        weights = None if weights is None else weights.repeat(bags.n_classes)
        sizes = sizes.repeat(bags.n_classes)
        log_likelihood = torch.ops.bagwise.posterior(
            log_p, sizes, pairs, None, weights, "exact", [float(MAX_STATES)]
        )[0]
    else:
        n, of = np.tile(bags.totals, bags.n_classes), bags.counts.T.reshape(-1)
        weights_ = None if bags.weights is None else np.tile(bags.weights, bags.n_classes)
        sizes_ = np.tile(bags.sizes, bags.n_classes)
        of_class = Bags.of_arrays(sizes_, np.stack([of, n - of], -1), weights_)
        log_likelihood = bag_posterior(log_p, of_class, "exact").log_likelihood
    values = log_likelihood.reshape(bags.n_classes, -1).sum(0)
    return _reduced(nan - values, reduction, bags.total)


def _log_complement(log_p: torch.Tensor) -> torch.Tensor:
    """(N, C) log(1 - p) from log p: of the likeliest class the sum of the others' p, as its own may
    be too close to 1 for any precision; the others have p up to 1/2.
    """
    likeliest = log_p.argmax(-1, keepdim=True)
    is_likeliest = torch.zeros_like(log_p, dtype=torch.bool).scatter(-1, likeliest, True)
    others = log_p.masked_fill(is_likeliest, -math.inf)
    alone = others.amax(-1, keepdim=True) == -math.inf  # their sum would have no derivative
    rest = others.masked_fill(alone, 0).logsumexp(-1, keepdim=True).masked_fill(alone, -math.inf)
    return torch.where(is_likeliest, rest, torch.log1p(-others.exp()))


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


def ot_loss(
    logits: torch.Tensor,
    bags: Bags,
    stored_log_probs: torch.Tensor,
    epsilon: float = 1.0,
    iterations: int = 75,
    *,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """OT: cross-entropy against entropic transport plans; RC with the `transport` engine.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        stored_log_probs: (N, C) as for `rc_loss`.
        epsilon: strength of the entropy.
        iterations: Sinkhorn iterations.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.

    >>> ot_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]), torch.zeros(2, 2))
    tensor(0.6931)
    """
    return rc_loss(
        logits,
        bags,
        stored_log_probs,
        "transport",
        reduction=reduction,
        epsilon=epsilon,
        iterations=iterations,
    )


def pll_loss(
    logits: torch.Tensor,
    bags: Bags,
    stored_log_probs: torch.Tensor,
    *,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """PLL: cross-entropy against the stored probabilities, restricted to the bag's classes.

        w[k, c] = p[k, c] / sum of p[k, c'] over the classes c' of the bag

    It uses which labels occur in a bag, not how often (partial-label learning); where counts are
    not exact, which labels can occur.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        stored_log_probs: (N, C) as for `rc_loss`.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.

    >>> stored = torch.tensor([[.2, .2, .6]]).log()
    >>> pll_loss(torch.tensor([[2., 0., 5.]]), Bags([1], [[1, 0, 0]]), stored)
    tensor(3.0550)
    """
    check_logits(logits, bags)
    check_stored(stored_log_probs, bags)
    absent = (most(bags) == 0).to(logits.device)[bag_of_row(bags, logits.device)]
    possible = others_impossible(stored_log_probs.detach(), bags)
    weights = possible.masked_fill(absent, -math.inf).softmax(-1)
    refuse_nan_rows(weights, stored_log_probs)
    return _against(weights, logits, bags, reduction)


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
    label must weigh that much together, or the true classifier does not minimise the loss. So, if
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
    return values.mean() if reduction == "mean" else _reduced(values, reduction, len(logits))


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
    return _reduced(-weights.to(log_p.dtype) * log_p, reduction, len(logits))


def _against(
    weights: torch.Tensor, logits: torch.Tensor, bags: Bags, reduction: Reduction
) -> torch.Tensor:
    """Cross-entropy against weights, of each bag where nothing is to be reduced."""
    check_same_shape(logits, weights, "weights")
    weights = weighted(weights, tensors_of(bags).weights)
    if reduction == "mean":
        return weighted_cross_entropy(logits, weights, reduction="sum") / bags.total
    values = weighted_cross_entropy(logits, weights, reduction=reduction)
    if reduction != "none":
        return values
    return values.new_zeros(len(bags)).index_add(0, bag_of_row(bags, logits.device), values)


def _reduced(terms: torch.Tensor, reduction: Reduction, n_instances: int) -> torch.Tensor:
    """Terms of a loss, (n,) or (n, C), as `reduction` says."""
    if reduction == "none":
        return terms if terms.dim() == 1 else terms.sum(1)
    if reduction == "sum":
        return terms.sum()
    if reduction == "mean":
        return terms.sum() / n_instances
    raise InputError(f'reduction is {reduction!r}; choose "mean", "sum" or "none".')
