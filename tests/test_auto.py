"""The engine that chooses: which bags it computes exactly, and what it promises then."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, bag_posterior
from bagwise.posterior import lattice_states
from bagwise.posterior._costs import BETHE, EXACT, costs, terms
from bagwise.posterior.pruned import fill_pruned
from oracles import informed_bags, random_bags


def pruned(
    log_probs: torch.Tensor, bags: Bags
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log-likelihoods, weights, bounds, and the bags that were left to another engine."""
    log_likelihood, weights = np.full(len(bags), np.nan), np.full(log_probs.shape, np.nan)
    bound = np.full(len(bags), np.nan)
    index = np.arange(len(bags))
    left = fill_pruned(
        index, log_probs.numpy(), bags, log_likelihood, weights, bound, np.full(len(bags), 2.0**13)
    )
    return log_likelihood, weights, bound, left


def test_independent_pairs_in_a_large_bag_are_computed_exactly() -> None:
    # Ten pairs of instances that could be either of two classes; bethe says .0007 for .5025.
    K = 20
    log_probs = torch.full((K, K), -30.0, dtype=torch.float64)
    for pair in range(0, K, 2):
        log_probs[pair : pair + 2, pair : pair + 2] = torch.tensor([[0, 0], [0, 0.01]])
    bags = Bags([K], [[1] * K])
    assert lattice_states(bags)[0] > 2**16
    post = bag_posterior(log_probs, bags)
    exact = bag_posterior(log_probs, bags, engine="exact")
    torch.testing.assert_close(post.weights, exact.weights, atol=1e-9, rtol=0)
    assert post.weights[0, 0].item() == pytest.approx(0.5025, abs=1e-4)
    assert post.log_likelihood.item() == pytest.approx(exact.log_likelihood.item(), abs=1e-9)


@pytest.mark.parametrize(("K", "C", "s"), [(32, 10, 16.0), (20, 20, 16.0), (40, 6, 20.0)])
def test_bags_of_a_confident_classifier_are_as_good_as_exact(K: int, C: int, s: float) -> None:
    log_probs, bags = informed_bags(5, K, 8, s, C)
    large = lattice_states(bags) > 2**16
    assert large.any()
    auto = bag_posterior(log_probs, bags, max_states=2**16)
    exact = bag_posterior(log_probs, bags, engine="exact")
    bethe = bag_posterior(log_probs, bags, engine="bethe", max_iterations=5000)
    torch.testing.assert_close(auto.weights, exact.weights, atol=1e-7, rtol=0)
    torch.testing.assert_close(auto.log_likelihood, exact.log_likelihood, atol=1e-7, rtol=0)
    assert (bethe.weights - exact.weights).abs().max() > 1e-4


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(2, 6),
    st.sampled_from([0.3, 2.0, 10.0, 40.0, 1000.0]),
)
def test_what_is_pruned_is_within_its_bound(
    seed: int, sizes: list[int], C: int, spread: float
) -> None:
    log_probs, bags = random_bags(seed, sizes, C, spread)
    log_likelihood, weights, bound, left = pruned(log_probs, bags)
    exact = bag_posterior(log_probs, bags, engine="exact")
    done = np.setdiff1d(np.arange(len(bags)), left)
    assert (bound[done] <= 5e-7).all()
    off = exact.log_likelihood.numpy()[done] - log_likelihood[done]
    rounding = 1e-13 * (1 + np.abs(log_probs.numpy()).sum())
    assert (off >= -rounding).all()  # nothing is added
    assert (off <= np.log1p(bound[done]) + rounding).all()
    rows = bags.rows(done)
    by_row = bound[bags.bag_of_row[rows]]
    distance = np.abs(weights[rows] - exact.weights.numpy()[rows]).sum(1)
    assert (distance <= 2 * by_row + rounding).all()


@pytest.mark.parametrize("s", [2.0, 4.0, 8.0])
def test_bounds_that_are_not_tiny_hold_too(s: float) -> None:
    # With a coarser cut and any loss taken, what is lost shows beside rounding.
    log_probs, bags = informed_bags(7, 10, 100, s, C=5)
    exact = bag_posterior(log_probs, bags, engine="exact")
    answer = np.full(len(bags), np.nan), np.full(log_probs.shape, np.nan), np.empty(len(bags))
    left = fill_pruned(
        np.arange(100), log_probs.numpy(), bags, *answer, np.full(100, 2.0**13), 2.0, 1e-3, np.inf
    )
    log_likelihood, weights, bound = answer
    assert len(left) == 0
    assert (bound > 1e-4).any()
    off = exact.log_likelihood.numpy() - log_likelihood
    assert (off > 1e-6).any()
    assert (off >= -1e-12).all()
    assert (off <= np.log1p(bound) + 1e-12).all()
    distance = np.abs(weights - exact.weights.numpy()).sum(1)
    assert (distance <= 2 * np.repeat(bound, 10) + 1e-12).all()


def test_a_posterior_says_which_engine_computed_each_bag_and_what_is_proved() -> None:
    sure, first = informed_bags(0, 40, 1, 30.0)
    unsure, second = informed_bags(1, 40, 1, 0.3)
    log_probs, bags = random_bags(0, [3], 10)
    log_probs, bags = torch.cat([log_probs, sure, unsure]), Bags.join([bags, first, second])
    post = bag_posterior(log_probs, bags)
    assert post.engine == ["exact", "pruned", "bethe"]
    assert post.bound is not None
    assert post.bound[0] == 0
    assert 0 < post.bound[1] <= 5e-7
    assert post.bound[2] == torch.inf
    assert bag_posterior(log_probs, bags, "bethe").engine == ["bethe"] * 3
    assert bag_posterior(log_probs[:3], bags.select([0]), "exact").engine == ["exact"]


@pytest.mark.parametrize(("K", "C"), [(8, 10), (12, 100), (16, 10), (20, 10), (80, 3), (200, 2)])
def test_bags_are_computed_exactly_where_that_takes_at_most_three_times_as_long(
    K: int, C: int
) -> None:
    log_probs, bags = informed_bags(2, K, 20, 0.3, C)
    exact, bethe, _ = costs(bags)
    quick = (exact <= 3 * bethe) | (C == 2)
    assert bag_posterior(log_probs, bags).engine == ["exact" if q else "bethe" for q in quick]
    limited = bag_posterior(log_probs, bags, max_states=2**16)
    small = (lattice_states(bags) <= 2**16) | (C == 2)
    assert limited.engine == ["exact" if q else "bethe" for q in small]


def test_what_is_told_from_counts_is_their_terms_by_the_constants() -> None:
    bags = Bags([5, 40, 7], [[5, 0, 0], [10, 12, 18], [3, 3, 1]])
    of_exact, of_bethe = terms(bags)
    np.testing.assert_allclose(of_exact[1], [1, 120, 3 * 11, 3 * 11 * 13 * 19, 3 * 11 * 13 * 19])
    np.testing.assert_allclose(of_bethe[2], [1, 21, 49])
    exact, bethe, classes = costs(bags)
    np.testing.assert_allclose(of_exact @ EXACT, exact)
    np.testing.assert_allclose(of_bethe @ BETHE, bethe)
    assert classes.tolist() == [1, 3, 3]
    weighted, _ = terms(Bags([2], [[10, 30]], weights=[15, 25]))
    np.testing.assert_allclose(weighted[0, 3], 2 * 11 * 31)


def test_small_bags_need_no_other_engine() -> None:
    log_probs, bags = random_bags(0, [3, 5, 8], 4)
    assert len(pruned(log_probs, bags)[3]) == 0


def test_bags_with_too_many_states_are_left_alone() -> None:
    log_probs, bags = informed_bags(0, 64, 3, 0.3)
    log_likelihood, weights, _, left = pruned(log_probs, bags)
    assert left.tolist() == [0, 1, 2]
    assert np.isnan(log_likelihood).all()
    assert np.isnan(weights).all()


def test_lattices_too_large_to_number_their_states_are_pruned_too() -> None:
    # 100 classes in a bag of 300: 4^100 states have no numbers of 64 bits.
    log_probs, bags = informed_bags(1, 300, 1, 60.0, C=100)
    assert lattice_states(bags)[0] > 2.0**64
    log_likelihood, weights, _, left = pruned(log_probs, bags)
    assert len(left) == 0
    np.testing.assert_allclose(weights.sum(0), bags.counts[0], atol=1e-6)
    bethe = bag_posterior(log_probs, bags, engine="bethe")
    assert np.abs(weights - bethe.weights.numpy()).sum(1).mean() < 1e-3
    assert log_likelihood[0] == pytest.approx(bethe.log_likelihood.item(), abs=0.1)
