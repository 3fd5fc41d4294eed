"""The most probable labeling with given counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from bagwise import Bags, bag_posterior, most_probable_labeling


def best_score(log_probs: np.ndarray, counts: np.ndarray) -> float:
    places = np.repeat(np.arange(len(counts)), counts)
    rows, columns = linear_sum_assignment(log_probs[:, places], maximize=True)
    return float(log_probs[rows, places[columns]].sum())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 150.0, 1e12])
@pytest.mark.parametrize("rounded", [False, True])
def test_it_is_found_at_any_scale_and_with_ties(
    dtype: torch.dtype, scale: float, rounded: bool
) -> None:
    # One column of another scale: differences between sums of large numbers are rounding errors,
    # and circles of exchanges seem to gain something each time round.
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(16, 10, generator=generator, dtype=torch.float64)
        logits = (2 * logits).round() if rounded else logits
        logits[:, seed % 10] *= scale
        log_probs = logits.log_softmax(-1).to(dtype)
        labels = torch.randint(10, (16,), generator=generator)
        bags = Bags.from_labels(labels, [16], n_classes=10)
        found = most_probable_labeling(log_probs, bags)
        assert torch.equal(torch.bincount(found, minlength=10), torch.tensor(bags.counts[0]))
        exact = log_probs.double()
        score = exact[torch.arange(16), found].sum().item()
        best = best_score(exact.numpy(), bags.counts[0])
        assert score == pytest.approx(best, rel=1e-12, abs=1e-12 * exact.abs().max().item())


@pytest.mark.parametrize("seed", range(12))
def test_bethe_ends_where_exchanges_seemed_to_gain(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(16, 10, generator=generator, dtype=torch.float64)
    logits[:, seed % 10] *= 1e12
    labels = torch.randint(10, (16,), generator=generator)
    bags = Bags.from_labels(labels, [16], n_classes=10)
    post = bag_posterior(logits.log_softmax(-1), bags, engine="bethe", max_iterations=5000)
    assert post.weights.isfinite().all()
    np.testing.assert_allclose(post.weights.sum(0).numpy(), bags.counts[0], atol=1e-5)


@pytest.mark.parametrize(
    ("log_probs", "error", "message"),
    [
        (torch.zeros(20, 3), ValueError, r"shape \(20, 3\).*\(12, 3\) is expected"),
        (torch.zeros(12, 2), ValueError, r"shape \(12, 2\).*12 instances and 3 classes"),
        (torch.zeros(12), ValueError, r"shape \(12,\)"),
        (torch.zeros(12, 3, dtype=torch.int64), ValueError, "a floating type is expected"),
        (np.zeros((12, 2)), ValueError, r"shape \(12, 2\).*12 instances and 3 classes"),
        (np.zeros((12, 3), int), ValueError, "has dtype int64; a floating type is expected"),
        ([[0.0] * 3] * 12, TypeError, "is a list; a numpy.ndarray or a torch.Tensor is expected"),
    ],
)
def test_what_are_no_log_probabilities_of_the_bags_is_refused(
    log_probs: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        most_probable_labeling(log_probs, Bags([12], [[4, 4, 4]]))
