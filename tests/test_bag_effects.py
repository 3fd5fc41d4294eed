"""Bags that differ beyond their features: what is known of them, and what predictions gain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, softmax
from scipy.stats import binom, norm, poisson_binom

from bagwise import Bags
from bagwise.likelihood import (
    bags_differ,
    choose_bag_effects,
    effects_of_shares,
    fit_linear,
    fit_with_variance,
    mean_softmax,
)
from bagwise.likelihood._effects import integrate, integrate_weighted
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.effects_from_shares import variance_components
from bagwise.likelihood.mixing import drawn_counts
from bagwise.likelihood.objective import log_likelihoods_with_effects
from bagwise.posterior.poisson_binomial import count_intervals
from bagwise.tables.assess.held_out import assess, count_levels, held_out_table
from oracles import Floats

GRID = np.linspace(-9, 9, 4001)


def two(z: Floats) -> Floats:
    """Logits of two classes with these log-odds."""
    return np.stack([-z / 2, z / 2], axis=-1)


@given(st.floats(-6, 6), st.floats(-3, 3), st.floats(0, 2.5))
def test_the_mean_over_an_effect_is_that_of_a_grid(z: float, mean: float, spread: float) -> None:
    p = mean_softmax(two(np.array([z])), np.array([0]), two(np.array([mean])), np.array([spread]))
    # a coordinate's spread is sqrt(2) of it in the log-odds
    weights = norm.pdf(GRID)
    expected = weights @ expit(z + mean + np.sqrt(2) * spread * GRID) / weights.sum()
    assert p[0, 1] == pytest.approx(expected, abs=2e-3)
    assert p.sum() == pytest.approx(1)


@pytest.mark.parametrize("C", [3, 5])
def test_the_mean_over_an_effect_of_several_classes_is_that_of_draws(C: int) -> None:
    rng = np.random.default_rng(0)
    z, means, spreads = rng.normal(size=(4, C)), rng.normal(size=(2, C)), np.array([0.4, 1.2])
    which = np.array([0, 1, 1, 0])
    u = rng.normal(size=(200_000, C)) @ contrasts(C) @ contrasts(C).T
    found = mean_softmax(z, which, means, spreads)
    for k, e in enumerate(which):
        expected = softmax(z[k] + means[e] + spreads[e] * u, axis=1).mean(axis=0)
        assert found[k] == pytest.approx(expected, abs=0.015)


def test_a_row_that_stands_for_three_is_three_rows() -> None:
    rng = np.random.default_rng(1)
    z, counts = rng.normal(size=(4, 3)), np.array([[3, 5, 4]])
    basis = contrasts(3)
    three = integrate(np.repeat(z, 3, axis=0), Bags([12], counts), basis, 0.8)
    one = integrate_weighted(
        z, np.full(4, 3.0), np.array([0, 4]), counts.astype(float), basis, np.array([0.8])
    )
    assert one[0] == pytest.approx(three[0])
    assert one[1] == pytest.approx(three[1][::3])
    for ours, theirs in zip(one[2:], three[2:], strict=True):
        assert ours == pytest.approx(theirs)


def test_a_known_bag_is_predicted_by_the_mean_over_its_posterior() -> None:
    X, bags = np.zeros((12, 1)), Bags([4, 8], [[1, 3], [6, 2]])
    fit = fit_linear(X, bags, bag_effects=0.7)
    at = fit.intercept[1] - fit.intercept[0] + np.sqrt(2) * 0.7 * GRID
    for b, (n, k) in enumerate([(4, 3), (8, 2)]):
        posterior = norm.pdf(GRID) * binom.pmf(k, n, expit(at))
        expected = posterior @ expit(at) / posterior.sum()
        assert fit.probabilities([[0.0]], [b])[0, 1] == pytest.approx(expected, abs=2e-3)
    prior = norm.pdf(GRID)
    assert fit.probabilities([[0.0]])[0, 1] == pytest.approx(
        prior @ expit(at) / prior.sum(), abs=2e-3
    )


def test_likelihoods_with_effects_are_those_of_a_grid() -> None:
    z, tau = np.array([0.3, -1.0, 0.8, 2.0]), np.array([0.5, 1.5])
    bags = Bags([3, 1], [[1, 2], [0, 1]])
    found = log_likelihoods_with_effects(two(z), bags, tau)
    at = np.sqrt(2) * GRID[:, None]
    first = [poisson_binom.pmf(2, p) for p in expit(z[:3] + tau[0] * at)]
    second = expit(z[3] + tau[1] * at[:, 0])
    weights = norm.pdf(GRID) / norm.pdf(GRID).sum()
    assert found == pytest.approx(np.log([weights @ first, weights @ second]), abs=2e-3)


def test_drawn_counts_are_distributed_as_a_grid_says() -> None:
    z = np.array([0.3, -1.0, 0.8, 2.0, -0.5, 0.0])
    bags, tau = Bags([6], [[2, 4]]), np.array([0.9])
    below, at, low, high = drawn_counts(two(z), bags, tau)
    p = expit(z + np.sqrt(2) * 0.9 * GRID[::20, None])
    weights = norm.pdf(GRID[::20]) / norm.pdf(GRID[::20]).sum()
    pmf = weights @ np.array([poisson_binom.pmf(np.arange(7), q) for q in p])
    assert below[0, 1] == pytest.approx(pmf[:4].sum(), abs=0.04)
    assert at[0, 1] == pytest.approx(pmf[4], abs=0.04)
    assert below[0, 0] == pytest.approx(pmf[5:].sum(), abs=0.04)
    assert (low[0, 1], high[0, 1]) == (int((pmf.cumsum() < 0.025).sum()), 6)
    again = drawn_counts(two(z), bags, tau)
    assert (again[0] == below).all()
    assert (again[3] == high).all()


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=30))
def test_intervals_of_counts_are_those_of_the_poisson_binomial(p: list[float]) -> None:
    probabilities = np.array(p)
    log_probs = np.log(np.stack([1 - probabilities, probabilities], axis=1))
    low, high = count_intervals(log_probs, Bags([len(p)], [[len(p), 0]]))
    below = np.cumsum(poisson_binom.pmf(np.arange(len(p) + 1), probabilities))
    for end, level in ((low[0, 1], 0.025), (high[0, 1], 0.975)):
        assert below[end] >= level - 1e-9
        assert end == 0 or below[end - 1] <= level + 1e-9


def test_a_large_bag_has_the_interval_of_the_normal() -> None:
    n, p = 50_000, 0.3
    log_probs = np.log(np.tile([1 - p, p], (n, 1)))
    low, high = count_intervals(log_probs, Bags([n], [[n, 0]]))
    assert (low[0, 1], high[0, 1]) == (binom.ppf(0.025, n, p), binom.ppf(0.975, n, p))


def school(
    seed: int, sizes: list[int], slope: float, tau: float, between: float = 0.3
) -> tuple[Floats, np.ndarray, Floats]:
    """Log-odds of pupils without the school's effect, labels, and schools' effects."""
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.normal(size=len(sizes)) * between**0.5, sizes)
    z = slope * (level + rng.normal(size=sum(sizes)) * (1 - between) ** 0.5)
    u = tau * rng.normal(size=len(sizes))
    return z, (rng.random(len(z)) < expit(z + np.repeat(u, sizes))).astype(int), u


@pytest.mark.parametrize(
    ("tau", "slope", "new", "counted"),
    [
        (tau, slope, new, counted)
        for tau in (0.0, 1.0)
        for slope in (0.0, 1.5)
        for new in (1, 5, 30)
        for counted in (30, 500)
        # single rows cannot tell features that bags have in common from effects
        if not (new == 1 and slope and not tau)
    ],
)
def test_known_shares_are_as_good_as_the_better_of_shares_and_model(
    tau: float, slope: float, new: int, counted: int
) -> None:
    B = 200
    z, y, _ = school(new + counted, [new + counted] * B, slope, tau)
    z, y = z.reshape(B, -1), y.reshape(B, -1)
    share = y[:, new:].mean(axis=1)
    logits, truth = two(z[:, :new].ravel()), y[:, :new].ravel()
    shares = np.stack([1 - share, share], axis=1)
    found = effects_of_shares(logits, np.full(B, new), shares, np.full(B, float(counted)))
    bag = np.repeat(np.arange(B), new)

    def loss(p: Floats) -> float:
        return float(-np.log(np.where(truth == 1, p, 1 - p)).mean())

    ours = loss(mean_softmax(logits, bag, found.means, found.spreads)[:, 1])
    of_shares = loss(np.clip(share, 0.5 / counted, 1 - 0.5 / counted)[bag])
    of_model = loss(expit(z[:, :new].ravel()))
    assert ours < min(of_shares, of_model) + 0.006
    if tau and slope and new > 1:
        assert ours < min(of_shares, of_model) - 0.02


def test_the_given_tau_is_used() -> None:
    shares = np.array([[0.1, 0.9], [0.9, 0.1]])
    arguments = (np.zeros((4, 2)), np.array([2, 2]), shares, np.array([50.0, 50.0]))
    free, tight = (effects_of_shares(*arguments, tau) for tau in (3.0, 0.001))
    assert free.tau == 3.0
    assert softmax(free.means, axis=1) == pytest.approx(shares, abs=0.02)
    assert np.abs(tight.means).max() < 1e-3


def test_variance_components_are_found() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, size=2000)
    y = np.repeat(2 * rng.normal(size=(2000, 2)), sizes, axis=0)
    y += 3 * rng.normal(size=y.shape)
    within, between = variance_components(y, sizes, np.ones(len(y), int))
    assert within == pytest.approx(9, rel=0.03)
    assert between == pytest.approx(4, rel=0.1)
    assert variance_components(y[:5], np.ones(5, int), np.ones(5, int)) == (
        pytest.approx(y[:5].var(0, ddof=1).mean()),
        0,
    )


def test_the_test_for_effects_is_right_about_chance_and_finds_what_there_is() -> None:
    alarms, found = [], []
    for seed in range(60):
        for tau, values in ((0.0, alarms), (0.8, found)):
            z, y, _ = school(seed, [20] * 40, 1.0, tau)
            bags = Bags.from_labels(y, [20] * 40, n_classes=2)
            values.append(bags_differ(two(z), bags)[1])
    assert 0.005 < np.mean(np.array(alarms) < 0.05) < 0.14  # half of what is above 0
    assert np.mean(np.array(found) < 0.01) > 0.9


def test_effects_can_be_chosen_with_bags_that_are_never_held_out() -> None:
    z, y, _ = school(3, [20] * 30, 1.0, 1.0)
    bags = Bags.from_labels(y, [20] * 30, n_classes=2)
    folds = np.where(np.arange(30) < 8, 0, -1)
    found = choose_bag_effects(z[:, None], bags, folds=folds)
    assert np.isnan(found.of_bags[8:]).all()
    assert np.isfinite(found.of_bags[:8]).all()
    assert found.held_out_logits.shape == (600, 2)
    kept = np.arange(8, 30)
    model = fit_with_variance(
        z[bags.rows(kept), None], bags.select(kept), found.fit.ridge, start=found.fit
    )
    assert found.held_out_tau == pytest.approx(np.full(30, model.bag_effects), rel=0.1)
    assert np.abs(found.held_out_logits - model.logits(z[:, None])).max() < 0.1


def test_counts_lie_in_the_intervals_of_a_model_that_knows_the_effects() -> None:
    z, y, _ = school(4, [30] * 300, 1.0, 1.2)
    bags = Bags.from_labels(y, [30] * 300, n_classes=2)
    log_probs = log_softmax(two(z), axis=1)
    tau = np.full(300, 1.2 / np.sqrt(2))
    ids, shares = np.arange(300).astype(str), np.array([0.5, 0.5])
    knows = assess(log_probs, bags, ids, shares, tau)
    assert 0.92 < (knows.covered(0.95) or 0) < 0.98
    assert (assess(log_probs, bags, ids, shares).covered(0.95) or 1) < 0.7
    assert knows.log_likelihood > knows.baseline
    levels = count_levels(log_probs, bags, tau)
    assert levels.mean() == pytest.approx(0.5, abs=0.03)
    rows = held_out_table(log_probs, bags, ids, ["no", "yes"], tau).splitlines()
    low, high = (np.array([float(row.split(",")[i]) for row in rows[1:]]) for i in (8, 9))
    inside = (bags.counts[:, 1] >= low) & (bags.counts[:, 1] <= high)
    assert 0.92 < inside.mean() <= 1
