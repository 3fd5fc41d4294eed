"""Linear models of weighted rows: the answers of the rows written out, at the cost of the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from bagwise import Bags, Groupings, Laplace
from bagwise.likelihood import (
    bag_folds,
    bag_log_likelihoods,
    bags_differ,
    bootstrap_bags,
    choose_bag_effects,
    choose_ridge,
    covariance,
    covariance_in_pieces,
    effects_of_fit,
    effects_of_shares,
    fit_in_pieces,
    fit_joint,
    fit_linear,
    fit_with_variance,
    group_shares_with_effects,
    posterior_with_effects,
)
from bagwise.likelihood._overlap import Overlap, cross_terms
from bagwise.likelihood.choose_linear import choose_linear
from bagwise.likelihood.mixing import drawn_counts
from bagwise.likelihood.nonlinearity import nonlinearity_scores
from bagwise.likelihood.objective import BagLikelihood, log_likelihoods_with_effects
from bagwise.likelihood.temperature import fit_temperature
from oracles import Floats

CLOSE = 1e-10


class Sample(NamedTuple):
    """Weighted rows, and the same written out."""

    X: Floats
    bags: Bags
    all_X: Floats  # noqa: N815
    all_bags: Bags


def sample(
    kind: str = "exact", C: int = 2, B: int = 30, tau: float = 0.0, seed: int = 0, most: int = 4
) -> Sample:
    """Rows with two features of few values, that stand for 1 to `most` instances each."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=B)
    N = int(sizes.sum())
    X = np.column_stack([rng.integers(-1, 2, size=N), rng.normal(size=N).round(1)])
    weights = rng.integers(1, most + 1, size=N)
    W = np.random.default_rng(1).normal(size=(2, C))
    u = np.repeat(tau * rng.normal(size=(B, C)), sizes, axis=0)
    p = np.repeat(softmax(X @ W + u, axis=1), weights, axis=0)
    labels = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    totals = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
    counts = Bags.from_labels(labels, totals, n_classes=C).counts
    if kind == "noisy":
        noisy = counts + rng.laplace(size=counts.shape)
        bags = Bags.from_noisy_counts(noisy, sizes, Laplace(1.0), weights=weights)
    else:
        bags = Bags(sizes, counts, weights=weights)
    if kind == "labeled":
        firsts = np.cumsum(weights) - weights
        alike = np.array(
            [len(set(labels[a : a + m])) == 1 for a, m in zip(firsts, weights, strict=True)]
        )
        bags = bags.with_labels(np.where(alike & (rng.random(N) < 0.3), labels[firsts], -1))
    return Sample(X, bags, np.repeat(X, weights, axis=0), bags.written_out())


def close(one: object, two: object, within: float = CLOSE) -> None:
    np.testing.assert_allclose(one, two, rtol=within, atol=within)


@pytest.mark.parametrize("kind", ["exact", "noisy", "labeled"])
@pytest.mark.parametrize("C", [2, 3])
def test_fit_and_covariance_are_those_of_rows_written_out(kind: str, C: int) -> None:
    s = sample(kind, C)
    fit = fit_linear(s.X, s.bags, 0.5, tolerance=1e-8)
    written = fit_linear(s.all_X, s.all_bags, 0.5, tolerance=1e-8)
    close(fit.theta(), written.theta(), 1e-6)  # as near as both are to the optimum
    likelihoods = BagLikelihood(s.X, s.bags), BagLikelihood(s.all_X, s.all_bags)
    (value, gradient), (of_all, slope) = (x.total(x.evaluate(fit.theta())) for x in likelihoods)
    close(value, of_all)
    close(gradient, slope)
    for one, two in zip(
        (covariance(s.X, s.bags, fit), covariance_in_pieces(_reader(s.X), s.bags, fit, most=20)),
        (
            covariance(s.all_X, s.all_bags, fit),
            covariance_in_pieces(_reader(s.all_X), s.all_bags, fit, most=20),
        ),
        strict=True,
    ):
        # Of counts that are not exact, by differences of what the engine finds.
        close(one.matrix, two.matrix, 1e-6 if kind == "noisy" else 1e-9)
    assert one.information == two.information


def test_the_optimum_of_a_census_table_is_that_of_its_people() -> None:
    """With the likelihood of two classes by convolution, not by any engine."""
    s = sample(B=8, seed=4)
    fit = fit_linear(s.X, s.bags, 0.5, tolerance=1e-8)

    def objective(theta: Floats) -> float:
        odds = s.all_X @ theta[:2] + theta[2]
        total = 0.125 * (theta[:2] ** 2).sum()  # ridge / 4, as the two weights sum to 0
        for b in range(8):
            chance = np.ones(1)
            for p in 1 / (1 + np.exp(-odds[s.all_bags.rows([b])])):
                chance = np.convolve(chance, [1 - p, p])
            total -= np.log(chance[s.bags.counts[b, 1]])
        return float(total)

    coefficients = np.vstack([fit.weights, fit.intercept])
    at = coefficients[:, 1] - coefficients[:, 0]
    for place in range(3):
        for step in (-1e-3, 1e-3):
            moved = at.copy()
            moved[place] += step
            assert objective(moved) > objective(at)


def test_bags_too_large_for_the_lattice_are_fitted_as_if_written_out() -> None:
    s = sample(C=3, B=20, most=60)
    likelihoods = BagLikelihood(s.X, s.bags), BagLikelihood(s.all_X, s.all_bags)
    assert not likelihoods[0].exact
    theta = np.random.default_rng(0).normal(size=(3, 2))
    (value, gradient), (of_all, slope) = (x.total(x.evaluate(theta)) for x in likelihoods)
    close(value, of_all, 1e-4)
    close(gradient, slope, 1e-3)


@pytest.mark.parametrize("C", [2, 3])
def test_bag_effects_are_those_of_rows_written_out(C: int) -> None:
    s = sample(C=C, tau=1.0, B=25)
    fit = fit_with_variance(s.X, s.bags, 1.0, tolerance=1e-7)
    written = fit_with_variance(s.all_X, s.all_bags, 1.0, tolerance=1e-7)
    assert fit.bag_effects > 0.3
    close(fit.bag_effects, written.bag_effects, 1e-7)
    close(fit.effects, written.effects, 1e-7)
    close(fit.spreads, written.spreads, 1e-7)
    close(
        bag_log_likelihoods(fit, s.X, s.bags), bag_log_likelihoods(fit, s.all_X, s.all_bags), 1e-9
    )
    tau = np.full(len(s.bags), 0.7)
    close(
        log_likelihoods_with_effects(fit.logits(s.X), s.bags, tau),
        log_likelihoods_with_effects(fit.logits(s.all_X), s.all_bags, tau),
        1e-9,
    )
    of_rows, of_all = effects_of_fit(s.X, s.bags, fit), effects_of_fit(s.all_X, s.all_bags, fit)
    close(of_rows.centres, of_all.centres, 1e-9)
    covariances = covariance(s.X, s.bags, fit), covariance(s.all_X, s.all_bags, fit)
    close(covariances[0].matrix, covariances[1].matrix, 1e-8)
    bag, groups = s.bags.bag_of_row, np.arange(len(s.X)) % 3
    copies = s.bags.copies
    found = group_shares_with_effects(covariances[0], of_rows, s.X, bag, groups, 3, copies)
    wanted = group_shares_with_effects(
        covariances[1], of_all, s.all_X, np.repeat(bag, copies), np.repeat(groups, copies), 3
    )
    for one, two in zip(found, wanted, strict=True):
        close(one, two, 1e-8)
    found = covariances[0].group_shares(s.X, groups, copies=copies)
    close(found, covariances[1].group_shares(s.all_X, np.repeat(groups, copies)), 1e-8)
    close(bags_differ(fit.logits(s.X), s.bags), bags_differ(fit.logits(s.all_X), s.all_bags), 1e-8)


def test_labels_given_counts_and_effects_are_those_of_rows_written_out() -> None:
    s = sample("noisy", B=6)
    z = s.X @ np.array([[0.0, 1.0], [0.0, -1.0]])
    weights, effects = posterior_with_effects(z, s.bags, 0.8)
    all_weights, all_effects = posterior_with_effects(
        np.repeat(z, s.bags.copies, axis=0), s.all_bags, 0.8
    )
    close(np.repeat(weights, s.bags.copies, axis=0), all_weights)
    close(effects, all_effects)


@pytest.mark.parametrize("tau", [None, 0.5])
def test_effects_from_shares_are_those_of_rows_written_out(tau: float | None) -> None:
    s = sample(tau=1.0)
    z, copies = s.X @ np.array([[0.0, 0.5], [0.0, 1.0]]), s.bags.copies
    shares, totals = s.bags.proportions, 50.0 + np.arange(len(s.bags))
    found = effects_of_shares(z, s.bags.sizes, shares, totals, tau, copies)
    of_all = np.repeat(z, copies, axis=0)
    wanted = effects_of_shares(of_all, s.all_bags.sizes, shares, totals, tau)
    close(found.tau, wanted.tau)
    close(found.means, wanted.means)
    close(found.spreads, wanted.spreads)


def test_what_held_out_bags_choose_is_that_of_rows_written_out() -> None:
    s = sample(B=40, tau=0.5)
    np.testing.assert_array_equal(bag_folds(s.bags), bag_folds(s.all_bags))
    one, two = choose_ridge(s.X, s.bags), choose_ridge(s.all_X, s.all_bags)
    assert one.ridge == two.ridge
    close([x.score for x in one.path], [x.score for x in two.path], 1e-8)
    close([x.standard_error for x in one.path], [x.standard_error for x in two.path], 1e-7)
    linear = choose_linear(s.X, s.bags), choose_linear(s.all_X, s.all_bags)
    close(linear[0].fit.theta(), linear[1].fit.theta(), 1e-7)
    assert linear[0].temperature == linear[1].temperature
    effects = choose_bag_effects(s.X, s.bags), choose_bag_effects(s.all_X, s.all_bags)
    close(effects[0].gain, effects[1].gain, 1e-6)
    close(effects[0].gain_error, effects[1].gain_error, 1e-6)
    close(effects[0].tau, effects[1].tau, 1e-5)


def test_temperature_and_bends_are_those_of_rows_written_out() -> None:
    s = sample(B=60, C=2)
    fit = fit_linear(s.X, s.bags, 1.0)
    close(nonlinearity_scores(s.X, s.bags, fit), nonlinearity_scores(s.all_X, s.all_bags, fit))
    sure = log_softmax(4 * fit.logits(s.X), axis=1)
    found = fit_temperature(sure, s.bags)
    assert found > 1.5
    assert found == fit_temperature(np.repeat(sure, s.bags.copies, axis=0), s.all_bags)


def test_fits_in_pieces_and_bootstraps_are_those_of_rows_written_out() -> None:
    s = sample(C=3, B=12)
    found = fit_in_pieces(_reader(s.X), 2, s.bags, 1.0, most=7, tolerance=1e-7)
    wanted = fit_linear(s.all_X, s.all_bags, 1.0, tolerance=1e-7)
    close(found.theta(), wanted.theta(), 1e-7)
    fit = fit_linear(s.X, s.bags, 1.0, tolerance=1e-7)
    one, two = (list(bootstrap_bags(*x, fit, draws=2)) for x in (s[:2], s[2:]))
    close([x.theta() for x in one], [x.theta() for x in two], 1e-7)


def test_a_class_that_no_bag_has_gets_half_an_instance() -> None:
    s = sample(C=2, B=10)
    both = []
    for X, bags in (s[:2], s[2:]):
        counts = np.column_stack([bags.counts, np.zeros(len(bags), int)])
        three = Bags(bags.sizes, counts, weights=bags.weights)
        both.append(fit_linear(X, three, tolerance=1e-8))
        pieces = fit_in_pieces(_reader(X), 2, three, most=4, tolerance=1e-8)
        close(pieces.intercept, both[-1].intercept, 1e-7)
    close(both[0].theta(), both[1].theta())


def groupings_of(seed: int, weighted: bool, C: int = 2) -> tuple[Floats, Groupings]:
    """Two crossed groupings of 60 rows, or of what they stand for."""
    rng = np.random.default_rng(seed)
    N = 60
    X, copies = rng.normal(size=(N, 2)), rng.integers(1, 4, size=N)
    by = {"ward": np.arange(N) // 6, "age": rng.permutation(N) % 10}
    p = softmax(np.repeat(X, copies, axis=0) @ np.random.default_rng(1).normal(size=(2, C)), axis=1)
    labels = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    found = {}
    for name, of_row in by.items():
        counts = np.zeros((10, C), int)
        np.add.at(counts, (np.repeat(of_row, copies), labels), 1)
        order = np.argsort(of_row, kind="stable")
        bags = Bags(np.bincount(of_row), counts, weights=copies[order])
        if not weighted:
            of_row, bags = np.repeat(of_row, copies), bags.written_out()
        found[name] = (of_row, bags)
    return (X if weighted else np.repeat(X, copies, axis=0)), Groupings(found)


@pytest.mark.parametrize("C", [2, 3])
def test_several_groupings_of_weighted_rows_are_those_of_rows_written_out(C: int) -> None:
    (X, few), (all_X, many) = (groupings_of(0, weighted, C) for weighted in (True, False))
    (rows, bags), (all_rows, all_bags) = few.stacked(), many.stacked()
    fit = fit_linear(X[rows], bags, 0.5, tolerance=1e-7)
    close(fit.theta(), fit_linear(all_X[all_rows], all_bags, 0.5, tolerance=1e-7).theta(), 1e-6)
    one, two = Overlap.of(rows, bags), Overlap.of(all_rows, all_bags)
    assert (one.sampled, one.degree) == (two.sampled, two.degree)
    theta = fit.theta()
    found, wanted = (
        cross_terms(x, theta, x.evaluate(theta), r)
        for x, r in (
            (BagLikelihood(X[rows], bags), rows),
            (BagLikelihood(all_X[all_rows], all_bags), all_rows),
        )
    )
    close(found, wanted, 1e-9)
    found = covariance(X[rows], bags, fit, rows=rows).matrix
    close(found, covariance(all_X[all_rows], all_bags, fit, rows=all_rows).matrix, 1e-8)
    joint = fit_joint(X, few, 0.5)
    close(joint.theta(), fit_joint(all_X, many, 0.5).theta(), 1e-4)


def test_draws_of_weighted_counts_are_spread_as_those_of_rows_written_out() -> None:
    s = sample(C=3, B=15, most=12)
    z = s.X @ np.random.default_rng(0).normal(size=(2, 3))
    tau = np.full(15, 0.5)
    below, at, low, high = drawn_counts(z, s.bags, tau)
    all_below, all_at, all_low, all_high = drawn_counts(
        np.repeat(z, s.bags.copies, axis=0), s.all_bags, tau
    )
    close(below, all_below, 0.09)  # 1024 draws: standard errors up to .022 of a difference
    close(at, all_at, 0.09)
    assert np.abs(low - all_low).max() <= 2
    assert np.abs(high - all_high).max() <= 2


def _reader(X: Floats):
    return lambda begin, end: X[begin:end]
