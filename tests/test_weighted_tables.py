"""Tables whose rows stand for several identical ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bagwise
import bagwise.limits
from bagwise import Bags, InputError, Laplace, TableModel
from bagwise.cli import app
from bagwise.tables.sort.encoded_bags import EncodedBags


def made() -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Cells of a census with the number of people in each, counts of wards, and who said yes."""
    rng = np.random.default_rng(1)
    n = 240
    cells = pd.DataFrame(
        {
            "ward": [f"W{i % 24:02d}" for i in range(n)],
            "age": rng.integers(2, 8, size=n) * 10,
            "sex": np.array(["f", "m"])[rng.integers(2, size=n)],
            "people": rng.integers(1, 12, size=n),
        }
    )
    p = 1 / (1 + np.exp(2.5 - cells["age"] / 20 - (cells["sex"] == "m")))
    yes = rng.binomial(cells["people"], p)
    counts = pd.DataFrame({"ward": cells["ward"], "no": cells["people"] - yes, "yes": yes})
    return cells, counts.groupby("ward").sum().reset_index(), yes


CELLS, COUNTS, YES = made()
PEOPLE = (
    CELLS.loc[CELLS.index.repeat(CELLS["people"])].drop(columns="people").reset_index(drop=True)
)
COPIES = CELLS["people"].to_numpy()


def fit(rows: Any, labels: Any = COUNTS, **options: Any) -> TableModel:
    options = {"bag": "ward", "model": "linear", "progress": False, **options}
    return bagwise.fit(rows, labels=labels, **options)


@pytest.fixture(scope="module")
def weighted() -> TableModel:
    return fit(CELLS, weights="people")


@pytest.fixture(scope="module")
def written_out() -> TableModel:
    """Identical rows are not taken together, which is tested below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncodedBags, "compact", lambda self: self)
        return fit(PEOPLE)


def same(one: Any, two: Any, tolerance: float = 1e-6) -> None:
    pd.testing.assert_frame_equal(one, two, atol=tolerance, rtol=tolerance)


def test_a_fit_is_that_of_the_rows_written_out(
    weighted: TableModel, written_out: TableModel
) -> None:
    same(weighted.effects(), written_out.effects())
    one, two = weighted.facts, written_out.facts
    assert one.data.rows_used == two.data.rows_used == len(PEOPLE)
    assert one.data.sizes == two.data.sizes
    assert one.settings == two.settings
    np.testing.assert_allclose(one.held_out.log_likelihood, two.held_out.log_likelihood, atol=1e-7)
    np.testing.assert_allclose(one.held_out.gain_error, two.held_out.gain_error, atol=1e-7)
    assert one.held_out.coverage == two.held_out.coverage
    np.testing.assert_allclose(one.held_out.error, two.held_out.error, atol=1e-6)  # type: ignore[arg-type]
    for a, b in zip(one.surprising, two.surprising, strict=True):
        assert (a.bag, a.size, a.counts) == (b.bag, b.size, b.counts)
    assert weighted.fitted.held_out == written_out.fitted.held_out
    assert one.bags_differ is not None
    assert two.bags_differ is not None
    np.testing.assert_allclose(one.bags_differ.p_value, two.bags_differ.p_value, atol=1e-6)
    assert (one.data.weights, one.data.table_rows) == ("people", len(CELLS))


def test_what_columns_mean_is_that_of_the_rows_written_out(
    weighted: TableModel, written_out: TableModel
) -> None:
    one, two = weighted.fitted.columns.columns, written_out.fitted.columns.columns
    assert [c.name for c in one] == [c.name for c in two] == ["age", "sex"]
    np.testing.assert_allclose([one[0].mean, one[0].std], [two[0].mean, two[0].std])


def test_labels_are_counts_of_each_class(weighted: TableModel, written_out: TableModel) -> None:
    found = weighted.label(CELLS, COUNTS)
    assert list(found.columns) == ["most_probable", "n_no", "n_yes", "p_no", "p_yes"]
    assert (found["n_no"] + found["n_yes"] == CELLS["people"]).all()
    by_ward = found[["n_no", "n_yes"]].groupby(CELLS["ward"]).sum()
    np.testing.assert_array_equal(by_ward.to_numpy(), COUNTS[["no", "yes"]].to_numpy())
    people = written_out.label(PEOPLE, COUNTS)
    np.testing.assert_allclose(np.repeat(found["p_yes"], COPIES), people["p_yes"], atol=1e-5)


def test_shares_bounds_and_scores_count_weights(
    weighted: TableModel, written_out: TableModel
) -> None:
    same(
        weighted.estimate(CELLS, "sex", labels=COUNTS),
        written_out.estimate(PEOPLE, "sex", labels=COUNTS),
    )
    same(weighted.estimate(CELLS, "age"), written_out.estimate(PEOPLE, "age"))
    named = CELLS.rename(columns={"people": "n"})
    same(weighted.estimate(named, "age", weights="n"), weighted.estimate(CELLS, "age"))
    said = pd.Series(np.where(YES > COPIES / 2, "yes", "no"))
    one = weighted.evaluate(CELLS.assign(said=said), "said")
    repeated = said.repeat(COPIES).to_numpy()
    two = written_out.evaluate(PEOPLE.assign(said=repeated), "said")
    assert one.n == two.n == len(PEOPLE)
    np.testing.assert_array_equal(one.confusion, two.confusion)
    np.testing.assert_allclose([one.log_loss, one.macro_auc], [two.log_loss, two.macro_auc])


def test_predictions_are_of_single_rows(weighted: TableModel, written_out: TableModel) -> None:
    found, expected = (m.predict_proba(CELLS)["yes"] for m in (weighted, written_out))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"labels_are": Laplace(2)},
        {
            "labels_are": "sample",
            "labels": COUNTS.assign(no=2 * COUNTS["no"], yes=2 * COUNTS["yes"]),
        },
        {"bag_effects": True},
    ],
)
def test_other_kinds_of_fits_are_those_of_the_rows_written_out(options: Any) -> None:
    one = fit(CELLS, weights="people", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncodedBags, "compact", lambda self: self)
        two = fit(PEOPLE, **options)
    assert one.facts.settings.ridge == two.facts.settings.ridge
    same(one.effects(), two.effects(), 2e-3)
    same(one.estimate(CELLS, "sex"), two.estimate(PEOPLE, "sex"), 1e-3)


def test_shares_and_one_class_alone_are_of_people() -> None:
    total = COUNTS["no"] + COUNTS["yes"]
    shares = pd.DataFrame({"ward": COUNTS["ward"], "no": COUNTS["no"] / total})
    shares["yes"] = 1 - shares["no"]
    expected = fit(CELLS, weights="people").effects()
    same(fit(CELLS, shares, weights="people").effects(), expected)
    alone = COUNTS.drop(columns="no")
    same(fit(CELLS, alone, weights="people", classes=["yes", "no"]).effects(), expected)


def test_labels_of_rows_are_those_of_all_that_a_row_stands_for() -> None:
    rows = CELLS.assign(known=np.where(YES == COPIES, "yes", None))
    model = fit(rows, weights="people", row_labels="known")
    assert model.facts.data.labeled_rows == COPIES[YES == COPIES].sum()
    found = model.label(rows, COUNTS, row_labels="known")
    assert (found["n_no"][YES == COPIES] == 0).all()


def test_identical_rows_are_taken_together_with_the_same_result(written_out: TableModel) -> None:
    found = fit(PEOPLE)
    same(found.effects(), written_out.effects())
    assert found.facts.held_out.n_instances == len(PEOPLE)
    assert found.fitted.held_out == written_out.fitted.held_out


def test_only_identical_rows_of_one_bag_are_taken_together() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(60, 2)).astype(np.float32)
    bags = Bags([30, 30], [[10, 20], [15, 15]])
    found = EncodedBags(X, bags).compact()
    assert found.bags.sizes.tolist() == [4, 4]
    assert found.bags.totals.tolist() == [30, 30]
    for b, part in enumerate((X[:30], X[30:])):
        distinct, n = np.unique(part, axis=0, return_counts=True)
        own = slice(4 * b, 4 * b + 4)
        order = np.lexsort(found.inputs[own].T[::-1])  # type: ignore[union-attr]
        np.testing.assert_array_equal(found.inputs[own][order], distinct)  # type: ignore[index]
        np.testing.assert_array_equal(found.bags.copies[own][order], n)
    different = EncodedBags(rng.normal(size=(60, 2)).astype(np.float32), bags)
    assert different.compact() is different


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2.5, "which has 2.5 in row 4; the number of identical rows"),
        (0, "which has 0 in row 4; .* Leave out rows that stand for none"),
        (-3, "which has -3 in row 4"),
        (None, "which has no number in row 4; .* Survey weights"),
    ],
)
def test_other_weights_are_refused(value: Any, message: str) -> None:
    rows = CELLS.astype({"people": object})
    rows.loc[3, "people"] = value
    with pytest.raises(InputError, match=message):
        fit(rows.astype({"people": float}), weights="people")


def test_weights_that_cannot_be_are_errors(weighted: TableModel) -> None:
    with pytest.raises(InputError, match="no column 'n'"):
        fit(CELLS, weights="n")
    with pytest.raises(InputError, match="sum to"):
        fit(CELLS)  # counts are of people
    with pytest.raises(InputError, match="'ward', which names bags or has labels"):
        fit(CELLS, weights="ward")
    with pytest.raises(InputError, match="rows with weights cannot be learned from with memory"):
        fit(CELLS, weights="people", memory="1GB")
    taken = CELLS.assign(n_no=1)
    with pytest.raises(InputError, match="has a column 'n_no', and so will the output"):
        weighted.label(taken, COUNTS, out="labels.csv")


def test_perceptrons_are_trained_on_the_rows_written_out() -> None:
    options = {"model": "mlp", "lr": 0.01, "epochs": 2}
    one, two = fit(CELLS, weights="people", **options), fit(PEOPLE, **options)
    np.testing.assert_allclose(one.predict_proba(CELLS), two.predict_proba(CELLS), atol=1e-4)
    np.testing.assert_allclose(
        one.facts.held_out.log_likelihood, two.facts.held_out.log_likelihood, atol=1e-4
    )


def test_perceptrons_are_not_tried_where_people_are_too_many() -> None:
    limits = bagwise.limits.Limits(linear_cells=2000)  # 240 cells have 960, 1,357 people more
    with pytest.warns(UserWarning, match=r"only the linear model was tried: the rows, written out"):
        model = fit(CELLS, weights="people", model="auto", limits=limits)
    assert {tried.model for tried in model.facts.tried} == {"linear"}
    with pytest.raises(InputError, match="does not take weights; leave out its options"):
        fit(CELLS, weights="people", model="mlp", limits=limits)
    with pytest.raises(InputError, match="up to 500 cells are possible"):
        fit(CELLS, weights="people", limits=bagwise.limits.Limits(linear_cells=500))


def test_weights_and_several_groupings_go_together() -> None:
    by_age = pd.DataFrame({"age": CELLS["age"], "no": COPIES - YES, "yes": YES})
    rows = CELLS.assign(region=CELLS["ward"].str[1], height=CELLS["age"] + 0.0)
    labels = {"ward": COUNTS, "age": by_age.groupby("age").sum().reset_index()}
    people = rows.loc[rows.index.repeat(COPIES)].drop(columns="people").reset_index(drop=True)
    one = fit(rows, labels, weights="people", bag=None, joint=True)
    two = fit(people, labels, bag=None, joint=True)
    same(one.effects(), two.effects(), 1e-3)
    p = one.label(rows, labels)["p_yes"]
    np.testing.assert_allclose(np.repeat(p, COPIES), two.label(people, labels)["p_yes"], atol=5e-3)


def test_the_command_line_takes_row_counts(weighted: TableModel, tmp_path: Path) -> None:
    CELLS.to_csv(tmp_path / "cells.csv", index=False)
    COUNTS.to_csv(tmp_path / "counts.csv", index=False)
    cells, counts = str(tmp_path / "cells.csv"), str(tmp_path / "counts.csv")
    model, labels = str(tmp_path / "model"), str(tmp_path / "labels.csv")
    known = ["--bag", "ward", "--labels", counts, "--row-counts", "people"]

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
        assert done.exit_code == code, done.output
        return done.stdout if "--json" in arguments else done.output

    said = run("fit", cells, *known, "--model", "linear", "--out", model)
    assert "in 240 rows of the table" in said
    same(bagwise.load(model).effects(), weighted.effects())
    said = run("label", model, cells, *known, "--out", labels)
    assert "Use `n_...` for totals: it has exactly the counts of the bags." in said
    expected = weighted.label(CELLS, COUNTS)
    assert (pd.read_csv(labels)["n_yes"] == expected["n_yes"]).all()
    run("label", model, cells, *known, "--out", labels)  # earlier labels are replaced
    shares = json.loads(run("estimate", model, cells, "--by", "sex", "--json"))
    expected = weighted.estimate(CELLS, "sex")
    np.testing.assert_allclose([s["share"] for s in shares], expected["share"])
    assert [s["rows"] for s in shares] == expected["rows"].to_list()
    run("report", model, cells, *known, "--by", "sex", "--out", str(tmp_path / "page.html"))
    run("explain", model, cells, *known)
    wrong = ["--bag", "ward", "--labels", counts, "--row-counts", "sex", "--out", model]
    assert "the column 'sex' has " in run("fit", cells, *wrong, code=3)
