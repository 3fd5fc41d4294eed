"""Counts that are not exact: potentials against enumeration, scipy and finite differences."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import (
    Bags,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    bag_posterior,
    cc_loss,
    dllp_loss,
    most_probable_labeling,
    ot_loss,
    pll_loss,
    rc_loss,
)
from bagwise.bags import Potentials

nan = float("nan")


def log_potential(bags: Bags, bag: int, c: int, m: int) -> float:
    """log f_c(m), read from the flat arrays."""
    known = bags.potentials
    if known is None:
        return 0.0 if m == bags.counts[bag, c] else -np.inf
    i = m - known.low[bag, c]
    cell = bag * bags.n_classes + c
    width = known.begins[cell + 1] - known.begins[cell]
    return float(known.log_f[known.begins[cell] + i]) if 0 <= i < width else -np.inf


def labelings(
    bags: Bags, bag: int, log_p: npt.NDArray[np.float64]
) -> Iterator[tuple[tuple[int, ...], float]]:
    K, C = log_p.shape
    for y in itertools.product(range(C), repeat=K):
        value = sum(log_p[k, c] for k, c in enumerate(y))
        value += sum(log_potential(bags, bag, c, y.count(c)) for c in range(C))
        if value > -np.inf:
            yield y, value


def enumerated(
    log_probs: torch.Tensor, bags: Bags
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """P(S|X) and the weights, straight from their definition."""
    p = log_probs.double().numpy()
    log_likelihood, weights = np.empty(len(bags)), np.zeros(p.shape)
    for bag in range(len(bags)):
        begin = bags.offsets[bag]
        found = list(labelings(bags, bag, p[begin : bags.offsets[bag + 1]]))
        total = np.logaddexp.reduce([value for _, value in found])
        log_likelihood[bag] = total
        for y, value in found:
            for k, c in enumerate(y):
                weights[begin + k, c] += np.exp(value - total)
    return log_likelihood, weights


def kinds() -> dict[str, Bags]:
    """Two ragged bags of three classes, known in every way there is."""
    sizes = [5, 3]
    noisy = [[3.6, -1.2, 1.9], [0.4, 2.2, nan]]
    whole = [[4, -1, 2], [0, 2, nan]]
    return {
        "laplace": Bags.from_noisy_counts(noisy, sizes, Laplace(1.5)),
        "laplace by class": Bags.from_noisy_counts(noisy, sizes, Laplace([0.5, 2.0, 4.0])),
        "discrete laplace": Bags.from_noisy_counts(whole, sizes, DiscreteLaplace([[1.0], [3.0]])),
        "gaussian": Bags.from_noisy_counts(noisy, sizes, Gaussian(0.8)),
        "discrete gaussian": Bags.from_noisy_counts(whole, sizes, DiscreteGaussian(1.3)),
        "clipped": Bags.from_noisy_counts(
            [[3, 0, 2], [0, 2, 0]], sizes, DiscreteLaplace(2.0), True
        ),
        "ranges": Bags.from_ranges([[1, 0, 0], [0, nan, 1]], [[3, 2, 4], [2, nan, 2]], sizes),
        "rounded": Bags.from_proportions([[0.2, 0.4, 0.4], [0.7, nan, nan]], sizes, decimals=1),
        "sample": Bags.from_sample([[7, 2, 5], [1, 1, 2]], sizes),
        "unknown": Bags(sizes, [[2, nan, nan], [nan, nan, nan]]),
        "mixed": Bags.join(
            [Bags([5], [[2, 1, 2]]), Bags.from_ranges([[0, 0, 1]], [[2, 2, 2]], [3])]
        ),
    }


KINDS = kinds()


def some_log_probs(n: int, C: int, seed: int = 0, sharpness: float = 1.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(n, C, generator=generator, dtype=torch.float64)
    return logits.log_softmax(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["exact", "auto"])
def test_exact_agrees_with_enumeration(kind: str, engine: str) -> None:
    bags = KINDS[kind]
    for seed in range(3):
        log_probs = some_log_probs(8, 3, seed)
        if seed == 2:
            log_probs[1, 0] = log_probs[6, 2] = -np.inf
        post = bag_posterior(log_probs, bags, engine)
        log_likelihood, weights = enumerated(log_probs, bags)
        np.testing.assert_allclose(
            post.log_likelihood.numpy(), log_likelihood, rtol=1e-10, atol=1e-10
        )
        np.testing.assert_allclose(post.weights.numpy(), weights, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_bethe_is_close_to_enumeration(kind: str) -> None:
    bags = KINDS[kind]
    for seed in range(3):
        log_probs = some_log_probs(8, 3, seed, sharpness=1.0)
        if seed == 2:
            log_probs[1, 0] = log_probs[6, 2] = -np.inf
        post = bag_posterior(log_probs, bags, "bethe")
        log_likelihood, weights = enumerated(log_probs, bags)
        assert np.abs(post.weights.numpy() - weights).sum(axis=1).mean() < 0.15
        soft = ~bags.is_sharp
        np.testing.assert_allclose(
            post.log_likelihood.numpy()[soft], log_likelihood[soft], atol=0.3
        )
        np.testing.assert_allclose(post.weights.sum(1).numpy(), 1, atol=1e-9)
