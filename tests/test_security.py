"""Names from files are shown, never obeyed: docs/understand/security.md, held to it."""

from __future__ import annotations

import ast
import csv
import html.parser
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bagwise
from bagwise.cli import app
from bagwise.errors import InputError, harmless, warn_user
from bagwise.paper.settings import RunSettings

SOURCE = Path(bagwise.__file__).parent
EVIL = '\x1b[2J\x07\x9b\u202e[red]:bomb:"><script>alert(1)</script><b onclick=x>&amp;$x_{'
FORMULA = '=cmd|" /C calc"!A0'


def table(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Bags, a class, columns and categories with a name that wants to be more than a name."""
    n = np.arange(60)
    rows = pd.DataFrame({f"{name} bag": [f"{name}{i % 6}" for i in n], f"{name} x": n * 37 % 11})
    rows[f"{name} town"] = [f"{name}{i % 3}" for i in n]
    rows["always"] = name
    counts = pd.DataFrame(
        {f"{name} bag": [f"{name}{b}" for b in range(6)], f"{name} yes": [2, 8, 3, 7, 4, 5]}
    )
    counts["no"] = 10 - counts[f"{name} yes"]
    return rows, counts


def fitted(name: str, **options: Any) -> tuple[bagwise.TableModel, pd.DataFrame, pd.DataFrame]:
    rows, counts = table(name)
    model = bagwise.fit(rows, f"{name} bag", counts, model="linear", progress=False, **options)
    return model, rows, counts


class Tags(html.parser.HTMLParser):
    """The elements and the attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_names_are_text_in_reports_and_notebooks(tmp_path: Path) -> None:
    model, *_ = fitted(EVIL)
    model.report(tmp_path / "report.html")
    plain, *_ = fitted("name")
    plain.report(tmp_path / "plain.html")
    pages = [
        ((tmp_path / "report.html").read_text(), (tmp_path / "plain.html").read_text()),
        (model._repr_html_(), plain._repr_html_()),
    ]
    for page, innocent in pages:
        found, expected = Tags(page), Tags(innocent)
        assert found.tags == expected.tags
        assert found.attributes == expected.attributes
        assert "<script>alert(1)</script>" in found.text


def test_what_python_prints_does_not_steer_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="bagwise"):
        model, rows, counts = fitted(EVIL)
    with pytest.raises(InputError) as refused:
        bagwise.fit(rows, f"{EVIL} bag", counts.iloc[1:], progress=False)
    with pytest.warns(UserWarning, match="2J") as noted:
        model.predict(rows.assign(**{f"{EVIL} town": f"{EVIL}new"}))
    printed = [str(model.summary()), repr(model), caplog.text, str(refused.value)]
    printed += [str(warning.message) for warning in noted]
    for text in printed:
        assert not set("\x1b\x07\x9b\u202e") & set(text)
        assert "[2J" in text, "the name is shown, escaped"


@pytest.mark.parametrize(
    "name",
    [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "👩\u200d🔬",
        "東京\u3000都",
        "12\u202f000\u00a0€",
    ],
)
def test_names_of_all_scripts_are_shown_as_they_are(name: str) -> None:
    assert harmless(name) == name


def test_a_line_break_in_a_name_does_not_make_a_line_of_the_command(tmp_path: Path) -> None:
    assert harmless("ward 1\nError: all is lost") == "ward 1\\nError: all is lost"
    with pytest.warns(UserWarning, match="one\ntwo"):
        warn_user("one\ntwo")


@pytest.fixture(scope="module")
def formulas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and a model whose names are formulas."""
    folder = tmp_path_factory.mktemp("formulas")
    model, rows, counts = fitted(FORMULA)
    rows["note"] = ["-5", "+1-2", "@a", "\tx", "7", "plain", "", "-1e3", "=1", "a=1"] * 6
    rows.to_csv(folder / "rows.csv", index=False)
    counts.to_csv(folder / "counts.csv", index=False)
    model.save(folder / "m")
    return folder


def written(folder: Path, *arguments: Any) -> list[list[str]]:
    out = folder / "out.csv"
    done = CliRunner().invoke(
        app, [*map(str, arguments), "--out", str(out), "--force"], env={"COLUMNS": "100"}
    )
    assert done.exit_code == 0, done.output
    return list(csv.reader(out.read_text().splitlines()))


def begins_formula(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell[:1] in tuple("=+-@\t\r")
    return False


@pytest.mark.parametrize("command", ["predict", "label", "estimate", "explain"])
def test_formulas_are_data_and_are_escaped_where_that_is_asked_for(
    formulas: Path, command: str
) -> None:
    rows, counts = formulas / "rows.csv", formulas / "counts.csv"
    bag = ("--bag", f"{FORMULA} bag", "--labels", counts)
    arguments: tuple[Any, ...] = {
        "predict": (rows,),
        "label": (rows, *bag),
        "estimate": (rows, "--by", f"{FORMULA} town"),
        "explain": (),
    }[command]
    plain = written(formulas, command, formulas / "m", *arguments)
    safe = written(formulas, command, formulas / "m", *arguments, "--escape-formulas")
    assert any(begins_formula(cell) for row in plain for cell in row)
    assert not any(begins_formula(cell) for row in safe for cell in row)
    undone = [[cell[1:] if cell[:1] == "'" else cell for cell in row] for row in safe]
    assert undone == plain, "nothing else differs"


def test_frames_and_parquet_files_have_names_as_they_are(formulas: Path) -> None:
    model = bagwise.load(formulas / "m")
    rows = pd.read_csv(formulas / "rows.csv")
    model.predict(rows, out=formulas / "p.parquet", escape_formulas=True, force=True)
    assert f"{FORMULA} bag" in pd.read_parquet(formulas / "p.parquet")


def test_names_do_not_become_paths() -> None:
    settings = asdict(RunSettings("digits", "linear", "rc", 8, 1e-2, 2, 0))
    for field in ("dataset", "model", "method"):
        with pytest.raises(ValueError, match="evil"):
            RunSettings.from_dict(settings | {field: "../evil"})


def called(path: Path) -> set[str]:
    """What a module calls, by its name there, and what it imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            found.add(ast.unparse(node.func))
        if isinstance(node, ast.Import):
            found |= {f"import {name.name}" for name in node.names}
        if isinstance(node, ast.ImportFrom):
            found.add(f"import {node.module}")
    return found


def test_nothing_is_unpickled_and_no_text_of_a_file_is_run() -> None:
    forbidden = {"eval", "exec", "__import__", "torch.load", "np.load", "os.system", "os.popen"}
    forbidden |= {f"import {name}" for name in ("pickle", "marshal", "shelve", "subprocess")}
    modules = list(SOURCE.rglob("*.py"))
    assert len(modules) > 200
    for path in modules:
        found = called(path)
        assert not found & forbidden, path
        assert not {name for name in found if name.endswith(".extractall")}, path
