from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise
from bagwise import BagLogisticRegression, InputError, LLPClassifier


@pytest.fixture(scope="module")
def wine() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:176]
    X, y = X[order], y[order]
    bags = np.arange(176) // 8
    counts = np.stack([np.bincount(y[bags == b], minlength=3) for b in range(22)])
    return X, y, bags, counts


@parametrize_with_checks([BagLogisticRegression()])
def test_it_keeps_scikit_learns_contract(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def test_it_is_the_linear_model_of_fit() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=400) > 0).astype(int)
    bags = np.arange(400) // 10
    counts = np.stack([np.bincount(bags, y == c) for c in range(2)], axis=1)
    ours = BagLogisticRegression().fit(X, bags, counts)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = pd.DataFrame(counts, columns=["0", "1"]).rename_axis("bag").reset_index()
    model = bagwise.fit(table.assign(bag=bags), "bag", labels, model="linear", progress=False)
    np.testing.assert_allclose(ours.predict_proba(X), model.predict_proba(table), atol=5e-3)
    assert ours.temperature_ == 1


def test_a_ridge_that_is_given_is_that_of_llp_classifier(wine: tuple[np.ndarray, ...]) -> None:
    X, _, bags, counts = wine
    other = LLPClassifier(model="linear").fit(X, bags, counts)
    one = BagLogisticRegression(other.likelihood_.ridge).fit(X, bags, counts)
    logits = one.decision_function(X) / other.temperature_
    # Columns are standardized in single precision there, and a fit ends within a tolerance.
    np.testing.assert_allclose(softmax(logits, axis=1), other.predict_proba(X), atol=0.01)


def test_predictions_are_means_over_coefficients_that_bags_leave_open() -> None:
    """Five bags do not tell twenty coefficients: no row is predicted with confidence."""
    rng = np.random.default_rng(1)
    X, bags = rng.normal(size=(100, 20)), np.arange(100) // 20
    counts = np.array([[12, 8], [3, 17], [9, 11], [16, 4], [10, 10]])
    p = BagLogisticRegression().fit(X, bags, counts).predict_proba(X)
    alone = BagLogisticRegression(1e-3).fit(X, bags, counts).predict_proba(X)
    assert p.max() < 0.95 < alone.max()
    assert p.mean(axis=0)[1] == pytest.approx(0.5, abs=0.05)


def test_bags_of_one_are_penalized_logistic_regression() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X[:, :4])
    found = BagLogisticRegression(ridge=2.0, standardize=False).fit(X, y)
    # Bagwise penalizes both classes' weights, w and -w: ridge / 2 (w^2 + w^2) for a difference 2 w.
    known = LogisticRegression(C=2 / 2.0, tol=1e-10, max_iter=10_000).fit(X, y)
    # A fit ends when it is within a hundredth of a standard error.
    np.testing.assert_allclose(found.coef_, known.coef_, atol=5e-3)
    np.testing.assert_allclose(found.intercept_, known.intercept_, atol=5e-3)


def test_coefficients_are_in_the_units_of_x(wine: tuple[np.ndarray, ...]) -> None:
    X, _, bags, counts = wine
    model = BagLogisticRegression(ridge=1.0).fit(X, bags, counts)
    logits = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(logits, model.decision_function(X), rtol=1e-9, atol=1e-9)
    scaled = BagLogisticRegression(ridge=1.0).fit(100 * X, bags, counts)
    np.testing.assert_allclose(100 * scaled.coef_, model.coef_, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(100 * scaled.conf_int(), model.conf_int(), rtol=1e-3, atol=1e-6)


def test_intervals_hold_the_truth() -> None:
    rng, held = np.random.default_rng(0), 0
    for _ in range(40):
        X = rng.normal(size=(600, 2))
        p = 1 / (1 + np.exp(-(X @ [1.0, -0.5] + 0.3)))
        y = (rng.random(600) < p).astype(int)
        bags = rng.permutation(600) // 6
        counts = np.stack([np.bincount(y[bags == b], minlength=2) for b in range(100)])
        ends = BagLogisticRegression(ridge=1.0).fit(X, bags, counts).conf_int()[0]
        true = np.array([1.0, -0.5])
        held += int(((ends[:, 0] < true) & (ends[:, 1] > true)).sum())
    assert 70 <= held <= 80  # of 80; 76 are to be expected


def test_labels_of_bags_have_their_counts(wine: tuple[np.ndarray, ...]) -> None:
    X, y, bags, counts = wine
    model = BagLogisticRegression().fit(X, bags, counts)
    p, labels = model.label_bags(X, bags, counts)
    for b in range(22):
        np.testing.assert_array_equal(np.bincount(labels[bags == b], minlength=3), counts[b])
        np.testing.assert_allclose(p[bags == b].sum(axis=0), counts[b], atol=1e-6)
    assert (labels == y).mean() > 0.95
    assert model.bag_score(X, bags, counts) > -0.2


def test_it_can_be_cloned_and_searched(wine: tuple[np.ndarray, ...]) -> None:
    X, y, bags, counts = wine
    model = BagLogisticRegression(ridge=3.0, random_state=1)
    assert clone(model).get_params() == model.get_params()
    assert clone(model).fit(X, bags, counts).score(X, y) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ridge": -1.0}, "ridge is -1.0"), ({"ridge": "none"}, "ridge is 'none'")],
)
def test_wrong_parameters_are_named(
    wine: tuple[np.ndarray, ...], options: dict[str, object], message: str
) -> None:
    X, _, bags, counts = wine
    with pytest.raises(InputError, match=message):
        BagLogisticRegression(**options).fit(X, bags, counts)  # type: ignore[arg-type]


def test_bags_and_proportions_in_each_others_place_are_told_apart(
    wine: tuple[np.ndarray, ...],
) -> None:
    X, _, bags, _ = wine
    with pytest.raises(InputError, match="the bag id of each row is expected second"):
        BagLogisticRegression().fit(X, {"a": [1, 2]}, bags)  # type: ignore[arg-type]
