from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bagwise.cli import app

GOLDEN = Path(__file__).parent / "golden"
ROWS, COUNTS = GOLDEN / "inputs" / "patients.csv", GOLDEN / "inputs" / "patients_counts.csv"
FIT = ("fit", ROWS, "--bag", "ward", "--labels", COUNTS)
MODEL = GOLDEN / "models" / "linear2"

# The command line itself is wrong, whatever the files hold.
USAGE = {
    "no bag": ("fit", ROWS, "--labels", COUNTS, "--out", "m"),
    "an unknown option": (*FIT, "--out", "m", "--color", "red"),
    "an unknown model": (*FIT, "--out", "m", "--model", "tree"),
    "a size that is none": (*FIT, "--out", "m", "--memory", "much"),
    "noise without a width": (*FIT, "--out", "m", "--noise", "laplace"),
    "noise in proportions": (*FIT, "--out", "m", "--noise", "laplace:4", "--labels-are", "ranges"),
    "workers without Ray": (*FIT, "--out", "m", "--workers", "2"),
    "labels without a bag": ("explain", MODEL, ROWS, "--labels", COUNTS),
    "a picture that is no PNG": (
        *("estimate", MODEL, ROWS, "--by", "smoker", "--figure", "shares.gif"),
    ),
}
# The command line is right, but what it names is not there or not as it should be.
DATA = {
    "no file": ("fit", "nothing.csv", "--bag", "ward", "--labels", COUNTS, "--out", "m"),
    "no such column": ("fit", ROWS, "--bag", "street", "--labels", COUNTS, "--out", "m"),
    "no model": ("predict", "nothing", ROWS, "--out", "p.csv"),
    "an input as output": ("predict", MODEL, ROWS, "--out", ROWS),
    "no such target": ("evaluate", MODEL, ROWS, "--target", "street"),
}


@pytest.mark.parametrize("name", USAGE)
def test_a_wrong_command_line_is_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, list(map(str, USAGE[name]))).exit_code == 2


@pytest.mark.parametrize("name", DATA)
def test_wrong_data_are_exit_code_3(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, list(map(str, DATA[name]))).exit_code == 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--lr", "-1"),
        ("--epochs", "0"),
        ("--seed", "-1"),
        ("--model", "tree"),
        ("--method", "guess"),
        ("--engine", "guess"),
        ("--memory", "much"),
        ("--memory", "1MB"),
        ("--ordered", "size"),
    ],
)
def test_a_wrong_value_is_named_with_the_option_as_it_was_given(
    option: str, value: str, tmp_path: Path
) -> None:
    command = [*FIT, "--out", tmp_path / "m", option, value]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code in (2, 3)
    assert f"Error: {option} is " in done.stderr
