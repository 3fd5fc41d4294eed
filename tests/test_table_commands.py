from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score
from typer.testing import CliRunner

from bagwise import LLPClassifier, read_bags, table_model
from bagwise.cli import app
from bagwise.limits import Limits
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use import label as labeling
from bagwise.tables.use import predict as predicting
from bagwise.tables.use import prediction_file
from bagwise.tables.use.evaluate import evaluate_table
from bagwise.training import run_state
from fitted import QUICK, fit_table

BAGS = ("--bag", "ward", "--labels")


def command(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env={"COLUMNS": "120"}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def refused(*arguments: Any) -> str:
    """The message of a command that ends with code 2, has one line, and no traceback."""
    code, output = command(*arguments)
    assert code in (2, 3), output
    assert output.startswith("Error: ")
    assert output.count("\n") == 1
    return output


def files(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in sorted(folder.rglob("*"))}


@pytest.fixture
def made(patients: Path) -> Path:
    return patients


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(made, tmp_path / "t"))


def test_fit_says_what_it_did(made: Path) -> None:
    output = (made / "fit.txt").read_text()
    for text in (
        "300 of 300",
        "24 of ",
        "patient is left out: almost every row has a different text",
        "clinic is left out: always north",
        "linear model, cc, learning rate 0.03, 15 epochs",
        "predicted shares are off by",
        "overall share",
    ):
        assert text in output
    model = FittedTable.load(made / "m")
    assert model.columns.names == ["blood", "smoker", "group"]
    assert model.facts.held_out.n_bags == 24
    assert model.facts.held_out.log_likelihood > model.facts.held_out.baseline
    assert sorted(p.name for p in (made / "m").iterdir()) == [
        "columns.json",
        "config.json",
        "fit.json",
        "held_out_bags.csv",
        "manifest.json",
        "model.safetensors",
    ]


def test_csv_and_parquet_give_the_same_model(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    assert command("fit", made / "rows.csv", *BAGS, made / "bags.csv", "--out", out, *QUICK)[0] == 0
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (out, made / "m"))
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name])


def test_predictions_keep_order_and_columns_in_every_format(made: Path, tmp_path: Path) -> None:
    found = {}
    for source in ("rows.parquet", "rows.csv"):
        for kind in ("parquet", "csv", "tsv"):
            out = tmp_path / "new" / f"{source}.{kind}"
            code, output = command("predict", made / "m", made / source, "--out", out)
            assert (code, "300 rows" in output) == (0, True)
            options = pcsv.ParseOptions(delimiter="\t" if kind == "tsv" else ",")
            read = pq.read_table(out) if kind == "parquet" else pcsv.read_csv(out, None, options)
            found[source, kind] = read
    for read in found.values():
        assert read.column_names == [
            "patient",
            "ward",
            "clinic",
            "label",
            "p_healthy",
            "p_sick",
        ]
        assert read.column("patient").to_pylist() == [f"P{i:03d}" for i in range(300)]
        sums = np.array(read.column("p_sick")) + np.array(read.column("p_healthy"))
        np.testing.assert_allclose(sums, 1, atol=1e-6)
        first = found["rows.parquet", "parquet"]
        np.testing.assert_allclose(
            np.array(read.column("p_sick")), np.array(first.column("p_sick")), atol=1e-6
        )
        sick = np.array(read.column("p_sick")) > 0.5
        assert np.array(read.column("label") == np.where(sick, "sick", "healthy")).all()
    truth = np.load(made / "sick.npy")
    assert (sick == truth).mean() > 0.8
    out = tmp_path / "kept.csv"
    command("predict", made / "m", made / "rows.csv", "--out", out, "--keep", "blood,patient")
    assert pcsv.read_csv(out).column_names[:3] == ["blood", "patient", "label"]


@pytest.mark.parametrize("source", ["rows.csv", "rows.parquet", "rows.csv.gz"])
def test_rows_from_a_pipe_are_those_of_the_file(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    content = (made / source.removesuffix(".gz")).read_bytes()
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spool"))
    piped = gzip.compress(content) if source.endswith("gz") else content
    arguments = ["predict", str(made / "m"), "-", "--out", str(tmp_path / "p.csv")]
    assert CliRunner().invoke(app, arguments, input=piped).exit_code == 0
    command("predict", made / "m", made / "rows.csv", "--out", tmp_path / "q.csv")
    assert (tmp_path / "p.csv").read_text() == (tmp_path / "q.csv").read_text()
    assert not list((tmp_path / "spool").iterdir())
    again = CliRunner().invoke(app, [*arguments, "-"], input=piped)
    assert again.output.startswith("Error: - is given twice")


def test_labels_have_exactly_the_counts_of_their_bags(made: Path, tmp_path: Path) -> None:
    for kind in ("parquet", "csv"):
        out = tmp_path / f"l.{kind}"
        code, _ = command(
            "label", made / "m", made / f"rows.{kind}", *BAGS, made / "bags.csv", "--out", out
        )
        assert code == 0
        read = pq.read_table(out) if kind == "parquet" else pcsv.read_csv(out)
        wards = np.array(read.column("ward").to_pylist())
        sick = np.array(read.column("label").to_pylist()) == "sick"
        p = np.array(read.column("p_sick"))
        for line in (made / "bags.csv").read_text().split()[1:]:
            ward, _, count = line.split(",")
            assert sick[wards == ward].sum() == int(count)
            assert p[wards == ward].sum() == pytest.approx(int(count), abs=1e-4)
        assert read.column("patient").to_pylist() == [f"P{i:03d}" for i in range(300)]
    predicted = tmp_path / "p.csv"
    command("predict", made / "m", made / "rows.csv", "--out", predicted)
    alone = np.array(pcsv.read_csv(predicted).column("label").to_pylist()) == "sick"
    truth = np.load(made / "sick.npy") == 1
    assert (sick == truth).mean() >= (alone == truth).mean()


def test_labeling_can_leave_out_bags_that_do_not_match(made: Path, tmp_path: Path) -> None:
    lines = (made / "bags.csv").read_text().splitlines()
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("\n".join([*lines[:1], *lines[4:]]) + "\n")
    arguments = ("label", made / "m", made / "rows.csv", *BAGS, fewer, "--out", tmp_path / "l.csv")
    assert "'W00'" in refused(*arguments)
    assert not (tmp_path / "l.csv").exists()
    code, output = command(*arguments, "--skip-unmatched")
    labeled = pcsv.read_csv(tmp_path / "l.csv")
    dropped = 300 - labeled.num_rows
    assert code == 0
    assert f"{dropped} rows are left out, and 3 bags" in output
    assert "W00, W01, W02\n" in output
    wards = set(labeled.column("ward").to_pylist())
    assert wards == {f"W{w:02d}" for w in range(3, 24)}


def test_evaluation_agrees_with_scikit_learn(made: Path, tmp_path: Path) -> None:
    code, output = command("evaluate", made / "m", made / "truth.csv", "--target", "truth")
    assert code == 0
    command("predict", made / "m", made / "rows.csv", "--out", tmp_path / "p.csv")
    guess = np.array(pcsv.read_csv(tmp_path / "p.csv").column("label").to_pylist()) == "sick"
    truth = np.load(made / "sick.npy") == 1
    assert f"accuracy {accuracy_score(truth, guess):.2%}" in output
    for number in confusion_matrix(truth, guess).ravel():
        assert f" {number} " in output
    assert "expected calibration error" in output


def test_rows_without_a_label_are_left_out_of_an_evaluation(made: Path, tmp_path: Path) -> None:
    lines = (made / "truth.csv").read_text().splitlines()
    spoilt = [
        line.rpartition(",")[0] + end
        for line, end in zip(lines[1:4], (",", ",NA", ',""'), strict=True)
    ]
    (tmp_path / "all.csv").write_text("\n".join([lines[0], *spoilt, *lines[4:]]))
    (tmp_path / "rest.csv").write_text("\n".join([lines[0], *lines[4:]]))
    code, output = command("evaluate", made / "m", tmp_path / "all.csv", "--target", "truth")
    assert code == 0
    assert "3 rows have no label and are left out." in output
    _, rest = command("evaluate", made / "m", tmp_path / "rest.csv", "--target", "truth")
    assert output.replace("3 rows have no label and are left out.\n", "") == rest
    (tmp_path / "none.csv").write_text("\n".join([lines[0], *spoilt]))
    message = refused("evaluate", made / "m", tmp_path / "none.csv", "--target", "truth")
    assert "has a label in the column 'truth'" in message


def test_auc_and_what_needs_no_model_agree_with_scikit_learn(made: Path) -> None:
    model, truth = FittedTable.load(made / "m"), pcsv.read_csv(made / "truth.csv")
    scores = evaluate_table(model, made / "truth.csv", "truth")
    y = np.array(truth.column("truth").to_pylist())
    p = np.exp(model.log_probs(model.columns.encode(truth.to_batches()[0])))
    expected = [roc_auc_score(y == label, p[:, c]) for c, label in enumerate(model.classes)]
    np.testing.assert_allclose(scores.auc, expected)
    assert scores.macro_auc == pytest.approx(np.mean(expected))
    constant = DummyClassifier(strategy="prior").fit(p, y)
    assert scores.most_frequent == constant.score(p, y)
    assert scores.constant_log_loss == pytest.approx(log_loss(y, constant.predict_proba(p)))
    _, output = command("evaluate", made / "m", made / "truth.csv", "--target", "truth")
    for value in (scores.macro_auc, *scores.auc, scores.constant_log_loss):
        assert f"{value:.4f}" in output
    assert f"{scores.most_frequent:.2%}" in output


def test_new_categories_and_missing_values_are_reported(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("blood,smoker,group\n1.5,true,AB\n,,A\n")
    code, output = command("predict", made / "m", path, "--out", tmp_path / "p.csv")
    assert code == 0
    assert "group: 1 row has a category not seen in training." in output
    assert "smoker: 1 row has no value; all training rows had one." in output
    assert "blood" not in output  # values were missing there before


def test_every_command_takes_the_same_cells_for_missing(made: Path, tmp_path: Path) -> None:
    """Empty cells written as words change nothing, whichever command reads them."""
    words = iter(["#NA", "NaN", " null ", "N/A", "None", "#N/A N/A"])
    lines = (made / "truth.csv").read_text().splitlines()
    place = lines[0].replace('"', "").split(",").index("blood")
    rows = [line.split(",") for line in lines]
    for cells in rows[1:]:
        cells[place] = cells[place] or next(words)
    assert next(words, None) is None
    (tmp_path / "words.csv").write_text("\n".join(",".join(cells) for cells in rows) + "\n")
    found = []
    for name, file in (("empty", made / "truth.csv"), ("words", tmp_path / "words.csv")):
        folder = tmp_path / name
        labels = (*BAGS, made / "bags.csv", "--out")
        arguments = ("--exclude", "truth", *QUICK)
        assert command("fit", file, *labels, folder / "m", *arguments)[0] == 0
        assert command("predict", folder / "m", file, "--out", folder / "p.csv")[0] == 0
        assert command("label", folder / "m", file, *labels, folder / "l.csv")[0] == 0
        code, scores = command("evaluate", folder / "m", file, "--target", "truth")
        assert code == 0
        texts = [(folder / path).read_text() for path in ("p.csv", "l.csv", "m/columns.json")]
        found.append([*texts, scores])
    assert found[0] == found[1]


def test_fit_can_be_done_again_and_gives_the_same_model(made: Path, tmp_path: Path) -> None:
    arguments = ("fit", made / "rows.csv", *BAGS, made / "bags.csv", "--out", tmp_path / "m")
    found = []
    for _ in range(2):  # the second time it replaces the first
        assert command(*arguments, *QUICK, "--seed", "3")[0] == 0
        found.append(load_file(tmp_path / "m" / "model.safetensors"))
    for name, tensor in found[0].items():
        assert torch.equal(tensor, found[1][name])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: (t / "bags.csv").write_text("ward,healthy,sick\nW00,1,0\n"), "do not match"),
        (
            lambda t: (t / "bags.csv").write_text(
                (t / "bags.csv").read_text().replace("W05", "W99")
            ),
            "'W05'",
        ),
        (
            lambda t: (t / "bags.csv").write_text(
                "ward,healthy,sick\n" + "".join(f"W{w:02d},0.6,0.6\n" for w in range(24))
            ),
            "sum to 1.2",
        ),
        (
            lambda t: (t / "bags.csv").write_text("ward,healthy\nW00,1\n"),
            "two classes are expected",
        ),
        (lambda t: (t / "bags.csv").write_text(""), "is empty"),
        (lambda t: (t / "bags.csv").unlink(), "there is no file"),
        (lambda t: (t / "rows.csv").write_text(""), "is empty"),
        (lambda t: (t / "rows.csv").write_text("ward,x\n"), "has no rows"),
        (lambda t: (t / "rows.csv").write_text("bed,x\nW00,1\n"), "no column 'ward'"),
        (lambda t: (t / "rows.csv").write_text("ward,x\nW00\nW01,2,3\n"), "cannot be read"),
        (lambda t: (t / "rows.csv").write_bytes(b"ward,x\n\xff\xfe,1\n"), "rows.csv"),
        (lambda t: (t / "m2").write_text("not a folder"), "m2"),
        (lambda t: ((t / "m2").mkdir(), (t / "m2" / "thesis.txt").write_text("!")), "m2"),
    ],
    ids=[
        "labels of one bag",
        "a bag without labels",
        "proportions of 1.2",
        "a class column missing",
        "empty label file",
        "no label file",
        "empty table",
        "no rows",
        "no bag column",
        "ragged lines",
        "not utf-8",
        "out is a file",
        "out holds other things",
    ],
)
def test_mistakes_at_fit_end_with_code_two(
    table: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(table)
    before = files(table)
    output = refused(
        "fit", table / "rows.csv", *BAGS, table / "bags.csv", "--out", table / "m2", *QUICK
    )
    assert any(part in output for part in message.split("|"))
    assert files(table) == before


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--features", "weight"), "'weight'"),
        (("--categorical", "weight"), "'weight'"),
        (("--exclude", "blood,smoker,group"), "no column is left"),
        (("--exclude", "bloood"), "'bloood'"),
        (("--features", "ward,blood"), "'ward' is both"),
        (("--classes", "healthy,dead"), "'dead'"),
        (("--model", "tree"), "'tree'"),
        (("--method", "magic"), "'magic'"),
        (("--method", "supervised"), "supervised"),
        (("--method", "dllp", "--engine", "exact"), "the method 'dllp' takes none"),
        (("--method", "ot", "--set", "eps=1"), "'ot' has no option 'eps'; it has epsilon"),
        (("--set", "epsilon"), "NAME=VALUE is expected"),
        (("--set", "epsilon=1"), "'auto' has no option 'epsilon'; it takes max_states"),
        (("--engine", "steam"), "'steam'"),
        (("--epochs", "0"), "epochs"),
        (("--lr", "-1"), "lr"),
    ],
    ids=str,
)
def test_wrong_options_at_fit_end_with_code_two(
    made: Path, tmp_path: Path, option: tuple[str, ...], message: str
) -> None:
    arguments = ("fit", made / "rows.csv", *BAGS, made / "bags.csv", "--out", tmp_path / "m")
    quick = [part for part in QUICK if not set(option) & {part}]
    if option[0] in QUICK:
        place = QUICK.index(option[0])
        quick = [*QUICK[:place], *QUICK[place + 2 :]]
    assert message in refused(*arguments, *quick, *option)
    assert not list(tmp_path.iterdir())


def test_text_in_a_numeric_column_is_named_with_its_row(made: Path, tmp_path: Path) -> None:
    lines = (made / "rows.csv").read_text().splitlines()
    header = lines[0].replace('"', "").split(",")
    cells = lines[200].split(",")
    cells[header.index("blood")] = "high"
    path = tmp_path / "spoilt.csv"
    path.write_text("\n".join([*lines[:200], ",".join(cells), *lines[201:]]) + "\n")
    output = refused("predict", made / "m", path, "--out", tmp_path / "p.csv")
    assert "'blood' has 'high' in row 200; a number is expected" in output
    output = refused("fit", path, *BAGS, made / "bags.csv", "--out", tmp_path / "m", *QUICK)
    assert "'blood'" in output
    assert "'high'" in output
    assert [p.name for p in tmp_path.iterdir()] == ["spoilt.csv"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: (t / "new.csv").write_text("blood,smoker\n1,true\n"), "no column 'group'"),
        (lambda t: (t / "new.csv").write_text(""), "is empty"),
        (lambda t: (t / "new.csv").write_text("blood,smoker,group\n"), "has no rows"),
        (lambda t: (t / "new.csv").unlink(), "there is no file"),
        (
            lambda t: (t / "new.csv").write_text("blood,smoker,group,label\n1,true,A,x\n"),
            "column 'label'",
        ),
        (lambda t: (t / "p.csv").mkdir(), "is a folder"),
    ],
    ids=["column missing", "empty", "no rows", "no file", "clash of names", "out is a folder"],
)
def test_mistakes_at_predict_end_with_code_two(
    table: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    (table / "new.csv").write_text("blood,smoker,group\n1,true,A\n")
    spoil(table)
    before = files(table)
    out = table / "p.csv"
    assert message in refused("predict", table / "m", table / "new.csv", "--out", out)
    assert files(table) == before


def test_the_label_file_is_not_overwritten_and_no_empty_folder_is_left(table: Path) -> None:
    before = files(table)
    labels = table / "bags.csv"
    arguments = ("label", table / "m", table / "rows.csv", *BAGS, labels, "--out")
    assert "an input itself" in refused(*arguments, labels)
    (table / "new.csv").write_text("blood,smoker,group\n1,true,A\nx,true,A\n")
    before = files(table)
    refused("predict", table / "m", table / "new.csv", "--out", table / "deep" / "p.csv")
    assert "inside" in refused("report", table / "m", "--out", table / "m" / "report.html")
    assert files(table) == before
    assert "no bag column" in refused(
        "fit", table / "rows.csv", "--bag", "", "--labels", labels, "--out", table / "x"
    )


def test_a_long_label_file_may_lack_a_class_where_it_labels(made: Path, tmp_path: Path) -> None:
    rows = tmp_path / "r.csv"
    rows.write_text("ward,blood,smoker,group\nA,1,true,A\nA,2,false,B\n")
    labels = tmp_path / "l.csv"
    labels.write_text("ward,state,n\nA,sick,2\n")
    out = tmp_path / "o.csv"
    assert command("label", made / "m", rows, *BAGS, labels, "--out", out)[0] == 0
    assert pcsv.read_csv(out).column("label").to_pylist() == ["sick", "sick"]
    (tmp_path / "l2.csv").write_text("ward,sick\nA,0.5\n")
    arguments = ("label", made / "m", rows, *BAGS, tmp_path / "l2.csv", "--out", out)
    assert command(*arguments)[0] == 0
    assert sorted(pcsv.read_csv(out).column("label").to_pylist()) == ["healthy", "sick"]
    wider = tmp_path / "w.csv"
    wider.write_text("ward,note,healthy,sick\nA,hello,1,1\n")
    assert command("label", made / "m", rows, *BAGS, wider, "--out", out)[0] == 0
    assert sorted(pcsv.read_csv(out).column("label").to_pylist()) == ["healthy", "sick"]


def test_brackets_in_names_are_shown_as_they_are(tmp_path: Path) -> None:
    rows = "".join(f"B{i % 4},{i % 7},1\n" for i in range(40))
    (tmp_path / "r.csv").write_text("bag,x [/km],use [km]\n" + rows)
    labels = "".join(f"B{b},4,6\n" for b in range(4))
    (tmp_path / "l.csv").write_text("bag,[/yes],[no]\n" + labels)
    arguments = (tmp_path / "r.csv", "--bag", "bag", "--labels", tmp_path / "l.csv", *QUICK)
    code, output = command("fit", *arguments, "--out", tmp_path / "m")
    assert code == 0
    for name in ("use [km] is left out", "[/yes]", "[no]"):
        assert name in output


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2J\x07\x9b\u202e"
    rows = "".join(f"B{evil}{i % 4},{i % 7},{i % 3 // 2},1,{evil}yes\n" for i in range(40))
    (tmp_path / "r.csv").write_text(f"bag,x{evil},y,same{evil},truth\n" + rows)
    labels = "".join(f"B{evil}{b},4,6\n" for b in range(4))
    (tmp_path / "l.csv").write_text(f"bag,{evil}yes,{evil}no\n" + labels)
    arguments = (tmp_path / "r.csv", "--bag", "bag", "--labels", tmp_path / "l.csv")
    fitted = ("fit", *arguments, *QUICK, "--exclude", "truth", "--out", tmp_path / "m")
    (tmp_path / "new.csv").write_text((tmp_path / "r.csv").read_text() + f"C{evil},,0,1,{evil}\n")
    new = (tmp_path / "new.csv", "--bag", "bag", "--labels", tmp_path / "l.csv")
    labeled = ("label", tmp_path / "m", *new, "--skip-unmatched", "--out", tmp_path / "o.csv")
    outputs = []
    for case, expected in (
        (fitted, 0),
        (labeled, 0),
        (("evaluate", tmp_path / "m", tmp_path / "r.csv", "--target", "truth"), 0),
        (("evaluate", tmp_path / "m", tmp_path / "new.csv", "--target", "truth"), 3),
        (("evaluate", tmp_path / "m", tmp_path / "r.csv", "--target", evil), 3),
    ):
        code, output = command(*case)
        assert code == expected, output
        assert not set(evil) & set(output) - set("[2J")
        outputs.append(output)
    assert all("x1b[2J" in output for output in outputs)


def test_an_output_that_is_the_input_or_of_an_unknown_kind_is_refused(table: Path) -> None:
    before = files(table)
    rows = table / "rows.csv"
    assert "an input itself" in refused("predict", table / "m", rows, "--out", rows)
    assert "unknown kind" in refused("predict", table / "m", rows, "--out", table / "p.xlsx")
    assert files(table) == before


@pytest.mark.parametrize("name", ["predict", "label", "report"])
def test_a_file_that_the_command_did_not_write_is_replaced_only_by_force(
    table: Path, name: str
) -> None:
    other = table / "mine.csv"
    other.write_text("id,label,p_value\n1,a,0.5\n")
    arguments = ("report", table / "m", "--out", other)
    if name != "report":
        arguments = written(table, name, other)
    before = files(table)
    assert "--force" in refused(*arguments)
    assert files(table) == before
    assert command(*arguments, "--force")[0] == 0
    own = other.read_text()
    assert "p_value" not in own
    assert command(*arguments)[0] == 0  # its own output
    assert other.read_text() == own


def test_a_report_does_not_take_the_place_of_the_training_table(table: Path) -> None:
    before = files(table)
    assert "--force" in refused("report", table / "m", "--out", table / "rows.csv")
    assert files(table) == before


def test_a_place_where_nothing_may_be_written_is_named(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_permission(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(tmp_path / "closed"))

    monkeypatch.setattr("bagwise.storage.files.new_beside", no_permission)
    for arguments in (
        ("predict", made / "m", made / "rows.csv", "--out", tmp_path / "p.csv"),
        ("report", made / "m", "--out", tmp_path / "r.html"),
        ("fit", made / "rows.csv", *BAGS, made / "bags.csv", "--out", tmp_path / "m", *QUICK),
    ):
        assert "Permission denied" in refused(*arguments)
    assert not list(tmp_path.iterdir())


def _edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return spoil


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


def _wrong_shape(folder: Path) -> None:
    path = folder / "model.safetensors"
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        metadata = json.loads(file.read(length))["__metadata__"]
    tensors = {name: torch.zeros(3, 3) for name in load_file(path)}
    save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_cut, "model.safetensors"),
        (_wrong_shape, "does not fit"),
        (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda f: (f / "columns.json").unlink(), "has no columns.json"),
        (lambda f: (f / "fit.json").unlink(), "has no fit.json"),
        (lambda f: (f / "config.json").unlink(), "has no config.json|no result"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json"),
        (lambda f: (f / "columns.json").write_text("{"), "columns.json"),
        (lambda f: (f / "fit.json").write_text("[1]"), "fit.json"),
        (_edit("config.json", lambda c: c.update(format=99)), "format 99"),
        (_edit("columns.json", lambda c: c.update(format=99)), "format 99"),
        (_edit("fit.json", lambda c: c.update(format=99)), "format 99"),
        (_edit("columns.json", lambda c: c["columns"].pop()), "features"),
        (_edit("columns.json", lambda c: c["columns"][0].update(std="wide")), "columns.json"),
        (_edit("columns.json", lambda c: c["columns"][0].update(evil=1)), "columns.json"),
        (_edit("columns.json", lambda c: c.update(columns={})), "columns.json"),
        (_edit("config.json", lambda c: c.update(kind="os.system")), "config.json"),
        (_edit("config.json", lambda c: c.update(classes=["a"])), "config.json"),
        (_edit("config.json", lambda c: c["classes"].append("x")), "model.safetensors"),
        (_edit("config.json", lambda c: c.update(temperature="hot")), "config.json"),
        (_edit("config.json", lambda c: c.update(n_features="x")), "config.json"),
        (_edit("config.json", lambda c: c.update(n_features=7)), "columns.json"),
        (_edit("config.json", lambda c: c.update(n_features=10**12)), "config.json"),
        (_edit("config.json", lambda c: c.update(maximum_likelihood={})), "damaged"),
        (_edit("config.json", lambda c: c.update(kind=["mlp"])), "config.json"),
        (_edit("config.json", lambda c: c.update(classes=["a", "a"])), "config.json"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "config.json"),
        (lambda f: (f / "columns.json").write_text("[" * 100_000), "columns.json"),
        (_edit("columns.json", lambda c: c["columns"][0].update(mean=10**400)), "columns.json"),
    ],
    ids=lambda value: value.replace("|", " ") if isinstance(value, str) else "",
)
def test_a_model_folder_that_was_tampered_with_is_refused(
    table: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(table / "m")
    before = files(table)
    for arguments in (
        ("predict", table / "m", table / "rows.csv", "--out", table / "p.csv"),
        ("report", table / "m", "--out", table / "r.html"),
    ):
        output = refused(*arguments)
        assert any(part in output for part in message.split("|")), output
    assert files(table) == before


@pytest.mark.parametrize("key", ["data", "held_out", "curve", "surprising", "settings", "tried"])
@pytest.mark.parametrize("value", [None, [], {}, "x", [3]], ids=str)
def test_a_report_of_odd_facts_is_refused_or_written(table: Path, key: str, value: Any) -> None:
    _edit("fit.json", lambda content: content.update({key: value}))(table / "m")
    code, output = command("report", table / "m", "--out", table / "r.html")
    assert code in (0, 3)
    if code in (2, 3):
        assert "fit.json" in output
        assert not (table / "r.html").exists()


def test_a_model_predicts_also_where_the_facts_of_its_fit_are_damaged(table: Path) -> None:
    _edit("fit.json", lambda content: content.pop("held_out"))(table / "m")
    code, output = command("predict", table / "m", table / "rows.csv", "--out", table / "p.csv")
    assert code == 0, output
    with pytest.raises(ValueError, match="held_out is missing"):
        _ = FittedTable.load(table / "m").facts


@pytest.mark.parametrize("epochs", [3, None], ids=["given", "chosen"])
def test_facts_of_a_fit_are_the_same_before_and_after_their_file(
    made: Path, tmp_path: Path, epochs: int | None
) -> None:
    arguments = (made / "rows.csv", "ward", made / "bags.csv")
    fitted = fit_table(*arguments, model="linear", lr=0.03, epochs=epochs, out=tmp_path / "m")
    assert FittedTable.load(tmp_path / "m").facts == fitted.facts


@pytest.mark.parametrize("large", [False, True])
def test_a_fit_that_was_killed_goes_on_and_ends_the_same(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        of_large = partial(table_model.fit, limits=Limits(cross_validated=100))
        monkeypatch.setattr(table_model, "fit", of_large)
    arguments = ("fit", made / "rows.csv", *BAGS, made / "bags.csv", *QUICK, "--out")
    assert command(*arguments, tmp_path / "whole")[0] == 0
    real, saved = run_state.save_run, []

    def save_and_die(folder: Path, *rest: Any) -> None:
        real(folder, *rest)
        saved.append(folder)
        if len(saved) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr("bagwise.training.loop.save_run", save_and_die)
    CliRunner().invoke(app, [str(a) for a in (*arguments, tmp_path / "killed")])
    assert [p.name for p in tmp_path.iterdir() if "killed" in p.name] == [".killed.fitting"]

    def again(*rest: Any) -> None:
        raise AssertionError("was done before")

    monkeypatch.setattr("bagwise.estimator.network_candidates.train_fold", again)
    assert command(*arguments, tmp_path / "killed")[0] == 0
    assert len(saved) == 15  # epochs, each once
    assert sorted(p.name for p in tmp_path.iterdir()) == ["killed", "whole"]
    ours, theirs = (load_file(tmp_path / n / "model.safetensors") for n in ("killed", "whole"))
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name])


def test_files_of_different_types_are_predicted_together(made: Path, tmp_path: Path) -> None:
    for i, kind in enumerate((pa.int32(), pa.int64(), pa.string())):
        rows = {"blood": [1.0], "smoker": [True], "group": ["A"], "id": pa.array([i]).cast(kind)}
        pq.write_table(pa.table(rows), tmp_path / f"{i}.parquet")
    (tmp_path / "3.csv").write_text("group,id,smoker,blood\nA,3,yes,1\n")
    for n, pattern in ((2, "[01].parquet"), (4, "[0-3].*")):
        out = tmp_path / "out" / "deep" / f"{n}.parquet"
        code, output = command("predict", made / "m", tmp_path / pattern, "--out", out)
        assert code == 0, output
        read = pq.read_table(out)
        assert [int(x) for x in read.column("id").to_pylist()] == list(range(n))
        assert len(set(read.column("p_sick").to_pylist())) == 1


def test_no_folder_is_left_when_a_row_is_wrong(made: Path, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("blood,smoker,group\nx,true,A\n")
    out = tmp_path / "a" / "b" / "p.csv"
    refused("predict", made / "m", tmp_path / "r.csv", "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


OUTPUTS = ["predict", "label"]


def written(made: Path, name: str, out: Path) -> tuple[str, ...]:
    labels = (*BAGS, made / "bags.csv") if name == "label" else ()
    return (name, made / "m", made / "rows.csv", *labels, "--out", out)


@pytest.mark.slow
def test_what_a_killed_command_left_is_removed_by_the_next(made: Path, tmp_path: Path) -> None:
    """A process dies as its output takes its place; the next one leaves nothing but the output."""
    out = tmp_path / "p[1].csv"
    out.write_text("of yesterday")
    (tmp_path / ".p[1].csv.swp").write_text("mine")
    die = (
        "import os, sys\nfrom bagwise.cli import app\n"
        "sys.addaudithook(lambda event, details: event == 'os.rename'"
        " and os.fspath(details[1]).endswith('.csv') and os._exit(9))\napp(sys.argv[1:])"
    )
    arguments = [str(part) for part in (*written(made, "predict", out), "--force")]
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", die, *arguments], check=False)
        assert killed.returncode == 9
        assert out.read_text() == "of yesterday"
        assert len(list(tmp_path.iterdir())) == 3  # and not one more each time
    assert command(*arguments)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".p[1].csv.swp", "p[1].csv"]
    assert len(out.read_text().splitlines()) == 301


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_ctrl_c_leaves_nothing_half_written(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """The signal comes after rows have been written to the unfinished file."""
    seen: list[int] = []
    cast, module = prediction_file._as, {"predict": predicting, "label": labeling}[name]

    def interrupted(*rest: Any) -> Any:
        seen.append(len(list(out.parent.iterdir())))
        if len(seen) == 2:
            signal.raise_signal(signal.SIGINT)
        return cast(*rest)

    out = tmp_path / "a" / f"p.{kind}"
    assert command(*written(made, name, out))[0] == 0
    before = out.read_bytes()
    in_batches = partial(getattr(module, f"{name}_table"), limits=Limits(batch_rows=100))
    monkeypatch.setattr(module, f"{name}_table", in_batches)
    monkeypatch.setattr(prediction_file, "_as", interrupted)
    rows = (name, made / "m", made / "rows.parquet", *written(made, name, out)[3:])
    code, output = command(*rows)
    assert (code, output) == (130, "Stopped.\n")
    assert seen == [2, 2]  # the old one, and the unfinished one
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    assert out.read_bytes() == before


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
def test_an_output_that_is_a_symbolic_link_is_followed(
    made: Path, tmp_path: Path, name: str, there: bool
) -> None:
    target, link = tmp_path / "disk" / "p.csv", tmp_path / "link.csv"
    if there:
        target.parent.mkdir()
        target.write_text("of yesterday")
    link.symlink_to(target)
    assert command(*written(made, name, link), "--force")[0] == 0
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) == 301
    assert [path.name for path in target.parent.iterdir()] == ["p.csv"]
    link.unlink()
    link.symlink_to(made / "rows.csv")
    assert "an input itself" in refused(*written(made, name, link))


def test_a_folder_made_for_an_output_that_fails_is_removed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*rest: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bagwise.storage.files.new_beside", full)
    assert "No space left" in refused(*written(made, "predict", tmp_path / "a" / "b" / "p.csv"))
    assert not list(tmp_path.iterdir())


# Arrays that may not be written


def read_only(array: Any) -> Any:
    array.setflags(write=False)
    return array


def test_read_only_arrays_are_as_good_as_others(made: Path, tmp_path: Path) -> None:
    """PyTorch warns of such arrays, and a warning is an error in these tests."""
    X, wards, counts, _ = read_bags(made / "rows.parquet", "ward", made / "bags.csv")
    np.save(tmp_path / "X.npy", X)
    model = FittedTable.load(made / "m")
    expected = LLPClassifier(model="linear", epochs=1, random_state=0).fit(X, wards, counts)
    log_probs = model.log_probs(X)
    for same in (
        read_only(X.copy()),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        np.asfortranarray(X),
        X[::-1].copy()[::-1],
        X.astype(np.float64),
    ):
        assert (model.log_probs(same) == log_probs).all()
        fitted = LLPClassifier(model="linear", epochs=1, random_state=0)
        fitted.fit(same, read_only(wards.copy()), counts)
        np.testing.assert_allclose(fitted.predict_proba(same), expected.predict_proba(X), rtol=1e-5)


def test_a_narrow_terminal_cuts_no_names_and_numbers(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ("evaluate", made / "m", made / "truth.csv", "--target", "truth")
    wide = command(*evaluate)[1]
    monkeypatch.setenv("COLUMNS", "30")
    narrow = command(*evaluate)[1]
    assert "…" not in narrow
    assert [line for line in narrow.splitlines() if "│" in line] == [
        line for line in wide.splitlines() if "│" in line
    ]
