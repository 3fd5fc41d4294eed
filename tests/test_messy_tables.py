"""Tables as offices have them: totals, nameless columns, known labels, rows unlike those of fit."""

from __future__ import annotations

import gzip
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bagwise import LLPClassifier
from bagwise.cli import app
from bagwise.tables.labels.label_file import LabelTable, read_labels

RANDOM = np.random.default_rng(0)
WARD = np.repeat(np.arange(20), 12)
ILL = RANDOM.integers(0, 2, len(WARD))
SCORE = RANDOM.normal(size=len(WARD)) + 2.5 * ILL
SEX = RANDOM.choice(["f", "m"], len(WARD))


def command(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def rows_file(path: Path, **columns: Any) -> Path:
    names = [f"w{ward}" for ward in WARD]
    pcsv.write_csv(pa.table({"ward": names, "score": SCORE, "sex": SEX} | columns), path)
    return path


def counts() -> list[tuple[str, int, int]]:
    return [
        (f"w{b}", int(ILL[b == WARD].sum()), int((1 - ILL)[b == WARD].sum())) for b in range(20)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("messy")
    known = np.random.default_rng(1).random(len(WARD)) < 0.2
    dx = np.where(known, np.where(ILL, "ill", "well"), "")
    rows_file(folder / "rows.csv", dx=dx.tolist())
    lines = ["ward,ill,well", *(f"{name},{ill},{well}" for name, ill, well in counts())]
    (folder / "bags.csv").write_text("\n".join(lines))
    fitted = ("fit", folder / "rows.csv", "--bag", "ward", "--labels", folder / "bags.csv")
    more = ("--exclude", "dx", "--model", "linear", "--out", folder / "model")
    assert command(*fitted, *more)[0] == 0
    labeled = ("--row-labels", "dx", "--model", "linear", "--out", folder / "labeled")
    assert command(*fitted, *labeled)[0] == 0
    return folder


def read(folder: Path, *lines: str, **options: Any) -> LabelTable:
    path = folder / "labels.csv"
    path.write_text("\n".join(lines) + "\n")
    return read_labels(str(path), ["ward"], **options)


@pytest.mark.parametrize("labels_are", ["auto", "relative"])
@pytest.mark.parametrize("total", ["Total", "All", "patients"])
def test_a_total_in_a_long_file_is_no_class(tmp_path: Path, labels_are: Any, total: str) -> None:
    lines = [
        line
        for name, ill, well in counts()
        for line in (f"{name},ill,{ill}", f"{name},well,{well}", f"{name},{total},{ill + well}")
    ]
    with pytest.warns(UserWarning, match=f"the class '{total}' .* is taken for a total"):
        found = read(tmp_path, "ward,what,number", *lines, labels_are=labels_are)
    assert found.classes == ["ill", "well"]
    assert found.numbers.tolist() == [[ill, well] for _, ill, well in counts()]


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_rows_are_no_class(tmp_path: Path, first: int) -> None:
    lines = [f"{first + n},{name},{ill},{well}" for n, (name, ill, well) in enumerate(counts())]
    found = read(tmp_path, ',"ward","ill","well"', *lines, labels_are="relative")
    assert found.classes == ["ill", "well"]


def test_an_empty_column_of_a_spreadsheet_is_no_class(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="'<5' are read as ranges of counts"):
        found = read(tmp_path, "ward,ill,well,", "w0,<5,30,", "w1,8,30,")
    assert found.classes == ["ill", "well"]
    with pytest.raises(
        ValueError, match=r"a column without a name, .3. in row 2\. Give it the name"
    ):
        read(tmp_path, "ward,ill,well,", "w0,<5,30,", "w1,8,30,3")


def test_a_class_as_large_as_each_bag_is_doubted() -> None:
    ids, sizes = np.repeat(np.arange(4), [2, 3, 4, 5]), np.array([2, 3, 4, 5])
    numbers = {b: {"ill": 1, "patients": int(size)} for b, size in enumerate(sizes)}
    model = LLPClassifier(model="linear", epochs=1)
    with pytest.warns(UserWarning, match="as many of class 'patients' as rows"):
        model.fit(RANDOM.normal(size=(14, 2)), ids, numbers, labels_are="relative")
    numbers = {b: {"ill": 2, "patients": int(size) + 1} for b, size in enumerate(sizes)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(RANDOM.normal(size=(14, 2)), ids, numbers, labels_are="relative")


def test_the_error_about_sums_asks_for_a_total_first(made: Path, tmp_path: Path) -> None:
    lines = [f"{name},{ill},{well},{ill + 1}" for name, ill, well in counts()]
    (tmp_path / "l.csv").write_text("\n".join(["ward,ill,well,ill_2019", *lines]))
    out = ("--labels", tmp_path / "l.csv", "--out", tmp_path / "m")
    code, output = command("fit", made / "rows.csv", "--bag", "ward", *out)
    assert code in (2, 3)
    assert output.index("Leave out totals and other columns that are not classes.") < output.index(
        "relative"
    )


def test_cells_of_thousands_may_be_ranges(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="'<1,000' are read as ranges of counts"):
        found = read(tmp_path, "ward,ill,well", 'w0,"<1,000",30', 'w1,"1,000-2,000",30')
    assert found.numbers[:, 0].tolist() == [[0, 999], [1000, 2000]]


@pytest.mark.parametrize("mark", ["-", "suppressed"])
def test_other_marks_of_what_is_not_published_are_named(tmp_path: Path, mark: str) -> None:
    with pytest.raises(ValueError, match=r"\* or nothing where a count is not published"):
        read(tmp_path, "ward,ill,well,dead", f"w0,{mark},3,1", "w1,8,30,1", "w2,8,30,1")


def test_a_range_beyond_the_bag_is_named(made: Path, tmp_path: Path) -> None:
    lines = ["w0,100-200,*", *(f"{name},{ill},{well}" for name, ill, well in counts()[1:])]
    (tmp_path / "l.csv").write_text("\n".join(["ward,ill,well", *lines]))
    out = ("--labels", tmp_path / "l.csv", "--out", tmp_path / "m")
    code, output = command("fit", made / "rows.csv", "--bag", "ward", *out)
    assert code in (2, 3)
    assert "bag 'w0' has at least 100 instances of class 'ill', but only 12" in output


def test_negative_counts_name_the_option_for_noise(made: Path, tmp_path: Path) -> None:
    lines = ["w0,-2,14", *(f"{name},{ill},{well}" for name, ill, well in counts()[1:])]
    (tmp_path / "l.csv").write_text("\n".join(["ward,ill,well", *lines]))
    out = ("--labels", tmp_path / "l.csv", "--out", tmp_path / "m")
    code, output = command("fit", made / "rows.csv", "--bag", "ward", *out)
    assert code in (2, 3)
    assert "--noise laplace:4" in output
    assert "labels_are" not in output


def test_label_keeps_known_labels_if_it_is_told_them(made: Path, tmp_path: Path) -> None:
    given = ("--bag", "ward", "--labels", made / "bags.csv", "--out", tmp_path / "o.csv")
    code, output = command("label", made / "labeled", made / "rows.csv", *given)
    assert code == 0
    assert "Keep them with --row-labels" in output
    told = (*given, "--row-labels", "dx")
    code, output = command("label", made / "labeled", made / "rows.csv", *told)
    assert code == 0
    assert "keeps them" not in output
    found = pcsv.read_csv(tmp_path / "o.csv").to_pydict()
    known = [n for n, label in enumerate(found["dx"]) if label]
    assert known
    for name in ("label", "most_probable"):
        assert [found[name][n] for n in known] == [found["dx"][n] for n in known]
    ill = np.array(found["label"]) == "ill"
    assert [(ill & (b == WARD)).sum() for b in range(20)] == [ill for _, ill, _ in counts()]


def test_estimate_says_which_rows_are_unlike_those_of_fit(made: Path, tmp_path: Path) -> None:
    unseen = rows_file(tmp_path / "unseen.csv", sex=["x"] * len(WARD))
    _, output = command("estimate", made / "model", unseen, "--by", "sex")
    assert "sex: 240 rows have a category not seen in training." in output
    far = rows_file(tmp_path / "far.csv", score=SCORE * 1000)
    _, output = command("estimate", made / "model", far, "--by", "ward")
    assert "rows have an extreme value" in output


def test_estimate_gives_bags_the_shares_that_were_counted(made: Path, tmp_path: Path) -> None:
    given = ("--by", "ward", "--bag", "ward", "--labels", made / "bags.csv")
    out = ("--out", tmp_path / "shares.csv")
    _, output = command("estimate", made / "model", made / "rows.csv", *given, *out)
    assert "a share cannot lie outside its bounds." in output
    found = pcsv.read_csv(tmp_path / "shares.csv").to_pydict()
    for name in ("low", "high", "least", "most"):
        np.testing.assert_allclose(found[name], found["share"], atol=1e-7)
    _, output = command(
        "estimate", made / "model", made / "rows.csv", *given, "--labels-are", "relative"
    )
    assert "cannot lie outside" not in output
    assert "The label file has other totals" in output


def test_groups_that_cannot_be_are_named(made: Path, tmp_path: Path) -> None:
    table = pcsv.read_csv(made / "rows.csv")
    lists = pa.array([[1, 2]] * len(table))
    pq.write_table(table.append_column("list", lists), tmp_path / "n.parquet")
    code, output = command("estimate", made / "model", tmp_path / "n.parquet", "--by", "list")
    assert code in (2, 3)
    assert "the column 'list' holds values of type list<" in output
    code, output = command("estimate", made / "model", made / "rows.csv", "--by", "")
    assert code in (2, 3)
    assert "--by is empty; name the columns" in output


def test_two_bags_have_a_linear_model_and_no_advice_for_programmers(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("bag,x\na,1\na,2\nb,3\nb,4\n")
    (tmp_path / "bags.csv").write_text("bag,no,yes\na,1,1\nb,0,2\n")
    given = ("--bag", "bag", "--labels", tmp_path / "bags.csv", "--out", tmp_path / "m")
    code, output = command("fit", tmp_path / "rows.csv", *given)
    assert code == 0
    assert "LayerNorm" not in output
    assert "mlp" not in output


def test_rows_without_a_bag_that_are_left_out_are_counted(made: Path, tmp_path: Path) -> None:
    text = (made / "rows.csv").read_text().replace('"w0"', '""')
    (tmp_path / "rows.csv").write_text(text)
    given = ("--bag", "ward", "--labels", made / "bags.csv", "--model", "linear")
    more = ("--exclude", "dx", "--skip-unmatched", "--out", tmp_path / "m")
    code, output = command("fit", tmp_path / "rows.csv", *given, *more)
    assert code == 0
    assert "12 rows of " in output
    assert "have no bag and are left out" in output


def test_categories_of_columns_that_are_no_features_are_refused(made: Path, tmp_path: Path) -> None:
    given = ("--bag", "ward", "--labels", made / "bags.csv", "--out", tmp_path / "m")
    more = ("--features", "score", "--ordered", "sex=f<m")
    code, output = command("fit", made / "rows.csv", *given, *more)
    assert code in (2, 3)
    assert "'sex' is said to be of categories, but is not a feature" in output


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.csv", gzip.compress(b"ward,score\nw0,1\n"), "is gzip by its content.*with .gz"),
        ("r.csv", b"PK\x03\x04 and so on", "is a spreadsheet or zip archive .*save it as CSV"),
        ("r.csv", b"PAR1 and so on", "is Parquet by its content.*with .parquet"),
    ],
    ids=["gzip", "zip", "parquet"],
)
def test_files_that_are_not_what_their_name_says_are_named(
    made: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    given = ("--bag", "ward", "--labels", made / "bags.csv", "--out", tmp_path / "m")
    code, output = command("fit", tmp_path / name, *given)
    assert code in (2, 3)
    assert re.search(message, output)
