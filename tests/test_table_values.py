"""A cell means the same in every command, every file and every kind of column."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from bagwise import read_bags
from bagwise.tables.encode.columns import Columns, Inputs, LeftOut
from bagwise.tables.encode.learn_columns import ColumnLearner
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.read.source import FileSource
from bagwise.tables.read.streaming import StreamedSource
from bagwise.tables.read.values import MISSING, is_text, numbers_of

CELLS = {
    "numeric": [f"{i}.25" for i in range(15)],
    "boolean": ["true", "false", "TRUE"] * 5,
    "date": [f"2024-05-{day:02d}" for day in range(1, 16)],
    "category": ["red", "blue", "green"] * 5,
}
FILES = ("csv", "quoted.csv", "tsv", "csv.gz")
WORDS = [form for word in MISSING for form in (word, word.upper(), word.title(), f" {word}  ")]
ODD = {
    "numeric": [
        *(" 1.5 ", "+3", "-.5", "5.", "1e5", "1E-3", "007", "-0", "9999999999999999999", "1e999"),
        *("inf", "-Infinity", "1_000", "0x1F", "--3", "1d3", "\u22123", "-", "?"),
        *("true", "2024-05-31", "12:30", "12%"),
    ],
    "boolean": [" True ", "tRuE", "1", "0", "2", "-", "maybe", "2024-05-31", "truefalse"],
    "date": [
        *(" 2024-05-31", "2024-05-31 10:00", "2024-05-31T10:00:00.123456789", "0001-01-01"),
        *("2024-05-31T10:00:00Z", "2024-05-31 10:00+02:00", "9999-12-31 23:59", "2024-05-31 10"),
        *("31.05.2024", "05/31/2024", "2024-05", "2024-13-01", "20240531", "12:30", "today", "-"),
    ],
}


def write(path: Path, cells: list[str], name: str = "x") -> Path:
    """A file with this column, and one that keeps lines with an empty cell from being blank."""
    quoting = csv.QUOTE_ALL if "quoted" in path.name else csv.QUOTE_MINIMAL
    text = io.StringIO()
    writer = csv.writer(text, quoting=quoting, delimiter="\t" if ".tsv" in path.name else ",")
    writer.writerows([[name, "n"], *([cell, "1"] for cell in cells)])
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def learned(path: Path, **options: Any) -> tuple[Columns, Inputs]:
    """What training takes the column x of a file to be, and its rows in training."""
    source = FileSource(path)
    learner = ColumnLearner(source.schema, ["x"], **options)
    for batch in source.batches():
        learner.update(batch)
    columns = learner.finish()
    return columns, encoded(columns, source)


def encoded(columns: Columns, source: FileSource) -> Inputs:
    return np.concatenate([columns.encode(batch) for batch in source.batches()])


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", CELLS)
def test_a_word_for_no_value_means_the_same_in_training_and_predicting(
    tmp_path: Path, kind: str, file: str
) -> None:
    for word in WORDS:
        path = write(tmp_path / f"rows.{file}", [*CELLS[kind], word])
        columns, trained = learned(path)
        predicted = encoded(columns, FileSource(path, typed=False))
        np.testing.assert_array_equal(predicted, trained, err_msg=repr(word))
        (column,) = columns.columns
        assert column.kind == kind, word
        if kind != "category" or not word.strip():
            assert column.encoded_names[-1] == "x=(missing)", word
            assert trained[:, -1].tolist() == [0] * 15 + [1], word
        else:  # NA may be Namibia
            assert column.categories == tuple(sorted({*CELLS[kind], word}))
            assert not column.missing, word


@pytest.mark.parametrize("kind", ["numeric", "boolean", "date"])
def test_text_of_a_parquet_file_means_what_it_means_in_a_csv_file(
    tmp_path: Path, kind: str
) -> None:
    columns, trained = learned(write(tmp_path / "rows.csv", [*CELLS[kind], *WORDS]))
    cells = pa.array([*CELLS[kind], *WORDS])
    for i, values in enumerate((cells, cells.cast(pa.large_string()), cells.dictionary_encode())):
        pq.write_table(pa.table({"x": values}), tmp_path / f"{i}.parquet")
        for typed in (True, False):
            source = FileSource(tmp_path / f"{i}.parquet", typed)
            np.testing.assert_array_equal(encoded(columns, source), trained)


@pytest.mark.filterwarnings("ignore:.*are different categories")
def test_categories_of_parquet_and_csv_are_the_same(tmp_path: Path) -> None:
    cells = [*CELLS["category"], *WORDS] * 2
    pq.write_table(pa.table({"x": cells}), tmp_path / "rows.parquet")
    ours, theirs = (
        learned(path) for path in (tmp_path / "rows.parquet", write(tmp_path / "rows.csv", cells))
    )
    assert ours[0] == theirs[0]
    np.testing.assert_array_equal(ours[1], theirs[1])


@pytest.mark.filterwarnings(
    "ignore:.*an infinite value", "ignore:.*not as dates", "ignore:.*are different categories"
)
@pytest.mark.parametrize(("kind", "cell"), [(kind, c) for kind in ODD for c in ODD[kind]], ids=repr)
def test_predicting_takes_and_refuses_what_training_does(
    tmp_path: Path, kind: str, cell: str
) -> None:
    clean, _ = learned(write(tmp_path / "clean.csv", CELLS[kind]))
    path = write(tmp_path / "rows.csv", [*CELLS[kind], cell])
    accepted = is_text(FileSource(path).schema.field("x").type) is False
    if kind == "numeric" and not accepted:  # many numbers and a text
        with pytest.raises(ValueError, match=re.escape(repr(cell))):
            learned(path)
    else:
        columns, trained = learned(path)
        np.testing.assert_array_equal(encoded(columns, FileSource(path, typed=False)), trained)
        assert columns.columns[0].kind == (kind if accepted else "category")
    (batch,) = FileSource(path, typed=False).batches()
    if not accepted:
        with pytest.raises(ValueError, match=r"'x' has .* in row 16; .* is expected"):
            clean.encode(batch)
        return
    typed = pa.Table.from_batches(FileSource(path).batches()).column("x")
    for values in (typed, batch.column("x")):
        numbers = numbers_of(values, kind, "x")
        np.testing.assert_array_equal(numbers, numbers_of(typed, kind, "x"))
        assert math.isnan(numbers[-1]) == (cell in ("inf", "-Infinity", "1e999"))
    clean.encode(batch)


@pytest.mark.parametrize(
    ("cell", "number"),
    [(" 1.5 ", 1.5), ("+3", 3), ("1e5", 1e5), ("007", 7), ("5.", 5), ("9999999999999999999", 1e19)],
)
def test_numbers_are_read_as_they_are_written(tmp_path: Path, cell: str, number: float) -> None:
    path = write(tmp_path / "rows.csv", ["2", cell])
    assert pa.Table.from_batches(FileSource(path).batches()).column("x").to_pylist() == [2, number]


def test_times_are_those_of_utc_also_beside_times_without_a_zone() -> None:
    texts = ["1970-01-02T02:00:00+02:00", "1970-01-02", "1970-01-02T00:00:00.000000999", "NaT"]
    assert numbers_of(pa.array(texts), "date", "x").tolist()[:3] == [1, 1, 1]
    assert numbers_of(pa.array(texts[:1]), "date", "x").tolist() == [1]


def test_the_batch_a_cell_is_in_does_not_change_what_it_means() -> None:
    cells = ["2024-05-31T10:00:00Z", "0001-01-01", "2024-05-31T10:00:00.123456789", "", "NA"]
    together = numbers_of(pa.array(cells), "date", "x")
    alone = np.concatenate([numbers_of(pa.array([cell]), "date", "x") for cell in cells])
    np.testing.assert_array_equal(together, alone)


def test_a_time_of_day_is_no_feature_in_csv_and_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ["10:30", "11:45:10", "NA"])
    table = pa.Table.from_batches(FileSource(path).batches())
    pq.write_table(table, tmp_path / "rows.parquet")
    for file in (path, tmp_path / "rows.parquet"):
        learner = ColumnLearner(FileSource(file).schema)
        assert learner.left_out == {"x": LeftOut("type", "time64[us]")}


def test_a_column_without_any_value_is_left_out_also_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n" + "NA,1\n,2\n#NA,3\n")
    learner = ColumnLearner(FileSource(path).schema, ["x", "y"])
    assert learner.names == ["y"]
    assert learner.left_out == {"x": LeftOut("empty")}


@pytest.mark.parametrize(
    ("others", "expected"), [(["1", "2"], [None, None]), (["red", "blue"], ["NA", "NA"])]
)
def test_a_file_of_nothing_but_na_says_what_the_files_beside_it_say(
    tmp_path: Path, others: list[str], expected: list[Any]
) -> None:
    write(tmp_path / "0.csv", ["NA", "NA"])
    write(tmp_path / "1.csv", others)
    first, _ = FileSource(tmp_path / "*.csv").batches()
    assert first.column("x").to_pylist() == expected
    (text,) = FileSource(tmp_path / "0.csv", typed=False).batches()
    columns, _ = learned(tmp_path / "1.csv")
    np.testing.assert_array_equal(columns.encode(first), columns.encode(text))


@pytest.mark.parametrize("kind", ["numeric", "boolean", "date", "category"])
def test_a_parquet_column_of_nulls_has_no_values(kind: str, tmp_path: Path) -> None:
    columns, _ = learned(write(tmp_path / "rows.csv", CELLS[kind]))
    assert not columns.encode(pa.RecordBatch.from_pydict({"x": pa.nulls(2)})).any()


def test_nan_in_a_parquet_column_is_no_truth_value() -> None:
    assert np.isnan(numbers_of(pa.array([float("nan"), 1.0]), "boolean", "x")).tolist() == [1, 0]


# Bags and classes


@pytest.mark.parametrize("word", ["NA", "nan", "#NA", " null "], ids=repr)
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_bag_and_a_class_may_have_any_name(tmp_path: Path, word: str, kind: str) -> None:
    tables = {
        "rows": {"bag": [word, "b", word], "x": ["1", "2", "3"]},
        "long": {"bag": [word, word, "b"], "class": [word, "no", word], "n": ["1", "1", "1"]},
        "wide": {"bag": [word, "b"], word: ["1", "1"], "no": ["1", "0"]},
    }
    for name, columns in tables.items():
        file, table = tmp_path / f"{name}.{kind}", pa.table(columns)
        if kind == "parquet":
            pq.write_table(table, file)
        else:
            with pa.CompressedOutputStream(file, "gzip") if "gz" in kind else file.open("wb") as to:
                pcsv.write_csv(table, to)
    for labels in ("long", "wide"):
        table = read_bags(
            tmp_path / f"rows.{kind}", "bag", tmp_path / f"{labels}.{kind}", categorical="x"
        )
        assert table.bags.tolist() == [word, "b", word]
        assert table.proportions == {word: {word: 1, "no": 1}, "b": {word: 1, "no": 0}}


@pytest.mark.parametrize("blank", ["", " ", "\t "], ids=repr)
def test_a_blank_cell_is_no_bag(tmp_path: Path, blank: str) -> None:
    path = write(tmp_path / "bags.csv", ["a", blank], "bag")
    with pytest.raises(ValueError, match="no bag in row 2"):
        read_labels(path, ["bag"])


@pytest.mark.parametrize("word", ["", "#NA", " nan ", "None"], ids=repr)
def test_a_missing_count_is_named_in_every_label_file(tmp_path: Path, word: str) -> None:
    table = {"bag": ["a", "b"], "no": ["1", word], "yes": ["1", "2"]}
    pq.write_table(pa.table(table), tmp_path / "l.parquet")
    pcsv.write_csv(pa.table(table), tmp_path / "l.csv")
    for file in ("l.parquet", "l.csv"):
        with pytest.raises(ValueError, match=r"'no' of .* has no number in row 2"):
            read_labels(tmp_path / file, ["bag"])


@pytest.mark.parametrize("classes", [["01", "1"], ["True", "true"], ["1.0", "1"]])
def test_classes_of_a_long_label_file_keep_their_spelling(
    tmp_path: Path, classes: list[str]
) -> None:
    rows = [f"{bag},{name},1" for bag in "ab" for name in classes]
    path = tmp_path / "l.csv"
    path.write_text("\n".join(["bag,class,n", *rows]) + "\n")
    assert read_labels(path, ["bag"]).classes == sorted(classes)


def test_counts_of_bags_of_one_may_be_true_and_false(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("bag,no,yes\na,true,false\nb,False,TRUE\n")
    assert read_labels(path, ["bag"]).numbers.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("streamed", [False, True])
def test_dots_of_thousands_are_known_by_the_numbers_beside_them(
    tmp_path: Path, streamed: bool
) -> None:
    cells = ["3.756", "785", "10.185", "12", "1.000", "998", "NA"] * 3
    path = write(tmp_path / "rows.csv", cells)
    source = StreamedSource(path, [], 10**9) if streamed else FileSource(path)
    assert source.schema.field("x").type == pa.string()
    with pytest.warns(UserWarning, match="'10.185' is 10185"):
        columns, _ = learned(path)
    (column,) = columns.columns
    assert column.kind == "numeric"
    # New rows are read in the same way, also where all of them have a dot.
    new = FileSource(write(tmp_path / "new.csv", ["1.000", "2.500"]), typed=False)
    low, high = encoded(columns, new)[:, 0] * column.std + column.mean
    assert (round(low), round(high)) == (1000, 2500)


@pytest.mark.parametrize("other", ["0.250", "12.5", "1260", "1.2345", "1e3"])
def test_dots_of_decimals_stay_dots_of_decimals(tmp_path: Path, other: str) -> None:
    cells = ["3.756", "785", "10.185", "12", "1.000", "998", other]
    assert FileSource(write(tmp_path / "rows.csv", cells)).schema.field("x").type == pa.float64()


def labels(tmp_path: Path, text: str, **options: Any) -> Any:
    path = tmp_path / "labels.csv"
    path.write_text(text.replace(" ", "\n"))
    return read_labels(path, ["bag"], **options)


def test_dots_of_thousands_in_a_label_file(tmp_path: Path) -> None:
    counts = "bag;yes;no a;1.260;2.000 b;13;1.125 c;0;870"
    found = labels(tmp_path, counts)
    assert found.numbers.tolist() == [[2000, 1260], [1125, 13], [870, 0]]
    relative = labels(tmp_path, counts, labels_are="relative")
    assert relative.numbers.tolist() == found.numbers.tolist()
    long = "bag;class;n a;yes;1.260 a;no;2.000 b;yes;13 b;no;7 c;yes;1 c;no;1.125"
    assert labels(tmp_path, long).numbers.tolist() == [[2000, 1260], [7, 13], [1125, 1]]
    commas = 'bag;class;n a;yes;"1,260" a;no;"2,000" b;yes;13 b;no;7'
    assert labels(tmp_path, commas).numbers.tolist() == [[2000, 1260], [7, 13]]
    thirds = labels(tmp_path, "bag;yes;no a;33.333;66.667 b;100;0 c;50;50")
    assert thirds.numbers[0].tolist() == [66.667, 33.333]
    one = "bag;yes a;1.697 b;13 c;12"
    with pytest.raises(ValueError, match=r"such as 1\.697 and 12; the dots may be those of"):
        labels(tmp_path, one, classes=["yes", "no"])
    said = {
        kind: labels(tmp_path, one, classes=["yes", "no"], labels_are=kind).numbers[:, 1].tolist()
        for kind in ("counts", "proportions")
    }
    assert said == {"counts": [1697, 13, 12], "proportions": [1.697, 13, 12]}


@pytest.mark.parametrize("labels_are", ["auto", "relative"])
def test_a_cell_of_text_does_not_make_a_wide_label_file_a_long_one(
    tmp_path: Path, labels_are: Any
) -> None:
    wide = "bag,left,right a,405,327 b,125,287 c,closed,327 d,12,13"
    with pytest.raises(ValueError, match=r"'left' of .* holds text, 'closed' in row 3"):
        labels(tmp_path, wide, labels_are=labels_are)
    # One row for each bag, and names: that is a long one.
    assert labels(tmp_path, "bag,class,n a,yes,3 b,no,2 c,yes,1").classes == ["no", "yes"]


def test_files_as_spreadsheets_write_them(tmp_path: Path) -> None:
    told = labels(tmp_path, "sep=; bag;yes;no a;1;2 b;3;4")
    assert told.numbers.tolist() == [[2, 1], [4, 3]]
    with pytest.raises(ValueError, match="2 columns without a name"):
        labels(tmp_path, "bag;yes;no;; a;1;2;; b;3;4;;")
    (tmp_path / "labels.csv").write_bytes("bag;yes;no\na;1;2\n".encode("utf-16"))
    with pytest.raises(ValueError, match="UTF-16"):
        read_labels(tmp_path / "labels.csv", ["bag"])
