from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.methods import METHODS, PAPER_METHODS
from bagwise.posterior import ENGINES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# A snippet, or a command line that stands for itself.
BLOCK = re.compile(
    r"```python\n(.*?)```|^    ((?:bagwise|python) [^\n]*)", re.DOTALL | re.MULTILINE
)


def page(name: str) -> str:
    """A page of the documents."""
    return (ROOT / "docs" / f"{name}.md").read_text()


def run_everything(text: str) -> list[str]:
    """Run the snippets and commands of a page one after the other, as a reader would."""
    names: dict[str, object] = {}
    done = []
    for snippet, line in BLOCK.findall(text):
        if snippet:
            exec(compile(snippet, "README.md", "exec"), names)
            continue
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        else:
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, (line, result.output)
        done.append(line)
    return done


TABLES = (
    "tables",
    *(f"how_to/{path.stem}" for path in sorted((ROOT / "docs/how_to").glob("*.md"))),
)
ARRAYS = ("estimator", "pytorch", "methods", "inexact", "groupings", "privacy", "ecological")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the examples in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* an extreme value")
def test_every_command_about_tables_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_everything(README)
    summary = re.search(r"```text\n(.*?)\.\.\.\n```", README, re.DOTALL)
    assert summary is not None
    assert " ".join(summary[1].split()) in " ".join(capsys.readouterr().out.split())
    for name in TABLES:
        run_everything(re.sub(r"^    bagwise fit voters.*$", "", page(name), flags=re.M))
    for name in ("model/fit.json", "predictions.csv", "labeled.parquet", "report.html"):
        assert (folder / name).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* an extreme value")
def test_every_other_snippet_and_command_runs(folder: Path) -> None:
    run_everything("    python examples/make_table.py breast_cancer --out data/")
    try:
        for name in ARRAYS:
            run_everything(page(name))
        run_everything(page("sweeps").split("## Sweep files")[0])
    finally:
        METHODS.pop("cc_entropy", None)
    for name in ("saved/config.json", "exported/runs.csv", "sweep.html"):
        assert (folder / name).exists()


def test_every_command_is_in_a_page_that_is_run() -> None:
    shown = " ".join([README, *(page(name) for name in (*TABLES, *ARRAYS, "sweeps"))])
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"\n    bagwise {command.callback.__name__}" in shown


def test_every_method_and_engine_is_in_a_table() -> None:
    for name in (*ENGINES, *PAPER_METHODS):
        assert f"`{name}`" in page("methods")


def test_the_make_commands_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", README):
        assert f"\n{target}:" in makefile


PAGES = [
    str(path.relative_to(ROOT))
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "results").rglob("*.md"),
    )
]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        # docs/examples is written when the site is built; tests/test_site.py follows its links.
        if not target.startswith(("http", "../examples/")):
            assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_options_in_commands_exist(name: str) -> None:
    for command, rest in re.findall(r"^    bagwise (\w+)(.*)", (ROOT / name).read_text(), re.M):
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in shown, (command, option)
