"""A model trained step by step is not surer than held-out bags allow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from torch import nn

from bagwise import Bags, LLPClassifier
from bagwise.likelihood.temperature import fit_temperature
from bagwise.training.temperature import divide_logits

N, K = 700, 50
X, Y = make_classification(
    1200, 20, n_informative=5, flip_y=0.3, weights=[0.7], random_state=0, shuffle=True
)
BAGS = np.arange(N) // K
COUNTS = np.stack([np.bincount(Y[:N][b == BAGS], minlength=2) for b in range(N // K)])


@pytest.fixture(scope="module")
def fitted() -> LLPClassifier:
    return LLPClassifier(random_state=0).fit(X[:N], BAGS, COUNTS)


@pytest.fixture(scope="module")
def plain() -> LLPClassifier:
    return LLPClassifier(random_state=0, validation_fraction=0).fit(X[:N], BAGS, COUNTS)


def test_few_bags_make_no_perceptron_surer_than_the_overall_shares(
    fitted: LLPClassifier, plain: LLPClassifier
) -> None:
    shares = np.tile(COUNTS.sum(0) / N, (len(X) - N, 1))
    constant = log_loss(Y[N:], shares)
    assert plain.temperature_ == 1
    assert fitted.temperature_ > 1
    assert log_loss(Y[N:], plain.predict_proba(X[N:])) > constant + 0.1
    assert log_loss(Y[N:], fitted.predict_proba(X[N:])) < constant + 0.02


def test_the_last_layer_divides_what_differs_from_the_shares(
    fitted: LLPClassifier, plain: LLPClassifier
) -> None:
    counts = COUNTS.sum(0) + 0.5
    middle = np.diff(np.log(counts))
    expected = middle + (plain.decision_function(X) - middle) / fitted.temperature_
    np.testing.assert_allclose(fitted.decision_function(X), expected, rtol=1e-3, atol=1e-4)


def test_towards_shares_an_uninformed_model_becomes_hot() -> None:
    rng = np.random.default_rng(0)
    bags = Bags.from_labels((rng.random(2000) < 0.2).astype(int), [20] * 100)
    sure = log_softmax(rng.normal(0, 4, size=(2000, 2)), axis=-1)
    assert fit_temperature(sure, bags, np.array([0.8, 0.2])) > 20


def test_towards_shares_no_model_becomes_surer() -> None:
    labels = np.random.default_rng(0).integers(2, size=200)
    bags = Bags.from_labels(labels, [10] * 20)
    unsure = log_softmax(np.eye(2)[labels], axis=-1)  # right, and not sure enough
    assert fit_temperature(unsure, bags) < 0.5
    assert fit_temperature(unsure, bags, np.array([0.5, 0.5])) == 1


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(2, 2), nn.Softplus()),
        nn.Sequential(nn.Linear(2, 2, bias=False)),
        nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Conv1d(1, 1, 1)),
        nn.Flatten(),
    ],
)
def test_a_model_that_cannot_divide_stays_as_it_was(model: nn.Module) -> None:
    example = torch.ones(1, 2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert not divide_logits(model, 2.0, example, np.array([0.3, 0.7]))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
