"""The information that bags hold about a linear model, against enumeration."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

from bagwise import Bags
from bagwise.likelihood import (
    covariance,
    covariance_in_pieces,
    fit_for_intervals,
    fit_in_pieces,
    fit_linear,
)
from bagwise.likelihood._information import expected_information
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.objective import BagLikelihood
from bagwise.limits import Limits


def of_counts(X1: Any, theta: Any, C: int) -> Any:
    """E[score score'] of one bag's counts, by enumeration of all labelings."""
    basis = contrasts(C)
    p = softmax(X1 @ theta @ basis.T, axis=1)
    found: dict[tuple[int, ...], Any] = {}
    for labels in itertools.product(range(C), repeat=len(X1)):
        chance = np.prod(p[np.arange(len(X1)), list(labels)])
        score = X1.T @ ((np.eye(C)[list(labels)] - p) @ basis)
        key = tuple(np.bincount(labels, minlength=C))
        total, scores = found.get(key, (0.0, 0.0))
        found[key] = total + chance, scores + chance * score.ravel()
    return sum(np.outer(s, s) / total for total, s in found.values())


def information(X: Any, C: int, theta: Any) -> Any:
    bags = Bags.from_labels(np.arange(len(X)) % C, [len(X)], n_classes=C)
    likelihood = BagLikelihood(X, bags)
    return expected_information(likelihood, theta, likelihood.evaluate(theta), 0.0)


@pytest.mark.parametrize("C", [2, 3, 4])
@pytest.mark.parametrize("K", [1, 2])
def test_information_of_one_or_two_instances_is_that_of_their_counts(K: int, C: int) -> None:
    rng = np.random.default_rng(10 * K + C)
    X, theta = rng.normal(size=(K, 2)), rng.normal(size=(3, C - 1))
    exact = of_counts(np.column_stack([X, np.ones(K)]), theta, C)
    # Quadratic scores are all functions of two labels.
    np.testing.assert_allclose(information(X, C, theta), exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("C", "K"), [(2, 3), (2, 5), (2, 10), (3, 3), (3, 5), (4, 4), (5, 3)])
def test_information_is_never_more_than_that_of_the_counts(C: int, K: int) -> None:
    rng = np.random.default_rng(10 * K + C)
    for _ in range(5):
        X, theta = rng.normal(size=(K, 2)), 1.5 * rng.normal(size=(3, C - 1))
        exact = of_counts(np.column_stack([X, np.ones(K)]), theta, C)
        left = np.linalg.eigvalsh(exact - information(X, C, theta))
        assert left.min() > -1e-7 * exact.max()


@pytest.mark.parametrize("C", [2, 3])
def test_information_of_a_large_bag_is_that_of_normal_counts(C: int) -> None:
    rng = np.random.default_rng(C)
    X, theta = rng.normal(size=(3000, 2)), rng.normal(size=(3, C - 1))
    X1, basis = np.column_stack([X, np.ones(3000)]), contrasts(C)

    def law(t: Any) -> Any:
        p = softmax(X1 @ t @ basis.T, axis=1)
        q = p @ basis
        V = np.einsum("kc,ce,cf->ef", p, basis, basis) - q.T @ q
        return q.sum(axis=0), V

    m, V = law(theta)
    draws = multivariate_normal(m, V).rvs(100_000, random_state=0).reshape(-1, C - 1)
    scores = []
    for i in range(theta.size):
        step = np.zeros(theta.size)
        step[i] = 1e-4
        up, down = (law(theta + sign * step.reshape(theta.shape)) for sign in (1, -1))
        values = [multivariate_normal(*x).logpdf(draws) for x in (up, down)]
        scores.append((values[0] - values[1]) / 2e-4)
    S = np.stack(scores)
    sampled, found = S @ S.T / len(draws), information(X, C, theta)
    size = np.sqrt(np.diagonal(sampled))
    assert (np.abs(found - sampled) < 0.03 * np.outer(size, size)).all()


@pytest.mark.parametrize("C", [2, 3])
def test_intervals_of_bags_that_are_alike_are_as_wide_whatever_information_they_are_made_of(
    C: int,
) -> None:
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(4000, 3)), rng.normal(size=(3, C))
    labels = (X @ W + rng.gumbel(size=(4000, C))).argmax(axis=1)
    bags = Bags.from_labels(labels, [20] * 200)
    fit = fit_for_intervals(X, bags, fit_linear(X, bags))
    observed = covariance(X, bags, fit)
    expected = covariance(X, bags, fit, limits=Limits(observed_steps=0))
    assert (observed.information, expected.information) == ("observed", "expected")
    ratio = expected.standard_errors()[0] / observed.standard_errors()[0]
    assert 0.75 < ratio.min() <= ratio.max() < 1.35  # by linear scores alone, up to 2.2


def test_bags_that_were_made_to_be_equal_say_little_not_everything() -> None:
    X = np.random.default_rng(0).normal(size=(400, 1))
    bags = Bags([10] * 40, [[5, 5]] * 40)
    fit = fit_for_intervals(X, bags, fit_linear(X, bags))
    for found in (
        covariance(X, bags, fit),
        covariance_in_pieces(lambda begin, end: X[begin:end], bags, fit, most=50),
    ):
        assert found.standard_errors()[0].min() > 0.1


def test_rows_may_be_read_piece_by_piece() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(900, 2))
    labels = (X[:, 0] + rng.logistic(size=900) > 0).astype(int) * 2
    # A class that never occurs, bags of different sizes, one larger than a piece, counts unknown.
    bags = Bags.join(
        [
            Bags.from_labels(labels[:600], [300, *[10] * 30], n_classes=3),
            Bags.from_ranges([[3, 0, 3]] * 15, [[17, 0, 17]] * 15, [20] * 15),
        ]
    )
    fit = fit_linear(X, bags, ridge=0.1)
    whole = covariance(X, bags, fit, limits=Limits(observed_steps=0))
    asked = []

    def read(begin: int, end: int) -> Any:
        asked.append(end - begin)
        return X[begin:end]

    pieces = covariance_in_pieces(read, bags, fit, most=100)
    assert set(asked) == {300, 100}
    np.testing.assert_allclose(pieces.matrix, whole.matrix, rtol=1e-8, atol=1e-12)
    assert pieces.absent.tolist() == [False, True, False]
    assert pieces.n_bags == whole.n_bags == 46
    again = fit_in_pieces(read, 2, bags, 0.1, most=100, start=fit)
    np.testing.assert_allclose(again.weights, fit.weights, atol=1e-2)
