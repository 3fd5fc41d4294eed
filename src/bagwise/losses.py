"""The losses of the paper's methods: pure functions of logits and bags.

Logits are flat (N, C), sorted by bag. Every loss is an average per instance: for bags of one size
it is the paper's value, and for bags of different sizes a batch's loss is the mean of its bags'
losses weighted by their sizes, so that it does not depend on how bags are batched.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn.functional import log_softmax

from bagwise.bags import Bags
from bagwise.posterior import bag_posterior

__all__ = ["cc_loss", "dllp_loss", "llpfc_loss", "ot_loss", "pll_loss", "rc_loss"]


def rc_loss(
    logits: torch.Tensor,
    bags: Bags,
    stored_log_probs: torch.Tensor,
    engine: str = "auto",
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
        **options: the engine's own.

    >>> bags = Bags([2], [[1, 1]])
    >>> stored = torch.tensor([[.5, .5], [.5, .5]]).log()
    >>> rc_loss(torch.zeros(2, 2), bags, stored)
    tensor(0.6931)
    """
    weights = bag_posterior(stored_log_probs.detach(), bags, engine, **options).weights
    return _cross_entropy(logits, weights)


def cc_loss(logits: torch.Tensor, bags: Bags, engine: str = "auto", **options: Any) -> torch.Tensor:
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
        **options: the engine's own.

    >>> cc_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))      # -log(1/2) / 2
    tensor(0.3466)
    """
    log_likelihood = bag_posterior(log_softmax(logits, -1), bags, engine, **options).log_likelihood
    return -log_likelihood.sum() / len(logits)


def dllp_loss(logits: torch.Tensor, bags: Bags) -> torch.Tensor:
    """DLLP: cross-entropy of a bag's mean probabilities and its proportions.

        loss = -1/N sum over bags of sum_c n_c log(mean_k softmax(logits)[k, c])

    For bags of one size that is the mean over bags of L_prop.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.

    >>> dllp_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]))
    tensor(0.6931)
    """
    log_probs = log_softmax(logits, -1)
    bag = torch.from_numpy(bags.bag_of_row).to(logits.device)
    # Sums of exponentials relative to each bag's largest, so that no mean underflows.
    largest = np.maximum.reduceat(log_probs.detach().cpu().numpy(), bags.offsets[:-1], axis=0)
    top = torch.from_numpy(largest).to(logits)
    sums = torch.zeros_like(top).index_add(0, bag, (log_probs - top[bag]).exp())
    sizes = torch.tensor(bags.sizes).to(logits)[:, None]
    log_means = sums.log() + top - sizes.log()
    counts = torch.tensor(bags.counts).to(logits)
    return -(counts * log_means).sum() / len(logits)


def ot_loss(
    logits: torch.Tensor,
    bags: Bags,
    stored_log_probs: torch.Tensor,
    epsilon: float = 1.0,
    iterations: int = 75,
) -> torch.Tensor:
    """OT: cross-entropy against entropic transport plans; RC with the `transport` engine.

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        stored_log_probs: (N, C) as for `rc_loss`.
        epsilon: strength of the entropy.
        iterations: Sinkhorn iterations.

    >>> ot_loss(torch.zeros(2, 2), Bags([2], [[1, 1]]), torch.zeros(2, 2))
    tensor(0.6931)
    """
    return rc_loss(
        logits, bags, stored_log_probs, "transport", epsilon=epsilon, iterations=iterations
    )


def pll_loss(logits: torch.Tensor, bags: Bags, stored_log_probs: torch.Tensor) -> torch.Tensor:
    """PLL: cross-entropy against the stored probabilities, restricted to the bag's classes.

        w[k, c] = p[k, c] / sum of p[k, c'] over the classes c' of the bag

    It uses which labels occur in a bag, not how often (partial-label learning).

    Args:
        logits: (N, C) of the model at hand.
        bags: sizes and counts of the bags of these N instances.
        stored_log_probs: (N, C) as for `rc_loss`.

    >>> stored = torch.tensor([[.2, .2, .6]]).log()
    >>> pll_loss(torch.tensor([[2., 0., 5.]]), Bags([1], [[1, 0, 0]]), stored)
    tensor(3.0550)
    """
    absent = torch.from_numpy(bags.counts == 0).to(logits.device)
    absent = absent[torch.from_numpy(bags.bag_of_row).to(logits.device)]
    weights = stored_log_probs.detach().masked_fill(absent, -math.inf).softmax(-1)
    return _cross_entropy(logits, weights)


def llpfc_loss(
    logits: torch.Tensor,
    noisy_labels: torch.Tensor,
    transitions: torch.Tensor,
    groups: torch.Tensor | None = None,
) -> torch.Tensor:
    """LLPFC: forward correction of label noise.

        loss = -1/N sum_k log sum_c T[noisy_k, c] softmax(logits)[k, c],   T[i, c] = P(noisy i | c)

    Args:
        logits: (N, C) of the model at hand.
        noisy_labels: (N,) each instance's noisy label: which bag of its group it is in.
        transitions: (N, C, C), a matrix for each instance, or (G, C, C), one for each group.
        groups: (N,) the group of each instance, where transitions are given per group.

    >>> transition = torch.tensor([[[.9, .2], [.1, .8]]])
    >>> llpfc_loss(torch.zeros(1, 2), torch.tensor([0]), transition)      # -log(.55)
    tensor(0.5978)
    """
    index = torch.arange(len(logits), device=logits.device) if groups is None else groups
    rows = transitions[index, noisy_labels].to(logits)
    return -torch.logsumexp(rows.log() + log_softmax(logits, -1), -1).mean()


def _cross_entropy(logits: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return -(weights.to(logits.dtype) * log_softmax(logits, -1)).sum() / len(logits)
