"""Where held-out bags prefer the overall shares, predictions are pulled toward them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import bagwise
from bagwise import Bags
from bagwise.likelihood.linear_predictions import mean_log_probs
from bagwise.likelihood.trust import mixed, trust_of
from bagwise.posterior import log_likelihoods


def binary(logits: np.ndarray) -> np.ndarray:
    p = expit(logits)
    return np.log(np.column_stack([1 - p, p]))


def labeled(logits: np.ndarray, K: int, seed: int = 1) -> Bags:
    y = np.random.default_rng(seed).random(len(logits)) < expit(logits)
    return Bags.from_labels(y.astype(int), [K] * (len(logits) // K))


def test_a_right_model_is_trusted_a_wrong_one_is_not_and_a_doubtful_one_in_part() -> None:
    z = np.random.default_rng(0).normal(size=300)
    bags = labeled(z, 10)
    half = np.full((30, 2), 0.5)
    assert trust_of(binary(z), bags, half) == 1
    assert trust_of(binary(-z), bags, half) < 0.02
    assert 0 < trust_of(binary(z + 3 * z[::-1]), bags, half) < 1


def test_the_weight_is_near_the_one_that_makes_bags_most_probable() -> None:
    # Twice as sure as right: of the grid a weight in the middle is best, which counts twice.
    z = np.random.default_rng(2).normal(size=4000)
    bags, half = labeled(0.2 * z, 10), np.full((400, 2), 0.5)
    model, same = binary(z), np.full((4000, 2), np.log(0.5))
    weights = np.linspace(0, 1, 101)
    best = weights[np.argmax([log_likelihoods(mixed(model, same, a), bags).sum() for a in weights])]
    assert 0 < best < 0.5
    assert abs(trust_of(model, bags, half) - 2 * best) < 0.2


@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_a_mixture_is_one_of_probabilities(weight: float) -> None:
    model, same = binary(np.array([1.0, -3.0])), np.log([[0.3, 0.7]] * 2)
    expected = weight * np.exp(model) + (1 - weight) * np.exp(same)
    np.testing.assert_allclose(np.exp(mixed(model, same, weight)), expected)


def contrary() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Six bags whose shares go up with a column in three of them, and down in the others."""
    rng = np.random.default_rng(4)
    bag = np.repeat(np.arange(6), 40)
    x = rng.normal(size=240) + bag % 3
    y = rng.random(240) < expit(np.where(bag < 3, 1.5, -1.5) * (x - 1))
    rows = pd.DataFrame({"bag": bag, "x": x, "other": rng.normal(size=240)})
    return rows, pd.crosstab(bag, y).rename_axis("bag").set_axis(["no", "yes"], axis=1)


def test_fit_pulls_predictions_and_says_so() -> None:
    rows, counts = contrary()
    model = bagwise.fit(rows, bag="bag", labels=counts.reset_index(), model="linear")
    trust = model.facts.settings.trust
    assert trust < 0.5
    assert model.facts.verdict == "nothing"
    assert f"these have a weight of {1 - trust:.0%} in its predictions" in str(model.summary())
    draws = model.fitted.model.draws
    n = round(128 * trust)
    assert np.ptp(draws[:n, 0], axis=1).min() > 0
    assert not draws[n:, :-1].any()
    shares = counts.to_numpy().sum(axis=0) / 240
    X = np.random.default_rng(0).normal(size=(5, 2))
    p = trust * np.exp(mean_log_probs(X, draws[:n])) + (1 - trust) * shares
    np.testing.assert_allclose(np.exp(mean_log_probs(X, draws)), p, rtol=1e-9)
