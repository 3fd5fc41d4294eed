from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bagwise
from bagwise import InputError, TableModel

INPUTS = Path(__file__).parent / "golden" / "inputs"
ROWS, COUNTS, NEW = (INPUTS / f"patients{part}.csv" for part in ("", "_counts", "_new"))
FIT: dict[str, Any] = {
    "bag": "ward",
    "model": "linear",
    "ordered": {"size": ["S", "M", "L"]},
    "progress": False,
}


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)


@pytest.fixture(scope="module")
def model() -> TableModel:
    return bagwise.fit(read(ROWS), labels=read(COUNTS), **FIT)


@pytest.fixture(scope="module")
def of_files() -> TableModel:
    return bagwise.fit(ROWS, labels=COUNTS, **FIT)


def test_frames_give_the_model_of_files(model: TableModel, of_files: TableModel) -> None:
    pd.testing.assert_frame_equal(model.effects(), of_files.effects())
    pd.testing.assert_frame_equal(model.predict_proba(read(NEW)), of_files.predict_proba(NEW))


def test_polars_and_pyarrow_give_the_same_numbers_in_their_own_kind(model: TableModel) -> None:
    expected = model.predict_proba(read(NEW)).to_numpy()
    of_polars = bagwise.fit(pl.read_csv(ROWS), labels=pl.read_csv(COUNTS), **FIT)
    found = of_polars.predict_proba(pl.read_csv(NEW))
    assert isinstance(found, pl.DataFrame)
    assert isinstance(of_polars.effects(), pl.DataFrame)
    np.testing.assert_array_equal(found.to_numpy(), expected)
    tables = [pa.Table.from_pandas(read(path)) for path in (ROWS, COUNTS, NEW)]
    of_arrow = bagwise.fit(tables[0], labels=tables[1], **FIT)
    in_arrow = of_arrow.predict_proba(tables[2])
    assert isinstance(in_arrow, pa.Table)
    np.testing.assert_array_equal(in_arrow.to_pandas().to_numpy(), expected)


def test_results_have_the_index_of_the_rows(model: TableModel) -> None:
    new = read(NEW)
    new.index = [f"row {place}" for place in range(len(new))]
    labels = model.predict(new)
    assert labels.name == "label"
    assert labels.index.equals(new.index)
    shuffled = new.sample(frac=1, random_state=0)
    pd.testing.assert_series_equal(model.predict(shuffled), labels[shuffled.index])
    most = model.predict_proba(new).idxmax(axis=1)
    assert (most == labels).all()


def test_the_bags_of_counts_may_be_their_index(model: TableModel) -> None:
    again = bagwise.fit(read(ROWS), labels=read(COUNTS).set_index("ward"), **FIT)
    pd.testing.assert_frame_equal(again.effects(), model.effects())


@pytest.mark.filterwarnings("ignore:income")  # has values far from all others
def test_labels_have_the_counts_and_keep_the_rows_that_have_a_bag(model: TableModel) -> None:
    rows, counts = read(ROWS), read(COUNTS)
    found = model.label(rows, counts)
    assert found.index.equals(rows.index)
    totals = pd.crosstab(rows["ward"], found["label"])
    for label in model.classes:
        assert totals[label].to_dict() == counts.set_index("ward")[label].to_dict()
    some = model.label(rows, counts[1:], skip_unmatched=True)
    assert some.index.equals(rows.index[rows["ward"] != counts["ward"][0]])


def test_intervals_shrink_with_their_level(model: TableModel) -> None:
    narrow, wide = model.conf_int(0.5), model.conf_int(0.95)
    assert ((narrow["high"] - narrow["low"]) < (wide["high"] - wide["low"])).all()
    effects = model.effects().sort_values("column")
    assert np.allclose(effects["low"], wide.sort_values("column")["low"])


@pytest.mark.filterwarnings("ignore:income")
def test_shares_of_groups_have_intervals_and_with_counts_bounds(model: TableModel) -> None:
    shares = model.estimate(read(NEW), by="smoker")
    assert shares.groupby("smoker")["share"].sum().tolist() == pytest.approx([1, 1])
    assert ((shares["low"] <= shares["share"]) & (shares["share"] <= shares["high"])).all()
    bounded = model.estimate(read(ROWS), by="smoker", labels=read(COUNTS))
    assert (bounded["least"] <= bounded["most"]).all()
    assert "least" not in shares


def test_a_saved_model_is_read_again(model: TableModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = bagwise.load(tmp_path / "model")
    new = read(NEW)
    pd.testing.assert_frame_equal(again.predict_proba(new), model.predict_proba(new))
    assert repr(again) == repr(model)
    assert "26 bags" in repr(model)
    again.report(tmp_path / "report.html")
    assert "a data frame</title>" in (tmp_path / "report.html").read_text()


def test_what_was_left_out_of_a_fit_is_said(caplog: pytest.LogCaptureFixture) -> None:
    rows = read(ROWS).assign(country="DE", note=[f"note {n}" for n in range(len(read(ROWS)))])
    labels = read(COUNTS)
    skipped, labels = labels["ward"][0], labels[1:]
    with caplog.at_level("INFO", logger="bagwise"):
        found = bagwise.fit(rows, labels=labels, skip_unmatched=True, **FIT)
    used = int((rows["ward"] != skipped).sum())
    for text in (found.summary(), found._repr_html_(), caplog.text):
        assert f"Bags left out: 1 ({skipped})" in text
        assert "country (always DE)" in text
        assert "note (almost every row has a different text)" in text
    assert f"{used:,} of {len(rows):,} rows in {len(labels)} bags" in found.summary()


def test_a_notebook_shows_names_escaped() -> None:
    rows = pd.DataFrame({"bag": list("aabb") * 5, "<b>x": np.arange(20.0) % 7})
    counts = pd.DataFrame({"bag": ["a", "b"], "<i>no": [3, 6], "yes": [7, 4]})
    shown = bagwise.fit(rows, "bag", counts, model="linear", progress=False)._repr_html_()
    assert "<i>no" not in shown
    assert "<b>x" not in shown
    assert "&lt;i&gt;no" in shown


def test_pictures_are_drawn_on_the_axes_that_are_given(model: TableModel) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots(2, 2)
    assert model.plot_effects(axes=axes[0, 0]) is axes[0, 0]
    assert model.plot_shares(read(NEW), by="smoker", axes=axes[0, 1]) is axes[0, 1]
    assert model.plot_calibration(axes=axes[1, 0]) is axes[1, 0]
    assert model.plot_held_out("sick", axes=axes[1, 1]) is axes[1, 1]
    with pytest.raises(InputError, match="label is 'dead'; one of sick, well is expected"):
        model.plot_held_out("dead")


def test_rows_unlike_those_of_the_fit_are_a_warning(model: TableModel) -> None:
    new = read(NEW)
    new.loc[1, "income"] = 1e9
    new.loc[2, "town"] = "Atlantis"
    for ask in (model.predict, lambda rows: model.estimate(rows, by="smoker")):
        with pytest.warns(UserWarning, match="income: 1 row has an extreme value") as caught:
            ask(new)
        assert [w.filename for w in caught] == [__file__]  # one warning, of the line that asked
        assert "town: 1 row has a category not seen in training" in str(caught[0].message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bag": "street"}, "has no column 'street'"),
        ({"exclude": "street"}, "there is no column 'street'"),
        ({"model": "tree"}, "model is 'tree'"),
    ],
)
def test_mistakes_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bagwise.fit(read(ROWS), labels=read(COUNTS), **{**FIT, **change})


def test_columns_of_values_that_do_not_go_together_are_named() -> None:
    rows = pd.DataFrame({"bag": ["a", "b"], "x": [{"a": 1}, "two"]})
    with pytest.raises(InputError, match="the column 'x' of the table holds values that do not go"):
        bagwise.fit(rows, "bag", pd.DataFrame({"bag": ["a", "b"], "no": [1, 0], "yes": [0, 1]}))


@pytest.mark.filterwarnings("ignore:income")  # some are cut
def test_predictions_and_labels_go_to_files_and_streams(model: TableModel, tmp_path: Path) -> None:
    rows, counts = read(ROWS), read(COUNTS)
    written = model.predict(rows, out=tmp_path / "p.parquet", keep="ward")
    assert written.rows == len(rows)
    of_file = pd.read_parquet(tmp_path / "p.parquet")
    assert of_file["label"].tolist() == model.predict(rows).tolist()
    assert of_file.columns.tolist() == ["ward", "label", *(f"p_{name}" for name in model.classes)]
    stream = io.BytesIO()
    model.label(rows, counts, out=stream, keep=[])
    stream.seek(0)
    assert pd.read_csv(stream)["label"].tolist() == model.label(rows, counts)["label"].tolist()
    with pytest.raises(InputError, match="of an unknown kind"):
        model.predict(rows, out="p.xlsx")


@pytest.mark.filterwarnings("ignore:.*extreme value")
def test_copied_columns_of_csv_files_have_types_in_parquet(
    model: TableModel, tmp_path: Path
) -> None:
    extra = {
        "whole": (["1", "", "-30"], pa.int64(), [1, None, -30]),
        "amount": (["1.50", "2", "NA"], pa.float64(), [1.5, 2.0, None]),
        "code": (["007", "8", "9"], pa.string(), ["007", "8", "9"]),
        "long": (["12345678901234567890", "1", "2"], pa.string(), None),
        "flag": (["true", "false", ""], pa.bool_(), [True, False, None]),
        "day": (["2020-01-31", "", "2021-12-01"], pa.date32(), None),
        "no_day": (["2020-13-31", "2020-01-01", ""], pa.string(), None),
        "empty": (["", "", ""], pa.string(), ["", "", ""]),
    }
    rows = pd.read_csv(NEW, dtype=str, keep_default_na=False)[:3]
    rows = rows.assign(**{name: texts for name, (texts, _, _) in extra.items()})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    labels = read(COUNTS)
    for kind, found in (
        ("predict", model.predict(tmp_path / "rows.csv", out=tmp_path / "predict.parquet")),
        ("csv", model.predict(tmp_path / "rows.csv", out=tmp_path / "csv.csv")),
    ):
        assert found.rows == 3, kind
    table = pq.read_table(tmp_path / "predict.parquet")
    for name, (_, type_, values) in extra.items():
        assert table.schema.field(name).type == type_, name
        assert values is None or table.column(name).to_pylist() == values, name
    as_written = pd.read_csv(tmp_path / "csv.csv", dtype=str, keep_default_na=False)
    assert as_written["amount"].tolist() == ["1.50", "2", "NA"]
    numbered = read(ROWS).assign(number=range(len(read(ROWS))))
    numbered.to_csv(tmp_path / "all.csv", index=False)
    model.label(tmp_path / "all.csv", labels, out=tmp_path / "label.parquet")
    assert pq.read_schema(tmp_path / "label.parquet").field("number").type == pa.int64()


def test_an_argument_that_fit_does_not_have_is_named_with_one_that_is_like_it() -> None:
    with pytest.raises(TypeError, match=r"no argument 'epoch'\. Did you mean epochs\?"):
        bagwise.fit(ROWS, "ward", COUNTS, epoch=3)


def test_a_report_replaces_only_a_report(model: TableModel, tmp_path: Path) -> None:
    page, mine = tmp_path / "r.html", tmp_path / "counts.csv"
    mine.write_text("ward,sick,well\n")
    with pytest.raises(InputError, match="was not written by"):
        model.report(mine)
    assert mine.read_text() == "ward,sick,well\n"
    model.report(page)
    model.report(page)
    model.report(mine, force=True)
    assert mine.read_bytes() == page.read_bytes()


def test_arguments_that_would_do_nothing_are_refused(model: TableModel) -> None:
    rows, counts = read(NEW), read(COUNTS)
    with pytest.raises(TypeError, match=r"label has no argument 'bagg'\. Did you mean bag\?"):
        model.label(rows, counts, bagg="ward")
    with pytest.raises(TypeError, match=r"keep is about an output file; give predict out="):
        model.predict(rows, keep="ward")
    with pytest.raises(TypeError, match="predict has no argument 'foo'"):
        model.predict_proba(rows, foo=1)


def test_scores_read_as_the_command_line_shows_them(model: TableModel) -> None:
    rows = read(NEW).assign(truth=lambda rows: model.predict(rows))
    scores = model.evaluate(rows, "truth")
    assert repr(scores).startswith(f"{len(rows)} rows: accuracy 100.00%, log loss 0.")
    assert repr(scores) == str(scores)
    assert "array" not in repr(scores)


def test_memory_is_for_files() -> None:
    for rows in (read(ROWS), pl.read_csv(ROWS)):
        with pytest.raises(InputError, match="memory is for files, and the rows are a DataFrame"):
            bagwise.fit(rows, labels=read(COUNTS), memory="1GB", **FIT)


def test_counts_by_bag_and_class_may_be_a_series_or_have_both_as_their_index(
    model: TableModel,
) -> None:
    long = read(COUNTS).set_index("ward").rename_axis("outcome", axis=1).stack()
    assert long.index.nlevels == 2
    for labels in (long, long.rename("n").to_frame()):
        found = bagwise.fit(read(ROWS), labels=labels, **FIT)
        pd.testing.assert_frame_equal(found.effects(), model.effects())
    # A level that is no key does not matter where the keys tell the rows apart.
    wide = read(COUNTS).assign(county="A").set_index(["county", "ward"])
    found = bagwise.fit(read(ROWS), labels=wide, **FIT)
    pd.testing.assert_frame_equal(found.effects(), model.effects())


def test_an_index_without_a_name_is_to_be_named() -> None:
    rows, labels = (read(path).astype({"ward": str}) for path in (ROWS, COUNTS))
    labels = labels.set_index("ward").rename_axis(None)
    with pytest.raises(InputError, match=r"rename_axis\(\['ward'\]\)"):
        bagwise.fit(rows, labels=labels, **FIT)
    bagwise.fit(rows, labels=labels.rename_axis(["ward"]), **FIT)


def test_long_counts_of_pandas_are_read(model: TableModel) -> None:
    counts = read(COUNTS).melt("ward", var_name="state", value_name="n")
    long = bagwise.fit(read(ROWS), labels=counts.astype({"state": "str"}), **FIT)
    assert long.predict_proba(read(NEW)).equals(model.predict_proba(read(NEW)))


@pytest.mark.parametrize("wrong", [pd.Series([1, 2]), pl.LazyFrame({"a": [1]}), {"a": [1]}, None])
def test_what_is_no_table_is_named(wrong: Any) -> None:
    with pytest.raises(InputError, match=rf"is a {type(wrong).__name__}; a data frame"):
        bagwise.fit(wrong, labels=read(COUNTS), **FIT)
