"""What is known of the bags, in every form: read right, or refused; never read wrong."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from bagwise import LLPClassifier, read_bags
from bagwise.labels.targets import bag_targets

WARDS = [f"w{b}" for b in range(12)]  # sorted as text: w0, w1, w10, w11, w2, ...
ROWS = [ward for ward in WARDS for _ in range(4)]
SECOND = np.arange(12) % 5  # of the four rows of a ward, so many are of the second class
COUNTS = np.stack([4 - SECOND, SECOND], axis=1)


def counts_by_ward(proportions: Any, rows: Any = ROWS) -> dict[Any, list[int]]:
    targets = bag_targets(rows, proportions)
    return dict(zip(targets.ids.tolist(), targets.bags.counts.tolist(), strict=True))


EXPECTED = dict(zip(WARDS, COUNTS.tolist(), strict=True))


@pytest.mark.parametrize(
    "proportions",
    [
        dict(zip(WARDS, COUNTS, strict=True)),
        dict(zip(WARDS, torch.tensor(COUNTS), strict=True)),
        pd.DataFrame(COUNTS, index=WARDS),
        pd.Series(COUNTS.tolist(), index=WARDS),
        pd.Series([{0: 4 - n, 1: n} for n in SECOND], index=WARDS),
        dict(zip(WARDS, SECOND, strict=True)),
        dict(zip(WARDS, SECOND / 4, strict=True)),
        dict(zip(WARDS, map(Decimal, SECOND.tolist()), strict=True)),
        dict(zip(WARDS, torch.tensor(SECOND / 4), strict=True)),
        pd.Series(SECOND, index=WARDS).sample(frac=1, random_state=0),
        pd.Series(SECOND / 4, index=WARDS).astype("Float64"),
        dict(zip(WARDS, SECOND, strict=True)) | {"w99": 123},
    ],
)
def test_forms_that_have_ids_mean_the_same_for_text_ids(proportions: Any) -> None:
    assert counts_by_ward(proportions) == EXPECTED


@pytest.mark.parametrize("array", [COUNTS, COUNTS.tolist(), torch.tensor(COUNTS), SECOND])
def test_an_array_is_refused_for_text_ids(array: Any) -> None:
    for rows in (ROWS, sorted(ROWS), [f"{b:02}" for b in range(12) for _ in range(4)]):
        with pytest.raises(ValueError, match=r"ids are text.*Use a mapping .* or a data frame"):
            bag_targets(rows, array)


@pytest.mark.parametrize(
    ("numbers", "shuffled"),
    [
        (np.arange(12), True),
        (np.arange(12) + 1, True),
        (np.arange(12) + 1.0, True),
        (np.arange(12) * 3, False),
        (np.arange(12) / 8, False),
        (np.arange("2020-01-01", "2020-01-13", dtype="M8[D]"), False),
    ],
)
@pytest.mark.parametrize(
    "array", [COUNTS, COUNTS / 4, COUNTS.tolist(), torch.tensor(COUNTS / 4), SECOND, SECOND / 4]
)
def test_an_array_is_taken_where_the_order_of_the_ids_leaves_no_doubt(
    array: Any, numbers: Any, shuffled: bool
) -> None:
    rows = np.repeat(numbers, 4)
    if shuffled:
        rows = np.random.default_rng(0).permutation(rows)
    assert list(counts_by_ward(array, rows).values()) == COUNTS.tolist()


@pytest.mark.parametrize(
    "numbers",
    [np.arange(12) * 3, np.arange(12) / 8, np.arange("2020-01-01", "2020-01-13", dtype="M8[D]")],
)
def test_an_array_is_refused_for_ids_with_gaps_in_no_order(numbers: Any) -> None:
    with pytest.raises(ValueError, match=r"neither whole numbers.*dict\(zip\(np.unique\(bags\)"):
        bag_targets(np.repeat(numbers, 4)[::-1], COUNTS)


def test_a_tensor_that_needs_gradients_is_read() -> None:
    array = torch.tensor(COUNTS / 4, requires_grad=True)
    assert list(counts_by_ward(array, np.repeat(np.arange(12), 4)).values()) == COUNTS.tolist()


@pytest.mark.parametrize(
    ("proportions", "message"),
    [
        (pd.DataFrame(COUNTS), r"does not know bag 'w0'.*default one.*set_index"),
        (pd.Series(SECOND), r"does not know bag 'w0'.*default one.*set_index"),
        (
            pd.DataFrame(COUNTS, columns=["a", "b"]).assign(ward=WARDS),
            r"column 'ward' of proportions does not hold numbers.*set_index\('ward'\)",
        ),
        (pd.DataFrame({"b": SECOND}, index=WARDS), r"column 'b' alone.*proportions\['b'\]"),
        (
            pd.Series(1, index=pd.MultiIndex.from_product([WARDS, ["a", "b"]])),
            r"index of 2 levels.*unstack\(fill_value=0\)",
        ),
        (pd.Series([1, 2], index=["w0", "w0"]), "more than one row for bag 'w0'"),
        (pa.table({"a": [1]}), r"Table, which has no index.*set_index"),
        ({ward: [1] for ward in WARDS}, "has one column"),
        ({ward: {"a": "many"} for ward in WARDS}, "'many' for class 'a' of bag 'w0'"),
        ({ward: ["a", "b"] for ward in WARDS}, "holds 'a' where a number is expected"),
        (dict.fromkeys(WARDS, "0.5"), "has '0.5' for bag 'w0'; a number for each class"),
        (dict.fromkeys(WARDS), "has None for bag 'w0'; a number for each class"),
        (
            {ward: [2, 2] for ward in WARDS} | {"w3": 0.5},
            "a list of numbers for bag 'w11' and one number for bag 'w3'; use one form",
        ),
        ("bags.csv", r"holds 'bags.csv' where a number is expected. The order is fit\(X, bags"),
    ],
)
def test_forms_that_cannot_be_read_are_named(proportions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bag_targets(ROWS, proportions)


def test_a_default_index_does_not_pass_for_ids_that_begin_at_one() -> None:
    with pytest.raises(ValueError, match=r"does not know bag 12;.*default one"):
        bag_targets(np.repeat(np.arange(12) + 1, 4), pd.DataFrame(COUNTS))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"a": 0.5, "b": 1}, [[2, 2], [0, 4]]),  # .5 is a share, so 1 is one
        ({"a": 2, "b": 1}, [[2, 2], [3, 1]]),  # 2 is a count, so 1 is one
        ({"a": 0, "b": 1, "other": 0.5}, [[4, 0], [0, 4]]),  # a bag without rows tells it too
        ({"a": 0, "b": 1, "other": 3}, [[4, 0], [3, 1]]),
        ({"a": 0, "b": 0}, [[4, 0], [4, 0]]),
    ],
)
def test_one_number_a_bag_is_a_share_or_a_count_as_the_others_are(
    numbers: Any, expected: list[list[int]]
) -> None:
    targets = bag_targets(["a", "b"] * 4, numbers)
    assert targets.bags.counts.tolist() == expected
    assert targets.classes.tolist() == [0, 1]


def test_one_may_be_either_in_bags_of_one() -> None:
    assert bag_targets(["a", "b"], {"a": 1, "b": 0}).bags.counts.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"a": 0, "b": 1}, "bag 'b' of 4 rows has 1 .* tells whether that is a count or a share"),
        (
            {"a": 0.0, "b": 1.0},
            "bag 'b' of 4 rows has 1 .* tells whether that is a count or a share",
        ),
        ({"a": 2, "b": 5}, "bag 'b' of 4 rows has 5, which is neither"),
        ({"a": 2.5, "b": 0.5}, "bag 'a' of 4 rows has 2.5, which"),
        ({"a": 0.5, "b": -0.1}, "bag 'b' of 4 rows has -0.1, which"),
        ({"a": 0.5, "b": np.nan}, "bag 'b' has no number for class"),
        ({"a": 30.0, "b": 45.5}, "bag 'a' of 4 rows has 30, which"),
    ],
)
def test_one_number_a_bag_that_is_neither_share_nor_count_is_refused(
    numbers: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bag_targets(["a", "b"] * 4, numbers)


def test_numbers_of_one_class_are_read_by_the_rules_of_label_files(tmp_path: Path) -> None:
    ids, numbers = ["a"] * 4 + ["b"] * 4, {"a": 25, "b": 50}
    (tmp_path / "rows.csv").write_text("bag,x\n" + "".join(f"{b},{n}\n" for n, b in enumerate(ids)))
    lines = [f"{bag},{number}\n" for bag, number in numbers.items()]
    (tmp_path / "bags.csv").write_text("".join(["bag,yes\n", *lines]))
    files = (tmp_path / "rows.csv", "bag", tmp_path / "bags.csv")
    of_dict = bag_targets(ids, numbers, labels_are="proportions").bags.counts.tolist()
    of_file = read_bags(*files, features="x", classes="no,yes", labels_are="proportions")
    assert (
        of_dict == [[3, 1], [2, 2]] == [[x["no"], x["yes"]] for x in of_file.proportions.values()]
    )
    for labels_are in ("relative", "sample"):
        with pytest.raises(ValueError, match="numbers of one class alone"):
            bag_targets(ids, numbers, labels_are=labels_are)
        with pytest.raises(ValueError, match="numbers of one class alone"):
            read_bags(*files, features="x", classes="no,yes", labels_are=labels_are)


def test_one_number_a_bag_is_that_of_the_models_second_class() -> None:
    targets = bag_targets(["a"] * 4, {"a": 0.25}, ["no", "yes"])
    assert dict(zip(targets.classes.tolist(), targets.bags.counts[0], strict=True)) == {
        "no": 3,
        "yes": 1,
    }
    with pytest.raises(ValueError, match="the model knows 3 classes: 'a', 'b', 'c'"):
        bag_targets(["a"] * 4, {"a": 0.25}, ["a", "b", "c"])


def test_it_learns_from_the_shares_of_the_second_class() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    X = rng.normal(size=(400, 3)) + 3 * y[:, None]
    bags = np.arange(400) // 8
    shares = pd.Series(y).groupby(bags).mean()
    model = LLPClassifier(model="linear", epochs=20, lr=0.05, random_state=0)
    assert model.fit(X, bags, shares).score(X, y) > 0.95
    _, labels = model.label_bags(X, bags, shares)
    assert (pd.Series(labels).groupby(bags).mean() == shares).all()
    assert model.bag_score(X, bags, shares) == model.bag_score(X, bags, shares.to_numpy())


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        (np.array([0, 1, 2]), {np.int64(0): [1, 0], np.int64(1): [1, 0]}),
        (np.array([0.0, 1.0, 2.0]), {0: [1, 0], 1: [1, 0]}),
        (np.array(["a", "b"]), {np.str_("a"): [1, 0]}),
        (np.array([0, 1, 2], dtype=np.int8), pd.DataFrame([[1, 0]], index=[1])),
    ],
)
def test_types_that_compare_equal_are_no_hint(rows: Any, known: Any) -> None:
    with pytest.raises(ValueError, match=r"does not know bag .*leave its rows out\.$"):
        bag_targets(rows, known)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_id_is_named(missing: Any) -> None:
    with pytest.raises(ValueError, match="bag of row 1 is missing"):
        bag_targets(pd.Series(["a", missing], dtype=object), {"a": [1, 0]})
