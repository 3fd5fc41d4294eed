from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bagwise import Bags, bag_posterior
from bagwise.posterior._kernels import kernel
from bagwise.posterior.poisson_binomial import cardinality_ratios
from oracles import informed_bags, random_bags

WEIGHT_BOUNDS = {
    (32, 0.3): 0.003,
    (32, 1.0): 0.008,
    (32, 2.0): 0.012,
    (32, 4.0): 0.02,
    (32, 8.0): 0.05,
    (16, 0.3): 0.008,
    (16, 1.0): 0.016,
    (16, 2.0): 0.035,
    (16, 4.0): 0.06,
    (16, 8.0): 0.06,
}


def column_sums(weights: torch.Tensor, bags: Bags) -> np.ndarray:
    return np.add.reduceat(weights.double().numpy(), bags.offsets[:-1], axis=0)


@pytest.mark.parametrize(("K", "s"), list(WEIGHT_BOUNDS))
def test_weights_are_close_to_the_exact_ones(K: int, s: float) -> None:
    log_probs, bags = informed_bags(0, K, 12 if K == 32 else 64, s)
    exact = bag_posterior(log_probs, bags, engine="exact")
    bethe = bag_posterior(log_probs, bags, engine="bethe")
    plain = bag_posterior(log_probs, bags, engine="bethe", correction=False)
    error = (bethe.weights - exact.weights).abs().sum(1).mean().item()
    assert error <= WEIGHT_BOUNDS[K, s]
    assert error <= (plain.weights - exact.weights).abs().sum(1).mean().item()
    if K == 32 and s <= 4:
        assert (bethe.log_likelihood - exact.log_likelihood).abs().max() <= 0.1


@pytest.mark.parametrize("s", [0.3, 2.0, 8.0])
@pytest.mark.parametrize("K", [4, 16])
def test_plain_value_is_a_lower_bound(K: int, s: float) -> None:
    log_probs, bags = informed_bags(1, K, 50, s)
    exact = bag_posterior(log_probs, bags, engine="exact")
    plain = bag_posterior(
        log_probs, bags, engine="bethe", correction=False, tolerance=1e-6, max_iterations=100_000
    )
    assert (plain.log_likelihood <= exact.log_likelihood + 1e-6).all()
    corrected = bag_posterior(log_probs, bags, engine="bethe")
    nearer = (corrected.log_likelihood - exact.log_likelihood).abs()
    assert nearer.mean() < (plain.log_likelihood - exact.log_likelihood).abs().mean()


@pytest.mark.parametrize("s", [0.3, 4.0, 30.0])
@pytest.mark.parametrize("K", [2, 9, 64, 300])
def test_rows_sum_to_one_and_columns_to_the_counts(K: int, s: float) -> None:
    log_probs, bags = informed_bags(2, K, max(1, 300 // K), s)
    weights = bag_posterior(log_probs, bags, engine="bethe").weights
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(1).numpy(), 1, atol=1e-12)
    np.testing.assert_allclose(column_sums(weights, bags), bags.counts, atol=1e-6)


def test_large_bag_of_two_classes_agrees_with_exact() -> None:
    log_probs, bags = random_bags(4, [2000], 2)
    exact = bag_posterior(log_probs, bags, engine="exact")
    bethe = bag_posterior(log_probs, bags, engine="bethe")
    assert (bethe.weights - exact.weights).abs().max() < 1e-3
    assert bethe.log_likelihood.item() == pytest.approx(exact.log_likelihood.item(), abs=0.02)


def difference_quotients(
    log_probs: torch.Tensor, bags: Bags, h: float = 1e-4, **options: Any
) -> torch.Tensor:
    """The derivative of the log-likelihood of one bag, by central differences."""
    steps = h * torch.eye(log_probs.numel(), dtype=log_probs.dtype).reshape(-1, *log_probs.shape)
    moved = torch.cat([log_probs + steps, log_probs - steps])
    many = bags.select([0] * len(moved))
    options = {"tolerance": 1e-11, "max_iterations": 100_000, **options}
    value = bag_posterior(moved.flatten(0, 1), many, engine="bethe", **options).log_likelihood
    up, down = value.chunk(2)
    return ((up - down) / (2 * h)).reshape(log_probs.shape)


def test_gradient_of_the_plain_value_is_the_weights() -> None:
    log_probs, bags = random_bags(5, [7], 3)
    expected = difference_quotients(log_probs, bags, correction=False)
    log_probs.requires_grad_()
    post = bag_posterior(log_probs, bags, engine="bethe", correction=False, tolerance=1e-10)
    (3 * post.log_likelihood.sum()).backward()
    torch.testing.assert_close(log_probs.grad, 3 * expected, atol=1e-5, rtol=0)


def test_backward_scales_the_weights_of_each_bag_by_its_own_factor() -> None:
    log_probs, bags = random_bags(5, [40, 20], 4)
    alone = [
        bag_posterior(log_probs[bags.rows([b])], bags.select([b]), engine="bethe").weights
        for b in range(2)
    ]
    log_probs.requires_grad_()
    post = bag_posterior(log_probs, bags, engine="bethe")
    (post.log_likelihood * torch.tensor([2.0, -1.0])).sum().backward()
    torch.testing.assert_close(log_probs.grad, torch.cat([2 * alone[0], -alone[1]]))


@pytest.mark.parametrize("K", [6, 9])
def test_the_weights_are_closer_to_the_exact_gradient_than_the_values_derivative(K: int) -> None:
    distances = []
    for seed, s in enumerate((0.5, 1.0, 2.0, 4.0)):
        log_probs, bags = informed_bags(seed, K, 1, s, C=4)
        exact = bag_posterior(log_probs, bags, engine="exact").weights
        weights = bag_posterior(log_probs, bags, engine="bethe").weights
        derivative = difference_quotients(log_probs, bags)
        distances.append([(x - exact).abs().sum(1).mean() for x in (weights, derivative)])
    of_weights, of_derivative = np.mean(distances, axis=0)
    assert of_weights < of_derivative


@pytest.mark.parametrize("seed", range(5))
def test_columns_sum_to_the_counts_also_where_almost_nothing_is_possible(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    K, C = 40, 8
    labels = torch.randint(C, (K,), generator=generator)
    log_probs = 60 * torch.randn(K, C, generator=generator, dtype=torch.float64)
    log_probs[torch.rand(K, C, generator=generator) < 0.5] = -700.0
    bags = Bags.from_labels(labels, [K], C)
    weights = bag_posterior(log_probs, bags, engine="bethe", max_iterations=5000).weights
    np.testing.assert_allclose(column_sums(weights, bags), bags.counts, atol=1e-6)


def test_bags_that_do_not_converge_are_counted_in_one_warning_and_stay_usable() -> None:
    log_probs, bags = informed_bags(3, 32, 10, 8.0)
    with pytest.warns(RuntimeWarning, match=r"for 10 of 10 bags .*bag 0.*max_iterations") as caught:
        post = bag_posterior(log_probs, bags, engine="bethe", max_iterations=1, tolerance=1e-12)
    assert len(caught) == 1
    np.testing.assert_allclose(post.weights.sum(1).numpy(), 1, atol=1e-12)
    np.testing.assert_allclose(column_sums(post.weights, bags), bags.counts, atol=1e-6)


@pytest.mark.parametrize("option", [{"tolerance": 0.0}, {"max_iterations": 0}])
def test_senseless_options_are_refused(option: dict[str, float]) -> None:
    log_probs, bags = random_bags(6, [4], 2)
    with pytest.raises(ValueError, match=f"{next(iter(option))} is 0"):
        bag_posterior(log_probs, bags, engine="bethe", **option)


@kernel
def _ratios(yes: np.ndarray, no: np.ndarray, n: int, found: np.ndarray) -> None:
    cardinality_ratios(yes, no, n, 1e50, found)


def test_messages_have_their_digits_however_improbable_the_count() -> None:
    # Half of the counts are likely ones and divided out, the others are in the tails.
    rng = np.random.default_rng(0)
    for _ in range(400):
        K = int(rng.integers(2, 40))
        n = int(rng.integers(1, K))
        odds = np.exp(rng.choice([0.1, 1, 5, 20]) * rng.standard_normal(K) + rng.choice([-3, 0, 3]))
        yes, no = odds / (1 + odds), 1 / (1 + odds)
        found = np.empty(K)
        _ratios(yes, no, n, found)
        for k in (0, K - 1):
            without = np.ones(1)
            for j in np.delete(np.arange(K), k):
                without = np.convolve(without, [no[j], yes[j]])
            expected = np.clip(without[n - 1] / without[n], 1e-50, 1e50) if n < K else 1e50
            assert found[k] == pytest.approx(expected, rel=1e-9)
