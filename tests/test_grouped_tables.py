"""Tables whose rows are counted in several ways."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise import Bags, Groupings, InputError, Laplace, TableModel, bag_posterior
from bagwise.cli import app
from bagwise.likelihood import covariance, fit_for_intervals, fit_joint, fit_linear
from bagwise.tables.match.grouped_rows import held_out_together
from bagwise.tables.search.linear_search import table_splits
from bagwise.tables.sort.encoded_bags import EncodedBags

N = 400


def made(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 2)).round(3)
    y = (1.5 * x[:, 0] - x[:, 1] + rng.logistic(size=N) > 0).astype(int)
    rows = pd.DataFrame(
        {
            "ward": [f"W{i % 20:02d}" for i in rng.permutation(N)],
            "age": [f"A{i % 16:02d}" for i in rng.permutation(N)],
            "height": x[:, 0],
            "income": x[:, 1],
        }
    )
    return rows, y


def counted(rows: pd.DataFrame, y: np.ndarray, column: str) -> pd.DataFrame:
    found = pd.crosstab(rows[column], y)
    found.columns = pd.Index(["no", "yes"])
    return found.reset_index()


ROWS, Y = made()
WARDS, AGES = counted(ROWS, Y, "ward"), counted(ROWS, Y, "age")
BOTH = {"ward": WARDS, "age": AGES}


def fit(rows: pd.DataFrame, labels: Any, **options: Any) -> TableModel:
    return bagwise.fit(rows, labels=labels, model="linear", progress=False, **options)


@pytest.fixture(scope="module")
def composite() -> TableModel:
    return fit(ROWS, BOTH, joint=False)


@pytest.fixture(scope="module")
def joint() -> TableModel:
    return fit(ROWS, BOTH, joint=True)


def by_hand(rows: pd.DataFrame = ROWS, y: np.ndarray = Y) -> tuple[np.ndarray, Groupings]:
    """Standardized features and the groupings, with numpy and pandas alone."""
    X = rows[["height", "income"]].to_numpy()
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32).astype(np.float64)
    found = {}
    for name in ("ward", "age"):
        codes = pd.Categorical(rows[name]).codes.astype(int)
        there = codes >= 0
        counts = np.zeros((codes.max() + 1, 2), int)
        np.add.at(counts, (codes[there], y[there]), 1)
        found[name] = (codes, Bags(np.bincount(codes[there]), counts))
    return X, Groupings(found)


def test_one_grouping_in_a_dictionary_is_the_plain_call() -> None:
    plain, named = fit(ROWS, WARDS, bag="ward"), fit(ROWS, {"ward": WARDS})
    pd.testing.assert_frame_equal(plain.effects(), named.effects())
    assert plain.facts.held_out == named.facts.held_out
    assert not named.facts.data.groupings
    assert "age" in plain.effects()["column"].str.split("=").str[0].to_list()


def test_a_fit_to_each_grouping_by_itself_is_that_of_stacked_arrays(composite: TableModel) -> None:
    X, groupings = by_hand()
    rows, bags = groupings.stacked()
    facts = composite.facts
    assert not facts.settings.joint
    assert facts.settings.ridge is not None
    expected = fit_linear(X[rows], bags, facts.settings.ridge)
    found = composite.fitted.model.log_probs(X.astype(np.float32))
    T = facts.settings.temperature
    shape = expected.logits(X) / T
    np.testing.assert_allclose(
        found[:, 1] - found[:, 0], shape[:, 1] - shape[:, 0], atol=0.02, rtol=0.02
    )


def test_a_joint_fit_is_that_of_arrays(joint: TableModel) -> None:
    X, groupings = by_hand()
    settings = joint.facts.settings
    assert settings.joint
    assert settings.ridge is not None
    expected = fit_joint(X, groupings, settings.ridge).logits(X) / settings.temperature
    found = joint.fitted.model.log_probs(X.astype(np.float32))
    np.testing.assert_allclose(
        found[:, 1] - found[:, 0], expected[:, 1] - expected[:, 0], atol=0.02, rtol=0.02
    )


def test_intervals_know_that_bags_share_rows(composite: TableModel) -> None:
    X, groupings = by_hand()
    rows, bags = groupings.stacked()
    model = fit_linear(X[rows], bags, composite.facts.settings.ridge)  # type: ignore[arg-type]
    fitted = fit_for_intervals(X[rows], bags, model)
    expected = covariance(X[rows], bags, fitted, rows=rows).standard_errors()[0]
    found = composite.fitted.intervals
    assert found is not None
    np.testing.assert_allclose(found.standard_errors()[0], expected, rtol=0.02)
    alone = covariance(X[rows], bags, fitted).standard_errors()[0]
    assert not np.allclose(alone, expected, rtol=0.02)


def test_labels_are_of_the_joint_posterior(joint: TableModel) -> None:
    _, groupings = by_hand()
    log_probs = np.log(joint.predict_proba(ROWS).to_numpy())
    expected = bag_posterior(log_probs, groupings).weights
    found = joint.label(ROWS, BOTH)
    np.testing.assert_allclose(found[["p_no", "p_yes"]].to_numpy(), expected, atol=2e-3)
    by_ward = pd.crosstab(ROWS["ward"], found["label"].to_numpy())
    np.testing.assert_array_equal(by_ward.to_numpy(), WARDS[["no", "yes"]].to_numpy())
    one = joint.label(ROWS, WARDS, bag="ward")
    assert (found["most_probable"] == np.array(["no", "yes"])[Y]).mean() > (
        one["most_probable"] == np.array(["no", "yes"])[Y]
    ).mean() - 0.01


def test_bounds_are_those_of_all_groupings(joint: TableModel) -> None:
    of_each = [joint.estimate(ROWS, "age", labels={k: v}) for k, v in BOTH.items()]
    found = joint.estimate(ROWS, "age", labels=BOTH)
    np.testing.assert_allclose(found["least"], np.maximum(*(x["least"] for x in of_each)))
    np.testing.assert_allclose(found["most"], np.minimum(*(x["most"] for x in of_each)))
    model_alone = joint.estimate(ROWS, "age")["share"]
    np.testing.assert_allclose(found["share"], np.clip(model_alone, found["least"], found["most"]))


def test_rows_without_a_bag_in_one_grouping_stay() -> None:
    rows = ROWS.copy()
    rows.loc[::7, "age"] = None
    labels = {"ward": WARDS, "age": counted(rows.dropna(), Y[rows["age"].notna()], "age")}
    model = fit(rows, labels, joint=False)
    assert model.facts.data.rows_used == N
    assert [g.rows for g in model.facts.data.groupings] == [N, int(rows["age"].notna().sum())]
    found = model.label(rows, labels)
    _, groupings = by_hand(rows)
    expected = bag_posterior(np.log(model.predict_proba(rows).to_numpy()), groupings).weights
    np.testing.assert_allclose(found[["p_no", "p_yes"]].to_numpy(), expected, atol=2e-3)
    with pytest.warns(UserWarning, match="58 rows of the table have no bag"):
        of_ages = model.estimate(rows, "ward", labels={"age": labels["age"]}, skip_unmatched=True)
    assert of_ages["rows"].sum() == 2 * (N - 58)
    both = model.estimate(rows, "income", labels=labels)  # a group is a row
    assert ((both["least"] == 0) & (both["most"] == 1)).any()


def test_a_row_of_no_bag_at_all_is_an_error() -> None:
    rows = ROWS.copy()
    rows.loc[3, ["ward", "age"]] = None
    with pytest.raises(InputError, match="in 1 row of the table no bag is named"):
        fit(rows, BOTH)


def test_kinds_of_numbers_may_differ() -> None:
    noisy = AGES.assign(no=AGES["no"] + 2, yes=AGES["yes"] - 1)
    model = fit(ROWS, {"ward": WARDS, "age": noisy}, labels_are={"age": Laplace(2)}, joint=False)
    by_name = {g.name: g for g in model.facts.data.groupings}
    assert by_name["ward"].inexact_bags == 0
    assert by_name["age"].inexact_bags == 16
    assert "age (16 bags, noisy counts, Laplace noise of width 2)" in model.summary()
    with pytest.raises(InputError, match="names 'size', but labels has 'ward', 'age'"):
        fit(ROWS, BOTH, labels_are={"size": "counts"})


def test_contradictions_name_the_bags_by_their_names() -> None:
    wrong = AGES.copy()
    wrong.loc[2, ["no", "yes"]] += [1, -1]
    with pytest.raises(InputError, match=r"bags 'W00', .* of 'ward' and bags 'A00', .* of 'age'"):
        fit(ROWS, {"ward": WARDS, "age": wrong})
    nested = ROWS.assign(county=ROWS["ward"].str[:2])
    counties = counted(nested, Y, "county")
    counties.loc[1, ["no", "yes"]] = [counties.loc[1, ["no", "yes"]].sum(), 0]
    with pytest.raises(InputError, match=r"of 'ward' and bag.* 'W1' of 'county' contradict"):
        fit(nested, {"ward": WARDS, "county": counties})


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ({"ward": WARDS, "town": AGES}, {}, "town"),
        ({}, {}, "labels is empty"),
        ({"ward,age": WARDS, "age,ward": AGES}, {}, "two tables of labels are about the bags of"),
        ({"ward": WARDS, "age": AGES.assign(no=1)}, {}, "age: the numbers of bag 'A00' sum to"),
        ({"ward": WARDS[1:], "age": AGES}, {}, "ward: the bags of the two files do not match"),
        (BOTH, {"bag": "ward"}, "Leave bag out"),
        (BOTH, {"bag_effects": True}, "several groupings cannot be learned from with bag_effects"),
        (BOTH, {"memory": "1GB"}, "several groupings cannot be learned from with memory"),
        (BOTH, {"lr": 0.1}, "by maximum likelihood; leave out the options"),
        (WARDS, {"bag": "ward", "joint": True}, "joint is about several groupings"),
        (BOTH, {"features": ["age"]}, "'age' is both a feature and excluded"),
        (
            {"ward": WARDS, "age": AGES.rename(columns={"no": "never"})},
            {},
            "the classes of 'ward' are no, yes, those of 'age' never, yes",
        ),
    ],
)
def test_what_cannot_be_is_an_error(labels: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        fit(ROWS, labels, **options)


def test_perceptrons_are_refused_or_not_tried() -> None:
    with pytest.raises(InputError, match="cannot be learned from with model"):
        bagwise.fit(ROWS, labels=BOTH, model="mlp", progress=False)
    with pytest.warns(UserWarning, match="was tried: perceptrons do not take several"):
        model = bagwise.fit(ROWS, labels=BOTH, joint=False, progress=False)
    assert {tried.model for tried in model.facts.tried} == {"linear"}


def test_bag_columns_are_no_features(composite: TableModel) -> None:
    assert composite.effects()["column"].to_list() == ["height", "income"]


def test_held_out_bags_choose_between_joint_and_composite() -> None:
    model = fit(ROWS, BOTH)
    losses = {tried.joint: tried.bag_loss for tried in reversed(model.facts.tried)}
    assert set(losses) == {True, False}
    assert model.facts.settings.joint == (losses[True] < losses[False])


def test_bags_within_others_are_held_out_together() -> None:
    county = np.repeat([0, 1, 2], [4, 4, 2])
    ward = np.repeat([0, 1, 2, 3, 4], 2)
    age = np.arange(10) % 2

    def bags(of_row: np.ndarray) -> tuple[np.ndarray, Bags]:
        sizes = np.bincount(of_row)
        return of_row, Bags(sizes, np.stack([sizes, 0 * sizes], 1))

    groupings = Groupings({"ward": bags(ward), "county": bags(county), "age": bags(age)})
    assert held_out_together(groupings).tolist() == [0, 0, 1, 1, 2, 0, 1, 2, 3, 4]
    everyone = Groupings({"ward": bags(ward), "all": bags(0 * ward)})
    assert held_out_together(everyone).tolist() == [0, 1, 2, 3, 4, 5]
    left = groupings.select(np.setdiff1d(np.arange(10), [0, 5]))
    assert [len(g.bags) for g in left] == [4, 2, 2]
    assert left.groupings[0].bag_of_row.tolist() == [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3]
    assert left.groupings[1].bag_of_row.tolist() == [-1] * 4 + [0] * 4 + [1] * 2


def test_a_bag_of_nearly_all_rows_is_never_held_out() -> None:
    rows = ROWS.assign(country="here")
    labels = {"ward": WARDS, "country": counted(rows, Y, "country")}
    options = {"features": ["height", "income"], "joint": False}
    with_total = fit(rows, labels, **options)
    assert with_total.facts.data.n_bags == 21
    assert with_total.facts.held_out.n_bags == 20
    assert "country=here" not in with_total.fitted.held_out.decode()
    alone = fit(rows, {"ward": WARDS}, features=options["features"])
    assert with_total.facts.verdict == alone.facts.verdict


def test_wards_of_a_county_are_held_out_with_it() -> None:
    rows = ROWS.assign(county=[f"C{int(ward[1:]) // 2:02d}" for ward in ROWS["ward"]])
    labels = {"ward": WARDS, "county": counted(rows, Y, "county")}
    X, groupings = by_hand(rows)
    codes = pd.Categorical(rows["county"]).codes.astype(int)
    sizes = np.bincount(codes)
    counties = Bags(sizes, labels["county"][["no", "yes"]].to_numpy())
    groupings = Groupings(
        {"ward": (groupings.groupings[0].bag_of_row, groupings.groupings[0].bags)}
        | {"county": (codes, counties)}
    )
    stacked, bags = groupings.stacked()
    splits = table_splits(EncodedBags(X[stacked], bags, stacked), groupings, seed=0)
    assert sorted(np.concatenate([held_out for _, held_out in splits])) == list(range(30))
    for kept, held_out in splits:
        seen, unseen = (set(stacked[bags.rows(part)]) for part in (kept, held_out))
        assert not seen & unseen
    assert fit(rows, labels, joint=False).facts.held_out.n_bags == 30


def test_a_saved_model_is_the_same(joint: TableModel, tmp_path: Path) -> None:
    joint.save(tmp_path / "model")
    again = bagwise.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.effects(), joint.effects())
    assert again.facts.settings.joint
    assert [g.name for g in again.facts.data.groupings] == ["ward", "age"]
    pd.testing.assert_frame_equal(again.label(ROWS, BOTH), joint.label(ROWS, BOTH))
    assert "Groupings: ward (20 bags); age (16 bags)" in again.summary()
    assert "linear model of all groupings together" in again.summary()
    again.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "ward (20 bags); age (16 bags)" in page
    with pytest.raises(InputError, match="say with bag='ward' or 'age' whose"):
        again.label(ROWS, WARDS)
    held_out = (tmp_path / "model" / "held_out_bags.csv").read_text()
    assert "ward=W00,20," in held_out
    assert "age=A00,25," in held_out


def test_labels_of_rows_go_with_several_groupings() -> None:
    rows = ROWS.assign(known=np.where(np.arange(N) % 10 == 0, np.array(["no", "yes"])[Y], None))
    rows.loc[0, ["ward", "age"]] = None  # labeled, and in no bag
    ward, age = (counted(rows[1:], Y[1:], name) for name in ("ward", "age"))
    labels = {"ward": ward, "age": age}
    model = fit(rows, labels, row_labels="known", joint=False)
    assert model.facts.data.labeled_rows == 40
    found = model.label(rows, labels, row_labels="known")
    told = rows["known"].notna().to_numpy()
    assert (found["label"].to_numpy()[told] == rows["known"].to_numpy()[told]).all()
    assert found["label"].iloc[0] == rows["known"].iloc[0]


def test_the_command_line_does_the_same(joint: TableModel, tmp_path: Path) -> None:
    files = {"rows": ROWS, "wards": WARDS, "ages": AGES}
    for name, frame in files.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    rows, wards, ages = (str(tmp_path / f"{name}.csv") for name in files)
    counts = ["--bag", "ward", "--labels", wards, "--bag", "age", "--labels", ages]
    model, labels = str(tmp_path / "model"), str(tmp_path / "labels.csv")

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
        assert done.exit_code == code, done.output
        return done.stdout if "--json" in arguments else done.output

    said = run("fit", rows, *counts, "--model", "linear", "--joint", "--out", model)
    assert "ward (20 bags); age (16 bags)" in said
    pd.testing.assert_frame_equal(bagwise.load(model).effects(), joint.effects())
    said = run("label", model, rows, *counts, "--out", labels)
    assert "it has the counts of ward" in said
    expected = joint.label(ROWS, BOTH)
    found = pd.read_csv(labels)
    assert (found["label"] == expected["label"]).all()
    np.testing.assert_allclose(found["p_yes"], expected["p_yes"], atol=1e-6)
    shares = json.loads(run("estimate", model, rows, "--by", "age", *counts, "--json"))
    of_python = joint.estimate(ROWS, "age", labels=BOTH)
    np.testing.assert_allclose([s["least"] for s in shares], of_python["least"])
    falls = json.loads(run("explain", model, rows, *counts, "--json"))
    np.testing.assert_allclose([f["fall"] for f in falls], joint.importance(ROWS, BOTH)["fall"])
    run("report", model, rows, *counts, "--by", "age", "--out", str(tmp_path / "page.html"))

    (tmp_path / "fit.toml").write_text(
        f"bag = ['ward', 'age']\nlabels = ['{wards}', '{ages}']\nlabels-are = 'counts'\n"
        "model = 'linear'\njoint = true\n"
    )
    other = str(tmp_path / "other")
    run("fit", rows, "--config", str(tmp_path / "fit.toml"), "--out", other)
    pd.testing.assert_frame_equal(bagwise.load(other).effects(), joint.effects())

    said = run("fit", rows, *counts[:6], "--out", other, code=2)
    assert "--bag is given 2 times and --labels once" in said
    said = run("fit", rows, *counts[:4], *counts[:4], "--out", other, code=2)
    assert "--bag ward is given twice" in said
    said = run("fit", rows, *counts, *["--labels-are", "counts"] * 3, "--out", other, code=2)
    assert "--labels-are is given 3 times, and --labels 2 times" in said
