"""The observed information of bags, against enumeration and differences of the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from bagwise import Bags
from bagwise.likelihood._observed import is_carried, observed_information
from bagwise.likelihood._optimize import Problem
from bagwise.likelihood._second_derivative import inverse_observed
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.objective import BagLikelihood
from oracles import labelings


def likelihood_of(bags: Bags, seed: int = 0) -> tuple[BagLikelihood, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(bags.n_instances, 3))
    return BagLikelihood(X, bags), 0.5 * rng.normal(size=(4, bags.n_classes - 1))


def information(likelihood: BagLikelihood, theta: Any) -> Any:
    return observed_information(likelihood, theta, likelihood.evaluate(theta))


def by_differences(likelihood: BagLikelihood, theta: Any, step: float = 1e-3) -> Any:
    """Minus the derivative of the gradient, by differences of the fourth order."""
    found = np.empty((theta.size, theta.size))
    for i in range(theta.size):
        move = np.zeros(theta.size)
        move[i] = step
        move = move.reshape(theta.shape)
        at = [
            likelihood.total(likelihood.evaluate(theta + n * move))[1].ravel()
            for n in (-2, -1, 1, 2)
        ]
        found[i] = -(at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)
    return found


def labels_of(sizes: list[int], C: int) -> Any:
    labels = np.random.default_rng(C).integers(C, size=sum(sizes))
    return labels, Bags.from_labels(labels, sizes, n_classes=C)


SMALL, MIXED = [1, 2, 5, 9], [70, 3, 130, 17]
KINDS = {
    "two classes": labels_of(SMALL, 2)[1],
    "two classes, large bags": labels_of(MIXED, 2)[1],
    "three classes": labels_of(SMALL, 3)[1],
    "four classes": labels_of(SMALL, 4)[1],
    "bags without a class": Bags([30, 20, 4], [[10, 0, 20], [19, 1, 0], [0, 4, 0]]),
    "rows that stand for several": Bags(
        [3, 4, 2], [[10, 90], [3, 7], [2, 0]], weights=[50, 30, 20, 1, 2, 3, 4, 1, 1]
    ),
    "three classes of rows that stand for several": Bags(
        [3, 4], [[10, 3, 4], [3, 4, 3]], weights=[5, 7, 5, 1, 2, 3, 4]
    ),
    "ranges": Bags.from_ranges([[1, 2], [0, 1]], [[3, 4], [5, 6]], [5, 6]),
    "ranges of three": Bags.from_ranges([[1, 2, 0], [0, 1, 0]], [[3, 4, 3], [5, 6, 2]], [5, 6]),
}
for C in (2, 3):
    truth, exact = labels_of([3, 40, 12], C)
    some = np.where(np.random.default_rng(1).random(len(truth)) < 0.3, truth, -1)
    KINDS[f"known labels of {C} classes"] = exact.with_labels(some)


@pytest.mark.parametrize("kind", KINDS)
def test_information_is_the_second_derivative(kind: str) -> None:
    likelihood, theta = likelihood_of(KINDS[kind])
    expected = by_differences(likelihood, theta)
    close = 1e-9 * np.abs(expected).max()
    np.testing.assert_allclose(information(likelihood, theta), expected, rtol=0, atol=close)


@pytest.mark.parametrize("counts", [[4, 3], [3, 2, 2], [2, 1, 2, 1]])
def test_information_is_what_labels_would_say_less_what_counts_leave_open(
    counts: list[int],
) -> None:
    C, K = len(counts), sum(counts)
    likelihood, theta = likelihood_of(Bags([K], [counts]))
    z = likelihood.X1 @ theta @ contrasts(C).T

    def covariance_of(labels: Any) -> Any:
        """Of sum_k Y_k (x) x_k over labelings, as probable as the model has them."""
        weights = softmax(z[np.arange(K), labels].sum(axis=1))
        sums = np.einsum("lke,kj->lje", contrasts(C)[labels], likelihood.X1).reshape(
            len(labels), -1
        )
        apart = sums - weights @ sums
        return (weights[:, None] * apart).T @ apart

    everything = np.stack(np.meshgrid(*[np.arange(C)] * K, indexing="ij"), axis=-1).reshape(-1, K)
    expected = covariance_of(everything) - covariance_of(labelings(counts))
    np.testing.assert_allclose(information(likelihood, theta), expected, rtol=0, atol=1e-11)


def test_the_kernels_agree_where_both_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood, theta = likelihood_of(labels_of([40, 25, 18], 2)[1])
    by_points = information(likelihood, theta)
    monkeypatch.setattr("bagwise.likelihood._observed._LEAST", 1000)
    np.testing.assert_allclose(information(likelihood, theta), by_points, rtol=1e-10, atol=1e-11)


def test_many_columns_are_carried_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = KINDS["three classes"]
    X = np.random.default_rng(0).normal(size=(bags.n_instances, 40))
    likelihood, theta = BagLikelihood(X, bags), np.zeros((41, 2))
    at_once = information(likelihood, theta)
    monkeypatch.setattr("bagwise.likelihood._lattice_spread._SPACE", 1)
    monkeypatch.setattr("bagwise.likelihood._observed._CHUNK", 1)
    np.testing.assert_allclose(information(likelihood, theta), at_once, rtol=0, atol=1e-12)


def test_differences_of_the_gradient_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the place of lattices that are very large."""
    likelihood, theta = likelihood_of(KINDS["ranges"])
    problem = Problem(likelihood, 1.0)
    point = problem.at(theta, 0.0)
    expected = information(likelihood, theta) + np.eye(theta.size)
    analytic = inverse_observed(problem, point, expected)
    monkeypatch.setattr("bagwise.likelihood._observed._MOST_STATES", 4)
    assert not is_carried(likelihood.bags)
    by_steps = inverse_observed(problem, point, expected)
    np.testing.assert_allclose(by_steps, analytic, rtol=1e-3, atol=1e-4)


def test_large_counts_and_extreme_logits_lose_no_digits() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(3000) < 0.02).astype(int)
    likelihood = BagLikelihood(3 * rng.normal(size=(3000, 3)), Bags.from_labels(labels, [3000]))
    theta = np.array([[4.0], [-2.0], [1.0], [-6.0]])
    expected = by_differences(likelihood, theta, step=3e-4)
    close = 1e-7 * np.abs(expected).max()
    np.testing.assert_allclose(information(likelihood, theta), expected, rtol=0, atol=close)
