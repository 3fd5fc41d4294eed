from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import poisson_binom
from thewalrus import perm

from bagwise import Bags, bag_posterior
from bagwise.posterior import lattice_states
from oracles import enumerate_bags, random_bags


@pytest.mark.parametrize("seed", range(8))
def test_equals_enumeration_on_ragged_bags(seed: int) -> None:
    C = 2 + seed % 4
    log_probs, bags = random_bags(seed, [1, 5, 2, 8, 3, 7, 1, 6], C)
    post = bag_posterior(log_probs, bags, engine="exact")
    log_likelihood, weights = enumerate_bags(log_probs, bags)
    np.testing.assert_allclose(post.log_likelihood.numpy(), log_likelihood, atol=1e-9, rtol=0)
    np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-10, rtol=0)


@pytest.mark.parametrize("K", [3, 8, 12, 16])
def test_likelihood_equals_a_permanent(K: int) -> None:
    log_probs, bags = random_bags(K, [K], 5, spread=1.0)
    labels = np.repeat(np.arange(5), bags.counts[0])
    repeated = log_probs.exp().numpy()[:, labels]
    factorials = np.prod([float(np.prod(np.arange(1, n + 1))) for n in bags.counts[0]])
    post = bag_posterior(log_probs, bags, engine="exact")
    expected = np.log(perm(repeated) / factorials)
    assert post.log_likelihood.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("K", "n"), [(1, 0), (1, 1), (30, 7), (500, 250), (2000, 600), (2000, 0)])
def test_two_classes_are_the_poisson_binomial(K: int, n: int) -> None:
    p = np.random.default_rng(K + n).uniform(0.05, 0.6, K)
    log_probs = torch.tensor(np.log(np.stack([1 - p, p], axis=1)))
    post = bag_posterior(log_probs, Bags([K], [[K - n, n]]), engine="exact")
    expected = poisson_binom.logpmf(n, p) if n else np.log1p(-p).sum()  # scipy underflows at 0
    assert post.log_likelihood.item() == pytest.approx(expected, abs=1e-7)
    # P(Y_k = 1 | N = n) = p_k P(N_-k = n - 1) / P(N = n)
    for k in (0, K // 2, K - 1) if 0 < n < K and K <= 500 else ():
        rest = np.delete(p, k)
        expected = p[k] * poisson_binom.pmf(n - 1, rest) / poisson_binom.pmf(n, p)
        assert post.weights[k, 1].item() == pytest.approx(expected, abs=1e-9)


def test_gradient_is_that_of_finite_differences() -> None:
    log_probs, bags = random_bags(3, [4, 1, 6], 3, spread=1.0)
    log_probs.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: bag_posterior(x, bags, engine="exact").log_likelihood, (log_probs,)
    )


def test_large_lattice_is_consistent_with_its_own_gradient() -> None:
    # 32 instances of 10 classes cannot be enumerated: compare a weight with a difference quotient.
    log_probs, bags = random_bags(5, [32], 10)
    weights = bag_posterior(log_probs, bags, engine="exact").weights
    for k, c in ((0, 0), (11, 3), (31, 9)):
        h = 1e-5
        moved = log_probs.clone()
        moved[k, c] += h
        up = bag_posterior(moved, bags, engine="exact").log_likelihood
        moved[k, c] -= 2 * h
        down = bag_posterior(moved, bags, engine="exact").log_likelihood
        assert ((up - down) / (2 * h)).item() == pytest.approx(weights[k, c].item(), abs=1e-8)


def test_a_lattice_over_max_states_names_states_memory_and_the_way_out() -> None:
    bags = Bags([2, 64], [[1, 1, 0, 0], [16, 16, 16, 16]])
    assert lattice_states(bags)[1] == 17**4
    with pytest.raises(ValueError, match=r"bag 1 .* 8\.35e\+04 states.* 1\.8 MB .*bethe"):
        bag_posterior(torch.zeros(66, 4), bags, engine="exact", max_states=50_000)
