"""Models, outputs and messages of version 0.1, kept in tests/golden, hold for later code.

tests/golden/make_golden.py has made them. Numbers are compared, wording is not. What an intended
change alters, tests/golden/renew.py renews: models that are fitted anew are compared with refits/.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from bagwise.cli import app

GOLDEN = Path(__file__).parent / "golden"
SAID: list[dict[str, Any]] = json.loads((GOLDEN / "transcripts.json").read_text(encoding="utf-8"))
MISTAKES = {said["name"]: said for said in SAID if "names" in said}
DONE = {said["name"]: said for said in SAID if "names" not in said}
FITS = [name for name in DONE if name.endswith(" fit")]
KEPT = sorted(path.name for path in (GOLDEN / "models").iterdir())
OF_KEPT = [name for name in DONE if name.split()[0] in KEPT and name not in FITS]
WRITING = [name for name in OF_KEPT if "--out" in DONE[name]["command"]]
SCORING = [name for name in OF_KEPT if DONE[name]["command"][0] == "evaluate"]
SLOW = {"auto fit"}  # more than two seconds

Table = dict[str, list[str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the inputs and models, without the outputs, in which commands are given."""
    for name in ("inputs", "models"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: list[str]) -> Result:
    done = CliRunner().invoke(app, command, env={"COLUMNS": "100"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def output_of(command: list[str]) -> str:
    return command[command.index("--out") + 1]


def read(path: Path, in_order: bool) -> Table:
    """The columns of a table; where the order of rows means nothing, sorted by their words."""
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    if not in_order:
        words = [i for i, name in enumerate(head) if not is_number(name)]
        rows.sort(key=lambda row: [row[i] for i in words])
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def is_number(column: str) -> bool:
    measured = [
        "share",
        "low",
        "high",
        "least",
        "most",
        "effect",
        "fall",
        "standard_error",
        "robustness",
    ]
    return column.startswith(("p_", "per_unit")) or column in measured


def numbers(cells: list[str]) -> np.ndarray:
    return np.array([float(cell or "nan") for cell in cells])


def compare(
    command: list[str],
    atol: float,
    rtol: float,
    without: tuple[str, ...] = (),
    golden: Path = GOLDEN,
) -> None:
    """A command's output has what the golden one has; labels may differ where it is a toss-up."""
    in_order = command[0] in ("predict", "label")
    old, new = (read(folder / output_of(command), in_order) for folder in (golden, Path()))
    assert set(old) <= set(new)
    sure = np.ones(len(next(iter(old.values()))), dtype=bool)
    if in_order:
        top = np.sort([numbers(old[name]) for name in old if name.startswith("p_")], axis=0)
        sure = top[-1] - top[-2] > 5 * atol
    for name in set(old) - set(without):
        if is_number(name):
            np.testing.assert_allclose(
                numbers(new[name]), numbers(old[name]), atol=atol, rtol=rtol, err_msg=name
            )
        elif name in ("label", "most_probable"):
            assert np.array(new[name])[sure].tolist() == np.array(old[name])[sure].tolist()
        else:
            assert new[name] == old[name]


def test_old_models_are_of_every_kind() -> None:
    kinds = {"linear2", "linear3", "effects", "noisy", "ranges", "rounded", "row_labels", "steps"}
    assert kinds <= set(KEPT)
    assert {name.split()[0] for name in FITS} >= kinds | {"perceptron"}
    assert {DONE[name]["command"][0] for name in WRITING} == {
        "predict",
        "label",
        "estimate",
        "explain",
    }


@pytest.mark.parametrize("name", WRITING)
def test_old_models_say_the_same(name: str, here: Path) -> None:
    done = run(DONE[name]["command"])
    assert done.exit_code == 0, done.output
    compare(DONE[name]["command"], atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("name", SCORING)
def test_old_models_are_as_good_as_they_were(name: str, here: Path) -> None:
    done = run(DONE[name]["command"])
    assert done.exit_code == 0, done.output
    found = np.array([float(n) for n in re.findall(r"\d*\.\d+|\d+", done.stdout)])
    scores = re.findall(r"\d+\.\d+", DONE[name]["stdout"].splitlines()[0])
    assert len(scores) >= 3  # accuracy in %, log loss, AUC
    for score in scores:
        unit = 10.0 ** -len(score.split(".")[1])
        assert np.abs(found - float(score)).min() < 1.01 * unit, score


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in FITS]
)
def test_fits_give_the_same_models(name: str, here: Path) -> None:
    model = name.split()[0]
    shutil.rmtree(here / "models")
    done = run(DONE[name]["command"])
    assert done.exit_code == 0, done.output
    for said in DONE.values():
        command = said["command"]
        if said["name"].split()[0] == model and command[0] not in ("fit", "evaluate"):
            done = run(command)
            assert done.exit_code == 0, done.output
            # Which rows make up the counts may hang on less than that.
            unsure = ("label",) if command[0] == "label" else ()
            compare(command, 1e-4, 1e-4, unsure, GOLDEN / "refits")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_by_name_and_change_nothing(name: str, here: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(here.rglob("*")) if path.is_file()}

    before = files()
    done = run(MISTAKES[name]["command"])
    assert done.exit_code != 0
    for word in MISTAKES[name]["names"]:
        assert word in " ".join(done.output.split())
    assert files() == before
