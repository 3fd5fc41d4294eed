"""Bags of thousands of instances, in time that grows with their size alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bagwise import BagData, Bags, Laplace, TrainingOptions, bag_posterior, train
from bagwise.methods import Batch
from bagwise.posterior.bethe import fill_bethe
from bagwise.training.bag_parts import Parts


def large_bag(counts: list[int], sharpness: float, seed: int = 0) -> tuple[torch.Tensor, Bags]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    noise = torch.randn(len(labels), len(counts), generator=generator, dtype=torch.float64)
    logits = sharpness * (1.5 * torch.eye(len(counts))[labels] + noise)
    return logits.log_softmax(-1), Bags([len(labels)], [counts])


@pytest.mark.parametrize("counts", [[1300, 900], [2000, 110, 12], [2150, 50]])
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_large_bags_have_the_weights_of_the_exact_engine(
    counts: list[int], sharpness: float
) -> None:
    log_probs, bags = large_bag(counts, sharpness)
    exact = bag_posterior(log_probs, bags, "exact")
    bethe = bag_posterior(log_probs, bags, "bethe")
    assert (bethe.weights - exact.weights).abs().sum(1).mean() < 1e-3
    torch.testing.assert_close(bethe.weights.sum(0), torch.tensor(counts).double())
    assert abs(bethe.log_likelihood - exact.log_likelihood).item() < 0.1


def lattice_of_two(log_probs: np.ndarray, n: int) -> tuple[float, np.ndarray]:
    """log P(S|X) and the first class's weights by the plain program over counts, K^2 steps."""
    K = len(log_probs)
    odds = log_probs[:, 0] - log_probs[:, 1]
    forward, backward = np.full((K + 1, n + 2), -np.inf), np.full((K + 1, n + 2), -np.inf)
    forward[0, 0] = backward[K, n] = 0.0
    for k in range(K):
        forward[k + 1] = forward[k]
        forward[k + 1, 1:] = np.logaddexp(forward[k, 1:], forward[k, :-1] + odds[k])
    for k in range(K - 1, -1, -1):
        backward[k] = backward[k + 1]
        backward[k, :-1] = np.logaddexp(backward[k + 1, :-1], backward[k + 1, 1:] + odds[k])
    total = forward[K, n]
    steps = forward[:-1, :-1] + odds[:, None] + backward[1:, 1:] - total
    return total + log_probs[:, 1].sum(), np.exp(steps).sum(1)


@pytest.mark.parametrize("K", [64, 700])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 200.0])
@pytest.mark.parametrize("share", [0.5, 0.02])
@pytest.mark.parametrize("engine", ["exact", "auto"])
def test_two_classes_are_exact_without_a_lattice(
    K: int, scale: float, share: float, engine: str
) -> None:
    rng = np.random.default_rng(0)
    log_probs = scale * rng.standard_normal((K, 2)) + np.array([0.0, 3.0])
    n = int(share * K)
    post = bag_posterior(torch.from_numpy(log_probs), Bags([K], [[n, K - n]]), engine)
    log_likelihood, weights = lattice_of_two(log_probs, n)
    np.testing.assert_allclose(post.weights[:, 0].numpy(), weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(post.weights.sum(0).numpy(), [n, K - n], rtol=1e-11)
    assert post.log_likelihood.item() == pytest.approx(log_likelihood, rel=1e-11)


def test_two_classes_may_be_impossible_for_some_instances() -> None:
    rng = np.random.default_rng(1)
    log_probs = rng.standard_normal((90, 3))
    log_probs[:20, 2] = -np.inf  # of the first two alone
    log_probs[20:25, 0] = -np.inf
    post = bag_posterior(torch.from_numpy(log_probs), Bags([90], [[50, 0, 40]]), "exact")
    assert (post.weights[:20, 0] == 1).all()
    assert (post.weights[20:25, 2] == 1).all()
    rest = log_probs[25:][:, [0, 2]]
    np.testing.assert_allclose(post.weights[25:, 0].numpy(), lattice_of_two(rest, 30)[1], rtol=1e-9)


def test_a_hundred_thousand_instances_of_two_classes_have_exact_weights() -> None:
    # All instances alike: P(Y_k = c) is the share of c, log P(S|X) that of a binomial count.
    K, n = 100_000, 30_000
    log_probs = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log().repeat(K, 1)
    post = bag_posterior(log_probs, Bags([K], [[n, K - n]]))
    torch.testing.assert_close(
        post.weights[:, 0], torch.full((K,), n / K, dtype=torch.float64), rtol=1e-11, atol=0
    )
    log_binomial = math.lgamma(K + 1) - math.lgamma(n + 1) - math.lgamma(K - n + 1)
    expected = log_binomial - K * math.log(2)
    assert post.log_likelihood.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_large_bags_have_the_messages_of_small_ones(sharpness: float) -> None:
    log_probs, bags = large_bag([700, 250, 60, 8, 2], sharpness)
    large = bag_posterior(log_probs, bags, "bethe", tolerance=1e-7)
    likelihood, weights = np.empty(1), np.empty(log_probs.shape)
    small = (log_probs.numpy(), bags, likelihood, weights)
    fill_bethe(np.array([0]), *small, tolerance=1e-7, large_count=10**6)
    np.testing.assert_allclose(large.weights, weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(large.log_likelihood, likelihood, rtol=0, atol=1e-6)


@pytest.mark.parametrize("counts", [[1500, 900], [2300, 20]])
def test_large_bags_with_potentials_have_the_weights_of_the_exact_engine(
    counts: list[int],
) -> None:
    log_probs, bags = large_bag(counts, 1.0)
    n = np.array([counts])
    for known in (
        Bags.from_noisy_counts(n + np.array([6.5, -3.0]), bags.sizes, Laplace(8.0)),
        Bags.from_ranges(np.maximum(n - 15, 0), n + 20, bags.sizes),
    ):
        exact = bag_posterior(log_probs, known, "exact")
        bethe = bag_posterior(log_probs, known, "bethe")
        assert (bethe.weights - exact.weights).abs().sum(1).mean() < 1e-3
        assert abs(bethe.log_likelihood - exact.log_likelihood).item() < 0.1


def test_auto_takes_a_single_large_bag_of_several_classes() -> None:
    log_probs, bags = large_bag([900, 800, 700], 1.0)
    weights = bag_posterior(log_probs, bags).weights
    torch.testing.assert_close(weights.sum(0), torch.tensor([900.0, 800.0, 700.0]).double())


@pytest.mark.parametrize("method", ["cc", "rc", "dllp", "ot"])
def test_a_bag_larger_than_a_batch_is_trained_in_parts(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (5000,), generator=generator)
    inputs = torch.randn(5000, 5, generator=generator) + 2.5 * torch.eye(3, 5)[labels]
    sizes = [3000, *[10] * 200]
    data = BagData(inputs, Bags.from_labels(labels, sizes))
    seen: list[int] = []

    class Watched(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(len(x))
            return super().forward(x)

    torch.manual_seed(0)
    result = train(Watched(5, 3), data, method, TrainingOptions(epochs=5, lr=0.03), progress=False)
    assert max(seen) <= 256
    assert sum(seen) == 5 * 5000
    assert (result.model(inputs).argmax(1) == labels).float().mean() > 0.85
    assert all(row["train_loss"] >= 0 for row in result.history)


def test_one_large_bag_alone_teaches_in_parts_what_it_teaches_as_a_whole() -> None:
    """With its share of each class as the only information, parts must not drift from it."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4000, 4, generator=generator)
    data = BagData(inputs, Bags([4000], [[3000, 1000]]))
    torch.manual_seed(0)
    result = train(
        torch.nn.Linear(4, 2), data, "cc", TrainingOptions(epochs=20, lr=0.02), progress=False
    )
    share = result.model(inputs).softmax(-1).mean(0)
    assert share[0].item() == pytest.approx(0.75, abs=0.03)


def test_training_in_parts_goes_on_from_a_checkpoint_as_if_never_stopped(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (900,), generator=generator)
    inputs = torch.randn(900, 3, generator=generator) + labels[:, None]
    data = BagData(inputs, Bags.from_labels(labels, [600, *[10] * 30]))

    def run(epochs: int, checkpoint: Path | None = None) -> list[dict[str, float]]:
        torch.manual_seed(0)
        options = TrainingOptions(epochs=epochs, batch_instances=64)
        model = torch.nn.Linear(3, 2)
        return train(model, data, "cc", options, checkpoint=checkpoint, progress=False).history

    whole = [row["train_loss"] for row in run(4)]
    run(2, tmp_path)
    assert [row["train_loss"] for row in run(4, tmp_path)] == whole


def test_a_part_is_told_what_the_model_now_says_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the model drifts, the rows that it saw long ago are seen as it would see them now."""
    n, generator = 1000, torch.Generator().manual_seed(0)
    base = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    told: list[np.ndarray] = []
    part = Bags.part

    def watched(self: Bags, rows: np.ndarray, shares: np.ndarray) -> Bags:
        told.append(shares)
        return part(self, rows, shares)

    monkeypatch.setattr(Bags, "part", watched)
    parts = Parts(Bags([n], [[500, 300, 200]]), 250, {})
    step, errors, drifts = 0, [], []
    for epoch in range(3):
        parts.begin_epoch()
        for rows in torch.randperm(n, generator=generator).tensor_split(4):
            step += 1
            now = base + 0.1 * step * torch.tensor([1.0, 0.0, -0.5])
            parts.completed(Batch(rows, None, part_of=0), now[rows])
            others = torch.ones(n, dtype=torch.bool).index_fill(0, rows, False)
            true = now[others].softmax(-1).sum(0).numpy()
            before = (now - 0.2 * torch.tensor([1.0, 0.0, -0.5]))[others].softmax(-1).sum(0).numpy()
            if epoch:
                errors.append(np.abs(told[-1] - true).max())
                drifts.append(np.abs(before - true).max())
    assert np.mean(errors) < 0.2 * np.mean(drifts)
