"""Labels given what is known of a bag's counts, where bags have intercepts of their own."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import log_softmax

from bagwise import Bags, Laplace
from bagwise.bags import FloatArray
from bagwise.likelihood import posterior_with_effects
from bagwise.likelihood.coordinates import contrasts
from bagwise.posterior import bag_posterior

TAU = 1.3


def enumerated(z: FloatArray, f: FloatArray, tau: float) -> FloatArray:
    """(K, C) P(Y_k = c | S) of one bag: all labelings, and a fine grid of intercepts.

    f: (C, K + 1) how probable what is known is for each count of each class.
    """
    K, C = z.shape
    v = np.linspace(-8, 8, 321 if C == 2 else 65)
    grid = np.stack(np.meshgrid(*[v] * (C - 1), indexing="ij"), axis=-1).reshape(-1, C - 1)
    prior = np.exp(-0.5 * (grid**2).sum(axis=1))
    logp = log_softmax(z + (tau * grid @ contrasts(C).T)[:, None], axis=2)
    total = np.zeros((K, C))
    for labels in product(range(C), repeat=K):
        counts = np.bincount(labels, minlength=C)
        known = np.prod([f[c, n] for c, n in enumerate(counts)])
        joint = (prior * np.exp(sum(logp[:, k, y] for k, y in enumerate(labels)))).sum() * known
        total[np.arange(K), labels] += joint
    weights: FloatArray = total / total.sum(axis=1, keepdims=True)
    return weights


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("kind", ["noise", "range", "exact"])
def test_labels_are_those_of_enumeration_over_labelings_and_intercepts(C: int, kind: str) -> None:
    rng = np.random.default_rng(C)
    K = 7 if C == 2 else 5
    z = 1.5 * rng.normal(size=(K, C))
    m = np.arange(K + 1)
    if kind == "noise":
        observed = np.array([5.2, 1.1, 0.3])[:C]
        bags = Bags.from_noisy_counts(observed[None], [K], Laplace(0.8))
        f = np.exp(-np.abs(observed[:, None] - m) / 0.8)
    elif kind == "range":
        low, high = np.array([0, 3, 0])[:C], np.array([4, K, 1])[:C]
        bags = Bags.from_ranges(low[None], high[None], [K])
        f = ((m >= low[:, None]) & (m <= high[:, None])).astype(float)
    else:
        counts = np.array([K - 2, 1, 1]) if C == 3 else np.array([K - 2, 2])
        bags = Bags([K], counts[None])
        f = (m == counts[:, None]).astype(float)
    expected = enumerated(z, f, TAU)
    logits = log_softmax(z, axis=-1)
    weights, _ = posterior_with_effects(logits, bags, TAU)
    np.testing.assert_allclose(weights, expected, atol=2e-3)
    plain = bag_posterior(logits, bags).weights
    if kind == "exact":  # the intercept does not matter
        np.testing.assert_allclose(plain, expected, atol=1e-9)
    else:
        assert np.abs(plain - expected).max() > 0.02


def test_large_bags_whose_intercept_is_well_known_agree_with_a_fine_grid() -> None:
    rng = np.random.default_rng(0)
    K, B = 100, 2
    z = log_softmax(rng.normal(size=(K * B, 2)), axis=-1)
    bags = Bags.from_noisy_counts([[20.3, 80.0], [71.0, 28.5]], [K] * B, Laplace(2))
    weights, means = posterior_with_effects(z, bags, TAU)
    basis, v = contrasts(2)[:, 0], np.linspace(-4, 4, 161)
    logs, of_nodes = [], []
    for place in v:
        found = bag_posterior(log_softmax(z + place * basis, axis=-1), bags)
        logs.append(found.log_likelihood - 0.5 * (place / TAU) ** 2)
        of_nodes.append(found.weights)
    share = np.exp(np.array(logs) - np.max(logs, axis=0))
    share /= share.sum(axis=0)
    expected = np.einsum("rk,rkc->kc", share[:, bags.bag_of_row], np.array(of_nodes))
    np.testing.assert_allclose(weights, expected, atol=1e-3)
    np.testing.assert_allclose(means, (share.T @ v)[:, None] * basis, atol=1e-2)
