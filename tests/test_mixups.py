"""Bag ids in the place of labels: refused or warned about, with the call that is meant."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import BagKFold, LLPClassifier, bag_scorer

X, y = load_iris(return_X_y=True)
BAGS = 5 + np.random.default_rng(0).permutation(150) // 10  # 5 .. 19: encoded, another bag's id
SHARES = {b: np.bincount(y[b == BAGS], minlength=3) / 10 for b in range(5, 20)}
SHARES |= {b: np.full(3, 1 / 3) for b in range(5)}  # bags that have no rows here
RATES = {"lr": [1e-6, 1e-2]}


def quick(**options: Any) -> LLPClassifier:
    return LLPClassifier(**{"model": "linear", "epochs": 10, "random_state": 0, **options})


def in_pipeline() -> Any:
    return make_pipeline(StandardScaler(), quick())


@pytest.mark.parametrize("ids", [BAGS, [f"ward {b}" for b in BAGS], BAGS // 2, np.arange(150) // 3])
@pytest.mark.parametrize("model", [quick(epochs=1), make_pipeline(quick(epochs=1))])
def test_ids_without_proportions_are_warned_about(model: Any, ids: Any) -> None:
    remedy = r"bag ids, .*fit\(X, bags, proportions\).*llpclassifier__proportions"
    with pytest.warns(UserWarning, match=remedy):
        clone(model).fit(X, ids)


def test_labels_are_not_warned_about() -> None:
    pixels, digits = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(epochs=1).fit(pixels, digits)
        quick(epochs=1).fit(X, y)


@pytest.mark.parametrize("wards", [BAGS, np.array([f"w{b}" for b in BAGS]), BAGS.tolist()])
def test_labels_and_ids_instead_of_ids_and_proportions_are_named(wards: Any) -> None:
    with pytest.raises(ValueError, match=r"[Tt]he order is fit\(X, bags, proportions\)"):
        quick().fit(X, y, wards)


@pytest.mark.parametrize("proportions", [SHARES, pd.DataFrame(SHARES).T])
def test_proportions_before_ids_are_named(proportions: Any) -> None:
    with pytest.raises(ValueError, match=r"second, and the proportions third"):
        quick().fit(X, proportions, BAGS)
    with pytest.raises(ValueError, match=r"second, and the proportions third"):
        quick(epochs=1).fit(X, BAGS, SHARES).bag_score(X, proportions, BAGS)


COUNTED = {b: np.bincount(y[b == BAGS], minlength=3) for b in range(5, 20)}


def test_encoded_ids_are_refused_where_proportions_do_not_know_them() -> None:
    with pytest.raises(ValueError, match="does not know bag 0"):
        cross_val_predict(
            quick(),
            X,
            BAGS,
            cv=BagKFold(3),
            method="predict_proba",
            params={"proportions": COUNTED},
        )


@pytest.mark.parametrize("method", ["predict_proba", "decision_function"])
def test_ids_beside_y_are_not_encoded(method: str) -> None:
    found = cross_val_predict(
        quick(),
        X,
        groups=BAGS,
        cv=BagKFold(3),
        method=method,
        params={"bags": BAGS, "proportions": SHARES},
    )
    expected = np.empty((150, 3))
    for train, test in BagKFold(3).split(X, BAGS):
        model = quick().fit(X[train], BAGS[train], SHARES)
        expected[test] = getattr(model, method)(X[test])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_pipeline_takes_ids_beside_y() -> None:
    params = {"llpclassifier__bags": BAGS, "llpclassifier__proportions": SHARES}
    how: dict[str, Any] = {"groups": BAGS, "cv": BagKFold(3), "params": params}
    found = cross_val_predict(in_pipeline(), X, method="predict_proba", **how)
    assert found.shape == (150, 3)


def test_predicted_classes_of_cross_validation_need_nothing_special() -> None:
    found = cross_val_predict(quick(), X, BAGS, cv=BagKFold(3), params={"proportions": SHARES})
    beside = cross_val_predict(
        quick(), X, groups=BAGS, cv=BagKFold(3), params={"bags": BAGS, "proportions": SHARES}
    )
    assert (found == beside).all()


def test_a_search_by_its_own_score_refuses_ids() -> None:
    with pytest.raises(ValueError, match=r"scoring=bag_scorer\(proportions\)"):
        cross_validate(
            quick(),
            X,
            BAGS,
            cv=BagKFold(3),
            params={"proportions": SHARES},
            error_score="raise",
        )


@pytest.mark.parametrize("scoring", [bag_scorer(SHARES), {"bags": bag_scorer(SHARES)}])
def test_a_search_by_bags_chooses_the_better_candidate(scoring: Any) -> None:
    refit = "bags" if isinstance(scoring, dict) else True
    search = GridSearchCV(quick(), RATES, cv=BagKFold(3), scoring=scoring, refit=refit)
    assert search.fit(X, BAGS, proportions=SHARES).best_params_ == {"lr": 1e-2}


@pytest.mark.parametrize("cv", [3, KFold(3, shuffle=True, random_state=0)])
def test_folds_that_split_bags_are_refused_where_counts_show_it(cv: Any) -> None:
    how: dict[str, Any] = {"cv": cv, "params": {"proportions": COUNTED}}
    message = r"sum to 10.*counts must sum to its \d rows"
    with pytest.raises(ValueError, match=message):
        cross_val_score(quick(), X, BAGS, scoring=bag_scorer(SHARES), error_score="raise", **how)
    with pytest.raises(ValueError, match=message):
        cross_val_predict(quick(), X, pd.Series(BAGS), **how)


@pytest.mark.parametrize("cv", [BagKFold(3), GroupKFold(3)])
def test_a_fit_inside_another_estimator_has_ids_of_its_own(cv: Any) -> None:
    class Inside(LLPClassifier):
        def fit(self, X: Any, y: Any) -> Inside:
            bags = np.arange(len(X)) // 10
            super().fit(X, bags, pd.crosstab(bags, y))
            return self

    scores = cross_val_score(Inside("cc", "linear", epochs=1), X, y, groups=BAGS, cv=cv)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("cv", [BagKFold(3), GroupKFold(3)])
def test_true_labels_may_score_what_was_learned_from_bags_beside_them(cv: Any) -> None:
    params = {"bags": BAGS, "proportions": SHARES}
    found = cross_val_score(quick(lr=1e-2), X, y, groups=BAGS, cv=cv, params=params)
    expected = []
    for train, test in GroupKFold(3).split(X, groups=BAGS):
        model = quick(lr=1e-2).fit(X[train], BAGS[train], SHARES)
        expected.append(model.score(X[test], y[test]))
    assert found.tolist() == expected


def test_score_refuses_ids_and_takes_labels() -> None:
    model = quick().fit(X, BAGS, SHARES)
    assert 0 <= model.score(X, y) <= 1
    message = r"not classes of the model.*bag_score.*scoring=bag_scorer"
    for ids in (BAGS, BAGS - 5, [f"w{b}" for b in BAGS], pd.Series(BAGS)):
        with pytest.raises(ValueError, match=message):
            model.score(X, ids)
    pipeline = in_pipeline().fit(X, BAGS, llpclassifier__proportions=SHARES)
    with pytest.raises(ValueError, match=message):
        pipeline.score(X, BAGS)


def test_a_loaded_model_refuses_ids_too(tmp_path: Any) -> None:
    quick(epochs=1).fit(X, BAGS, SHARES).save(tmp_path / "model")
    with pytest.raises(ValueError, match="not classes of the model"):
        LLPClassifier.load(tmp_path / "model").score(X, BAGS)


def test_after_supervised_learning_an_unknown_label_is_a_mistake_of_the_model() -> None:
    model = quick(lr=1e-2).fit(X[:100], y[:100])
    assert model.score(X, y) <= 100 / 150


def test_bags_by_name_are_the_same_and_need_proportions() -> None:
    expected = quick().fit(X, BAGS, SHARES).predict_proba(X)
    for given in (None, y):
        found = quick().fit(X, given, bags=BAGS, proportions=SHARES).predict_proba(X)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="bags are given without proportions"):
        quick().fit(X, y, bags=BAGS)
    with pytest.raises(ValueError, match="y"):
        quick().fit(X)


def test_bag_score_says_that_ids_need_proportions() -> None:
    with pytest.raises(ValueError, match=r"label 1\d, which.*give the proportions too"):
        quick(epochs=1).fit(X, BAGS, SHARES).bag_score(X, np.maximum(BAGS, 10))


@pytest.mark.parametrize("proportions", [SHARES, pd.DataFrame(SHARES).T])
def test_metadata_routing_hands_proportions_over_whole(proportions: Any) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = quick()  # it asks for bags and proportions by itself
        search = GridSearchCV(model, RATES, cv=BagKFold(3), scoring=bag_scorer(SHARES))
        assert search.fit(X, BAGS, proportions=proportions).best_params_ == {"lr": 1e-2}
        found = cross_val_predict(
            model,
            X,
            cv=BagKFold(3),
            method="predict_proba",
            params={"proportions": proportions, "bags": BAGS, "groups": BAGS},
        )
    expected = cross_val_predict(
        quick(),
        X,
        groups=BAGS,
        cv=BagKFold(3),
        method="predict_proba",
        params={"proportions": SHARES, "bags": BAGS},
    )
    np.testing.assert_array_equal(found, expected)


def test_a_request_can_be_taken_back() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(row_labels=False, labels_are=None)
        asked = model.get_metadata_routing().fit.requests
    assert asked["bags"] is asked["proportions"] is True
    assert (asked["row_labels"], asked["labels_are"]) == (False, None)


def test_a_table_that_cross_validation_has_cut_like_the_rows_is_named() -> None:
    as_many = SHARES | {b: np.full(3, 1 / 3) for b in range(20, 150)}  # 150 bags, 150 rows
    for proportions in (as_many, pd.DataFrame(as_many).T.iloc[::-1]):
        with pytest.raises(ValueError, match=r"cuts such a table like the rows"):
            cross_val_score(
                quick(),
                X,
                BAGS,
                cv=BagKFold(3),
                scoring=bag_scorer(SHARES),
                params={"proportions": proportions},
                error_score="raise",
            )


def test_folds_are_of_groups_where_they_are_given() -> None:
    for train, test in BagKFold(3).split(X, y, BAGS):
        assert not set(BAGS[train]) & set(BAGS[test])
    with pytest.raises(ValueError, match="needs the bag of each row"):
        next(BagKFold(3).split(X))


FRAME = pd.DataFrame(X, index=[f"flower {i}" for i in range(150)])
IDS = pd.Series(BAGS, index=FRAME.index)
OTHER_ROWS = "have different indexes .* combined by position"


def test_pandas_objects_whose_rows_are_in_another_order_are_warned_about() -> None:
    shuffled = FRAME.sample(frac=1, random_state=0)
    model = LLPClassifier(model="linear", epochs=1)
    with pytest.warns(UserWarning, match=f"rows of X and y {OTHER_ROWS}") as found:
        model.fit(shuffled, IDS, SHARES)
    assert found[0].filename == __file__
    labels = pd.Series([None] * 150, index=shuffled.index, dtype=object)
    calls = [
        lambda: model.fit(FRAME, proportions=SHARES, bags=IDS.sample(frac=1, random_state=1)),
        lambda: model.fit(FRAME, IDS, SHARES, row_labels=labels),
        lambda: model.bag_score(shuffled, IDS, SHARES),
        lambda: model.label_bags(shuffled, IDS, SHARES),
        lambda: model.score(shuffled, pd.Series(y, index=FRAME.index)),
        lambda: bag_scorer(SHARES)(model, shuffled, IDS),
        lambda: model.fit(FRAME, IDS, SHARES, (shuffled, IDS, SHARES)),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match=OTHER_ROWS) as found:
            call()
        assert found[0].filename == __file__
    numbered = FRAME.reset_index(drop=True)
    with pytest.warns(UserWarning, match=OTHER_ROWS):  # the names are the same numbers
        model.fit(numbered.sample(frac=1, random_state=0), pd.Series(BAGS), SHARES)


def test_rows_in_the_same_order_or_only_numbered_are_not_warned_about() -> None:
    model = LLPClassifier(model="linear", epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(FRAME, IDS, SHARES)
        model.fit(FRAME, IDS.reset_index(drop=True), SHARES)
        model.fit(FRAME, IDS.to_numpy(), SHARES)
        model.fit(FRAME, list(IDS), SHARES)
        model.label_bags(FRAME.to_numpy(), IDS, SHARES)
