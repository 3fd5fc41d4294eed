"""Shares of groups by a model with bag effects."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from bagwise import Bags
from bagwise.likelihood import (
    Covariance,
    EffectsOfFit,
    LinearFit,
    covariance,
    effects_of_fit,
    fit_linear,
    group_shares_with_effects,
)
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.objective import BagLikelihood
from oracles import Floats

TAU = 0.8


def generated(C: int, B: int = 30, K: int = 25) -> tuple[Floats, Bags, LinearFit]:
    rng = np.random.default_rng(C)
    X = rng.normal(size=(B * K, 2)) + np.repeat(rng.normal(size=(B, 2)), K, axis=0) / 2
    u = np.repeat(TAU * rng.normal(size=(B, C)), K, axis=0)
    p = softmax(X @ rng.normal(size=(2, C)) + u, axis=1)
    labels = (p.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    bags = Bags.from_labels(labels, [K] * B, n_classes=C)
    return X, bags, fit_linear(X, bags, 0.1, bag_effects=TAU, tolerance=1e-3)


def test_effects_move_against_an_error_of_the_weights_and_grow_with_tau() -> None:
    X, bags, fit = generated(2)
    found = effects_of_fit(X, bags, fit)
    basis = contrasts(2)
    theta = np.vstack([fit.weights, fit.intercept]) @ basis

    def effects(theta: Floats, tau: float) -> Floats:
        """(B,) the coordinate of each bag's mean effect."""
        means = BagLikelihood(X, bags).evaluate(theta, tau).effects
        assert means is not None
        return means[:, 0]

    features = np.column_stack([found.centres, np.ones(len(bags))])
    for place in range(3):
        step = np.zeros(theta.shape)
        step[place] = 1e-3
        slope = (effects(theta + step, TAU) - effects(theta - step, TAU)) / 2e-3
        np.testing.assert_allclose(slope, -found.kept * features[:, place], atol=0.06)
    slope = (effects(theta, TAU * 1.01) - effects(theta, TAU / 1.01)) / (2 * np.log(1.01))
    expected = 2 * (1 - found.kept) * (found.means @ basis)[:, 0]
    np.testing.assert_allclose(slope, expected, atol=0.06)


@pytest.mark.parametrize("C", [2, 3])
def test_errors_are_the_spread_of_shares_over_draws_of_all_that_is_not_known(C: int) -> None:
    rng = np.random.default_rng(0)
    B, d, n = 6, 2, 240
    W, b = rng.normal(size=(d, C)), np.linspace(-0.5, 0.5, C)
    W -= W.mean(axis=1, keepdims=True)
    fit = LinearFit(W, b, 0.0, TAU, None, 0.0, 0, True, "")
    root = 0.1 * np.einsum("ijk,ck->icj", rng.normal(size=(d + 1, 5, C - 1)), contrasts(C))
    sure = Covariance(fit, np.einsum("icr,jdr->icjd", root, root), 50, "", np.zeros(C, bool))
    means = rng.normal(size=(B, C - 1)) @ contrasts(C).T / 2
    effects = EffectsOfFit(TAU, means, rng.uniform(0.1, 0.4, B), rng.normal(size=(B, d)) / 2)
    X = rng.normal(size=(n, d))
    bag = rng.integers(B + 3, size=n)  # three of them are new
    group = np.where(bag == B, 2, rng.integers(2, size=n))  # and one of them is a group
    shares, errors, _ = group_shares_with_effects(sure, effects, X, bag, group, 4)
    assert np.isnan(shares[3]).all()
    drawn = []
    places, new = np.minimum(bag, B), bag >= B
    kept = np.append(effects.kept, 0.0)
    centres = np.column_stack([np.vstack([effects.centres, np.zeros(d)]), np.ones(B + 1)])
    rate = np.sqrt(effects.variance_of_log_tau())
    for _ in range(6000):
        off = root @ rng.normal(size=5)
        grown = np.exp(rate * rng.normal())
        tau = TAU * grown
        # The spread of an effect is that of a normal number seen with some noise, and so its mean.
        noise = 1 / (1 / effects.spreads**2 - 1 / TAU**2)
        share = tau**2 / (tau**2 + noise) / effects.kept
        spreads = np.append(np.sqrt(share * effects.kept * noise), 0.0)
        moved = -kept[:, None] * (centres @ off)
        u = np.vstack([means * share[:, None], np.zeros(C)]) + moved
        u = u + spreads[:, None] * (rng.normal(size=(B + 1, C - 1)) @ contrasts(C).T)
        of_new = tau * rng.normal(size=(3, C - 1)) @ contrasts(C).T
        of_row = np.where(new[:, None], of_new[np.maximum(bag - B, 0)], u[places])
        z = X @ (W + off[:-1]) + b + off[-1] + of_row
        p = softmax(z, axis=1)
        y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        drawn.append(
            [np.bincount(y[group == g], minlength=C) / (group == g).sum() for g in (0, 1, 2)]
        )
    np.testing.assert_allclose(shares[:3], np.mean(drawn, axis=0), atol=0.01)
    np.testing.assert_allclose(errors[:3], np.std(drawn, axis=0), rtol=0.1)


def test_a_known_bag_is_surer_than_a_new_one_and_a_share_has_at_most_its_labels_variance() -> None:
    X, bags, fit = generated(2)
    sure, effects = covariance(X, bags, fit), effects_of_fit(X, bags, fit)
    some, zeros = X[:20], np.zeros(20, int)
    known = group_shares_with_effects(sure, effects, some, zeros, zeros, 1)
    new = group_shares_with_effects(sure, effects, some, zeros + len(bags), zeros, 1)
    apart = group_shares_with_effects(sure, effects, some, np.arange(30, 50), zeros, 1)
    assert known[1][0, 0] < new[1][0, 0]
    assert apart[1][0, 0] < new[1][0, 0]  # effects of twenty bags cancel
    np.testing.assert_allclose(apart[0], new[0])
    one = group_shares_with_effects(sure, effects, some[:1], [99], [0], 1)
    p = one[0][0, 0]
    assert one[1][0, 0] < 1.1 * np.sqrt(p * (1 - p))


def test_a_fit_without_effects_has_none_to_be_sure_of() -> None:
    X, bags, _ = generated(2, B=4)
    with pytest.raises(ValueError, match="no bag effects"):
        effects_of_fit(X, bags, fit_linear(X, bags))
