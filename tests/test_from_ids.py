"""`Bags.from_ids`: bags of rows that come in any order, with bag ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, Laplace
from bagwise.bags import IntArray

IDS = ["west", "east", "west", "west", "east"]
COUNTS = {"east": [1, 1], "west": [1, 2]}


def _forms(ids: IntArray) -> list[Any]:
    names = [f"bag {n:02}" for n in ids]
    return [ids, ids.tolist(), torch.tensor(ids), names, np.array(names), pd.Series(names)]


@given(
    bags=st.lists(st.integers(0, 6), min_size=1, max_size=30),
    seed=st.integers(0, 99),
    form=st.integers(0, 5),
)
def test_rows_in_any_order_have_the_counts_of_their_bags(
    bags: list[int], seed: int, form: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, 3, len(bags))
    ids = np.asarray(_forms(np.array(bags))[form])
    counts = {
        key: np.bincount(labels[ids == key], minlength=3).tolist() for key in set(ids.tolist())
    }
    found = Bags.from_ids(_forms(np.array(bags))[form], counts | {"elsewhere": [4, 4, 4]})
    assert sorted(found.order) == list(range(len(bags)))
    assert found.ids[found.bags.bag_of_row].tolist() == ids[found.order].tolist()
    assert found.bags == Bags.from_labels(labels[found.order], found.bags.sizes, 3)
    for bag in range(len(found.bags)):  # rows of a bag stay in their order
        rows = found.order[found.bags.bag_of_row == bag]
        assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize(
    "counts",
    [
        COUNTS,
        {"east": {"no": 1, "yes": 1}, "west": {"no": 1, "yes": 2}},
        pd.DataFrame({"no": [1, 1], "yes": [2, 1]}, index=["west", "east"]),
        {"east": 1, "west": 2},
        pd.Series({"east": 1, "west": 2}),
    ],
    ids=["lists", "by class", "frame", "second class", "series"],
)
def test_counts_come_in_several_forms(counts: Any) -> None:
    found = Bags.from_ids(IDS, counts)
    assert found.ids.tolist() == ["east", "west"]
    assert found.bags == Bags([2, 3], [[1, 1], [1, 2]])
    assert found.order.tolist() == [1, 4, 0, 2, 3]


def test_an_array_of_counts_goes_by_the_number_of_the_bag() -> None:
    found = Bags.from_ids(torch.tensor([1, 0, 1]), torch.tensor([[1, 0], [0, 2]]))
    assert found.bags == Bags([1, 2], [[1, 0], [0, 2]])


def test_classes_are_in_the_order_of_the_model_s_outputs() -> None:
    counts = {"east": {"yes": 2}, "west": {"no": 1, "yes": 2}}
    found = Bags.from_ids(IDS, counts, classes=["yes", "maybe", "no"])
    assert found.classes.tolist() == ["yes", "maybe", "no"]
    assert found.bags.counts.tolist() == [[2, 0, 0], [2, 0, 1]]
    assert Bags.from_ids(IDS, counts).classes.tolist() == ["no", "yes"]


def test_weights_follow_their_rows() -> None:
    found = Bags.from_ids(IDS, {"east": [3, 4], "west": [1, 2]}, weights=[1, 2, 1, 1, 5])
    assert found.bags == Bags([2, 3], [[3, 4], [1, 2]], weights=[2, 5, 1, 1, 1])


def test_other_numbers_than_counts_are_told() -> None:
    noisy = Bags.from_ids(IDS, {"east": [1.3, 0.2], "west": [-0.4, 3.1]}, labels_are=Laplace(1))
    assert noisy.bags == Bags.from_noisy_counts([[1.3, 0.2], [-0.4, 3.1]], [2, 3], Laplace(1))
    unknown = Bags.from_ids(IDS, {"east": [1, 1], "west": [np.nan, 2]})
    assert unknown.bags == Bags([2, 3], [[1, 1], [1, 2]])


@pytest.mark.parametrize(
    ("ids", "counts", "problem"),
    [
        (IDS, {"east": [1, 1]}, "counts does not know bag 'west'; give the label counts of every"),
        ([3, 1], {"3": [1, 0], "1": [1, 0]}, "type str, those of the rows int"),
        (IDS, COUNTS | {"west": [2, 2]}, "bag 'west' sum to 4.*sum to its 3 rows"),
        (IDS, COUNTS | {"west": [0.5, 0.5]}, "bag 'west' sum to 1.*counts must sum to its 3 rows"),
        (IDS, {"east": [0.5, 0.5], "west": [0, 1]}, 'say labels_are="proportions"'),
        (IDS, [[1, 1], [1, 2]], "the bag ids are text .*mapping"),
        ([0, 1, 1], [[1, 0]], r"counts has shape \(1, 2\), but the rows have 2 bags"),
        (["east", None], COUNTS, "the bag of row 1 is missing; give every row a bag id"),
        ([[0, 1]], COUNTS, r"ids has shape \(1, 2\); one bag id for each row"),
        ([], COUNTS, "ids is empty; give the bag id of each row"),
        (IDS, COUNTS | {"west": "2"}, "counts has '2' for bag 'west'"),
    ],
)
def test_what_does_not_fit_is_named(ids: Any, counts: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Bags.from_ids(ids, counts)
