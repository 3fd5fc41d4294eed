from __future__ import annotations

import datetime
import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from scipy.special import log_softmax, softmax
from scipy.stats import binom, kstest, multinomial

from bagwise import Bags, LLPClassifier, read_bags
from bagwise.bags import FloatArray
from bagwise.labels.counts_or_shares import to_bags
from bagwise.labels.label_spec import LabelSpec
from bagwise.likelihood.splits import splits_of
from bagwise.tables.assess.baseline import baseline_log_likelihoods
from bagwise.tables.assess.held_out import (
    assess,
    count_levels,
    surprising_bags,
)
from bagwise.tables.encode.columns import Columns, LeftOut, Surprises
from bagwise.tables.encode.learn_columns import ColumnLearner
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.read.source import FileSource
from bagwise.tables.read.values import numbers_of
from bagwise.tables.use.evaluate import calibration_error
from bagwise.wording import table_words


def log_probabilities(logits: Any) -> FloatArray:
    found: FloatArray = log_softmax(np.asarray(logits, dtype=float), axis=-1)
    return found


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def learn(table: dict[str, Any], **options: Any) -> Columns:
    batch = pa.RecordBatch.from_pydict(table)
    learner = ColumnLearner(batch.schema, **options)
    for row in range(batch.num_rows):  # one row at a time: the harder way for running means
        learner.update(batch.slice(row, 1))
    return learner.finish()


# Sources


@pytest.mark.parametrize(
    ("name", "mark"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.csv", "|")]
)
@pytest.mark.parametrize("typed", [True, False])
def test_text_files_are_read_whatever_stands_between_columns(
    tmp_path: Path, name: str, mark: str, typed: bool
) -> None:
    lines = [["id", "x", "note"], ["007", "1.5", '"a\nb"'], ["008", "", "c"]]
    path = write(tmp_path / name, "\n".join(mark.join(line) for line in lines) + "\n")
    source = FileSource(path, typed=typed, as_text=["id"])
    table = pa.Table.from_batches(source.batches())
    assert table.column("id").to_pylist() == ["007", "008"]
    assert table.column("note").to_pylist() == ["a\nb", "c"]
    assert table.column("x").to_pylist() == ([1.5, None] if typed else ["1.5", ""])


def test_several_files_are_one_table_in_the_order_of_their_names(tmp_path: Path) -> None:
    for i in (2, 0, 1):
        pq.write_table(pa.table({"x": [i, i + 10]}), tmp_path / f"{i}.parquet")
    source = FileSource(tmp_path / "*.parquet")
    assert source.rows == 6
    assert [x for batch in source.batches() for x in batch.column("x").to_pylist()] == [
        0,
        10,
        1,
        11,
        2,
        12,
    ]


def test_a_number_that_comes_late_does_not_change_what_a_column_is(tmp_path: Path) -> None:
    rows = ["1"] * 300_000 + ["2.5"]
    path = write(tmp_path / "a.csv", "x\n" + "\n".join(rows) + "\n")
    source = FileSource(path)
    assert source.schema.field("x").type == pa.float64()
    assert source.rows == len(rows)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["x,y\n1,2\n", "x\n1\n"], "1.csv has no column 'y', which .*0.csv has"),
        (["x\n1\n", "x,y\n1,2\n"], "0.csv has no column 'y', which .*1.csv has"),
        (["x\n1\n", "x\na\n"], "column 'x' holds: double in .*0.csv and string in .*1.csv"),
        (["x,x\n1,2\n"], "more than one column 'x'"),
        ([b"x,y\n\xe9,1\n"], "0.csv cannot be read: column 'x' is not UTF-8"),
        ([b"\xe9,y\n1,1\n"], "0.csv cannot be read"),
        (["\n\n"], "0.csv"),
    ],
    ids=str,
)
def test_files_that_cannot_be_one_table_are_named(
    tmp_path: Path, texts: list[str | bytes], message: str
) -> None:
    for i, text in enumerate(texts):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / f"{i}.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        FileSource(tmp_path / "*.csv")


def test_files_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    write(tmp_path / "0.csv", '"a; b";y\n1;2\n')
    write(tmp_path / "1.csv", '\ny;"a; b"\n4;3.5\n')
    table = [batch.to_pydict() for batch in FileSource(tmp_path / "*.csv").batches()]
    assert table == [{"a; b": [1], "y": [2]}, {"a; b": [3.5], "y": [4]}]


def test_compressed_csv_is_read(tmp_path: Path) -> None:
    with pa.CompressedOutputStream(str(tmp_path / "a.csv.gz"), "gzip") as file:
        pcsv.write_csv(pa.table({"x": [1, 2]}), file)
    assert FileSource(tmp_path / "a.csv.gz").rows == 2


# Columns


def test_columns_are_recognized_and_encoded() -> None:
    table = {
        "age": [20, 30, 40, None],
        "member": [True, False, True, True],
        "born": [datetime.date(2000, 1, day) for day in (1, 2, 3, 4)],
        "color": ["red", "blue", "red", None],
        "same": [1.0] * 4,
        "empty": pa.array([None] * 4, pa.float64()),
        "list": [[1]] * 4,
    }
    columns = learn(table)
    assert columns.left_out == {
        "list": LeftOut("type", "list<item: int64>"),
        "same": LeftOut("constant", "1"),
        "empty": LeftOut("empty"),
    }
    assert columns.encoded_names == [
        "age",
        "age=(missing)",
        "member",
        "born",
        "color=blue",
        "color=red",
        "color=(missing)",
    ]
    X = columns.encode(pa.RecordBatch.from_pydict(table))
    ages = np.array([20, 30, 40])
    np.testing.assert_allclose(X[:3, 0], (ages - 30) / ages.std(), rtol=1e-6)
    assert X[3, :2].tolist() == [0, 1]
    np.testing.assert_allclose(X[:, 3], (np.arange(4) - 1.5) / np.arange(4).std(), rtol=1e-5)
    assert X[:, 4:].tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert Columns.from_json(json.loads(json.dumps(columns.to_json()))) == columns


def test_text_from_a_csv_file_is_encoded_like_the_typed_values() -> None:
    typed = {
        "age": [20.5, 30, 40],
        "member": [True, False, True],
        "born": [datetime.datetime(2000, 1, day, 6) for day in (1, 2, 3)],
        "zip": [1, 2, 1],
    }
    text = {
        "age": ["20.5", " 30", "40.0"],
        "member": ["true", "NO", "1"],
        "born": ["2000-01-01 06:00:00", "2000-01-02T06:00", "2000-01-03 06:00:00"],
        "zip": ["1", "2", "1"],
    }
    columns = learn(typed, categorical=["zip"])
    as_typed, as_text = (columns.encode(pa.RecordBatch.from_pydict(t)) for t in (typed, text))
    np.testing.assert_array_equal(as_typed, as_text)


def test_new_categories_and_missing_values_are_zeros_and_are_counted() -> None:
    columns = learn({"x": [1.0, 2.0], "c": ["a", "b"]})
    surprises = Surprises()
    new = pa.RecordBatch.from_pydict({"x": [None, float("inf")], "c": ["z", None]})
    assert not columns.encode(new, 0, surprises).any()
    assert (surprises.missing["x"], surprises.unseen["c"], surprises.missing["c"]) == (2, 1, 1)
    assert len(table_words.surprises(surprises)) == 4


def test_rare_categories_share_a_column_and_identifiers_are_left_out() -> None:
    n = 400
    table = {
        "town": ["a"] * 200 + ["b"] * 190 + [f"village {i}" for i in range(10)],
        "id": [f"person {i}" for i in range(n)],
    }
    columns = learn(table)
    assert columns.encoded_names == ["town=a", "town=b", "town=(other)"]
    assert columns.left_out == {"id": LeftOut("unique_text")}
    X = columns.encode(pa.RecordBatch.from_pydict({"town": ["b", "hamlet"], "id": ["x", "y"]}))
    assert X.tolist() == [[0, 1, 0], [0, 0, 1]]


def test_times_with_a_zone_are_the_same_as_text_and_typed(tmp_path: Path) -> None:
    stamps = ["2024-05-01T10:00:00Z", "2024-05-02T10:00:00+02:00", "2024-05-03T10:00:00Z"]
    path = write(tmp_path / "a.csv", "t\n" + "\n".join(stamps) + "\n")
    typed = FileSource(path)
    learner = ColumnLearner(typed.schema)
    for batch in typed.batches():
        learner.update(batch)
    columns = learner.finish()
    assert columns.columns[0].kind == "date"
    (text,), (known,) = FileSource(path, typed=False).batches(), typed.batches()
    np.testing.assert_array_equal(columns.encode(text), columns.encode(known))


def test_categories_of_numbers_are_the_same_in_fit_and_predict(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.csv", "bag,zip\n" + "A,01\nA,1.0\nB,True\nB,NA\n" * 20)
    labels = write(tmp_path / "l.csv", "bag,no,yes\nA,20,20\nB,20,20\n")
    columns = read_bags(rows, "bag", labels, categorical="zip").columns
    assert columns.columns[0].categories == ("01", "1.0", "NA", "True")
    surprises = Surprises()
    for batch in FileSource(rows, typed=False).batches():
        assert (columns.encode(batch, 0, surprises).sum(axis=1) == 1).all()
    assert not table_words.surprises(surprises)


def test_na_is_a_name_for_a_bag_and_no_number(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.csv", "country,x\nNA,1\nNA,NA\nDE,3\n")
    labels = write(tmp_path / "l.csv", "country,no,yes\nNA,1,1\nDE,0,1\n")
    table = read_bags(rows, "country", labels)
    assert table.bags.tolist() == ["NA", "NA", "DE"]
    assert table.columns.encoded_names == ["x", "x=(missing)"]


def test_extreme_values_stay_finite_or_are_named() -> None:
    columns = learn({"x": [1.0, 2.0, 3.0]})
    new = pa.RecordBatch.from_pydict({"x": [1e300, -1e300]})
    assert columns.encode(new).tolist() == [[1e4], [-1e4]]
    with pytest.raises(ValueError, match="'x' has values too large"):
        learn({"x": [1e300, -1e300]})


def test_columns_named_wrongly_are_an_error() -> None:
    with pytest.raises(ValueError, match="no column 'agee'"):
        learn({"age": [1.0, 2.0], "b": [1.0, 2.0]}, exclude=["agee"])
    with pytest.raises(ValueError, match="'age' is both"):
        learn({"age": [1.0, 2.0], "b": [1.0, 2.0]}, features=["age"], exclude=["age"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [(["old"], "numbers.*'old'"), (["unknown"] * 9, "numbers.*'unknown'")],
)
def test_text_among_numbers_is_named_also_for_a_chosen_feature(bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn({"f": [*(str(i) for i in range(50)), *bad]}, features=["f"])


def test_dates_with_the_day_first_and_points_are_dates(tmp_path: Path) -> None:
    texts = ["31.12.2020", "1.2.2021", "03.04.2021 12:00", "NA"]
    source = FileSource(write(tmp_path / "d.csv", "\n".join(["d", *texts])))
    typed = next(source.batches()).column("d")
    assert [None if x is None else x.isoformat() for x in typed.to_pylist()] == [
        "2020-12-31T00:00:00",
        "2021-02-01T00:00:00",
        "2021-04-03T12:00:00",
        None,
    ]
    np.testing.assert_array_equal(
        numbers_of(pa.array(texts), "date", "d"), numbers_of(typed, "date", "d")
    )
    with pytest.raises(ValueError, match=r"'31\.13\.2020' in row 1; a date"):
        numbers_of(pa.array(["31.13.2020"]), "date", "d")


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["31.12.2020", "1.2.2021", "soon"], "not as dates, because 'soon' is not a known form"),
        (["31/12/20", "1/2/21", "3/4/21"], "not as dates, because '.*/2.' is not a known form"),
        (["31.12.20", "1.2.21"], "not as dates, because '.*' is not a known form"),
        (["31/12/2020", "12/31/2020"], "not as dates, because '.*' is not a known form"),
        (["31/02/2020", "1/2/2021"], "not as dates, because '.*' is not a known form"),
        (["12/31/2020 1:05 PM", "1/2/2021 2:10 AM"], "not as dates, because '.*' is not a known form"),
        (["1/2/2020", "2/2/2021"], "day and month cannot be told apart in dates such as '1/2/2020'"),
    ],
)
def test_what_looks_like_a_date_but_is_a_category_is_noted(texts: list[str], note: str) -> None:
    with pytest.warns(UserWarning, match=note):
        columns = learn({"d": texts})
    assert columns.columns[0].kind == "category"


def test_infinite_values_are_noted_with_their_column() -> None:
    table = {"x": [1.0, float("inf"), 3.0, -float("inf")]}
    with pytest.warns(UserWarning, match="x: 2 rows have an infinite value"):
        columns = learn(table)
    surprises = Surprises()
    columns.encode(pa.RecordBatch.from_pydict(table), 0, surprises)
    assert "x: 2 rows have an infinite value, which is read as missing." in table_words.surprises(
        surprises
    )


def test_numbers_of_rows_are_left_out_unless_they_are_wanted() -> None:
    n = 40
    shuffled = np.random.default_rng(0).permutation(n)
    table = {
        "ascending": 1000 + 7 * np.arange(n),
        "shuffled": shuffled + 1.0,
        "age": shuffled // 2,
        "gaps": shuffled * 3,
        "x": np.arange(n) + 0.5,
    }
    columns = learn(table)
    assert columns.names == ["age", "gaps", "x"]
    assert set(columns.left_out.values()) == {LeftOut("row_number")}
    assert learn(table, features=["shuffled"]).names == ["shuffled"]
    assert learn({name: column[:19] for name, column in table.items()}).names == list(table)


def test_large_values_with_small_differences_keep_them() -> None:
    table = {"t": [1.7e9 + i for i in range(5)]}
    X = learn(table).encode(pa.RecordBatch.from_pydict(table))
    np.testing.assert_allclose(X[:, 0], (np.arange(5) - 2) / np.arange(5).std(), rtol=1e-5)


def test_text_among_numbers_is_named() -> None:
    values = [str(i) for i in range(50)]
    with pytest.raises(ValueError, match=r"'age' holds numbers.*'old'.*categorical=.age"):
        learn({"age": [*values, "old"]})
    assert learn({"age": [*values, "old"]}, categorical=["age"]).columns[0].kind == "category"
    columns = learn({"age": [1.0, 2.0]})
    with pytest.raises(ValueError, match="'age' has 'old' in row 12; a number is expected"):
        columns.encode(pa.RecordBatch.from_pydict({"age": ["1", "old"]}), first_row=10)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("boolean", "perhaps"), ("boolean", 5), ("date", "yesterday"), ("date", 5)],
)
def test_what_is_no_boolean_or_date_is_named(kind: str, value: Any) -> None:
    good = {"boolean": [True, False], "date": [datetime.date(2000, 1, d) for d in (1, 2)]}[kind]
    columns = learn({"x": good})
    with pytest.raises(ValueError, match=f"'x' has {value!r} in row 1"):
        columns.encode(pa.RecordBatch.from_pydict({"x": [value]}))


# Labels


def test_wide_and_long_label_files_say_the_same(tmp_path: Path) -> None:
    wide = write(tmp_path / "w.csv", "bag,yes,no\n01,3,0\n02,1,1\n")
    long = write(tmp_path / "l.csv", "bag,vote,n\n01,yes,3\n02,yes,1\n02,no,1\n")
    swapped = write(tmp_path / "s.csv", "bag,n,vote\n01,3,yes\n02,1,yes\n02,1,no\n")
    numbered = write(tmp_path / "n.csv", "bag,vote,n\n01,1,3\n01,0,0\n02,1,1\n02,0,1\n")
    expected = [[0, 3], [1, 1]]
    for path, classes in (
        (wide, ["no", "yes"]),
        (long, ["no", "yes"]),
        (swapped, ["no", "yes"]),
        (numbered, ["0", "1"]),
    ):
        labels = read_labels(path, ["bag"])
        assert (labels.ids, labels.classes) == (["01", "02"], classes)
        assert labels.numbers.tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bag,a,b\nx,1,1\nx,0,2\ny,1,1\n", "more than one row for bag 'x'"),
        ("bag,a,b,c\nx,1,1,0\nx,0,2,0\n", "more than one row for bag 'x'"),
        ("bag,a,b,c\nx,1,one,2\n", "column 'b'.*text.*with classes"),
        ("bag,a,b\nx,1,\n", "'b'.*no number in row 1"),
        ("bag,a,b\n,1,2\n", "no bag in row 1"),
        ("bag\nx\n", "no class columns"),
        ("sack,a,b\nx,1,2\n", "no column 'bag'; it has 'sack'"),
        ("bag,a,b\n", "no rows"),
        ("bag,class,n\nx,a,1\nx,a,2\n", "class 'a' of bag 'x' twice"),
    ],
)
def test_mistakes_in_label_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_labels(write(tmp_path / "labels.csv", text), ["bag"])


def test_class_columns_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", "bag,note,a,b\nx,hello,1,2\n")
    assert read_labels(path, ["bag"], ["b", "a"]).numbers.tolist() == [[1, 2]]


# Bags from tables


def test_read_bags_matches_rows_and_counts_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.csv", "state,county,x\nTX,1,5\nNY,1,6\nTX,1,7\nTX,2,8\n")
    labels = write(tmp_path / "l.csv", "county,state,no,yes\n2,TX,0,1\n1,TX,1,1\n1,NY,1,0\n")
    X, bags, proportions, columns = read_bags(rows, "state,county", labels)
    assert bags.tolist() == ["TX / 1", "NY / 1", "TX / 1", "TX / 2"]
    assert proportions["TX / 1"] == {"no": 1, "yes": 1}
    assert columns.names == ["x"]
    np.testing.assert_allclose(X[:, 0], (np.arange(4) - 1.5) / np.arange(4).std(), rtol=1e-6)
    LLPClassifier(model="linear", epochs=1).fit(X, bags, proportions)


def test_parquet_numbers_match_csv_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"bag": [7.0, 8.0, 7.0], "x": [1, 2, 3]}), tmp_path / "r.parquet")
    labels = write(tmp_path / "l.csv", "bag,a,b\n7,1,1\n8,0,1\n")
    assert read_bags(tmp_path / "r.parquet", "bag", labels).bags.tolist() == ["7", "8", "7"]


def test_bags_are_compared_as_text_whatever_the_files_take_them_for(tmp_path: Path) -> None:
    pq.write_table(pa.table({"bag": [7.0, 8.0], "x": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"bag": ["7", "north"], "x": [3, 4]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"bag": [8, 7], "x": [5, 6]}), tmp_path / "c.parquet")
    write(tmp_path / "d.csv", "bag,x\n8,7\n")
    pq.write_table(pa.table({"bag": [7, 8], "no": [1, 1], "yes": [2, 2]}), tmp_path / "l0.parquet")
    pq.write_table(pa.table({"bag": ["north"], "no": [1], "yes": [0]}), tmp_path / "l1.parquet")
    found = read_bags(tmp_path / "[a-d].*", "bag", tmp_path / "l*.parquet")
    assert found.bags.tolist() == ["7", "8", "7", "north", "8", "7", "8"]
    assert found.proportions == {
        "7": {"no": 1, "yes": 2},
        "8": {"no": 1, "yes": 2},
        "north": {"no": 1, "yes": 0},
    }


def test_an_empty_parquet_file_is_not_asked_for_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.parquet is empty; rows are expected"):
        FileSource(tmp_path / "a.parquet")


def test_bags_that_do_not_match_are_named_or_left_out(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.csv", "bag,x\nA,1\nB,2\nA,3\n,4\n")
    labels = write(tmp_path / "l.csv", "bag,no,yes\nA,1,1\nC,0,1\n")
    with pytest.raises(ValueError, match=r"does not have 'B'.*no rows of 'C'.*1 row .*no bag"):
        read_bags(rows, "bag", labels)
    with pytest.warns(UserWarning, match=r"1 row of .*r.csv has no bag and is left out"):
        table = read_bags(rows, "bag", labels, skip_unmatched=True)
    assert table.bags.tolist() == ["A", "A"]
    assert len(table.X) == 2
    other = write(tmp_path / "o.csv", "bag,no,yes\na,1,1\n")
    with pytest.raises(ValueError, match="no bag is in both files"):
        read_bags(rows, "bag", other, skip_unmatched=True)


def test_proportions_become_counts_by_largest_remainder(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.csv", "bag,x\n" + "A,1\n" * 3 + "B,2\n")
    rounded = write(tmp_path / "l.csv", "bag,no,yes\nA,0.33,0.67\nB,0,1\n")
    for labels_are in ("auto", "proportions"):
        table = read_bags(rows, "bag", rounded, labels_are=labels_are)  # type: ignore[arg-type]
        assert table.proportions == {"A": {"no": 1, "yes": 2}, "B": {"no": 0, "yes": 1}}
    with pytest.raises(ValueError, match="bag 'A' sum to 1"):
        read_bags(rows, "bag", rounded, labels_are="counts")
    scaled = write(tmp_path / "s.csv", "bag,no,yes\nA,100,200\nB,0,55\n")
    with pytest.raises(ValueError, match="bag 'A' sum to 300"):
        read_bags(rows, "bag", scaled)
    assert read_bags(rows, "bag", scaled, labels_are="relative").proportions["A"]["yes"] == 2
    wrong = write(tmp_path / "w.csv", "bag,no,yes\nA,0.6,0.6\nB,0,1\n")
    with pytest.raises(ValueError, match=r"bag 'A' sum to 1\.2"):
        read_bags(rows, "bag", wrong)


ROWS = "bag,x\n" + "1,1\n" * 4 + "2,2\n" * 3 + "3,2\n" * 5
COUNTS = {"1": {"no": 1, "yes": 3}, "2": {"no": 2, "yes": 1}, "3": {"no": 5, "yes": 0}}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("bag,no,yes\n1,25,75\n2,66.7,33.3\n3,100,0\n", {}),  # percent
        ("bag,no,yes\n1,25,75\n2,67,33\n3,100,0\n", {"labels_are": "proportions"}),
        ("bag,no,yes,Total\n1,1,3,4\n2,2,1,3\n3,5,0,5\n", {}),
        ("bag,n,no,yes\n1,4,0.25,0.75\n2,3,.67,.33\n3,5,1,0\n", {}),
        ("bag,yes\n1,3\n2,1\n3,0\n", {"classes": "yes,no"}),
        ("bag,yes\n1,0.75\n2,0.33\n3,0\n", {"classes": "no,yes"}),
        ("bag,yes\n1,75.0\n2,33.3\n3,0\n", {"classes": "no,yes"}),
        ("bag,yes,total\n1,3,4\n2,1,3\n3,0,5\n", {"classes": "yes,no"}),
        ("bag,yes,n\n1,75,100\n2,10,30\n3,0,50\n", {"classes": "yes,no", "labels_are": "relative"}),
        ("bag,no,yes\n1.0,1,3\n2.0,2,1\n3.0,5,0\n", {}),
    ],
)
@pytest.mark.filterwarnings("ignore:the column")
def test_labels_are_read_in_the_forms_people_have_them(
    tmp_path: Path, text: str, options: Any
) -> None:
    rows, labels = write(tmp_path / "r.csv", ROWS), write(tmp_path / "l.csv", text)
    found = read_bags(rows, "bag", labels, **options).proportions
    assert {name.removesuffix(".0"): counts for name, counts in found.items()} == COUNTS


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("bag,yes\n1,3\n2,1\n3,0\n", {}, r'classes=\["yes", "OTHER"\]'),
        ("bag,yes,total\n1,3,4\n2,1,3\n3,0,5\n", {}, r"'total'.* classes=\[\"yes\", \"OTHER\"\]"),
        ("bag,yes\n1,1\n2,1\n3,0\n", {"classes": "yes,no"}, "count or a share.*with labels_are"),
        ("bag,yes\n1,75\n2,33\n3,0\n", {"classes": "yes,no"}, 'labels_are="proportions"'),
        ("bag,no,yes\n1,10,30\n2,20,10\n3,5,0\n", {}, 'labels_are="relative"'),
        ("bag,no,yes\n1,1,3\n2,2,1\n", {"classes": "no,yse"}, "no column 'yse'"),
    ],
)
def test_labels_that_are_not_clear_name_the_option_that_helps(
    tmp_path: Path, text: str, options: Any, message: str
) -> None:
    rows, labels = write(tmp_path / "r.csv", ROWS), write(tmp_path / "l.csv", text)
    with pytest.raises(ValueError, match=message):
        read_bags(rows, "bag", labels, **options)


def test_a_total_is_noted_and_a_class_that_is_seldom_the_sum_stays(tmp_path: Path) -> None:
    lines = [f"{b},{b},{b + 1},{2 * b + 1}" for b in range(6)]
    path = write(tmp_path / "l.csv", "\n".join(["bag,a,b,c", *lines]))
    with pytest.warns(UserWarning, match="'c' of .* is taken for a total"):
        assert read_labels(path, ["bag"]).classes == ["a", "b"]
    assert read_labels(path, ["bag"], ["a", "b", "c"]).classes == ["a", "b", "c"]
    path = write(tmp_path / "l.csv", "\n".join(["bag,a,b,c", *lines[:4]]))
    assert read_labels(path, ["bag"]).classes == ["a", "b", "c"]


def test_the_index_that_pandas_writes_is_no_class(tmp_path: Path) -> None:
    plain = read_labels(write(tmp_path / "plain.csv", "bag,no,yes\nA,1,2\nB,3,0\n"), ["bag"])
    for name in ("", "Unnamed: 0"):
        file = write(tmp_path / "index.csv", f"{name},bag,no,yes\n0,A,1,2\n1,B,3,0\n")
        found = read_labels(file, ["bag"])
        assert found.classes == ["no", "yes"]
        np.testing.assert_array_equal(found.numbers, plain.numbers)
    file = write(tmp_path / "other.csv", ",bag,no,yes\n1,A,1,2\n2,B,3,0\n")  # as R writes it
    assert read_labels(file, ["bag"]).classes == ["no", "yes"]
    file = write(tmp_path / "class.csv", ",bag,no,yes\n3,A,1,2\n2,B,3,0\n")
    with pytest.raises(ValueError, match="a column without a name, '3' in row 1"):
        read_labels(file, ["bag"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bag;no;yes\nA;25 %;75%\nB;100%;0 %\n", [[25, 75], [100, 0]]),
        ("bag;no;yes\nA;1,200;34\nB;7;12,000,000\n", [[1200, 34], [7, 12_000_000]]),
        ("bag;no;yes\nA;1.200.000;34\nB;7;1.234.567\n", [[1_200_000, 34], [7, 1234567]]),
        ("bag;no;yes\nA;0,25;0,75\nB;1;0\n", [[0.25, 0.75], [1, 0]]),
        ("bag;no;yes\nA;1 200;34\nB;7;5\n", [[1200, 34], [7, 5]]),
    ],
)
def test_label_files_have_numbers_as_people_write_them(
    tmp_path: Path, text: str, expected: list[list[float]]
) -> None:
    found = read_labels(write(tmp_path / "labels.csv", text), ["bag"])
    np.testing.assert_array_equal(found.numbers, expected)


@pytest.mark.parametrize("cell", ["5%", "1,2,3", "$5", "12 rows"])
def test_a_cell_that_is_written_in_another_way_is_named(tmp_path: Path, cell: str) -> None:
    file = write(tmp_path / "labels.csv", f"bag;no;yes;other\nA;1;2;0\nB;{cell};0;0\n")
    with pytest.raises(ValueError, match=r"column 'no' of .* holds text"):
        read_labels(file, ["bag"])


def test_one_class_alone_is_refused_with_what_to_name(tmp_path: Path) -> None:
    file = write(tmp_path / "labels.csv", "bag,no,yes\nA,1,2\nB,3,0\n")
    with pytest.raises(ValueError, match="classes has one class, 'no'; two are expected"):
        read_labels(file, ["bag"], ["no"])


def test_counts_of_bags_of_a_hundred_are_not_taken_for_percentages() -> None:
    counts = np.array([[40.0, 60], [30, 70], [50, 50]])
    with pytest.raises(ValueError, match=r"sum to 100.*99 rows"):
        to_bags(np.arange(3), np.array([100, 99, 100]), counts, LabelSpec())
    whole = to_bags(np.arange(3), np.full(3, 10), counts, LabelSpec())[0]
    assert whole.counts[0].tolist() == [4, 6]


def test_bags_9_and_9_0_of_one_file_stay_apart(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.csv", "bag,x\n9,1\n9.0,2\n")
    labels = write(tmp_path / "l.csv", "bag,no,yes\n9,1,0\n9.0,0,1\n")
    assert read_bags(rows, "bag", labels).proportions["9.0"] == {"no": 0, "yes": 1}
    labels = write(tmp_path / "l.csv", "bag,no,yes\n9,1,0\n")
    with pytest.raises(ValueError, match=r"does not have '9\.0'"):
        read_bags(rows, "bag", labels)


def test_a_warning_of_proportions_points_to_the_line_that_gave_them(tmp_path: Path) -> None:
    rows = write(tmp_path / "r.csv", "bag,x\n" + "A,1\n" * 3 + "B,2\n")
    labels = write(tmp_path / "l.csv", "bag,no,yes\nA,0.5,0.5\nB,0,1\n")
    with pytest.warns(UserWarning, match="bag 'A' are not those of its 3 rows") as found:
        read_bags(rows, "bag", labels)
    X, shares = np.eye(4), {"A": [0.5, 0.5], "B": [0, 1]}
    with pytest.warns(UserWarning, match="bag 'A' are not those of its 3 rows") as more:
        LLPClassifier(model="linear", epochs=1).fit(X, list("AAAB"), shares)
    assert [warning.filename for warning in (*found, *more)] == [__file__] * 2


# What held-out bags say


def test_baseline_is_the_multinomial_probability() -> None:
    bags = Bags([4, 1, 6], [[1, 3, 0], [0, 0, 1], [2, 2, 2]])
    shares = np.array([0.2, 0.5, 0.3])
    expected = multinomial.logpmf(bags.counts, bags.sizes, shares)
    np.testing.assert_allclose(baseline_log_likelihoods(bags, shares), expected)


def test_assessment_of_a_model_that_knows_the_labels_and_of_one_that_does_not() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, 50)
    bags = Bags(sizes, rng.multinomial(sizes, [0.2, 0.5, 0.3]))
    shares = np.full(3, 1 / 3)
    flat = log_probabilities(np.zeros((bags.n_instances, 3)))
    ids = np.arange(50)
    blind = assess(flat, bags, ids, shares)
    assert blind.log_likelihood == pytest.approx(blind.baseline)
    assert len(blind.bags) == 50
    sharp = np.repeat(np.tile(np.arange(3), 50), bags.counts.ravel())
    knowing = assess(log_probabilities(8 * np.eye(3)[sharp]), bags, ids, shares)
    assert knowing.log_likelihood > blind.log_likelihood
    assert max(knowing.error) < 0.01
    assert min(knowing.correlation) > 0.99
    json.dumps([asdict(blind), asdict(knowing)])


def test_levels_of_counts_are_those_of_the_binomial_and_of_enumeration() -> None:
    n, p = np.array([3, 0, 10]), 0.3
    log_probs = np.log([[p, 1 - p]] * 30)
    bags = Bags([10] * 3, np.stack([n, 10 - n], axis=1))
    V = np.random.default_rng(0).random((3, 2))
    expected = binom.cdf(n - 1, 10, p) + V[:, 0] * binom.pmf(n, 10, p)
    np.testing.assert_allclose(count_levels(log_probs, bags)[:, 0], expected)
    q = np.array([0.1, 0.6, 0.8])
    log_probs = np.log(np.stack([q, 1 - q], axis=1))
    outcomes = np.array(list(itertools.product([0, 1], repeat=3)))
    chances = np.where(outcomes, q, 1 - q).prod(axis=1)
    sums = outcomes.sum(axis=1)
    level = count_levels(log_probs, Bags([3], [[2, 1]]))[0, 0]
    exact = chances[sums < 2].sum() + V[0, 0] * chances[sums == 2].sum()
    assert level == pytest.approx(exact)


@pytest.mark.parametrize("size", [1, 2, 20, 200])
def test_coverage_of_a_model_that_is_right_is_what_it_says(size: int) -> None:
    rng = np.random.default_rng(size)
    B = 40_000 // size if size < 20 else 600
    logits = rng.normal(size=(B * size, 3)) + np.array([0, 0, -4])  # the third class is rare
    labels = (softmax(logits, axis=1).cumsum(axis=1) < rng.random((B * size, 1))).sum(axis=1)
    bags = Bags.from_labels(labels, [size] * B, n_classes=3)
    levels = count_levels(log_probabilities(logits), bags)
    for c in range(3):
        assert kstest(levels[:, c], "uniform").pvalue > 1e-3
    certain = log_probabilities(1e3 * np.eye(2)[[0, 0, 0, 0]])
    wrong = assess(certain, Bags([4], [[1, 3]]), np.array(["a"]), np.array([0.5, 0.5]))
    assert {c.share for c in wrong.coverage} == {0.0}


def test_wrong_counts_are_the_most_surprising() -> None:
    rng = np.random.default_rng(1)
    logits = 3 * rng.normal(size=(400, 2))
    labels = (rng.random(400) < softmax(logits, axis=1)[:, 1]).astype(int)
    counts = np.stack([1 - labels, labels], axis=1).reshape(20, 20, 2).sum(axis=1)
    counts[13] = counts[13][::-1] if counts[13, 0] != 10 else [2, 18]
    counts[7] = [0, 20]
    found = surprising_bags(log_probabilities(logits), Bags([20] * 20, counts), np.arange(20))
    assert found[0].bag == "7"
    assert found[0].counts == [0, 20]
    assert sum(found[0].expected) == pytest.approx(20, abs=0.11)


def test_every_bag_is_held_out_once_in_small_tables_and_a_tenth_in_large_ones() -> None:
    small = splits_of(Bags([5] * 23, [[2, 3]] * 23), seed=0)
    assert sorted(np.concatenate([held for _, held in small])) == list(range(23))
    for kept, held_out in small:
        assert not set(kept) & set(held_out)
    ((kept, held_out),) = splits_of(Bags([1000] * 100, [[400, 600]] * 100), seed=0)
    assert (len(kept), len(held_out)) == (90, 10)
    assert len(splits_of(Bags([10_000] * 10, [[4000, 6000]] * 10), seed=0)) == 5
    ((kept, held_out),) = splits_of(Bags([60_000] * 40, [[1, 59_999]] * 40), seed=0)
    assert (len(kept), len(held_out)) == (32, 8)


def test_calibration_error_of_bins() -> None:
    confidence = np.array([0.95] * 10 + [0.55] * 10)
    correct = np.array([True] * 9 + [False] + [True] * 3 + [False] * 7)
    expected = 0.5 * abs(0.9 - 0.95) + 0.5 * abs(0.3 - 0.55)
    assert calibration_error(confidence, correct) == pytest.approx(expected)
