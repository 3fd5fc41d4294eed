from __future__ import annotations

import numpy as np
import ot
import pytest
import torch

from bagwise import Bags, bag_posterior
from oracles import multinomial_bag, random_bags


@pytest.mark.parametrize("C", [2, 3, 10])
@pytest.mark.parametrize("K", [1, 2, 3, 7, 12])
def test_multinomial_is_the_papers_formula_and_its_gradient_autograd(K: int, C: int) -> None:
    logits, bags = random_bags(K * C, [K], C)
    log_probs = logits.log_softmax(-1).requires_grad_()
    value, weights = multinomial_bag(log_probs, bags.counts[0])
    value.backward()
    copy = log_probs.detach().clone().requires_grad_()
    post = bag_posterior(copy.log_softmax(-1), bags, engine="multinomial")
    post.log_likelihood.sum().backward()
    assert post.log_likelihood.item() == pytest.approx(value.item(), abs=1e-9)
    np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-10)
    # The oracle differentiates with respect to p's logarithm, not through a softmax.
    gradient = log_probs.grad
    expected = gradient - log_probs.detach().exp() * gradient.sum(1, keepdim=True)
    torch.testing.assert_close(copy.grad, expected, atol=1e-9, rtol=0)


def test_multinomial_gradient_is_that_of_finite_differences_without_normalized_rows() -> None:
    logits, bags = random_bags(1, [5, 1, 2, 9], 4, spread=1.5)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: bag_posterior(x, bags, engine="multinomial").log_likelihood, (logits,)
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("iterations", [1, 3, 75])
def test_transport_equals_pot(epsilon: float, iterations: int) -> None:
    logits, bags = random_bags(7, [6, 30, 2], 4)
    log_probs = logits.log_softmax(-1)
    post = bag_posterior(
        log_probs, bags, engine="transport", epsilon=epsilon, iterations=iterations
    )
    for b, rows in enumerate(np.split(np.arange(38), bags.offsets[1:-1])):
        present = np.flatnonzero(bags.counts[b])
        plan = ot.sinkhorn(
            np.ones(len(rows)),
            bags.counts[b, present].astype(float),
            -log_probs.numpy()[np.ix_(rows, present)],
            epsilon,
            method="sinkhorn_log",
            numItermax=iterations,
            stopThr=0,
            warn=False,
        )
        np.testing.assert_allclose(post.weights.numpy()[np.ix_(rows, present)], plan, atol=1e-9)


@pytest.mark.parametrize("spread", [1.0, 400.0])
def test_transport_in_logs_and_without_give_the_same(spread: float) -> None:
    # A spread beyond 300 is computed in the log domain; epsilon brings both to one problem.
    log_probs, bags = random_bags(8, [20], 3, spread=spread)
    post = bag_posterior(log_probs, bags, engine="transport", epsilon=spread)
    same = bag_posterior(log_probs / spread, bags, engine="transport")
    torch.testing.assert_close(post.weights, same.weights, atol=1e-12, rtol=0)


def test_transport_value_is_an_upper_bound_with_the_weights_as_gradient() -> None:
    log_probs, bags = random_bags(9, [8, 5], 4, spread=1.0)
    exact = bag_posterior(log_probs, bags, engine="exact").log_likelihood
    value = bag_posterior(log_probs, bags, engine="transport", iterations=2000).log_likelihood
    assert (value > exact).all()
    log_probs.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: bag_posterior(x, bags, engine="transport", iterations=2000).log_likelihood,
        (log_probs,),
        atol=1e-5,
    )


@pytest.mark.parametrize("spread", [3.0, 300.0])
@pytest.mark.parametrize("iterations", [1, 75])
def test_transport_value_is_an_upper_bound_after_any_number_of_iterations(
    iterations: int, spread: float
) -> None:
    log_probs, bags = random_bags(0, [3] * 40, 3, spread)
    exact = bag_posterior(log_probs, bags, engine="exact").log_likelihood
    post = bag_posterior(log_probs, bags, engine="transport", iterations=iterations)
    assert (post.log_likelihood > exact - 1e-9).all()


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1e3])
def test_transport_is_finite_at_any_epsilon(epsilon: float) -> None:
    log_probs, bags = random_bags(10, [12, 3], 5, spread=50.0)
    post = bag_posterior(log_probs, bags, engine="transport", epsilon=epsilon)
    assert post.weights.isfinite().all()
    assert post.log_likelihood.isfinite().all()
    np.testing.assert_allclose(post.weights.sum(1).numpy(), 1, atol=1e-9)


@pytest.mark.parametrize("option", [{"epsilon": 0.0}, {"epsilon": float("nan")}, {"iterations": 0}])
def test_senseless_options_are_refused(option: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(option))} is"):
        bag_posterior(torch.zeros(2, 2), Bags([2], [[1, 1]]), engine="transport", **option)
