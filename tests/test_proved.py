"""More states for bags that are only approximated."""

from __future__ import annotations

import numpy as np

from bagwise import Bags, bag_posterior
from bagwise.limits import Limits
from bagwise.posterior.proved import prove

RNG = np.random.default_rng(3)


def made(B: int, K: int, C: int, confidence: float) -> tuple[np.ndarray, Bags]:
    y = RNG.integers(0, C, B * K)
    z = confidence * np.eye(C)[y] + np.sqrt(confidence) * RNG.normal(size=(B * K, C))
    return z, Bags.from_labels(y, [K] * B, n_classes=C)


def test_bags_that_were_approximated_become_those_of_the_whole_lattice() -> None:
    z, bags = made(3, 32, 8, 6.0)
    found = bag_posterior(z, bags)
    assert found.bound is not None
    assert np.isinf(found.bound).all()
    weights, bound = found.weights.copy(), found.bound.copy()
    for rows, better in prove(z, bags, bound):
        weights[rows] = better
    assert np.isfinite(bound).all()
    exact = bag_posterior(z, bags, engine="exact").weights
    assert np.abs(weights - exact).sum(axis=1).max() <= 1e-6
    assert np.abs(found.weights - exact).max() > 1e-3


def test_a_bag_that_is_proved_is_not_computed_again() -> None:
    z, bags = made(4, 8, 3, 1.0)
    bound = bag_posterior(z, bags).bound
    assert bound is not None
    assert list(prove(z, bags, bound.copy())) == []


def test_a_budget_ends_the_proofs_and_small_lattices_come_first() -> None:
    small, large = made(1, 150, 3, 1.0), made(1, 240, 3, 1.0)
    z, bags = np.concatenate([large[0], small[0]]), Bags.join([large[1], small[1]])
    bound = bag_posterior(z, bags).bound
    assert bound is not None
    bound = bound.copy()
    proved = list(prove(z, bags, bound, Limits(proof_states=2.0**18)))
    assert np.isinf(bound[0])
    assert bound[1] == 0
    assert [len(rows) for rows, _ in proved] == [150]
