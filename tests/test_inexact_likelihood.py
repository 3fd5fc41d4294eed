"""How much is known of a linear model from counts that are not exact, and from labels of rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import softmax

from bagwise import Bags, DiscreteLaplace
from bagwise.likelihood import covariance, fit_for_intervals, fit_linear
from bagwise.likelihood._information import bag_information, label_information
from bagwise.likelihood.objective import BagLikelihood, log_likelihoods_with_effects


def expected_information(likelihood: BagLikelihood, theta: np.ndarray) -> np.ndarray:
    found = likelihood.evaluate(theta)
    total = label_information(likelihood, found)
    for _, rows in bag_information(likelihood, theta, found, 0.0):
        A = rows.reshape(-1, len(total))
        total += A.T @ A
    return total


def test_the_information_of_noisy_counts_is_the_variance_of_their_score() -> None:
    """Over all noisy counts that a bag can have."""
    rng = np.random.default_rng(0)
    K, theta = 6, np.array([[0.7], [0.2]])
    observed = np.array(list(itertools.product(range(-12, K + 13), repeat=2)))
    X = np.tile(rng.normal(size=(K, 1)), (len(observed), 1))
    sizes = np.full(len(observed), K)
    likelihood = BagLikelihood(X, Bags.from_noisy_counts(observed, sizes, DiscreteLaplace(1.5)))
    at = likelihood.evaluate(theta)
    mass = np.exp(at.log_likelihood)
    assert mass.sum() == pytest.approx(1, abs=1e-3)
    slopes = likelihood.X1 * (at.residuals @ likelihood.basis)
    of_bags = np.add.reduceat(slopes, likelihood.bags.offsets[:-1])
    expected = (of_bags * mass[:, None]).T @ of_bags
    found = np.zeros((2, 2))
    for part, rows in bag_information(likelihood, theta, at, 0.0):
        A = rows.reshape(len(part), 2)
        found += (A * mass[part, None]).T @ A
    sharp = expected_information(BagLikelihood(X[:K], Bags([K], [[3, 3]])), theta)
    assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)
    assert np.linalg.norm(sharp - expected) > 0.5 * np.linalg.norm(expected)


def test_ranges_that_say_nothing_have_no_information() -> None:
    X, theta = np.random.default_rng(0).normal(size=(8, 2)), np.full((3, 2), 0.3)
    bags = Bags.from_ranges([[0, 0, 0]] * 2, [[4, 4, 4]] * 2, [4, 4])
    np.testing.assert_allclose(expected_information(BagLikelihood(X, bags), theta), 0, atol=1e-5)


def test_rows_that_are_all_labeled_are_as_informative_as_bags_of_one() -> None:
    rng = np.random.default_rng(0)
    X, theta, labels = rng.normal(size=(12, 2)), rng.normal(size=(3, 2)), rng.integers(0, 3, 12)
    together = Bags.from_labels(labels, [4, 4, 4], 3).with_labels(labels)
    alone = Bags.from_labels(labels, [1] * 12, 3)
    found, expected = (
        expected_information(BagLikelihood(X, bags), theta) for bags in (together, alone)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_intervals_hold_the_truth_with_noisy_counts_ranges_and_labels() -> None:
    """Of 180 independent intervals of 95 %, 162 or more do but in two of 1,000 cases."""
    rng = np.random.default_rng(0)
    B, K, slope = 50, 12, 1.0
    hits: dict[str, list[bool]] = {"noise": [], "ranges": [], "labels": []}
    for kind in hits:
        for _ in range(60):
            X = rng.normal(size=(B * K, 1)) + np.repeat(rng.normal(size=(B, 1)), K, axis=0)
            y = (rng.random(B * K) < 1 / (1 + np.exp(-slope * X[:, 0]))).astype(int)
            counts = Bags.from_labels(y, [K] * B, 2)
            if kind == "noise":
                q = 1 - math.exp(-1 / 2.0)
                noise = rng.geometric(q, (B, 2)) - rng.geometric(q, (B, 2))
                observed = counts.counts + noise
                bags = Bags.from_noisy_counts(observed, [K] * B, DiscreteLaplace(2.0))
            elif kind == "ranges":
                low = counts.counts // 4 * 4
                bags = Bags.from_ranges(low, np.minimum(low + 3, K), [K] * B)
            else:
                bags = counts.with_labels(np.where(rng.random(B * K) < 0.2, y, -1))
            fit = fit_for_intervals(X, bags, fit_linear(X, bags))
            found = covariance(X, bags, fit)
            error = found.error_of([[-1.0, 1.0], [0.0, 0.0]])
            estimate = fit.weights[0, 1] - fit.weights[0, 0]
            hits[kind].append(bool(abs(estimate - slope) < found.quantile() * error))
    assert sum(map(sum, hits.values())) >= 162
    assert all(sum(own) >= 52 for own in hits.values())


def test_labels_of_rows_count_also_with_bag_effects() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4, 2))
    bags = Bags([4], [[2, 2]]).with_labels([0, -1, -1, -1])
    found = log_likelihoods_with_effects(z, bags, np.array([0.8]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    total = 0.0
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        p = softmax(z + 0.8 * node * np.array([1, -1]) / math.sqrt(2), axis=1)
        for y in itertools.product(range(2), repeat=4):
            if y[0] == 0 and sum(y) == 2:
                total += weight * math.prod(p[k, c] for k, c in enumerate(y))
    assert found[0] == pytest.approx(math.log(total), abs=1e-5)
