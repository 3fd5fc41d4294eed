from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from bagwise import Bags
from bagwise.likelihood import bag_folds, choose_ridge, fit_linear
from bagwise.likelihood.objective import BagLikelihood
from oracles import Floats, enumerate_bag


def generated(
    seed: int, sizes: list[int], C: int, d: int = 3, strength: float = 1.0
) -> tuple[Floats, Bags, np.ndarray]:
    """Features, bags and labels of a linear model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), d))
    p = softmax(strength * X @ rng.normal(size=(d, C)) + rng.normal(size=C) / 2, axis=1)
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
    # is penalised half as much as the squares of both.
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
