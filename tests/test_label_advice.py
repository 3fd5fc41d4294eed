"""What an error about label numbers advises is taken when it is followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bagwise import BagLogisticRegression, Laplace, read_bags
from bagwise.errors import InputError, Option

WARDS = [f"w{ward}" for ward in range(12)]
BAGS = np.repeat(WARDS, 10)
ROWS = pd.DataFrame({"ward": BAGS, "age": np.random.default_rng(0).normal(50, 10, len(BAGS))})
YES = np.array([3, 7, 5, 4, 6, 2, 8, 5, 4, 6, 3, 7])
COUNTS = pd.DataFrame({"ward": WARDS, "no": 10 - YES, "yes": YES})
MINUS_ONE = COUNTS.assign(yes=np.where(YES == 2, -1, YES))  # in ward 5


def scaled(by: float) -> pd.DataFrame:
    return COUNTS.assign(no=by * COUNTS["no"], yes=by * COUNTS["yes"])


def error_of(labels: pd.DataFrame, labels_are: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as found:
        read_bags(ROWS, "ward", labels, labels_are=labels_are, **options)
    return found.value


def advised(error: InputError) -> list[Any]:
    return [part.value for part in error.args if isinstance(part, Option)]


@pytest.mark.parametrize(
    ("labels", "labels_are", "expected"),
    [
        (COUNTS, "proportions", ["counts"]),
        (scaled(0.1), "counts", ["proportions"]),
        (scaled(10), "counts", ["proportions"]),
        (scaled(3), "proportions", ["relative", "sample"]),
        (scaled(3), "counts", ["relative", "sample", Laplace(4)]),
        (scaled(3), "auto", ["relative", "sample", Laplace(4)]),
        (scaled(0.35), "auto", ["relative", Laplace(4)]),
        (scaled(0.097), "auto", ["relative", Laplace(4), "rounded"]),
        (MINUS_ONE, "relative", []),
        (MINUS_ONE, "sample", []),
        (MINUS_ONE, "rounded", []),
        (MINUS_ONE, "proportions", []),
    ],
)
@pytest.mark.filterwarnings("ignore:.*does not explain")
def test_what_is_advised_about_sums_is_taken(
    labels: pd.DataFrame, labels_are: str, expected: list[Any]
) -> None:
    error = error_of(labels, labels_are)
    assert advised(error) == expected
    assert "bag 'w" in str(error)
    for remedy in expected:
        if remedy != "rounded":  # 9.7% of 10 rows are no rounded share; such bags are named
            read_bags(ROWS, "ward", labels, labels_are=remedy)


@pytest.mark.parametrize("labels_are", ["auto", "counts"])
def test_a_count_of_minus_one_is_named_and_both_remedies_are_taken(labels_are: str) -> None:
    error = error_of(MINUS_ONE, labels_are)
    assert "bag 'w5' has -1 for class 'yes': [8.0, -1.0]" in str(error)
    assert advised(error) == ["counts", Laplace(4)]
    emptied = MINUS_ONE.assign(yes=MINUS_ONE["yes"].where(MINUS_ONE["yes"] >= 0))
    read_bags(ROWS, "ward", emptied, labels_are="counts")
    read_bags(ROWS, "ward", MINUS_ONE, labels_are=Laplace(4))


@pytest.mark.parametrize("labels_are", ["auto", "counts"])
def test_minus_one_of_the_only_class_that_was_counted_is_to_be_left_out(labels_are: str) -> None:
    labels, classes = MINUS_ONE[["ward", "yes"]], ["no", "yes"]
    error = error_of(labels, labels_are, classes=classes)
    assert "bag 'w5' has -1 for class 'yes'. If it stands for" in str(error)
    assert "leave the bag and its rows out" in str(error)
    assert advised(error) == [Laplace(4)]
    read_bags(ROWS, "ward", labels, classes=classes, labels_are=Laplace(4))
    rows, labels = ROWS[ROWS["ward"] != "w5"], labels[labels["ward"] != "w5"]
    read_bags(rows, "ward", labels, classes=classes, labels_are=labels_are)  # type: ignore[arg-type]


def test_a_missing_share_is_not_advised_to_be_a_count() -> None:
    shares = scaled(0.1)
    shares.loc[3, "yes"] = np.nan
    assert advised(error_of(shares, "proportions")) == ["rounded"]
    read_bags(ROWS, "ward", shares, labels_are="rounded")
    assert advised(error_of(shares, "relative")) == []


def test_counts_of_one_class_given_as_proportions_are_doubted() -> None:
    with pytest.warns(UserWarning, match='are counts of the rows, say labels_are="counts"'):
        read_bags(
            ROWS, "ward", COUNTS[["ward", "yes"]], classes=["no", "yes"], labels_are="proportions"
        )
    with pytest.warns(UserWarning, match='are counts of the rows, say labels_are="counts"'):
        BagLogisticRegression().fit(
            ROWS[["age"]], BAGS, dict(zip(WARDS, YES, strict=True)), labels_are="proportions"
        )
