from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.cli.fit_command import LabelWord
from bagwise.labels.label_spec import _Word

GOLDEN = Path(__file__).parent / "golden"
INPUTS, MODEL = GOLDEN / "inputs", GOLDEN / "models" / "linear2"
NEW = INPUTS / "patients_new.csv"


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    return done.exit_code, done.stdout, done.stderr


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    code, out, _ = run("predict", MODEL, NEW, "--out", tmp_path / "p.csv", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 120
    _, out, _ = run("evaluate", MODEL, NEW, "--target", "truth", "--json")
    scores = json.loads(out)
    assert scores["classes"] == ["sick", "well"]
    assert 0.5 < scores["accuracy"] < 1
    _, out, _ = run("estimate", MODEL, NEW, "--by", "smoker", "--json")
    shares = json.loads(out)
    assert sum(share["share"] for share in shares) == pytest.approx(2)
    _, out, _ = run("explain", MODEL, "--json")
    assert {effect["class"] for effect in json.loads(out)} == {"well"}


def test_quiet_commands_print_nothing(tmp_path: Path) -> None:
    assert run("predict", MODEL, NEW, "--out", tmp_path / "p.csv", "--quiet") == (0, "", "")
    assert (tmp_path / "p.csv").exists()
    code, out, err = run("predict", MODEL, "nothing.csv", "--out", tmp_path / "q.csv", "-q")
    assert (code, out) == (3, "")
    assert "nothing.csv" in err


def test_one_command_does_not_quiet_the_next(tmp_path: Path) -> None:
    run("predict", MODEL, NEW, "--out", tmp_path / "p.csv", "--quiet")
    assert "120 rows" in run("predict", MODEL, NEW, "--out", tmp_path / "p.csv")[1]


def test_options_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    config = tmp_path / "fit.toml"
    config.write_text(
        f'files = ["{INPUTS / "patients.csv"}"]\n'
        f'bag = "ward"\nlabels = "{INPUTS / "patients_counts.csv"}"\n'
        'model = "tree"\nexclude = ["clinic", "patient"]\nordered = ["size=S<M<L"]\n'
    )
    out = ("--out", tmp_path / "model")
    assert run("fit", "--config", config, *out)[0] == 2  # there is no tree
    code, text, _ = run("fit", "--config", config, "--model", "linear", *out, "--json")
    assert code == 0
    assert json.loads(text)["settings"]["model"] == "linear"
    columns = json.loads((tmp_path / "model" / "columns.json").read_text())
    kinds = {column["name"]: column["kind"] for column in columns["columns"]}
    assert kinds["size"] == "ordered"
    assert "clinic" not in columns["left_out"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("bagg = 1", "'bagg', which is not an option of fit"),
        ("bag = ", "cannot be read"),
        ("bag = " + "[" * 5000, "cannot be read"),
        ("seed = " + "1" * 5000, "cannot be read"),
    ],
)
def test_a_wrong_file_of_options_is_named(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "fit.toml"
    config.write_text(content)
    code, _, err = run("fit", "--config", config, "--out", tmp_path / "model")
    assert code == 2
    assert message in err


@pytest.mark.parametrize("command", ["fit", "predict", "label", "evaluate", "train", "sweep"])
def test_h_is_help(command: str) -> None:
    code, out, _ = run(command, "-h")
    assert code == 0
    assert out == run(command, "--help")[1]
    assert "--quiet" in out


@pytest.mark.parametrize("command", ["predict", "label"])
def test_a_dash_writes_the_csv_file_to_standard_output(tmp_path: Path, command: str) -> None:
    rows, counts = INPUTS / "patients.csv", INPUTS / "patients_counts.csv"
    known = ("--bag", "ward", "--labels", counts) if command == "label" else ()
    code, text, _ = run(command, MODEL, rows, *known, "--out", tmp_path / "p.csv")
    assert code == 0
    assert "rows" in text
    code, text, notes = run(command, MODEL, rows, *known, "--out", "-")
    assert code == 0
    assert text == (tmp_path / "p.csv").read_text()
    assert "360 rows are on standard output" in notes


def test_data_and_json_cannot_both_be_on_standard_output() -> None:
    code, text, error = run("predict", MODEL, NEW, "--out", "-", "--json")
    assert (code, text) == (2, "")
    assert "leave one out" in error


@pytest.mark.parametrize(
    "command", [("explain", MODEL), ("estimate", MODEL, NEW, "--by", "smoker")]
)
def test_answers_are_the_same_in_files_on_standard_output_and_as_json(
    tmp_path: Path, command: tuple[object, ...]
) -> None:
    assert run(*command, "--out", tmp_path / "a.csv")[0] == 0
    code, text, shown = run(*command, "--out", "-")
    assert code == 0
    assert text == (tmp_path / "a.csv").read_text()
    assert "95% interval" in shown
    answers = json.loads(run(*command, "--json")[1])
    assert [list(answer) for answer in answers[:1]] == [text.splitlines()[0].split(",")]
    assert len(answers) == len(text.splitlines()) - 1


def test_notes_are_on_the_error_stream(tmp_path: Path) -> None:
    rows = INPUTS / "patients.csv"
    code, text, notes = run("predict", MODEL, rows, "--out", tmp_path / "p.csv", "--json")
    assert code == 0
    assert json.loads(text)["rows"] == 360
    assert notes.startswith("Note: income: 3 rows have an extreme value")


def test_each_note_is_a_line(tmp_path: Path) -> None:
    header, first, *others = (INPUTS / "patients_new.csv").read_text().splitlines()
    extreme_row = first.replace("1.882,27.3", "1e9,1e9")
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join([header, extreme_row, *others]) + "\n")
    code, _, notes = run("evaluate", MODEL, rows, "--target", "truth")
    assert code == 0
    extreme = [line for line in notes.splitlines() if "an extreme value" in line]
    assert len(extreme) == 2
    assert all(line.startswith("Note: ") for line in extreme)
    assert "\\n" not in notes


def test_a_page_goes_to_standard_output() -> None:
    code, text, _ = run("report", MODEL, "--out", "-")
    assert code == 0
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")


def test_a_group_column_may_not_have_the_name_of_a_column_of_the_answer(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(NEW.read_text().replace("smoker", "class", 1))
    code, _, error = run("estimate", MODEL, rows, "--by", "class")
    assert code == 3
    assert "the column 'class' of --by has the name of a column of the answer" in error


def test_the_words_of_labels_are_are_those_of_python() -> None:
    assert {str(word) for word in LabelWord} == {*get_args(_Word), "noisy"}
