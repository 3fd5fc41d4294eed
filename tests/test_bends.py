from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax

from bagwise import Bags
from bagwise.data import BagData
from bagwise.estimator import LLPClassifier
from bagwise.estimator import network_candidates as tuning
from bagwise.likelihood import fit_linear
from bagwise.likelihood.nonlinearity import may_be_nonlinear, nonlinearity_scores
from bagwise.likelihood.objective import BagLikelihood
from bagwise.likelihood.splits import splits_of
from bagwise.limits import Limits
from bagwise.storage.journal import Workspace
from bagwise.tables.search.candidate import Trial, choose
from bagwise.tables.search.linear_candidates import linear_trials
from bagwise.tables.search.step_by_step import StepByStep
from bagwise.tables.sort.encoded_bags import EncodedBags
from oracles import Floats


def generated(seed: int, C: int, B: int = 200, K: int = 6) -> tuple[Floats, Bags]:
    """Bags of a linear model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(B * K, 3))
    p = softmax(X @ np.random.default_rng(1).normal(size=(3, C)), axis=1)
    labels = (p.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    return X, Bags.from_labels(labels, [K] * B, n_classes=C)


def of_product(seed: int, strength: float, B: int = 400, K: int = 5) -> tuple[Floats, Bags]:
    """Bags of a linear model and the product of two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(B * K, 4))
    y = rng.random(B * K) < expit(1.5 * X[:, 2] + strength * X[:, 0] * X[:, 1])
    return X, Bags.from_labels(y.astype(int), [K] * B)


def test_scores_are_slopes_of_the_likelihood_with_one_more_column() -> None:
    X, bags = generated(0, 3)
    fit = fit_linear(X, bags)
    found = nonlinearity_scores(X, bags, fit)
    assert found is not None
    clipped = np.clip(X, -3, 3)

    def slopes(column: Floats) -> Floats:
        """(B, 2) derivatives of each bag's log-likelihood by the coefficients of a column."""
        likelihood = BagLikelihood(np.column_stack([X, column]), bags)
        theta = np.vstack([fit.weights, np.zeros(3), fit.intercept]) @ likelihood.basis
        parts = []
        for e in range(2):
            step = np.zeros(theta.shape)
            step[3, e] = 1e-5
            up, down = (likelihood.evaluate(theta + s * step).log_likelihood for s in (1, -1))
            parts.append((up - down) / 2e-5)
        return np.stack(parts, axis=1)

    linear = np.concatenate([slopes(x) for x in (*X.T, np.ones(len(X)))], axis=1)
    expected = []
    for i in range(3):
        products = [clipped[:, i] * clipped[:, j] for j in range(i, 3)]
        ours = np.stack([slopes(h) for h in (*products, clipped[:, i] ** 3)], axis=2)
        s = ours.reshape(len(bags), -1)  # the coordinates of the classes one after the other
        e = s - linear @ np.linalg.lstsq(linear, s, rcond=None)[0]
        expected.append(e.sum(axis=0) / np.sqrt((e**2).sum(axis=0)))
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-4)


@pytest.mark.parametrize("C", [2, 3])
def test_scores_of_a_linear_truth_are_standard_normal(C: int) -> None:
    scores = []
    for seed in range(40):
        X, bags = generated(seed, C, B=800)
        found = nonlinearity_scores(X, bags, fit_linear(X, bags, ridge=0.1))
        assert found is not None
        assert not may_be_nonlinear(found)
        scores.append(found)
    z = np.concatenate(scores)
    assert abs(z.mean()) < 0.25
    assert 0.8 < (z**2).mean() < 1.2


def test_a_product_of_two_columns_is_seen() -> None:
    X, bags = of_product(0, 1.5)
    scores = nonlinearity_scores(X, bags, fit_linear(X, bags))
    assert scores is not None
    assert may_be_nonlinear(scores)
    assert np.abs(scores).argmax() == 1  # the first is the square of the first column
    assert np.sort(np.abs(scores))[-2] < 5


def test_columns_of_two_values_have_no_squares() -> None:
    X, bags = of_product(0, 0.0)
    X[:, 0] = np.sign(X[:, 0])
    scores = nonlinearity_scores(X, bags, fit_linear(X, bags))
    assert scores is not None
    assert len(scores) == 4 * 5 // 2 + 4 - 2  # neither its square nor its cube


def test_few_bags_many_columns_and_one_class_say_nothing() -> None:
    X, bags = generated(0, 2, B=19)  # five bags a coefficient are 20
    assert nonlinearity_scores(X, bags, fit_linear(X, bags)) is None
    wide = np.zeros((6000, 201))
    wide[:, 0] = np.arange(6000) / 6000
    bags = Bags([1] * 6000, np.eye(2, dtype=int)[np.arange(6000) % 2])
    assert nonlinearity_scores(wide, bags, fit_linear(wide, bags, max_evaluations=500)) is None
    one = Bags([1] * 6000, np.ones((6000, 1), dtype=int))
    assert (
        nonlinearity_scores(X[:1].repeat(6000, 0), one, fit_linear(X[:1].repeat(6000, 0), one))
        is None
    )
    assert may_be_nonlinear(None)


@pytest.mark.parametrize("strength", [0.0, 1.5])
def test_a_perceptron_behind_the_linear_model_goes_on_only_where_something_bends(
    strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, bags = of_product(1, strength, B=2000)
    data = EncodedBags(X.astype(np.float32), bags)
    splits = splits_of(bags, seed=0, limits=Limits(cross_validated=0))
    rival = linear_trials(data, splits, Workspace(None, {}))[0]
    assert rival.log_probs is not None
    asked = []

    def a_little_worse(
        tried: LLPClassifier, data: BagData, split: tuning.Split, *_: object
    ) -> dict:
        """As if training had found the linear model, but for a smaller slope."""
        assert rival.log_probs is not None
        log_probs = log_softmax(0.7 * rival.log_probs[data.bags.rows(split[1])], axis=-1)
        asked.append(tried.epochs)
        part = data.bags.select(split[1])
        loss = -tuning.log_likelihoods(log_probs, part).sum() / part.n_instances
        return {"curve": np.array([loss]), "log_probs": log_probs[None]}

    monkeypatch.setattr(tuning, "train_fold", a_little_worse)
    classes, work = np.array(["0", "1"]), Workspace(None, {})
    search = tuning.Search(StepByStep(), data, classes, splits, work)
    tried = search.trials("mlp", rival)
    assert (tried[0].log_probs is not None) == (strength > 0)
    assert len(asked) == len(tuning.RATES["mlp"]) + (strength > 0)


@pytest.mark.parametrize("strength", [0.0, 1.5])
@pytest.mark.parametrize("errors", [0.5, 1.5, 2.5])
def test_a_perceptron_is_taken_only_if_it_is_better_by_more_than_chance(
    strength: float, errors: float
) -> None:
    X, bags = of_product(1, strength, B=400)
    data = EncodedBags(X.astype(np.float32), bags)
    linear = linear_trials(data, splits_of(bags, seed=0), Workspace(None, {}))[0]
    noise = np.random.default_rng(0).normal(size=len(bags))
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    gains = noise + errors / np.sqrt(len(bags))  # so many standard errors
    mlp = Trial("mlp", linear.bag_loss - 0.01, linear.of_bags + gains, linear.log_probs)
    taken = choose([linear, mlp], data)[0].model
    assert taken == ("mlp" if errors > 2 or (errors > 1 and strength > 0) else "linear")
