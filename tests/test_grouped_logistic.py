"""BagLogisticRegression of several groupings and of rows with frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bagwise import BagLogisticRegression
from bagwise.errors import InputError
from bagwise.labels.grouping_targets import grouping_targets

RNG = np.random.default_rng


def sample(N: int = 300, n_bags: int = 15, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Any]:
    """Rows, labels, and the bags of two groupings."""
    rng = RNG(seed)
    X = rng.normal(size=(N, 2)).round(1)
    y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=N) > 0, "yes", "no")
    ward = np.array([f"w{b:02}" for b in np.arange(N) // (N // n_bags)])
    return X, y, (ward, rng.permutation(N) % n_bags)


def counts_of(ids: np.ndarray, y: np.ndarray, times: np.ndarray | None = None) -> pd.DataFrame:
    times = np.ones(len(y), int) if times is None else times
    return pd.crosstab(np.repeat(ids, times), np.repeat(y, times))


def test_frequencies_are_rows_written_out() -> None:
    X, y, (ward, _) = sample(120, 12)
    times = RNG(1).integers(0, 4, size=len(X))
    counts = counts_of(ward, y, times)
    weighted = BagLogisticRegression().fit(X, ward, counts, sample_weight=times)
    X_, ward_, y_ = (np.repeat(x, times, axis=0) for x in (X, ward, y))
    written = BagLogisticRegression().fit(X_, ward_, counts)
    assert weighted.ridge_ == written.ridge_
    np.testing.assert_allclose(weighted.coef_, written.coef_, rtol=1e-6)
    np.testing.assert_allclose(weighted.conf_int(), written.conf_int(), rtol=1e-6)
    by_label = BagLogisticRegression(ridge=1.0).fit(X, y, sample_weight=times)
    np.testing.assert_allclose(
        by_label.coef_, BagLogisticRegression(ridge=1.0).fit(X_, y_).coef_, rtol=1e-6
    )


@pytest.mark.parametrize(("weight", "what"), [(3.7, "3.7"), (-1, "-1"), (np.nan, "nan")])
def test_survey_weights_are_refused(weight: float, what: str) -> None:
    X, y, (ward, _) = sample()
    weights = np.ones(len(X))
    weights[5] = weight
    with pytest.raises(InputError, match=rf"sample_weight\[5\] is {what}; .* Survey weights"):
        BagLogisticRegression().fit(X, ward, counts_of(ward, y), sample_weight=weights)


def test_two_groupings_tell_more_than_one() -> None:
    X, y, (ward, age) = sample(600, 60)
    by = counts_of(ward, y), counts_of(age, y)
    one = BagLogisticRegression(ridge=0.1).fit(X, ward, by[0])
    composite = BagLogisticRegression(ridge=0.1, joint=False).fit(X, [ward, age], by)
    joint = BagLogisticRegression(ridge=0.1).fit(X, [ward, age], by)
    named = BagLogisticRegression(ridge=0.1).fit(
        X, bags={"ward": ward, "age": age}, proportions={"ward": by[0], "age": by[1]}
    )
    np.testing.assert_array_equal(joint.coef_, named.coef_)
    assert np.ptp(composite.conf_int(), axis=-1).max() < np.ptp(one.conf_int(), axis=-1).max()
    np.testing.assert_array_equal(composite.conf_int(), joint.conf_int())
    truth = np.array([1.0, -1.0])
    for model in (composite, joint):
        assert np.abs(model.coef_[0] - truth).max() < 0.5
    assert not np.allclose(composite.coef_, joint.coef_)
    posterior, labels = joint.label_bags(X, [ward, age], by)
    alone, _ = one.label_bags(X, ward, by[0])
    assert (labels == y).mean() > (one.classes_[alone.argmax(axis=1)] == y).mean()
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    assert composite.bag_score(X, [ward, age], by) == pytest.approx(
        (composite.bag_score(X, ward, by[0]) + composite.bag_score(X, age, by[1])) / 2
    )


def test_frequencies_of_several_groupings_are_rows_written_out() -> None:
    X, y, (ward, age) = sample(120, 12)
    times = RNG(1).integers(0, 4, size=len(X))
    by = counts_of(ward, y, times), counts_of(age, y, times)
    weighted = BagLogisticRegression(joint=False).fit(X, [ward, age], by, sample_weight=times)
    ids = [np.repeat(x, times) for x in (ward, age)]
    written = BagLogisticRegression(joint=False).fit(np.repeat(X, times, axis=0), ids, by)
    np.testing.assert_allclose(weighted.coef_, written.coef_, rtol=1e-6)
    np.testing.assert_allclose(weighted.conf_int(), written.conf_int(), rtol=1e-6)


def test_rows_may_be_in_no_bag_and_labels_may_be_known() -> None:
    ward, age = ["a", "a", "b", None], [0, None, 1, None]
    by = {"a": {"no": 1, "yes": 1}, "b": {"yes": 1}}, {0: {"no": 1}, 1: {"yes": 1}}
    labels = [None, "yes", None, "no"]
    groupings, classes = grouping_targets([ward, age], by, row_labels=labels)
    assert classes.tolist() == ["no", "yes"]
    assert [g.bag_of_row.tolist() for g in groupings] == [
        [0, 0, 1, -1],
        [0, -1, 1, -1],
        [-1, -1, -1, 0],
    ]
    assert groupings.row_labels.tolist() == [
        -1,
        1,
        -1,
        -1,
    ]  # the count of a bag of one is its label
    assert groupings.groupings[2].bags.counts.tolist() == [[1, 0]]


def test_classes_of_all_groupings_are_put_together() -> None:
    by = {"a": {"x": 2}}, {0: {"x": 1, "y": 1}}
    with pytest.raises(InputError, match="contradict"):
        grouping_targets([["a", "a"], [0, 0]], by)
    groupings, classes = grouping_targets([["a", "a"], [0, None]], ({"a": {"x": 2}}, {0: {"x": 1}}))
    assert classes.tolist() == ["x"]
    assert groupings.n_classes == 1


@pytest.mark.parametrize(
    ("proportions", "message"),
    [
        ([{"a": {"x": 2}}], "give proportions for each grouping"),
        ([{"b": {"x": 2}}, {0: {"x": 2}}], "grouping '0': .*'a'"),
    ],
)
def test_what_does_not_match_is_named(proportions: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        grouping_targets([["a", "a"], [0, 0]], proportions)
    with pytest.raises(InputError, match="different numbers of rows"):
        grouping_targets([["a", "a"], [0]], [{}, {}])
