"""CC with squared error: the probabilities of all label counts that a bag could have."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch

from bagwise.autograd.logits import check_logits, log_probs
from bagwise.bags import Bags, IntArray, check_bags
from bagwise.errors import InputError, Place
from bagwise.losses.instance_losses import Reduction, reduced

MAX_MULTISETS = 5000  # of a bag


def cc_squared_loss(
    logits: torch.Tensor, bags: Bags, *, reduction: Reduction = "mean"
) -> torch.Tensor:
    """CC with squared error: how far the probabilities of all label counts are from the true one.

        loss = 1/N sum over bags of sum_T (1[T = S] - q_T)^2,     q_T = P(T|X) under softmax(logits)

    The sum is over all counts T of C classes that sum to the bag's size K. There are
    (K + C - 1)! / (K! (C - 1)!) of them, so that this is for small K and C; `cc_loss` is for any.
    All of them are needed: the loss of the true counts alone, (1 - q_S)^2, is not minimized by the
    true probabilities. It needs exact counts.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        reduction: "mean" per instance, "sum", or "none", a value for each bag.

    >>> cc_squared_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))      # (1/16 + 1/4 + 1/16) / 2
    tensor(0.1875)
    """
    check_bags(bags, "cc_squared_loss")
    check_logits(logits, bags)
    if bags.row_labels is not None or bags.potentials is not None:
        raise InputError(
            "cc_squared_loss learns from exact counts alone, and here some are not exact or some "
            "labels are known; use cc_loss."
        )
    _refuse_many(bags)
    p = log_probs(logits).exp()
    if bags.weights is not None:
        copies = torch.tensor(bags.weights, device=p.device)
        p, bags = p.repeat_interleave(copies, 0), bags.written_out()
    values = p.new_zeros(len(bags))
    for K in np.unique(bags.sizes).tolist():
        index = np.flatnonzero(bags.sizes == K)
        rows = torch.from_numpy(bags.rows(index)).to(p.device)
        q = multiset_probabilities(p[rows].reshape(len(index), K, bags.n_classes))
        place = {counts: number for number, counts in enumerate(multisets(K, bags.n_classes))}
        of_counts = [place[tuple(counts)] for counts in bags.counts[index].tolist()]
        true = q[
            torch.arange(len(index), device=q.device), torch.tensor(of_counts, device=q.device)
        ]
        of_bags = 1 - 2 * true + q.square().sum(1)
        values = values.index_add(0, torch.tensor(index, device=q.device), of_bags)
    return reduced(values, reduction, bags.total)


def multiset_probabilities(p: torch.Tensor) -> torch.Tensor:
    """(B, T) the probability of each of `multisets(K, C)`, from probabilities (B, K, C).

    The coefficients of the product over instances of sum_c p[k, c] z_c.

    >>> multiset_probabilities(torch.tensor([[[.5, .5], [.1, .9]]]))
    tensor([[0.4500, 0.5000, 0.0500]])
    """
    B, K, C = p.shape
    q = p.new_ones(B, 1)
    for k in range(K):
        before = torch.from_numpy(_one_less(k + 1, C)).to(p.device)
        with_none = torch.cat([q, q.new_zeros(B, 1)], 1)  # the last: counts that are not possible
        terms = [p[:, k, c, None] * with_none[:, before[:, c]] for c in range(C)]
        q = torch.stack(terms).sum(0)
    return q


@cache
def multisets(K: int, C: int) -> tuple[tuple[int, ...], ...]:
    """All counts of C classes that sum to K.

    >>> multisets(2, 2)
    ((0, 2), (1, 1), (2, 0))
    """
    if C == 1:
        return ((K,),)
    return tuple((n, *rest) for n in range(K + 1) for rest in multisets(K - n, C - 1))


@cache
def _one_less(K: int, C: int) -> IntArray:
    """(T, C) where each multiset without an instance of class c is among those of K - 1; the number
    of those where it has none.
    """
    place = {counts: number for number, counts in enumerate(multisets(K - 1, C))}
    return np.array(
        [
            [place.get((*s[:c], s[c] - 1, *s[c + 1 :]), len(place)) for c in range(C)]
            for s in multisets(K, C)
        ]
    )


def _refuse_many(bags: Bags) -> None:
    """Refuse bags with too many multisets."""
    largest = int(bags.totals.argmax())
    n = math.comb(int(bags.totals[largest]) + bags.n_classes - 1, bags.n_classes - 1)
    if n > MAX_MULTISETS:
        raise InputError(
            Place("bag", largest),
            f" of {bags.totals[largest]} instances and {bags.n_classes} classes can have {n:,} "
            f"label counts, and cc_squared_loss sums over up to {MAX_MULTISETS:,}; use cc_loss.",
        )
