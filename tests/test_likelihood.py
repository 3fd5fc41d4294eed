from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from bagwise import Bags
from bagwise.likelihood import (
    bag_folds,
    bag_log_likelihoods,
    bootstrap_bags,
    choose_bag_effects,
    choose_ridge,
    covariance,
    fit_for_intervals,
    fit_linear,
    fit_with_variance,
)
from bagwise.likelihood._curvature import information_rows
from bagwise.likelihood._optimize import Problem
from bagwise.likelihood.objective import BagLikelihood
from oracles import Floats, enumerate_bag


def generated(
    seed: int, sizes: list[int], C: int, d: int = 3, strength: float = 1.0, tau: float = 0.0
) -> tuple[Floats, Bags, np.ndarray]:
    """Features, bags and labels of a linear model, whose coefficients depend on C and d only."""
    rng, coefficients = np.random.default_rng(seed), np.random.default_rng(0)
    X = rng.normal(size=(sum(sizes), d))
    W, b = coefficients.normal(size=(d, C)), coefficients.normal(size=C) / 2
    u = np.repeat(tau * rng.normal(size=(len(sizes), C)), sizes, axis=0)
    p = softmax(strength * X @ W + b + u, axis=1)
    labels = (p.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    return X, Bags.from_labels(labels, sizes, n_classes=C), labels


def enumerated(X: Floats, bags: Bags, W: Floats, b: Floats) -> float:
    log_p = log_softmax(X @ W + b, axis=1)
    rows = np.split(log_p, bags.offsets[1:-1])
    return sum(enumerate_bag(part, n)[0] for part, n in zip(rows, bags.counts, strict=True))


@pytest.mark.parametrize("C", [2, 3, 5])
def test_gradient_is_that_of_finite_differences(C: int) -> None:
    X, bags, _ = generated(0, [1, 4, 7, 3], C)
    likelihood = BagLikelihood(X, bags, np.array([1.0, 2.0, 0.5, 1.0]))
    theta = np.random.default_rng(1).normal(size=(4, C - 1))

    def value(flat: Floats) -> float:
        return likelihood.total(likelihood.evaluate(flat.reshape(theta.shape)))[0]

    gradient = likelihood.total(likelihood.evaluate(theta))[1].ravel()
    for i, step in enumerate(1e-5 * np.eye(theta.size)):
        slope = (value(theta.ravel() + step) - value(theta.ravel() - step)) / 2e-5
        assert gradient[i] == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("C", [2, 3])
def test_bags_of_one_are_logistic_regression(C: int) -> None:
    X, bags, labels = generated(0, [1] * 200, C)
    fit = fit_linear(X, bags, ridge=2.0, tolerance=1e-7)
    # scikit-learn has one vector of weights for two classes: the difference of ours, whose square
    # is penalized half as much as the squares of both.
    known = LogisticRegression(C=1 / (2.0 if C > 2 else 1.0), tol=1e-10, max_iter=10_000)
    known.fit(X, labels)
    if C == 2:
        assert fit.weights[:, 1] - fit.weights[:, 0] == pytest.approx(known.coef_[0], abs=1e-5)
    else:
        assert pytest.approx(known.coef_, abs=1e-5) == fit.weights.T
    assert softmax(fit.logits(X), axis=1) == pytest.approx(known.predict_proba(X), abs=1e-5)


@pytest.mark.parametrize("C", [2, 3])
def test_the_optimum_is_that_of_enumeration(C: int) -> None:
    X, bags, _ = generated(2, [3, 4, 2, 4, 3, 4], C, d=2)
    ridge = 0.7

    def objective(flat: Floats) -> float:
        W, b = flat[: 2 * C].reshape(2, C), flat[2 * C :]
        return ridge / 2 * float((W**2).sum()) - enumerated(X, bags, W, b)

    found = minimize(objective, np.zeros(3 * C), method="BFGS", options={"gtol": 1e-7}).x
    fit = fit_linear(X, bags, ridge, tolerance=1e-6)
    assert fit.weights.ravel() == pytest.approx(found[: 2 * C], abs=1e-4)
    assert fit.log_likelihood == pytest.approx(enumerated(X, bags, fit.weights, fit.intercept))


def test_the_order_of_bags_and_classes_does_not_matter() -> None:
    X, bags, _ = generated(3, [5, 8, 3, 6, 7, 4, 9], 3)
    fit = fit_linear(X, bags, tolerance=1e-7)
    order = np.array([4, 0, 6, 2, 1, 5, 3])
    turned = Bags(bags.sizes[order], bags.counts[order][:, [2, 0, 1]])
    other = fit_linear(X[bags.rows(order)], turned, tolerance=1e-7)
    assert other.weights == pytest.approx(fit.weights[:, [2, 0, 1]], abs=1e-5)
    assert other.intercept == pytest.approx(fit.intercept[[2, 0, 1]], abs=1e-5)


def test_coefficients_sum_to_zero_over_classes() -> None:
    X, bags, _ = generated(4, [6] * 12, 4)
    fit = fit_linear(X, bags)
    assert fit.weights.sum(axis=1) == pytest.approx(0, abs=1e-12)
    assert fit.intercept.sum() == pytest.approx(0, abs=1e-12)


def test_a_bag_that_counts_twice_is_two_bags() -> None:
    X, bags, _ = generated(5, [4, 6, 5, 7, 3], 3)
    index = [0, 0, 2, 3, 3, 3, 4]
    repeated = fit_linear(X[bags.rows(index)], bags.select(index), tolerance=1e-7)
    weighted = fit_linear(X, bags, bag_weights=[2, 0, 1, 3, 1], tolerance=1e-7)
    assert weighted.weights == pytest.approx(repeated.weights, abs=1e-5)


def test_a_fit_that_does_not_converge_says_so() -> None:
    X, bags, _ = generated(6, [5] * 20, 3)
    with pytest.warns(RuntimeWarning, match="did not converge in . evaluations: too few"):
        fit = fit_linear(X, bags, 1e-3, max_evaluations=3, tolerance=1e-6)
    assert not fit.converged


def test_features_of_another_shape_are_refused() -> None:
    bags = Bags([2], [[1, 1]])
    with pytest.raises(ValueError, match="has shape \\(3, 1\\), but these bags have 2 instances"):
        fit_linear(np.zeros((3, 1)), bags)
    with pytest.raises(ValueError, match="X\\[1, 0\\] is nan"):
        fit_linear([[0.0], [np.nan]], bags)


def test_folds_are_balanced_and_follow_the_seed() -> None:
    bags = Bags(np.arange(1, 24), np.arange(1, 24)[:, None])
    folds = bag_folds(bags, 5, seed=1)
    assert np.bincount(folds).tolist() == [5, 5, 5, 4, 4]
    rows = np.bincount(folds, bags.sizes)
    assert rows.max() - rows.min() < 20
    assert (folds == bag_folds(bags, 5, seed=1)).all()
    assert (folds != bag_folds(bags, 5, seed=2)).any()
    assert sorted(bag_folds(bags.select(np.arange(9)), 5)) == list(range(9))


def test_held_out_logits_are_of_models_that_did_not_see_the_bag() -> None:
    X, bags, _ = generated(7, [8] * 15, 2)
    found = choose_ridge(X, bags, [1.0, 0.5])
    # Other counts of one bag change the models of all folds but its own.
    counts = bags.counts.copy()
    counts[4] = counts[4][::-1] if counts[4][0] != counts[4][1] else [8, 0]
    other = choose_ridge(X, Bags(bags.sizes, counts), [1.0, 0.5])
    fold = bags.bag_of_row
    own = (found.folds == found.folds[4])[fold]
    if found.ridge == other.ridge:
        assert found.held_out_logits[own] == pytest.approx(other.held_out_logits[own], abs=1e-12)
    assert not np.allclose(found.held_out_logits[~own], other.held_out_logits[~own])
    alone = fit_linear(
        X[found.folds[fold] != 0], bags.select(np.flatnonzero(found.folds != 0)), found.ridge
    )
    zero = found.folds[fold] == 0
    assert found.held_out_logits[zero] == pytest.approx(alone.logits(X[zero]), abs=0.1)


def test_scores_are_those_of_the_held_out_logits() -> None:
    X, bags, _ = generated(8, [6] * 20, 3)
    found = choose_ridge(X, bags)
    log_p = log_softmax(found.held_out_logits, axis=1)
    of_bags = [enumerate_bag(log_p[6 * b : 6 * b + 6], bags.counts[b])[0] for b in range(5)]
    assert found.chosen.of_bags[:5] == pytest.approx(of_bags)
    assert found.chosen.score == pytest.approx(found.chosen.of_bags.sum() / 120)
    assert [score.ridge for score in found.path] == sorted(
        (score.ridge for score in found.path), reverse=True
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_weak_ridge_has_to_earn_its_place(seed: int) -> None:
    X, bags, _ = generated(seed, [6] * 15, 2, strength=3.0)
    found = choose_ridge(X, bags)
    total = {
        s.ridge: s.of_bags.sum() - 2 * min(np.log10(s.ridge) - 0.5, 0) ** 2 for s in found.path
    }
    best = max(total, key=lambda ridge: (total[ridge], ridge))
    assert found.ridge >= best * (1 - 1e-12)
    # Stronger ones that were not taken are worse by more than a fifth of a standard error.
    of_bags = {score.ridge: score.of_bags for score in found.path}
    for ridge in [ridge for ridge in total if ridge > found.ridge]:
        error = np.sqrt(15) * np.std(of_bags[best] - of_bags[ridge], ddof=1)
        assert total[best] - total[ridge] > 0.2 * error
    error = np.sqrt(15) * np.std(of_bags[best] - of_bags[found.ridge], ddof=1)
    assert total[best] - total[found.ridge] <= 0.2 * error + 1e-6


def test_the_path_is_extended_where_its_end_is_best() -> None:
    X, bags, _ = generated(9, [4] * 60, 2, strength=2.0)
    weak = choose_ridge(X, bags, [1000.0, 300.0])
    assert weak.ridge < 300
    noise = np.random.default_rng(0).normal(size=X.shape)
    strong = choose_ridge(noise, bags, [0.01])
    assert strong.ridge > 1


def test_a_class_of_one_bag_does_not_break_anything() -> None:
    X, bags, _ = generated(10, [6] * 12, 2)
    counts = np.column_stack([bags.counts, np.zeros((12, 2), int)])
    counts[3] = [3, 2, 1, 0]  # class 2 is in one bag only, class 3 in none
    found = choose_ridge(X, Bags(bags.sizes, counts))
    assert np.isfinite(found.held_out_logits).all()
    assert np.isfinite(found.chosen.score)
    shares = softmax(found.fit.logits(X), axis=1).mean(axis=0)
    assert shares[2] == pytest.approx(1 / 72, abs=0.01)
    assert 0 < shares[3] < 0.02


def test_few_bags_are_held_out_one_by_one_and_two_get_a_ridge_of_one() -> None:
    X, bags, _ = generated(11, [10] * 5, 2)
    assert sorted(choose_ridge(X, bags).folds) == [0, 1, 2, 3, 4]
    with pytest.warns(RuntimeWarning, match="only 2 bags"):
        found = choose_ridge(X[:20], bags.select([0, 1]))
    assert found.ridge == 1
    with pytest.raises(ValueError, match="only one bag"):
        choose_ridge(X[:10], bags.select([0]))


def test_breast_cancer_in_bags_of_twenty_is_classified_almost_as_with_labels() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = ((X - X.mean(axis=0)) / X.std(axis=0))[order], y[order]
    found = choose_ridge(X[:400], Bags.from_labels(y[:400], [20] * 20))
    assert (found.fit.logits(X[400:]).argmax(axis=1) == y[400:]).mean() > 0.94
    assert found.evaluations < 500


def test_the_sandwich_is_close_to_the_bootstrap() -> None:
    X, bags, _ = generated(20, [6] * 80, 2)
    fit = fit_for_intervals(X, bags, fit_linear(X, bags))
    drawn = [draw.weights for draw in bootstrap_bags(X, bags, fit, draws=150)]
    errors = covariance(X, bags, fit).standard_errors()[0]
    assert errors == pytest.approx(np.std(drawn, axis=0, ddof=1), rel=0.25)


def test_the_sandwich_of_bags_of_one_is_that_of_the_jackknife() -> None:
    X, bags, _ = generated(21, [1] * 120, 3, d=2)
    fit = fit_linear(X, bags, 0.1, tolerance=1e-5)
    left_out = []
    for b in range(len(bags)):
        times = np.ones(len(bags))
        times[b] = 0
        other = fit_linear(X, bags, 0.1, start=fit, bag_weights=times, tolerance=1e-4)
        left_out.append(other.weights)
    spread = np.sqrt((len(bags) - 1) / len(bags) * ((left_out - fit.weights) ** 2).sum(axis=0))
    assert covariance(X, bags, fit).standard_errors()[0] == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("K", [1, 60])
def test_the_information_is_the_variance_of_the_score(K: int) -> None:
    X = np.random.default_rng(22).normal(size=(K, 2))
    W, b = np.array([[0.5, -0.5, 0.0], [0.0, 1.0, -1.0]]), np.array([0.2, 0.0, -0.2])
    p = softmax(X @ W + b, axis=1)
    one = Bags([K], [[K, 0, 0]])
    likelihood = BagLikelihood(X, one)
    theta = np.vstack([W, b]) @ likelihood.basis
    [(_, rows)] = information_rows(likelihood.X1, p, one.offsets, one.copies, likelihood.basis, 0.0)
    rng = np.random.default_rng(23)
    labels = [(p.cumsum(axis=1) < rng.random((K, 1))).sum(axis=1) for _ in range(3000)]
    drawn = Bags.from_labels(np.concatenate(labels), [K] * 3000, n_classes=3)
    found = BagLikelihood(np.tile(X, (3000, 1)), drawn).evaluate(theta)
    residuals = (found.residuals @ likelihood.basis).reshape(3000, K, 2)
    scores = np.einsum("bke,kj->bje", residuals, likelihood.X1).reshape(3000, 6)
    variance = scores.T @ scores / 3000
    expected = rows[0].T @ rows[0]
    assert np.abs(variance - expected).max() < 0.1 * np.diagonal(expected).max()


def test_intervals_hold_the_truth_as_often_as_they_should() -> None:
    truth = np.random.default_rng(0).normal(size=(3, 2))
    truth -= truth.mean(axis=1, keepdims=True)
    held = []
    for seed in range(60):
        X, bags, _ = generated(100 + seed, [8] * 50, 2)
        fit = fit_for_intervals(X, bags, fit_linear(X, bags))
        found = covariance(X, bags, fit)
        held.append(abs(fit.weights - truth) < found.quantile() * found.standard_errors()[0])
    assert 0.89 < np.mean(held) <= 0.99


def test_errors_of_group_shares_follow_the_delta_method() -> None:
    X, bags, _ = generated(24, [5] * 60, 3)
    fit = fit_with_variance(X, bags)
    found = covariance(X, bags, fit)
    groups = np.arange(len(X)) % 2
    shares, errors = found.group_shares(X, groups, n_groups=3)
    assert shares[:2].sum(axis=1) == pytest.approx(1)
    assert np.isnan(shares[2]).all()
    gradient = np.empty((4, 3))
    for i in np.ndindex(4, 3):
        moved = []
        for sign in (1, -1):
            step = np.zeros((4, 3))
            step[i] = sign * 1e-5
            other = replace(fit, weights=fit.weights + step[:3], intercept=fit.intercept + step[3])
            moved.append(other.probabilities(X[groups == 1])[:, 2].mean())
        gradient[i] = (moved[0] - moved[1]) / 2e-5
    assert errors[1, 2] == pytest.approx(found.error_of(gradient), rel=1e-4)


def test_too_many_coefficients_have_no_covariance() -> None:
    X = np.zeros((4, 2000))
    bags = Bags([2, 2], [[1, 1], [1, 1]])
    with pytest.raises(ValueError, match="2001 free coefficients; covariances are available up to"):
        covariance(X, bags, fit_linear(X, bags))


@pytest.mark.parametrize("C", [2, 3, 4])
def test_bag_effects_are_integrated_over(C: int) -> None:
    X, bags, _ = generated(25, [3, 5, 8, 1], C)
    fit = replace(fit_linear(X, bags), bag_effects=0.8)
    rng = np.random.default_rng(26)
    drawn = []
    for _ in range(2000):
        shift = 0.8 * rng.normal(size=C)
        moved = replace(fit, bag_effects=0.0, intercept=fit.intercept + shift - shift.mean())
        drawn.append(bag_log_likelihoods(moved, X, bags))
    expected = np.log(np.exp(drawn).mean(axis=0))
    assert bag_log_likelihoods(fit, X, bags) == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize(("C", "close"), [(2, 1e-5), (3, 1e-3), (4, 0.1)])
def test_gradients_with_bag_effects_are_those_of_finite_differences(C: int, close: float) -> None:
    X, bags, _ = generated(27, [2, 6, 9], C)
    likelihood = BagLikelihood(X, bags)
    problem = Problem(likelihood, ridge=0.5)
    theta = np.random.default_rng(1).normal(size=(4, C - 1))
    point = problem.at(theta, 0.7)
    for i in np.ndindex(theta.shape):
        step = np.zeros(theta.shape)
        step[i] = 1e-5
        slope = (problem.at(theta + step, 0.7).value - problem.at(theta - step, 0.7).value) / 2e-5
        assert point.gradient[i] == pytest.approx(slope, abs=close)
    assert point.found.squares is not None
    by_log_tau = 3 * (C - 1) - point.found.squares.sum() / 0.7**2
    up, down = (problem.at(theta, 0.7 * np.exp(h)).value for h in (1e-5, -1e-5))
    assert by_log_tau == pytest.approx((up - down) / 2e-5, abs=close)


def test_effects_that_bags_have_are_found_and_predict_new_bags_better() -> None:
    X, bags, _ = generated(28, [5, 20, 40] * 20, 2, tau=1.0)
    found = choose_bag_effects(X, bags)
    assert found.differ
    assert 0.6 < found.tau < 1.4
    new, _, labels = generated(29, [20] * 100, 2, tau=1.0)
    rows = np.arange(len(labels))
    losses = [
        -np.log(fit.probabilities(new)[rows, labels]).mean()
        for fit in (found.fit, found.without.fit)
    ]
    assert losses[0] < losses[1] - 0.005
    known = found.fit.probabilities(X, bags.bag_of_row)
    expected = np.add.reduceat(known, bags.offsets[:-1])
    plain = np.add.reduceat(found.fit.probabilities(X), bags.offsets[:-1])
    assert np.abs(expected - bags.counts).sum() < 0.5 * np.abs(plain - bags.counts).sum()


def test_effects_that_bags_do_not_have_are_not_found() -> None:
    X, bags, _ = generated(30, [5, 20] * 20, 2)
    found = choose_bag_effects(X, bags)
    assert not found.differ
    assert found.tau < 0.3
    assert found.gain > -0.005
