"""The estimator with counts that are not exact, and with labels of some rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from bagwise import DiscreteLaplace, Laplace, LLPClassifier, bag_scorer
from bagwise.labels.counts_or_shares import to_bags
from bagwise.labels.label_spec import LabelSpec, Rounded
from bagwise.labels.targets import bag_targets

rng = np.random.default_rng(0)
Y = rng.integers(0, 3, 600)
X = rng.normal(size=(600, 4)) + 2.5 * np.eye(3, 4)[Y]
BAGS = np.arange(600) // 12
COUNTS = {bag: np.bincount(Y[bag == BAGS], minlength=3) for bag in range(50)}


def model() -> LLPClassifier:
    return LLPClassifier(model="linear", epochs=40, lr=0.03, random_state=0)


def test_every_kind_of_knowledge_is_learned_from() -> None:
    noisy = {bag: n + rng.laplace(scale=1.5, size=3) for bag, n in COUNTS.items()}
    shares = {bag: (n / 12).round(1) for bag, n in COUNTS.items()}
    percent = {bag: (100 * n / 12).round() for bag, n in COUNTS.items()}
    low = {bag: np.where(n < 4, 0, n) for bag, n in COUNTS.items()}
    high = {bag: np.where(n < 4, 3, n) for bag, n in COUNTS.items()}
    unknown = {bag: np.where(np.arange(3) == bag % 3, np.nan, n) for bag, n in COUNTS.items()}
    group = {bag: n * 20 + 3 for bag, n in COUNTS.items()}
    for proportions, labels_are in (
        (noisy, Laplace(1.5)),
        (shares, "rounded"),
        (shares, Rounded(1)),
        (percent, "rounded"),
        ((low, high), "ranges"),
        (unknown, "counts"),
        (group, "sample"),
    ):
        fitted = model().fit(X, BAGS, proportions, labels_are=labels_are)
        assert fitted.score(X, Y) > 0.85, labels_are
        assert fitted.bag_score(X, BAGS, proportions, labels_are=labels_are) <= 0
        probabilities, labels = fitted.label_bags(X, BAGS, proportions, labels_are=labels_are)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
        assert (labels == Y).mean() > 0.85


def test_bags_that_others_cannot_tell_are_scored_by_what_is_known() -> None:
    noisy = {bag: n + rng.integers(-1, 2, 3) for bag, n in COUNTS.items()}
    fitted = model().fit(X, BAGS, noisy, labels_are=DiscreteLaplace(1.0))
    score = bag_scorer(noisy, labels_are=DiscreteLaplace(1.0))(fitted, X, BAGS)
    assert score == pytest.approx(
        fitted.bag_score(X, BAGS, noisy, labels_are=DiscreteLaplace(1.0)), rel=1e-5
    )


def test_labels_of_some_rows_help_and_may_lie_outside_any_bag() -> None:
    labels = np.where(rng.random(600) < 0.3, Y.astype(object), None)
    ids = np.where(np.arange(600) < 12, None, BAGS.astype(object))
    labels[:12] = Y[:12]
    targets = bag_targets(ids, COUNTS, row_labels=labels)
    assert len(targets.bags) == 49 + 12
    assert (targets.bags.sizes[-12:] == 1).all()
    np.testing.assert_array_equal(
        targets.bags.row_labels,
        [-1 if labels[row] is None else labels[row] for row in targets.order],
    )
    fitted = model().fit(X, BAGS, COUNTS, row_labels=labels)
    assert fitted.score(X, Y) > 0.9


@pytest.mark.parametrize(
    ("labels", "ids", "message"),
    [
        ([2, None, None], ["a", "a", "b"], r"row 0 is labeled class 2, but bag 'a'"),
        (["x", None, None], ["a", "a", "b"], r"row 0 has the label 'x'; the classes are"),
        ([None, None, None], ["a", None, "b"], r"row 1 has neither a bag nor a label"),
        ([0, None], ["a", "a", "b"], r"labels has shape \(2,\)"),
    ],
)
def test_labels_that_cannot_be_are_named(labels: list, ids: list, message: str) -> None:
    counts = (
        {"a": [1, 1, 0], "b": [0, 0, 1]} if None not in ids else {"a": [1, 0, 0], "b": [0, 0, 1]}
    )
    with pytest.raises(ValueError, match=message):
        bag_targets(np.array(ids, dtype=object), counts, row_labels=np.array(labels, dtype=object))


def test_numbers_that_contradict_what_they_are_said_to_be_name_the_bag() -> None:
    with pytest.raises(ValueError, match="bag 'w'"):
        bag_targets(["w", "w", "w"], {"w": [0.5, 0.5]}, labels_are=Rounded(2))
    with pytest.raises(ValueError, match="bag 'w'"):
        bag_targets(["w", "w", "w"], ({"w": [2, 2]}, {"w": [3, 3]}), labels_are="ranges")
    with pytest.raises(ValueError, match="pair of bounds"):
        bag_targets(["w", "w", "w"], {"w": [2, 2]}, labels_are="ranges")
    with pytest.raises(ValueError, match=r'nobody knows the count, say labels_are="counts"'):
        bag_targets(["w", "w", "w"], {"w": [np.nan, 2]})


def test_of_two_classes_the_second_is_enough_however_it_is_known() -> None:
    ids, second = ["a"] * 8 + ["b"] * 5, {"a": 3, "b": 1}
    for given, labels_are in (
        ({"a": 2.4, "b": -0.6}, Laplace(1.5)),
        (({"a": 2, "b": 0}, {"a": 4, "b": 1}), "ranges"),
        ({"a": 0.4, "b": 0.2}, Rounded(1)),
        ({"a": 38, "b": 20}, "rounded"),
        ({"a": np.nan, "b": 1}, "counts"),
        ({"a": 1, "b": 1}, "counts"),
    ):
        found = bag_targets(ids, given, labels_are=labels_are).bags
        assert found.n_classes == 2
        np.testing.assert_array_equal(found.min_counts[:, 0], found.sizes - found.max_counts[:, 1])
        np.testing.assert_array_equal(found.max_counts[:, 0], found.sizes - found.min_counts[:, 1])
    ranges = bag_targets(ids, ({"a": 2, "b": 0}, {"a": 4, "b": 1}), labels_are="ranges").bags
    assert ranges.min_counts.tolist() == [[4, 2], [4, 0]]
    assert bag_targets(ids, second, labels_are="counts").bags.counts.tolist() == [[5, 3], [4, 1]]
    with pytest.raises(ValueError, match="numbers of one class alone"):
        bag_targets(ids, {"a": 30, "b": 20}, labels_are="sample")


def test_rounded_shares_that_sum_to_more_than_one_are_no_percentages() -> None:
    found = bag_targets(["w"] * 12, {"w": [0.3, 0.6, 0.2]}, labels_are="rounded").bags
    assert found.min_counts.tolist() == [[3, 7, 2]]
    assert found.max_counts.tolist() == [[3, 7, 2]]
    percent = bag_targets(["w"] * 12, {"w": [25, 58, 17]}, labels_are="rounded").bags
    assert percent.counts.tolist() == [[3, 7, 2]]


@pytest.mark.parametrize("kind", ["round", "Rounded", "COUNTS", "noisy", None])
def test_a_kind_that_there_is_not_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match='"relative", "rounded", "sample", "ranges", a noise'):
        bag_targets([0, 0], {0: [0.5, 0.5]}, None, kind)


def test_noise_that_cannot_explain_the_counts_is_doubted() -> None:
    ids, counts = np.repeat(np.arange(6), 10), {b: [500.0, 300.0] for b in range(6)}
    with pytest.warns(UserWarning, match="sum to 800, but it has 10 rows"):
        bag_targets(ids, counts, None, Laplace(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bag_targets(ids, {b: [9.0, -6.0] for b in range(6)}, None, Laplace(4))


def test_noisy_counts_of_one_class_beyond_a_bags_rows_are_doubted() -> None:
    numbers = np.column_stack([[518.8, 480.1, 502.0], np.full(3, np.nan)])
    ids, sizes = np.array(["a", "b", "c"]), np.array([30, 30, 30])
    with pytest.warns(UserWarning, match="bag 'a' sum to 518.8, but it has 30 rows; Laplace"):
        to_bags(ids, sizes, numbers, LabelSpec.of(Laplace(4)))
    to_bags(ids, sizes, numbers - 480, LabelSpec.of(Laplace(4)))  # what the other class may leave
