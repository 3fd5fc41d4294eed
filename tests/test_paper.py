"""The paper's statements, on distributions small enough to sum over."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from bagwise import Bags, bag_posterior, cc_loss, dllp_loss, rc_loss
from bagwise.demo import digits_in_bags
from bagwise.methods import RC
from bagwise.networks import Standardize, linear
from bagwise.training import TrainingOptions, train
from oracles import enumerate_bag, random_bags

# Four inputs, three classes: p(x) and p(y|x).
P_X = np.array([0.4, 0.3, 0.2, 0.1])
P_Y = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.05, 0.05, 0.9]])
K, C = 3, 3


def multisets() -> list[np.ndarray]:
    return [
        np.bincount(labels, minlength=C)
        for labels in itertools.combinations_with_replacement(range(C), K)
    ]


def all_bags() -> list[tuple[float, torch.Tensor, np.ndarray]]:
    """(p(X, S), rows of inputs, counts) of every bag of K inputs and every label multiset."""
    found = []
    for X in itertools.product(range(4), repeat=K):
        rows = np.array(X)
        for counts in multisets():
            log_likelihood, _ = enumerate_bag(np.log(P_Y[rows]), counts)
            found.append(
                (np.prod(P_X[rows]) * math.exp(log_likelihood), torch.tensor(rows), counts)
            )
    return found


def bag_batch() -> tuple[torch.Tensor, torch.Tensor, Bags]:
    probability, rows, counts = zip(*all_bags(), strict=True)
    bags = Bags([K] * len(rows), np.stack(counts))
    return torch.tensor(probability), torch.cat(rows), bags


@pytest.mark.parametrize("seed", range(3))
def test_the_risk_of_rc_is_the_supervised_risk(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    f = torch.randn(4, C, generator=generator, dtype=torch.float64)
    loss = -f.log_softmax(-1)
    supervised = (torch.tensor(P_X)[:, None] * torch.tensor(P_Y) * loss).sum()
    probability, rows, bags = bag_batch()
    weights = bag_posterior(torch.tensor(P_Y).log()[rows], bags).weights
    per_bag = (weights * loss[rows]).sum(1).reshape(-1, K).mean(1)
    assert probability.sum().item() == pytest.approx(1)
    assert (probability * per_bag).sum().item() == pytest.approx(supervised.item(), rel=1e-12)


def test_the_minimiser_of_the_risk_of_cc_is_the_class_posterior() -> None:
    probability, rows, bags = bag_batch()
    f = torch.zeros(4, C, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        f += 0.1 * torch.randn(4, C, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.LBFGS([f], max_iter=500, tolerance_grad=1e-10, tolerance_change=0)

    def risk() -> torch.Tensor:
        optimizer.zero_grad()
        log_likelihood = bag_posterior(f.log_softmax(-1)[rows], bags).log_likelihood
        value = -(probability * log_likelihood).sum() / K
        value.backward()
        return value

    optimizer.step(risk)
    np.testing.assert_allclose(f.detach().softmax(-1).numpy(), P_Y, atol=1e-5)


def test_v_s_is_q_times_v_y_with_q_of_full_column_rank() -> None:
    rows = np.array([0, 2, 3])
    log_p = np.log(P_Y[rows])
    v_s = np.array([math.exp(enumerate_bag(log_p, counts)[0]) for counts in multisets()])
    Q = np.zeros((len(v_s), C))
    for i, counts in enumerate(multisets()):
        for j in np.flatnonzero(counts):
            rest = counts - np.eye(C, dtype=int)[j]
            Q[i, j] = math.exp(enumerate_bag(log_p[1:], rest)[0])
    np.testing.assert_allclose(Q @ P_Y[rows[0]], v_s, rtol=1e-12)
    assert np.linalg.matrix_rank(Q) == C


@pytest.mark.parametrize("engine", ["exact", "bethe"])
def test_the_gradient_of_cc_is_that_of_rc_with_current_weights(engine: str) -> None:
    logits, bags = random_bags(0, [5, 9, 2], 4)
    gradients = []
    for loss in (
        lambda x: cc_loss(x, bags, engine=engine),
        lambda x: rc_loss(x, bags, logits.log_softmax(-1), engine=engine),
    ):
        x = logits.clone().requires_grad_()
        loss(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-12, rtol=0)


def test_the_multinomial_likelihood_is_dllp_up_to_a_constant() -> None:
    for seed in range(3):
        logits, bags = random_bags(seed, [6], 3)
        counts = bags.counts[0]
        p = logits.softmax(-1).mean(0).numpy()
        log_coefficient = math.lgamma(7) - sum(math.lgamma(n + 1) for n in counts)
        log_multinomial = log_coefficient + (counts * np.log(p)).sum()
        expected = 6 * dllp_loss(logits, bags).item() - log_coefficient
        assert -log_multinomial == pytest.approx(expected)


def test_approximations_are_exact_for_bags_of_two() -> None:
    logits, bags = random_bags(1, [2] * 5, 6)
    for loss in (
        lambda x, engine: cc_loss(x, bags, engine=engine),
        lambda x, engine: rc_loss(x, bags, logits.log_softmax(-1), engine=engine),
    ):
        values, gradients = [], []
        for engine in ("exact", "multinomial"):
            x = logits.clone().requires_grad_()
            value = loss(x, engine)
            value.backward()
            values.append(value.item())
            gradients.append(x.grad)
        assert values[0] == pytest.approx(values[1], rel=1e-12)
        torch.testing.assert_close(gradients[0], gradients[1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("bag_size", [4, 8])
def test_the_gap_between_exact_and_approximate_weights_shrinks_in_training(bag_size: int) -> None:
    data, _ = digits_in_bags(bag_size)
    torch.manual_seed(0)
    model = torch.nn.Sequential(Standardize.of(data.inputs), linear((64,), 10))
    options = TrainingOptions(epochs=15, lr=5e-3)
    history = train(model, data, RC(record_gap=True), options, progress=False).history
    gaps = [row["weight_distance"] for row in history]
    assert gaps[0] < 1e-7  # proportions are stored at first: all weights are these proportions
    assert max(gaps) > 0.02
    assert gaps[-1] < max(gaps) / 2
