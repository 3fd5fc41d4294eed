"""Labels given what is known of bags' counts, where bags have intercepts of their own.

Given exact counts, the labels do not depend on a bag's intercept u: it multiplies the probability
of every labeling with these counts by the same number. Where counts are not exact, u matters, and

    P(Y | S) = mean of P(Y | S, u) over p(u | S),    p(u | S) ~ p(u) P(S | u)

What is averaged are the posteriors given S. To average the probabilities of rows first, and to
condition on S then, would use S twice.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.coordinates import contrasts, normal_nodes
from bagwise.posterior import bag_posterior

_PASSES = 4  # the nodes of the integral come to lie where its integrand is
_NARROWEST = 0.1  # how much narrower they may become in one of these


def posterior_with_effects(
    log_probs: FloatArray, bags: Bags, tau: float
) -> tuple[FloatArray, FloatArray]:
    """(N, C) P(Y_k = c | S), and (B, C) the mean of each bag's intercept given S.

    Args:
        log_probs: (N, C) for an intercept of zero, sorted by bag.
        bags: sizes and what is known of the counts.
        tau: standard deviation of the intercepts, before anything is known of the counts.

    >>> z = np.array([[0.0, 1.0], [0.0, -1.0]])
    >>> weights, _ = posterior_with_effects(z, Bags.from_ranges([[0, 0]], [[2, 2]], [2]), 1.0)
    >>> weights.sum(axis=0).round(6)  # nothing is known, and the rows mirror each other
    array([1., 1.])
    """
    nodes, node_weights = normal_nodes(bags.n_classes - 1)
    basis = contrasts(bags.n_classes)
    B, D = len(bags), bags.n_classes - 1
    means, spreads = np.zeros((B, D)), np.full(B, tau)
    weights = np.zeros(log_probs.shape)
    for last in [False] * (_PASSES - 1) + [True]:
        places = means + spreads[:, None] * nodes[:, None]  # (R, B, D)
        density = 0.5 * ((nodes**2).sum(axis=1)[:, None] - (places**2).sum(axis=2) / tau**2)
        logs = np.log(node_weights)[:, None] + density
        of_nodes = []
        for r, place in enumerate(places):
            shift = (place @ basis.T)[bags.bag_of_row]
            found = bag_posterior(log_softmax(log_probs + shift, axis=-1), bags)
            logs[r] += found.log_likelihood
            of_nodes.append(found.weights if last else None)
        share = np.exp(logs - logs.max(axis=0))
        share /= share.sum(axis=0)
        for own, part in zip(share, of_nodes, strict=True):
            if part is not None:
                weights += own[bags.bag_of_row, None] * part
        means = (share[..., None] * places).sum(axis=0)
        variances = (share * ((places - means) ** 2).mean(axis=2)).sum(axis=0)
        spreads = np.clip(np.sqrt(variances), _NARROWEST * spreads, tau)
    return weights, means @ basis.T
