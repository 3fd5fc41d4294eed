"""Losses of bags: RC, CC, DLLP, PVC, OT, PLL."""

from __future__ import annotations

import math
from typing import Any

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
from bagwise.autograd.device_engine import is_for_device
from bagwise.autograd.joint_operator import refuse_transforms
from bagwise.autograd.logits import (
    check_logits,
    check_same_shape,
    check_stored,
    log_complement,
    log_probs,
    nan_apart,
    refuse_nan_rows,
)
from bagwise.autograd.tracing import is_traced
from bagwise.bags import Bags, FloatArray, Groupings, check_bags
from bagwise.errors import InputError
from bagwise.losses.instance_losses import InstanceLoss, Reduction, reduced, weighted_loss
from bagwise.posterior import JointPosterior, bag_posterior
from bagwise.posterior.exact import MAX_STATES


def rc_loss(
    logits: torch.Tensor,
    bags: Bags | Groupings,
    stored_log_probs: torch.Tensor,
    engine: str = "auto",
    *,
    instance_loss: InstanceLoss = "cross_entropy",
    reduction: Reduction = "mean",
    messages: FloatArray | None = None,
    **options: Any,
) -> torch.Tensor:
    """RC: the loss against the label posterior under the stored probabilities.

        w[k, c] = P(Y_k = c | S, X) under stored_log_probs
        loss    = 1/N sum_k sum_c w[k, c] instance_loss(logits[k], c)

    `instance_loss` is that of supervised learning: with p = softmax(logits[k]),

        "cross_entropy"     -log p[c]
        "squared_error"     sum over classes y of (1[y = c] - p[y])^2
        a function          of the logits (N, C) that returns (N, C), the loss of each instance
                            with each label; it should treat instances one by one

    With engine="multinomial" it is RC_Approx. With several groupings of the rows, w is the joint
    posterior given all their counts; rows that are in no bag do not count.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances, or several `Groupings` of them.
        stored_log_probs: (N, C) what the model said when it last saw these instances; before that,
            the logarithms of their bag's proportions. No gradient flows into it.
        engine: how the posterior is computed, see `bagwise.bag_posterior`.
        instance_loss: "cross_entropy", "squared_error", or a function of logits.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.
        messages: between groupings, see `cc_loss`.
        **options: the engine's own, and those of groupings.

    >>> bags = Bags([2], [[1, 1]])
    >>> stored = torch.tensor([[.5, .5], [.5, .5]]).log()
    >>> rc_loss(torch.zeros(2, 2), bags, stored)
    tensor(0.6931)
    >>> rc_loss(torch.zeros(2, 2), bags, stored, instance_loss=lambda z: (1 - z).clamp(min=0))
    tensor(1.)
    """
    check_logits(logits, bags)
    check_stored(stored_log_probs, bags)
    stored = stored_log_probs.detach()
    if not isinstance(bags, Groupings):
        weights = bag_posterior(stored, bags, engine, **options).weights
        return loss_of_bags(weights, logits, bags, instance_loss, reduction)
    _refuse_none(reduction)
    found = bag_posterior(stored, bags, engine, messages=messages, **options)
    _keep(found, messages)
    counted = torch.from_numpy(bags.copies * (bags.degrees > 0)).to(found.weights)
    weights = counted[:, None] * found.weights
    total = weighted_loss(logits, weights, instance_loss, reduction="sum")
    return total if reduction == "sum" else total / bags.copies.sum()


def cc_loss(
    logits: torch.Tensor,
    bags: Bags | Groupings,
    engine: str = "auto",
    *,
    reduction: Reduction = "mean",
    messages: FloatArray | None = None,
    **options: Any,
) -> torch.Tensor:
    """CC: the negative log-likelihood of the bags' label counts, per instance.

        loss = -1/N sum over bags of log P(S|X),     P under softmax(logits)

    For bags of one size K that is the mean over bags of -log P(S|X) / K. Its gradient is that of RC
    with the weights of the current model. With engine="multinomial" it is CC_Approx: log P(S|X)
    becomes the mean over the bag's instances k of log sum_y e(y|X_k) P~(S - y | X - X_k), and the
    gradient flows through every term.

    With several groupings of the rows, P is that of all their counts together; with `joint=False`
    the loss is the mean over all (instance, grouping) of the groupings' own.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances, or several `Groupings` of them.
        engine: how the likelihood is computed, see `bagwise.bag_posterior`.
        reduction: "mean" per instance, "sum", or "none", -log P(S|X) of each bag.
        messages: (G, N, C) array, zeros at first: messages between groupings, from which this call
            goes on, and in which it leaves them for the next. One round a step (`max_rounds=1`) is
            then enough.
        **options: the engine's own, and those of groupings.

    >>> cc_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))      # -log(1/2) / 2
    tensor(0.3466)
    >>> cc_loss(torch.zeros(3, 2), Bags([2, 1], [[1, 1], [1, 0]]), reduction="none")
    tensor([0.6931, 0.6931])
    """
    check_logits(logits, bags)
    if isinstance(bags, Groupings):
        return _of_groupings(log_probs(logits), bags, engine, reduction, messages, options)
    log_p = log_probs(logits)
    # The device engine answers NaN with NaN, without a look at it; others refuse it.
    limit = options.get("max_states")
    is_away = not log_p.is_cpu and is_for_device(engine, log_p, bags, limit)
    log_p, nan = (log_p, 0.0) if is_away else nan_apart(log_p, bags)
    log_likelihood = bag_posterior(log_p, bags, engine, **options).log_likelihood
    return reduced(nan - log_likelihood, reduction, bags.total)


def _of_groupings(
    log_p: torch.Tensor,
    groupings: Groupings,
    engine: str,
    reduction: Reduction,
    messages: FloatArray | None,
    options: dict[str, Any],
) -> torch.Tensor:
    _refuse_none(reduction)
    if options.get("joint", True):
        refuse_transforms(log_p)
    if log_p.isnan().any():
        return log_p.sum()
    found = bag_posterior(log_p, groupings, engine, messages=messages, **options)
    _keep(found, messages)
    n = int(groupings.copies.sum())
    if found.messages is None:
        n = sum(grouping.bags.total for grouping in groupings)
    return reduced(-found.log_likelihood, reduction, n)


def _refuse_none(reduction: Reduction) -> None:
    if reduction == "none":
        raise InputError('reduction is "none"; with groupings, choose "mean" or "sum".')


def _keep(found: JointPosterior[torch.Tensor], messages: FloatArray | None) -> None:
    """Leave messages where the next call finds them."""
    if found.messages is not None and messages is not None:
        messages[...] = found.messages


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
    check_bags(bags, "dllp_loss")
    check_logits(logits, bags)
    if bags.row_labels is not None:
        raise InputError(
            "DLLP learns from shares alone, and some instances have known labels; use cc or rc."
        )
    log_p = log_probs(logits)
    bag = bag_of_row(bags, logits.device)
    sizes, counts = (
        tensors_of(bags, log_p.device).totals.to(log_p),
        expected_counts(bags, log_p.device).to(log_p),
    )
    # Sums of exponentials relative to each bag's largest, so that no mean underflows.
    top = log_p.new_full((len(bags), bags.n_classes), -math.inf)
    top = top.scatter_reduce(0, bag[:, None].expand_as(logits), log_p.detach(), "amax")
    top = top.clamp(min=torch.finfo(top.dtype).min)
    terms = weighted((log_p - top[bag]).exp(), tensors_of(bags, logits.device).weights)
    sums = torch.zeros_like(top).index_add(0, bag, terms)
    sums = sums.masked_fill(counts == 0, 1)  # of no weight, and no mean may be the log of nothing
    log_means = sums.log() + top - sizes[:, None].log()
    return reduced(-counts * log_means.masked_fill(counts == 0, 0), reduction, bags.total)


def pvc_loss(logits: torch.Tensor, bags: Bags, *, reduction: Reduction = "mean") -> torch.Tensor:
    """PVC: the likelihood of each class's count, separately.

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
    check_bags(bags, "pvc_loss")
    check_logits(logits, bags)
    if bags.row_labels is not None or bags.potentials is not None:
        raise InputError(
            "PVC learns from exact counts alone, and here some are not exact or some labels are "
            "known; use cc or rc."
        )
    log_p, nan = nan_apart(log_probs(logits), bags)
    # All instances for class 0, then class 1, ...: whether they are of it or not.
    log_p = torch.stack([log_p.T.reshape(-1), log_complement(log_p).T.reshape(-1)], -1)
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
    return reduced(nan - values, reduction, bags.total)


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
    check_bags(bags, "ot_loss")
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
    check_bags(bags, "pll_loss")
    check_logits(logits, bags)
    check_stored(stored_log_probs, bags)
    weights = _of_candidates(stored_log_probs.detach(), bags).softmax(-1)
    refuse_nan_rows(weights, stored_log_probs)
    return loss_of_bags(weights, logits, bags, reduction=reduction)


def pll_cc_loss(logits: torch.Tensor, bags: Bags, *, reduction: Reduction = "mean") -> torch.Tensor:
    """PLL in its classifier-consistent form: how probable the bag's classes are, of each instance.

        loss = -1/N sum_k log(sum of softmax(logits)[k, c] over the classes c of the bag)

    Its gradient is that of `pll_loss` with the probabilities of the current model as those stored.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.

    >>> pll_cc_loss(torch.zeros(2, 4), Bags([2], [[1, 1, 0, 0]]))     # -log(1/2)
    tensor(0.6931)
    """
    check_bags(bags, "pll_cc_loss")
    check_logits(logits, bags)
    values = -_of_candidates(log_probs(logits), bags).logsumexp(-1)
    values = weighted(values, tensors_of(bags, logits.device).weights)
    of_bags = values.new_zeros(len(bags)).index_add(0, bag_of_row(bags, logits.device), values)
    return reduced(of_bags, reduction, bags.total)


def _of_candidates(log_p: torch.Tensor, bags: Bags) -> torch.Tensor:
    """Log-probabilities (N, C) without classes that an instance's bag cannot have."""
    absent = (most(bags, log_p.device) == 0).to(log_p.device)[bag_of_row(bags, log_p.device)]
    return others_impossible(log_p, bags).masked_fill(absent, -math.inf)


def loss_of_bags(
    weights: torch.Tensor,
    logits: torch.Tensor,
    bags: Bags,
    instance_loss: InstanceLoss = "cross_entropy",
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """The loss against weights (N, C), of each bag where nothing is to be reduced."""
    check_same_shape(logits, weights, "weights")
    weights = weighted(weights, tensors_of(bags, logits.device).weights)
    if reduction == "mean":
        return weighted_loss(logits, weights, instance_loss, reduction="sum") / bags.total
    values = weighted_loss(logits, weights, instance_loss, reduction=reduction)
    if reduction != "none":
        return values
    return values.new_zeros(len(bags)).index_add(0, bag_of_row(bags, logits.device), values)
