"""Columns of bags beside those of rows."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import bagwise
from bagwise.errors import InputError
from bagwise.tables.labels.bag_context import BagContext, context_of
from bagwise.tables.read.source import open_rows


def made(seed: int = 0, B: int = 120, K: int = 15) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows, and counts with a column of the bag that shifts log-odds."""
    rng = np.random.default_rng(seed)
    income, name = rng.normal(size=B), [f"w{b}" for b in range(B)]
    bag = np.repeat(np.arange(B), K)
    age = rng.normal(size=B * K) + 0.7 * rng.normal(size=B)[bag]
    yes = rng.random(B * K) < expit(0.8 * age + 1.2 * income[bag])
    rows = pd.DataFrame({"ward": np.array(name)[bag], "age": age, "label": yes})
    counts = pd.DataFrame({
        "ward": name,
        "no": np.bincount(bag, ~yes, B).astype(int),
        "yes": np.bincount(bag, yes, B).astype(int),
        "income": income,
    })  # fmt: skip
    return rows, counts


def fitted(**options: object) -> tuple[bagwise.TableModel, pd.DataFrame, pd.DataFrame]:
    rows, counts = made()
    labels = counts if "context" in options else counts.drop(columns="income")
    model = bagwise.fit(
        rows[["ward", "age"]], "ward", labels, model="linear", progress=False, **options
    )
    return model, rows, counts


def test_a_column_of_the_label_file_absorbs_differences_between_bags() -> None:
    plain, _, _ = fitted()
    model, rows, counts = fitted(context="income")
    assert plain.facts.bags_differ is not None
    assert plain.facts.bags_differ.clearly
    assert model.facts.bags_differ is not None
    assert not model.facts.bags_differ.clearly
    assert model.facts.context is not None
    assert model.facts.context.helps
    assert "makes held-out bags more likely" in str(model.summary())
    effects = model.effects().set_index("column")
    assert effects.loc["income", "low"] > 0
    # Rows of known bags need no column of their own: the model knows that of their bag.
    by_bag = model.predict_proba(rows[["ward", "age"]])
    joined = rows.merge(counts[["ward", "income"]], on="ward")
    np.testing.assert_allclose(by_bag, model.predict_proba(joined[["age", "income"]]))


def test_rows_of_unknown_bags_are_of_an_average_one_and_that_is_said() -> None:
    model, rows, _ = fitted(context="income")
    one = rows[["age"]].head(1)
    with pytest.warns(UserWarning, match="income: 1 row has no value"):
        alone = model.predict_proba(one)
    new = one.assign(ward="elsewhere")
    with pytest.warns(UserWarning, match="no value"):
        np.testing.assert_allclose(model.predict_proba(new), alone)
    there = one.assign(income=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_proba(there)


def test_a_context_that_says_nothing_is_found_out() -> None:
    rows, counts = made()
    counts["income"] = np.random.default_rng(5).normal(size=len(counts))
    model = bagwise.fit(
        rows[["ward", "age"]], "ward", counts, model="linear", context="income", progress=False
    )
    assert model.facts.context is not None
    assert model.facts.context.helps is False
    assert "Fit without context" in str(model.summary())


def test_a_saved_model_labels_estimates_and_predicts_as_before(tmp_path: Path) -> None:
    model, rows, counts = fitted(context="income,mean(age)", out=tmp_path / "m")
    again = bagwise.load(tmp_path / "m")
    assert "context.json" in {file.name for file in (tmp_path / "m").iterdir()}
    X = rows[["ward", "age"]]
    np.testing.assert_allclose(model.predict_proba(X), again.predict_proba(X), rtol=1e-6)
    labeled = again.label(X, counts, bag="ward")
    assert labeled["label"].value_counts()["yes"] == counts["yes"].sum()
    shares = again.estimate(X.assign(old=X["age"] > 0), "old", labels=counts, bag="ward")
    assert len(shares) == 4
    falls = again.importance(X, counts, bag="ward")
    assert set(falls["column"]) == {"age", "income", "mean(age)"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("bags", []), ("columns", {"income": ["1"]}), ("columns", {"income": [1, 2]})],
)
def test_a_damaged_context_is_an_error(name: str, value: object) -> None:
    whole = {
        "format": 1,
        "bag_columns": ["ward"],
        "bags": ["a", "b"],
        "columns": {"x": ["1", None]},
    }
    assert BagContext.from_json(whole).names == ["x"]
    with pytest.raises(InputError, match=name):
        BagContext.from_json({**whole, name: value})


def test_means_are_those_of_pandas_and_of_text_shares_of_values() -> None:
    rows, counts = made(B=6)
    rows["town"] = np.where(rows["age"] > 0.5, "b", np.where(rows["age"] < -1, "c", "a"))
    rows["n"] = np.arange(len(rows)) % 3 + 1
    rows.loc[rows.index[:3], "age"] = np.nan
    names = ["mean(age)", "mean(town)", "income"]
    found = context_of(names, counts, open_rows(rows), ["ward"], ["no", "yes"], "n")
    assert found.names == ["income", "mean(age)", "mean(town=b)", "mean(town=c)"]
    there = rows.dropna(subset="age")
    wanted = (there["age"] * there["n"]).groupby(there["ward"]).sum()
    wanted /= there.groupby("ward")["n"].sum()
    np.testing.assert_allclose(found.columns["mean(age)"], wanted[list(found.bags)])
    share = (rows["n"] * (rows["town"] == "c")).groupby(rows["ward"]).sum()
    share /= rows.groupby("ward")["n"].sum()
    np.testing.assert_allclose(found.columns["mean(town=c)"], share[list(found.bags)])
    again = BagContext.from_json(found.to_json())
    np.testing.assert_allclose([float(x) for x in again.columns["mean(age)"].to_pylist()],
                               found.columns["mean(age)"].to_pylist())  # fmt: skip


def test_a_long_label_file_may_have_context_too() -> None:
    rows, counts = made(B=40)
    long = counts.melt(["ward", "income"], var_name="class", value_name="n")
    model = bagwise.fit(
        rows[["ward", "age"]], "ward", long, model="linear", context="income", progress=False
    )
    assert model.classes == ["no", "yes"]
    assert "income" in set(model.effects()["column"])


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ("age", r'is a column of the rows; leave it out, or say context="mean\(age\)"'),
        ("wealth", "no column 'wealth'"),
        ("mean(wealth)", "no column 'wealth'"),
        ("ward", "'ward', which names the bags"),
        ("mean(ward)", "'ward' names the bags"),
    ],
)
def test_a_context_that_is_not_there_is_an_error(context: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fitted(context=context)


def test_a_class_is_no_context() -> None:
    rows, counts = made(B=10)
    with pytest.raises(InputError, match="'yes', a class"):
        bagwise.fit(rows[["ward", "age"]], "ward", counts, classes=["no", "yes"], context="yes")


def test_a_column_of_context_has_one_value_for_each_bag() -> None:
    rows, counts = made(B=10)
    long = counts.melt(["ward", "income"], var_name="class", value_name="n")
    long.loc[0, "income"] += 1.0
    with pytest.raises(InputError, match="one value for each bag"):
        bagwise.fit(rows[["ward", "age"]], "ward", long, context="income", progress=False)


def test_a_value_that_one_bag_has_alone_is_no_code_for_a_missing_one() -> None:
    rows, counts = made()
    counts.loc[3, "income"] = 500.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = bagwise.fit(
            rows[["ward", "age"]], "ward", counts, model="linear", context=["income", "mean(age)"]
        )
    assert set(model.effects()["column"]) == {"age", "income", "mean(age)"}


def test_bags_that_are_left_out_have_no_part_in_context() -> None:
    rows, counts = made(B=60)
    model = bagwise.fit(
        rows[["ward", "age"]],
        "ward",
        counts[1:],
        model="linear",
        context=["income", "income"],
        skip_unmatched=True,
    )
    assert set(model.effects()["column"]) == {"age", "income"}
    assert model.fitted.context is not None
    assert sorted(model.fitted.context.bags) == sorted(counts.ward[1:])


def test_context_may_be_of_categories() -> None:
    rows, counts = made(B=60)
    counts["region"] = pd.Categorical(np.where(counts["income"] > 0, "north ", "south"))
    model = bagwise.fit(
        rows[["ward", "age"]],
        "ward",
        counts.drop(columns="income"),
        model="linear",
        context="region",
    )
    assert "region" in {column.split("=")[0] for column in model.effects()["column"]}


def test_context_that_never_varies_is_left_out() -> None:
    rows, counts = made(B=40)
    model = bagwise.fit(
        rows[["ward", "age"]], "ward", counts.assign(income=7), model="linear", context="income"
    )
    assert "Context" not in str(model.summary())
    assert set(model.effects()["column"]) == {"age"}
