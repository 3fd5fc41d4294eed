from __future__ import annotations

import json
import re
from inspect import signature
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from bagwise import BagKFold, Bags, LLPClassifier, bag_scorer, most_probable_labeling
from bagwise.estimator.parameters import new_method
from bagwise.labels.targets import bag_targets
from bagwise.methods import CC, METHODS, OT, Method

X, y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
BAGS = np.random.default_rng(0).permutation(150) // 10
COUNTS = np.stack([np.bincount(y[b == BAGS], minlength=3) for b in range(15)])
FRAME = pd.DataFrame(COUNTS, columns=NAMES)


def quick(**options: Any) -> LLPClassifier:
    return LLPClassifier(**{"epochs": 30, "random_state": 0, **options})


def made_by(classifier: LLPClassifier) -> Method:
    return new_method(classifier.method, classifier.engine, classifier._method_options())


@pytest.fixture(scope="module")
def fitted() -> LLPClassifier:
    return quick().fit(X, BAGS, FRAME)


# The check takes **method_options for a parameter of that name; a keyword that is neither a
# parameter nor an option of the method is a TypeError at once, as for any function.
# scikit-learn has it since 1.8.
STRICT = (
    {"xfail_strict": True}
    if "xfail_strict" in signature(parametrize_with_checks).parameters
    else {}
)


@parametrize_with_checks(
    [LLPClassifier(), LLPClassifier(model="linear")],
    expected_failed_checks=lambda _: {
        "check_do_not_raise_errors_in_init_or_set_params": "method_options is not a parameter",
        "check_sample_weight_equivalence_on_dense_data": "it shuffles rows, and so the folds",
        "check_sample_weight_equivalence_on_sparse_data": "it shuffles rows, and so the folds",
    },
    **STRICT,
)
def test_scikit_learns_checks(estimator: LLPClassifier, check: Any) -> None:
    check(estimator)


def test_it_learns_instances_from_bags(fitted: LLPClassifier) -> None:
    assert fitted.score(X, NAMES[y]) > 0.9
    assert fitted.classes_.tolist() == NAMES.tolist()
    assert fitted.predict_proba(X).shape == (150, 3)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1)
    assert len(fitted.history_) == 30


@pytest.mark.parametrize(
    "proportions",
    [
        COUNTS,
        COUNTS / 10,
        COUNTS.tolist(),
        {b: COUNTS[b] for b in range(15)},
        {b: (COUNTS[b] / 10).tolist() for b in range(15)},
        {b: {c: int(n) for c, n in enumerate(COUNTS[b]) if n} for b in range(20) if b < 15},
        pd.DataFrame(COUNTS).sample(frac=1, random_state=0)[[2, 0, 1]],
        pd.DataFrame(COUNTS / 10),
    ],
    ids=[
        "counts",
        "shares",
        "list",
        "mapping",
        "mapping-shares",
        "nested",
        "frame",
        "frame-shares",
    ],
)
def test_every_form_of_proportions_means_the_same(proportions: Any) -> None:
    expected = quick(epochs=2).fit(X, BAGS, COUNTS).predict_proba(X)
    found = quick(epochs=2).fit(X, BAGS, proportions)
    assert found.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found.predict_proba(X), expected)


def test_bag_ids_may_be_strings_in_any_order() -> None:
    names = np.array([f"ward {b:02}" for b in range(15)])
    expected = quick(epochs=2).fit(X, BAGS, COUNTS).predict_proba(X)
    found = quick(epochs=2).fit(X, names[BAGS], dict(zip(names, COUNTS, strict=True)))
    np.testing.assert_array_equal(found.predict_proba(X), expected)


def test_without_proportions_it_is_supervised_learning() -> None:
    model = quick().fit(X, NAMES[y])
    assert model.score(X, NAMES[y]) > 0.95
    assert model.bag_score(X, NAMES[y]) > -0.2


def test_one_random_state_gives_one_model() -> None:
    first, second = quick(epochs=3).fit(X, BAGS, COUNTS), quick(epochs=3).fit(X, BAGS, COUNTS)
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("method", ["rc", "dllp", "llpfc", "ot", OT(epsilon=0.5)])
def test_any_method_can_be_chosen(method: Any) -> None:
    assert quick(method=method, epochs=3).fit(X, BAGS, COUNTS).predict(X).shape == (150,)


def test_any_module_or_factory_can_be_the_model() -> None:
    module = torch.nn.Linear(4, 3)
    before = module.weight.clone()
    assert quick(model=module).fit(X, BAGS, COUNTS).model_[1].weight.shape == (3, 4)
    assert torch.equal(module.weight, before)  # the user's own is not trained
    factory = quick(model=lambda shape, C: torch.nn.Linear(shape[0], C)).fit(X, BAGS, COUNTS)
    assert factory.predict(X).shape == (150,)


def test_images_are_standardized_by_channel() -> None:
    images = np.random.default_rng(0).normal([[[[5.0]], [[-3.0]]]], 2, size=(60, 2, 6, 6))
    bags = np.arange(60) // 6
    model = quick(model="linear", epochs=1).fit(images, bags, np.tile([3, 3], (10, 1)))
    assert model.model_[0].mean.shape == (2, 1, 1)
    np.testing.assert_allclose(model.model_[0].mean[:, 0, 0], [5, -3], atol=0.2)
    with pytest.raises(ValueError, match=r"shape \(2, 5, 6\); \(2, 6, 6\) is expected"):
        model.predict(images[:, :, 1:])


def test_a_validation_set_may_consist_of_bags_alone() -> None:
    model = quick(lr=0.05, model="linear").fit(
        X[:100], y[:100] // 2, {0: [50, 50, 0]}, validation=(X, BAGS, COUNTS)
    )
    assert "val_bag_loss" in model.history_[0]
    assert "val_accuracy" not in model.history_[0]


def test_label_bags_gives_posteriors_and_the_best_labeling_with_the_counts(
    fitted: LLPClassifier,
) -> None:
    posterior, labels = fitted.label_bags(X, BAGS, FRAME)
    np.testing.assert_allclose(posterior.sum(1), 1)
    log_probs = np.log(fitted.predict_proba(X))
    for b in range(15):
        rows = np.flatnonzero(b == BAGS)
        found = np.array([(labels[rows] == name).sum() for name in NAMES])
        assert (found == COUNTS[b]).all()
        np.testing.assert_allclose(posterior[rows].sum(0), COUNTS[b], atol=1e-6)
        costs = -log_probs[np.ix_(rows, np.repeat(np.arange(3), COUNTS[b]))]
        best = -costs[linear_sum_assignment(costs)].sum()
        own = log_probs[rows, np.searchsorted(NAMES, labels[rows])].sum()
        assert own == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_most_probable_labeling_is_that_of_an_assignment_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(6, size=80)
    log_p = rng.normal(size=(80, 6)) * 10 ** rng.uniform(-1, 3)
    bags = Bags.from_labels(labels, [50, 1, 29], n_classes=6)
    found = most_probable_labeling(torch.tensor(log_p), bags).numpy()
    assert Bags.from_labels(found, [50, 1, 29], n_classes=6) == bags
    for b, rows in enumerate(np.split(np.arange(80), [50, 51])):
        costs = -log_p[np.ix_(rows, np.repeat(np.arange(6), bags.counts[b]))]
        best = -costs[linear_sum_assignment(costs)].sum()
        assert log_p[rows, found[rows]].sum() == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("validation_fraction", 2, "a number of 0 or more and less than 1"),
        ("validation_fraction", 1.0, "a number of 0 or more and less than 1"),
        ("validation_fraction", "x", "a number of 0 or more and less than 1"),
        ("validation_fraction", float("nan"), "a number of 0 or more and less than 1"),
        ("validation_fraction", None, "a number of 0 or more and less than 1"),
        ("standardize", "yes", "True or False"),
        ("standardize", 1, "True or False"),
        ("verbose", "loud", "True or False"),
        ("device", "gpu", "a device of this machine"),
        ("device", "cuda:99", "a device of this machine"),
        ("device", None, "a device of this machine"),
        ("device", "meta", "a device of this machine"),
        ("random_state", -1, "from 0 to 4294967295"),
        ("random_state", 2**32, "from 0 to 4294967295"),
        ("random_state", 1.5, "from 0 to 4294967295"),
        ("random_state", "seed", "from 0 to 4294967295"),
        ("epochs", 0, "a whole number from 1"),
        ("epochs", True, "a whole number from 1"),
        ("lr", "fast", "a number of more than 0"),
        ("patience", 2.5, "a whole number from 1 .* or None"),
        ("method", 3, "choose one of supervised, rc, "),
        ("method", ["cc"], "choose one of supervised, rc, "),
        ("engine", "steam", "choose one of auto"),
        ("engine", ["exact"], "choose one of auto"),
    ],
)
def test_senseless_parameters_are_named(parameter: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"{parameter} is {re.escape(repr(value))}; .*{message}"):
        quick(**{parameter: value}).fit(X, BAGS, COUNTS)


def test_parameters_may_be_numpys(tmp_path: Path) -> None:
    model = quick(
        epochs=np.int64(1),
        validation_fraction=np.float32(0.2),
        patience=np.int16(3),
        standardize=np.True_,
        random_state=np.uint8(4),
    )
    assert len(model.fit(X, BAGS, COUNTS).history_) == 1


def test_an_engine_is_used_or_refused_but_never_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_by(quick(method="rc", engine="bethe"))
    assert made.get_params()["engine"] == "bethe"
    assert made_by(quick(method=CC(engine="exact"))).get_params()["engine"] == "exact"
    for method in (CC(), OT()):
        with pytest.raises(ValueError, match=r"engine is 'exact'.*its own settings"):
            quick(method=method, engine="exact").fit(X, BAGS, COUNTS)
    for name in ("ot", "dllp", "llpfc", "pll", "cc_approx", "rc_approx"):
        with pytest.raises(
            ValueError, match=rf"the method '{name}' takes none; rc, cc, two_views, cc_then_rc do"
        ):
            quick(method=name, engine="exact").fit(X, BAGS, COUNTS)

    class Own(CC):
        def __init__(self, engine: str = "bethe") -> None:
            super().__init__(engine)

    monkeypatch.setitem(METHODS, "own", Own)
    assert made_by(quick(method="own")).get_params() == {"engine": "bethe"}
    assert made_by(quick(method="own", engine="exact")).get_params() == {"engine": "exact"}


def test_it_can_be_cloned_pickled_and_searched(fitted: LLPClassifier, tmp_path: Path) -> None:
    assert clone(fitted).get_params()["epochs"] == 30
    joblib.dump(fitted, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    search = GridSearchCV(
        quick(epochs=20),
        {"lr": [1e-6, 1e-3]},
        cv=BagKFold(3, shuffle=True, random_state=0),
        scoring=bag_scorer(FRAME),
    )
    search.fit(X, BAGS, proportions=FRAME)
    assert search.best_params_ == {"lr": 1e-3}
    assert search.best_estimator_.score(X, NAMES[y]) > 0.9
    held_out = search.best_estimator_.bag_score(X, BAGS, FRAME)
    assert bag_scorer(FRAME)(search.best_estimator_, X, BAGS) == pytest.approx(held_out, rel=1e-6)


def test_it_works_in_a_pipeline() -> None:
    pipeline = make_pipeline(PowerTransformer(), quick())
    pipeline.fit(X, BAGS, llpclassifier__proportions=COUNTS)
    assert pipeline.score(X, y) > 0.9
    scores = cross_val_score(
        pipeline,
        X,
        BAGS,
        cv=BagKFold(3),
        scoring=bag_scorer(dict(enumerate(COUNTS))),
        params={"llpclassifier__proportions": dict(enumerate(COUNTS))},
    )
    assert np.isfinite(scores).all()


def test_bag_folds_never_split_a_bag() -> None:
    folds = list(BagKFold(4, shuffle=True, random_state=1).split(X, BAGS))
    assert len(folds) == BagKFold(4).get_n_splits() == 4
    for train, test in folds:
        assert not set(BAGS[train]) & set(BAGS[test])
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(150))


def test_saved_and_loaded_it_predicts_the_same(fitted: LLPClassifier, tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces the first
        fitted.save(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["config.json", "manifest.json", "model.safetensors"]
    again = LLPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.predict(X).tolist() == fitted.predict(X).tolist()
    assert again.history_ == fitted.history_
    assert again.get_params() == fitted.get_params()


def test_column_names_survive_and_are_checked(tmp_path: Path) -> None:
    table = pd.DataFrame(X, columns=list("abcd"))
    quick(epochs=1).fit(table, BAGS, COUNTS).save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    assert again.predict(table).shape == (150,)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table.rename(columns={"d": "e"}))


def test_a_model_of_ones_own_needs_its_architecture_to_load(tmp_path: Path) -> None:
    model = quick(model=torch.nn.Linear(4, 3), epochs=1).fit(X, BAGS, COUNTS)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"model=\.\.\."):
        LLPClassifier.load(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model", model=torch.nn.Linear(4, 3))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_damaged_or_foreign_folders_are_refused(fitted: LLPClassifier, tmp_path: Path) -> None:
    def spoilt(name: str, change: Any) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        fitted.save(folder)
        path = folder / name
        path.write_bytes(change(path.read_bytes()))
        return folder

    def config(**changes: Any) -> Any:
        return lambda content: json.dumps(json.loads(content) | changes).encode()

    cases = [
        (spoilt("model.safetensors", lambda content: content[:-50]), "damaged"),
        (spoilt("config.json", lambda content: content[:100]), "damaged"),
        (spoilt("config.json", lambda _: b"[]"), "damaged"),
        (spoilt("config.json", config(format=99)), "format 99.*Update Bagwise"),
        (spoilt("config.json", config(classes="abc")), "classes is 'abc'"),
        (spoilt("config.json", config(classes=["a", "b"])), "does not fit"),
        (spoilt("config.json", config(params={"model": "os.system", "method": "cc"})), "os.system"),
    ]
    for folder, message in cases:
        with pytest.raises(ValueError, match=message):
            LLPClassifier.load(folder)
    with pytest.raises(ValueError, match=r"has no config\.json"):
        LLPClassifier.load(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="other things"):
        fitted.save(tmp_path / "other")


def _without(frame: pd.DataFrame, bag: int) -> pd.DataFrame:
    return frame.drop(index=bag)


def _with_nan() -> pd.DataFrame:
    frame = FRAME.astype(float)
    frame.iloc[4, 1] = np.nan
    return frame


@pytest.mark.parametrize(
    ("proportions", "message"),
    [
        (_without(FRAME, 7), "does not know bag 7"),
        ({str(b): COUNTS[b] for b in range(15)}, "type str, those of the rows int"),
        (_with_nan(), r"bag 4 has no number.*nan"),
        (0.9 * COUNTS / 10, r"bag 0 sum to 0\.9"),
        (COUNTS + np.eye(15, 3, -3, dtype=int), "bag 3 sum to 11.*10 rows"),
        (-COUNTS, r"bag 0 has -\d+ for class 0"),
        (COUNTS[:10], r"shape \(10, 3\), but the rows have 15 bags"),
        (pd.DataFrame(COUNTS, columns=["a", "b", "a"]), "two classes are called 'a'"),
        ({b: {1: 5, "1": 5} for b in range(15)}, "two classes are called '1'"),
        ({b: {1: 5, "a": 5} for b in range(15)}, "some class labels are text"),
        (pd.concat([FRAME, FRAME.iloc[[2]]]), "more than one row for bag 2"),
        ({b: {"a": 10} for b in range(15)}, "only one class"),
    ],
)
def test_bad_proportions_are_named(proportions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(epochs=1).fit(X, BAGS, proportions)


def test_more_classes_than_the_model_knows_are_named(fitted: LLPClassifier) -> None:
    more = FRAME.assign(rose=0)
    with pytest.raises(ValueError, match=r"the class 'rose'.*'setosa', 'versicolor', 'virginica'"):
        fitted.label_bags(X, BAGS, more)
    with pytest.raises(ValueError, match="4 classes, but the model knows 3"):
        fitted.bag_score(X, BAGS, np.hstack([COUNTS, np.zeros((15, 1))]))
    with pytest.raises(ValueError, match=r"row 1 has the label 'rose'"):
        fitted.bag_score(X[:2], ["setosa", "rose"])


def test_bad_inputs_are_named(fitted: LLPClassifier) -> None:
    spoilt = X.copy()
    spoilt[17, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(spoilt, BAGS, COUNTS)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[150, 149\]"):
        quick().fit(X, BAGS[1:], COUNTS)
    with pytest.raises(ValueError, match=r"supervised.*without proportions"):
        quick(method="supervised").fit(X, BAGS, COUNTS)
    with pytest.raises(ValueError, match="images"):
        quick(model="convnet").fit(X, BAGS, COUNTS)
    for validation in ((X, BAGS), 0.2, {"X": X, "bags": BAGS, "proportions": COUNTS}):
        with pytest.raises(ValueError, match=r"validation has .* are expected"):
            quick().fit(X, BAGS, COUNTS, validation=validation)


def test_rounded_proportions_are_taken() -> None:
    X_, y_ = load_breast_cancer(return_X_y=True)
    bags = np.random.default_rng(0).integers(30, size=len(X_))
    shares = {
        b: np.round(np.bincount(y_[bags == b], minlength=2) / (bags == b).sum(), 2)
        for b in range(30)
    }
    assert quick().fit(X_, bags, shares).score(X_, y_) > 0.9


def test_series_of_label_counts_are_read_by_their_labels() -> None:
    labels = pd.Series(NAMES[y])
    series = {b: labels[b == BAGS].value_counts() for b in range(15)}  # ordered by frequency
    expected = quick(epochs=2).fit(X, BAGS, FRAME).predict_proba(X)
    found = quick(epochs=2).fit(X, BAGS, series)
    assert found.classes_.tolist() == NAMES.tolist()
    np.testing.assert_array_equal(found.predict_proba(X), expected)


def test_a_single_row_left_over_can_be_trained_on() -> None:
    model = quick(epochs=1, validation_fraction=0, batch_instances=149, batch_bags=1).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_large_offsets_do_not_cost_precision() -> None:
    shifted = X + 1.7e9  # like timestamps: single precision has steps of 128 there
    assert quick().fit(shifted, BAGS, COUNTS).score(shifted, y) > 0.9


def test_parameters_from_numpy_and_methods_with_options_are_saved(tmp_path: Path) -> None:
    model = quick(
        epochs=np.int64(2), lr=np.float32(1e-3), random_state=np.int64(3), method=OT(epsilon=0.5)
    ).fit(X, BAGS, COUNTS)
    assert model.method.kept == {}  # what fitting keeps is not the caller's
    model.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    assert (again.epochs, again.random_state, again.method.epsilon) == (2, 3, 0.5)
    assert again.classes_.dtype == model.classes_.dtype


def test_only_a_model_folder_is_replaced(fitted: LLPClassifier, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    fitted.save(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="other things"):
        fitted.save(folder)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="other things"):
        fitted.save(tmp_path / "file")


@pytest.mark.parametrize(
    ("bags", "proportions", "message"),
    [
        ([None, "a"], {"a": [1, 1]}, "bag of row 0 is missing"),
        ([1, "a"], {"a": [1, 1]}, "some bag ids are text"),
        (["a"] * 20, {"a": [0.045] * 20}, "sum to 0.9"),
    ],
)
def test_bad_ids_are_named(bags: Any, proportions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bag_targets(np.array(bags, dtype=object), proportions)


def test_proportions_that_do_not_fit_the_size_are_warned_about() -> None:
    message = r"bag 'a' are not those of its 3 rows; the nearest counts are taken, \[2, 1\]"
    with pytest.warns(UserWarning, match=message):
        targets = bag_targets(["a"] * 3, {"a": [0.5, 0.5]})
    assert targets.rounding == pytest.approx(1 / 6)
