"""LLPClassifier on several groupings of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone

from bagwise import BagData, Bags, Groupings, LLPClassifier, bag_posterior
from bagwise.errors import InputError
from bagwise.estimator.bag_folds import split_bags
from bagwise.likelihood import fit_joint
from bagwise.likelihood.choose_linear import choose_linear

N = 240
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.argmax(1.5 * X + 0.5 * RNG.gumbel(size=X.shape), axis=1)
WARD, AGE = np.arange(N) // 12, RNG.permutation(N) // 16


def counts_of(bags: np.ndarray) -> dict[int, np.ndarray]:
    return {int(b): np.bincount(Y[bags == b], minlength=3) for b in np.unique(bags[bags >= 0])}


BOTH, COUNTS = [WARD, AGE], [counts_of(WARD), counts_of(AGE)]


@pytest.fixture(scope="module")
def joint() -> LLPClassifier:
    return LLPClassifier(model="linear").fit(X, BOTH, COUNTS)


def test_the_linear_model_is_fitted_by_maximum_likelihood(joint: LLPClassifier) -> None:
    composite = LLPClassifier(model="linear", joint=False).fit(X, BOTH, COUNTS)
    Z, groupings = (X - X.mean(axis=0)) / X.std(axis=0), _groupings(WARD, AGE)
    rows, bags = groupings.stacked()
    chosen = choose_linear(Z[rows], bags, rows=rows)
    of_all = fit_joint(Z, groupings, chosen.fit.ridge, start=chosen.fit)
    for model, fit in ((joint, of_all), (composite, chosen.fit)):
        expected = softmax(fit.logits(Z) / chosen.temperature, axis=1)
        np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-5)
    alone = LLPClassifier(model="linear").fit(X, WARD, COUNTS[0])
    assert not np.allclose(joint.coef_, composite.coef_, atol=1e-3)
    assert joint.score(X, Y) >= alone.score(X, Y) - 0.03
    assert joint.likelihood_ is not None


@pytest.mark.parametrize(
    ("bags", "proportions"),
    [
        ({"ward": WARD, "age": AGE}, {"ward": COUNTS[0], "age": COUNTS[1]}),
        (
            [WARD.tolist(), pd.Series(AGE)],
            (pd.DataFrame(COUNTS[0]).T, np.stack([*COUNTS[1].values()])),
        ),
    ],
    ids=["by name", "other forms"],
)
def test_forms_of_groupings_mean_the_same(
    bags: Any, proportions: Any, joint: LLPClassifier
) -> None:
    found = LLPClassifier(model="linear").fit(X, bags, proportions)
    np.testing.assert_allclose(found.predict_proba(X), joint.predict_proba(X), atol=1e-6)
    by_keyword = LLPClassifier(model="linear").fit(X, bags=bags, proportions=proportions)
    np.testing.assert_allclose(by_keyword.predict_proba(X), found.predict_proba(X))


@pytest.mark.parametrize("missing", [-1, None, np.nan])
def test_rows_may_be_in_no_bag_of_a_grouping(missing: Any) -> None:
    some = AGE.astype(object)
    some[::7] = missing
    if missing == -1:
        some = some.astype(int)
    known = np.where(np.arange(N) % 7, AGE, -1)
    found = LLPClassifier(model="linear").fit(X, [WARD, some], [COUNTS[0], counts_of(known)])
    assert found.score(X, Y) > 0.6


@pytest.mark.parametrize("method", ["cc", "rc"])
def test_steps_learn_jointly(method: str) -> None:
    model = LLPClassifier(method, "linear", epochs=15, joint=True, random_state=0)
    model.fit(X, BOTH, COUNTS)
    again = clone(model).fit(X, BOTH, COUNTS)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert model.score(X, Y) > 0.6
    others = [clone(model).set_params(joint=joint).fit(X, BOTH, COUNTS) for joint in (False, None)]
    one_by_one, default = (other.predict_proba(X) for other in others)
    assert not np.allclose(model.predict_proba(X), one_by_one)
    np.testing.assert_array_equal(one_by_one, default)


def test_a_perceptron_learns_jointly_with_bags_held_out() -> None:
    model = LLPClassifier(epochs=10, validation_fraction=0.2, joint=True, random_state=0)
    model.fit(X, BOTH, COUNTS)
    assert "val_bag_loss" in model.history_[0]
    assert model.score(X, Y) > 0.55


def test_other_methods_take_groupings_one_by_one() -> None:
    with pytest.raises(InputError, match="joint=False"):
        LLPClassifier("dllp", epochs=1, joint=True).fit(X, BOTH, COUNTS)
    model = LLPClassifier("dllp", epochs=2, random_state=0).fit(X, BOTH, COUNTS)
    assert len(model.history_) == 2


def test_labels_and_scores_are_given_all_counts(joint: LLPClassifier) -> None:
    posterior, labels = joint.label_bags(X, BOTH, COUNTS)
    groupings = Groupings(
        {
            name: (of_row, Bags(np.bincount(of_row), np.stack([*known.values()])))
            for name, of_row, known in zip("ab", BOTH, COUNTS, strict=True)
        }
    )
    log_p = np.log(softmax(joint.decision_function(X), axis=1))
    np.testing.assert_allclose(posterior, bag_posterior(log_p, groupings).weights, atol=1e-5)
    assert (labels == Y).mean() > (joint.predict(X) == Y).mean()
    rows, bags = groupings.stacked()
    expected = bag_posterior(log_p[rows], bags).log_likelihood.sum() / len(rows)
    assert joint.bag_score(X, BOTH, COUNTS) == pytest.approx(expected, abs=1e-5)


def test_validation_may_have_groupings_of_its_own() -> None:
    model = LLPClassifier(model="linear", epochs=3, random_state=0)
    model.fit(X, BOTH, COUNTS, validation=(X, BOTH, COUNTS))
    last = model.history_[model.best_epoch_ - 1]["val_bag_loss"]
    assert last == pytest.approx(min(row["val_bag_loss"] for row in model.history_))


def test_weights_and_groupings_go_together() -> None:
    n = RNG.integers(1, 4, size=N)
    by_ward, by_age = (
        {int(b): np.bincount(Y[o == b], n[o == b], minlength=3) for b in np.unique(o)} for o in BOTH
    )
    one = LLPClassifier(model="linear").fit(X, BOTH, [by_ward, by_age], sample_weight=n)
    other = LLPClassifier(model="linear").fit(
        np.repeat(X, n, axis=0), [np.repeat(o, n) for o in BOTH], [by_ward, by_age]
    )
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-3)


def test_a_saved_model_keeps_how_groupings_were_learned_from(tmp_path: Path) -> None:
    model = LLPClassifier(model="linear", joint=False).fit(X, BOTH, COUNTS)
    model.save(tmp_path / "model")
    loaded = LLPClassifier.load(tmp_path / "model")
    assert loaded.joint is False
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_bags_of_each_grouping_are_held_out() -> None:
    data = BagData.of_groupings(torch.zeros(N, 1), _groupings(WARD, AGE))
    kept, held_out = split_bags(data, 0.2, seed=0)
    assert held_out is not None
    assert [len(g.bags) for g in held_out.groupings or ()] == [4, 3]
    assert [len(g.bags) for g in kept.groupings or ()] == [16, 12]
    assert kept.joint


def test_connected_bags_are_held_out_together() -> None:
    inner = np.arange(N) // 4
    data = BagData.of_groupings(torch.zeros(N, 1), _groupings(inner, inner // 2))
    kept, held_out = split_bags(data, 0.2, seed=0)
    assert held_out is not None
    rows = [set(part.groupings.stacked()[0]) for part in (kept, held_out) if part.groupings]
    assert not rows[0] & rows[1]


def _groupings(*bags_of_rows: np.ndarray) -> Groupings:
    return Groupings(
        {
            str(g): (
                of_row,
                Bags.from_labels(Y[np.argsort(of_row, kind="stable")], np.bincount(of_row)),
            )
            for g, of_row in enumerate(bags_of_rows)
        }
    )
