"""Certain, contradictory, impossible and very unlikely instances."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bagwise import Bags, bag_posterior
from oracles import enumerate_bags, random_bags

ENGINES = ["auto", "exact", "bethe", "multinomial", "transport", "device"]
INF = float("inf")


def sound(weights: torch.Tensor) -> bool:
    rows = (weights.sum(1) - 1).abs().max() < 1e-6
    return bool(weights.isfinite().all() and (weights >= 0).all() and rows)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scale", [1e3, 1e4])
def test_huge_logits_stay_finite(engine: str, scale: float) -> None:
    log_probs, bags = random_bags(1, [7, 3, 12, 40], 4, spread=scale / 3)
    log_probs = log_probs.clamp(-scale, scale).requires_grad_()
    post = bag_posterior(log_probs, bags, engine=engine, **_patience(engine))
    assert sound(post.weights)
    assert post.log_likelihood.isfinite().all()
    post.log_likelihood.sum().backward()
    assert log_probs.grad.isfinite().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_certain_instances_that_agree_with_the_counts_keep_their_labels(engine: str) -> None:
    labels = torch.tensor([0, 1, 2, 2, 0, 1, 1])
    log_probs = torch.where(torch.eye(3, dtype=torch.bool)[labels], 0.0, -1e4).double()
    bags = Bags.from_labels(labels, [4, 3])
    post = bag_posterior(log_probs, bags, engine=engine)
    torch.testing.assert_close(post.weights, torch.eye(3, dtype=torch.float64)[labels])
    if engine not in ("multinomial",):
        assert post.log_likelihood.abs().max() < 1e-6


@pytest.mark.parametrize("engine", ENGINES)
def test_certain_instances_that_disagree_share_what_is_left(engine: str) -> None:
    # All four are sure to be class 0, but one of them must be class 1: nobody knows which.
    log_probs = torch.tensor([[0.0, -1e4]] * 4, dtype=torch.float64)
    post = bag_posterior(log_probs, Bags([4], [[3, 1]]), engine=engine)
    expected = torch.tensor([[0.75, 0.25]] * 4, dtype=torch.float64)
    torch.testing.assert_close(post.weights, expected, atol=1e-6, rtol=0)
    if engine in ("auto", "exact"):
        assert post.log_likelihood.item() == pytest.approx(-1e4 + np.log(4), abs=1e-6)


def test_the_least_unlikely_of_contradictory_instances_gives_way() -> None:
    log_probs = torch.tensor([[0, -9000.0], [0, -8000.0], [0, -8500.0]], dtype=torch.float64)
    post = bag_posterior(log_probs, Bags([3], [[2, 1]]), engine="exact")
    assert post.weights[:, 1].tolist() == pytest.approx([0.0, 1.0, np.exp(-500)], abs=1e-230)
    assert post.log_likelihood.item() == pytest.approx(-8000)


@pytest.mark.parametrize("engine", ENGINES)
def test_minus_infinity_is_obeyed_where_the_counts_stay_possible(engine: str) -> None:
    log_probs = torch.tensor(
        [[0.0, -INF, -INF], [-1.0, -2.0, -INF], [-INF, -1.0, -1.0], [-3.0, -1.0, -1.0]],
        dtype=torch.float64,
    )
    bags = Bags([4], [[2, 1, 1]])
    post = bag_posterior(log_probs, bags, engine=engine, **_patience(engine))
    assert sound(post.weights)
    assert (post.weights[log_probs == -INF] == 0).all()
    if engine in ("auto", "exact"):
        log_likelihood, weights = enumerate_bags(log_probs, bags)
        np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-12)
        np.testing.assert_allclose(post.log_likelihood.numpy(), log_likelihood)


@pytest.mark.parametrize("engine", ["exact", "bethe"])
def test_a_labeling_that_is_forced_step_by_step_is_found(engine: str) -> None:
    # Instance k can only be class 0 .. k and each class occurs once: k is class k, by exclusion.
    K = 6
    log_probs = torch.where(torch.ones(K, K).tril() > 0, 0.0, -INF).double()
    post = bag_posterior(log_probs, Bags([K], [[1] * K]), engine=engine, **_patience(engine))
    torch.testing.assert_close(post.weights, torch.eye(K, dtype=torch.float64), atol=2e-2, rtol=0)
    assert post.log_likelihood.item() == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_that_no_labeling_reaches_name_the_bag(engine: str) -> None:
    # Each class of bag 1 can be reached, but its three instances cannot share them out.
    log_probs = torch.tensor([[0, 0], [0, 0], [0, -INF], [0, -INF], [-1, -1]]).double()
    with pytest.raises(ValueError, match=r"no labeling of bag 1 has its counts \[1, 2\].*log_soft"):
        bag_posterior(log_probs, Bags([2, 3], [[1, 1], [1, 2]]), engine=engine)


@pytest.mark.parametrize("K", [200, 3000])
def test_large_bags_of_confident_instances_do_not_underflow(K: int) -> None:
    # Probabilities and counts are far apart: log P(S|X) is about -2000 at the larger size.
    log_probs, _ = random_bags(2, [K], 2, spread=3.0)
    bags = Bags([K], [[K // 10, K - K // 10]])
    exact = bag_posterior(log_probs, bags, engine="exact")
    bethe = bag_posterior(log_probs, bags, engine="bethe")
    assert exact.log_likelihood.isfinite().all()
    assert sound(exact.weights)
    torch.testing.assert_close(bethe.weights, exact.weights, atol=0.02, rtol=0)
    assert bethe.log_likelihood.item() == pytest.approx(exact.log_likelihood.item(), abs=0.1)


def _patience(engine: str) -> dict[str, int]:
    """Contradictions and -inf make belief propagation slow; the warning is tested elsewhere."""
    return {"max_iterations": 100_000} if engine == "bethe" else {}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scale", [1e12, 1e30])
def test_absurd_logits_give_sound_weights(engine: str, scale: float) -> None:
    log_probs, bags = random_bags(1, [7, 3, 12, 40], 4, spread=scale)
    post = bag_posterior(log_probs, bags, engine=engine, **_patience(engine))
    assert sound(post.weights)
    if engine in ("auto", "exact", "bethe"):
        columns = np.add.reduceat(post.weights.numpy(), bags.offsets[:-1], axis=0)
        np.testing.assert_allclose(columns, bags.counts, atol=1e-5)
    # Rows shifted by 1e30 are the same problem, and the likelihood says by how much.
    shifted = bag_posterior(log_probs + 10 * scale, bags, engine=engine, **_patience(engine))
    assert sound(shifted.weights)
    np.testing.assert_allclose(
        shifted.log_likelihood.numpy(), 10 * scale * bags.sizes, rtol=0.7, atol=0
    )
