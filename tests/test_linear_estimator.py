"""LLPClassifier(model="linear"): by maximum likelihood, or step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bagwise import BagData, Bags, LLPClassifier
from bagwise.estimator.maximum_likelihood import fits_by_likelihood
from bagwise.limits import Limits
from bagwise.methods import CC
from bagwise.posterior import log_likelihoods
from bagwise.tables.model.linear_model import LinearModel
from bagwise.training.evaluation import predict_logits
from fitted import fit_table

Array = npt.NDArray[Any]


def blobs(n: int = 400, K: int = 10, centers: int = 2) -> tuple[Array, Array, Array, Array]:
    X, y = make_blobs(n, 3, centers=centers, cluster_std=3, random_state=1)
    bags = np.arange(n) // K
    return X, y, bags, np.stack([np.bincount(y[bags == b], minlength=centers) for b in set(bags)])


X, Y, BAGS, COUNTS = blobs()


@pytest.fixture(scope="module")
def fitted() -> LLPClassifier:
    return LLPClassifier(model="linear").fit(X, BAGS, COUNTS)


def test_the_defaults_agree_with_bagwise_fit(fitted: LLPClassifier, tmp_path: Path) -> None:
    """One has a ridge chosen on held-out bags, the other is a mean over ridges."""
    rows = pd.DataFrame(X).add_prefix("x")
    rows.assign(bag=BAGS).to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame(COUNTS, columns=["a", "b"]).rename_axis("bag").to_csv(tmp_path / "bags.csv")
    table = fit_table(tmp_path / "rows.csv", "bag", tmp_path / "bags.csv", model="linear")
    scaled = StandardScaler().fit_transform(X).astype(np.float32)
    theirs = np.exp(table.log_probs(scaled))
    np.testing.assert_allclose(fitted.predict_proba(X), theirs, atol=0.1)
    assert np.abs(fitted.predict_proba(X) - theirs).mean() < 0.03
    assert isinstance(table.model, LinearModel)
    assert table.model.draws is not None


def test_the_defaults_are_accurate(fitted: LLPClassifier) -> None:
    rows, labels = load_breast_cancer(return_X_y=True)
    bags = np.random.default_rng(0).permutation(len(rows)) // 20
    counts = np.stack([np.bincount(labels[bags == b], minlength=2) for b in range(29)])
    model = LLPClassifier(model="linear").fit(rows, bags, counts)
    assert model.score(rows, labels) > 0.95
    assert fitted.score(X, Y) > 0.95 * LogisticRegression().fit(X, Y).score(X, Y)


def test_chance_plays_no_part(fitted: LLPClassifier) -> None:
    again = LLPClassifier(model="linear").fit(X, BAGS, COUNTS)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_it_says_what_it_is(fitted: LLPClassifier) -> None:
    assert fitted.best_epoch_ is None
    found = fitted.likelihood_
    assert found is not None
    assert found.ridge in [row["ridge"] for row in fitted.history_]
    assert all(set(row) == {"ridge", "val_bag_loss"} for row in fitted.history_)
    assert fitted.temperature_ == 1
    W = fitted.model_[1][-1].weight.detach().double().numpy()  # type: ignore[index]
    loss = -400 * fitted.bag_score(X, BAGS, COUNTS)
    assert found.objective == pytest.approx(loss + found.ridge / 2 * (W**2).sum(), rel=1e-5)


def test_labels_of_rows_alone_are_penalized_logistic_regression() -> None:
    rows, labels = load_iris(return_X_y=True)
    model = LLPClassifier(model="linear", standardize=False)
    scaled = StandardScaler().fit_transform(rows)
    model.fit(scaled, labels)
    assert model.likelihood_ is not None
    oracle = LogisticRegression(C=1 / model.likelihood_.ridge, tol=1e-8, max_iter=10_000)
    oracle.fit(scaled, labels)
    T = model.temperature_
    expected = torch.from_numpy(oracle.decision_function(scaled) / T).softmax(-1)
    np.testing.assert_allclose(model.predict_proba(scaled), expected, atol=0.01)


@pytest.mark.parametrize("centers", [2, 3])
def test_coefficients_are_in_the_units_of_the_rows(centers: int) -> None:
    rows, _, bags, counts = blobs(120, 6, centers)
    model = LLPClassifier(model="linear").fit(rows, bags, counts)
    found = rows @ model.coef_.T + model.intercept_
    assert model.coef_.shape == ((1 if centers == 2 else 3), 3)
    expected = model.decision_function(rows)
    np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=1e-4, atol=1e-4)
    assert not hasattr(LLPClassifier(model="mlp", epochs=1).fit(rows, bags, counts), "coef_")


def test_every_form_of_rows_gives_the_same_model(fitted: LLPClassifier) -> None:
    expected = fitted.predict_proba(X)
    of_sparse = LLPClassifier(model="linear").fit(sparse.csr_array(X), BAGS, COUNTS)
    np.testing.assert_allclose(of_sparse.predict_proba(X), expected, atol=1e-6)
    images = X.reshape(-1, 3, 1, 1)
    of_images = LLPClassifier(model="linear").fit(images, BAGS, COUNTS)
    np.testing.assert_allclose(of_images.predict_proba(images), expected, atol=1e-6)
    np.testing.assert_allclose(of_images.coef_, fitted.coef_, atol=1e-6)
    data = BagData(torch.from_numpy(X), Bags([10] * 40, COUNTS))
    of_data = LLPClassifier(model="linear").fit_bags(data, [0, 1])
    np.testing.assert_array_equal(of_data.predict_proba(X), expected)


def test_images_of_several_pixels_are_flattened() -> None:
    rows, _, bags, counts = blobs(60, 6)
    images = np.repeat(rows[:, :, None, None], 4, axis=-1)
    model = LLPClassifier(model="linear").fit(images, bags, counts)
    assert model.coef_.shape == (1, 12)
    found = images.reshape(60, -1) @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(found.ravel(), model.decision_function(images), atol=1e-4)


def test_known_labels_are_used() -> None:
    rows, labels, *_ = blobs(60, 30)
    same = [[15, 15], [15, 15]]  # which says nothing
    rows, labels = rows[np.argsort(labels, kind="stable")], np.sort(labels)
    known = np.where(np.arange(60) % 4 < 2, labels, None)
    model = LLPClassifier(model="linear").fit(rows, np.arange(60) % 2, same, row_labels=known)
    assert model.likelihood_ is not None
    assert model.score(rows, labels) > 0.7


@pytest.mark.parametrize("n_bags", [1, 2])
def test_one_or_two_bags_have_a_ridge_of_one(n_bags: int) -> None:
    rows, labels = X[:40], Y[:40]
    bags = np.arange(40) % n_bags
    counts = np.stack([np.bincount(labels[bags == b], minlength=2) for b in range(n_bags)])
    model = LLPClassifier(model="linear").fit(rows, bags, counts)
    assert model.likelihood_ is not None
    assert model.likelihood_.ridge == 1
    assert len(model.history_) == n_bags - 1


STEPS: list[dict[str, Any]] = [
    {"epochs": 2},
    {"lr": 1e-3},
    {"weight_decay": 1e-5},
    {"batch_instances": 256},
    {"batch_bags": 8},
    {"schedule": "one_cycle"},
    {"average": 0.9},
    {"patience": 2},
    {"optimizer": "adam"},
    {"optimizer_options": {"amsgrad": True}},
    {"schedule": "step", "schedule_options": {"step_size": 10}},
    {"augment": lambda inputs, generator: inputs},
    {"precision": "bf16"},
    {"accumulate_batches": 2},
    {"compile": False},
    {"validation_fraction": 0.1},
    {"engine": "exact"},
    {"method": "rc"},
    {"method": CC(engine="bethe")},
]


DATA = BagData(torch.from_numpy(X), Bags([10] * 40, COUNTS))


@pytest.mark.parametrize("options", STEPS, ids=lambda options: next(iter(options)))
def test_parameters_of_training_have_it_trained_step_by_step(options: dict[str, Any]) -> None:
    assert not fits_by_likelihood(LLPClassifier(model="linear", **options), DATA)


@pytest.mark.parametrize(
    "options", [{}, {"method": CC()}, {"random_state": 3}, {"standardize": False}]
)
def test_other_parameters_leave_it_to_maximum_likelihood(options: dict[str, Any]) -> None:
    assert fits_by_likelihood(LLPClassifier(model="linear", **options), DATA)


def test_a_number_of_epochs_is_a_number_of_epochs() -> None:
    model = LLPClassifier(model="linear", epochs=2).fit(X, BAGS, COUNTS)
    assert model.likelihood_ is None
    assert len(model.history_) == 2


def test_what_maximum_likelihood_cannot_take_is_trained_until_it_is_as_good(
    fitted: LLPClassifier,
) -> None:
    logits = predict_logits(fitted.model_, DATA.inputs) * fitted.temperature_
    best = float(log_likelihoods(logits.numpy(), DATA.bags).sum()) / len(logits)
    given = LLPClassifier(model="linear", random_state=0).fit(X, BAGS, COUNTS, (X, BAGS, COUNTS))
    small = LLPClassifier(model="linear")
    small._limits = Limits(linear_cells=100)
    assert not fits_by_likelihood(small, DATA)
    assert given.likelihood_ is None
    assert given.bag_score(X, BAGS, COUNTS) > best - 0.005


def test_parameters_that_are_not_given_stay_so() -> None:
    model = LLPClassifier(model="linear")
    params = model.get_params()
    assert params["lr"] is params["epochs"] is params["schedule"] is None
    model.fit(X, BAGS, COUNTS)
    assert model.get_params() == params == clone(model).get_params()
