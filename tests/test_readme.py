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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* an extreme value")
def test_every_command_and_snippet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    pages = {name: page(name) for name in ("tables", "pytorch", "estimator", "methods", "sweeps")}
    pages["tables"] = re.sub(r"^    bagwise fit voters.*$", "", pages["tables"], flags=re.M)
    pages["sweeps"] = pages["sweeps"].split("## Sweep files")[0]
    try:
        done = run_everything(README)
        shown = capsys.readouterr().out
        for text in pages.values():
            done += run_everything(text)
    finally:
        METHODS.pop("cc_entropy", None)
    summary = re.search(r"```text\n(.*?)\.\.\.\n```", README, re.DOTALL)
    assert summary is not None
    assert " ".join(summary[1].split()) in " ".join(shown.split())
    commands = {line.split()[1] for line in done if line.startswith("bagwise")}
    known = [command.callback for command in app.registered_commands]
    assert commands == {callback.__name__ for callback in known if callback is not None}
    for name in ("model/fit.json", "predictions.csv", "labeled.parquet", "report.html"):
        assert (tmp_path / name).exists()
    for name in ("saved/config.json", "exported/runs.csv", "sweep.html"):
        assert (tmp_path / name).exists()


def test_every_method_and_engine_is_in_a_table() -> None:
    for name in (*ENGINES, *PAPER_METHODS):
        assert f"`{name}`" in page("methods")


def test_the_make_commands_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", README):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/tables.md",
        "docs/sweeps.md",
        "docs/pytorch.md",
        "docs/estimator.md",
        "docs/groupings.md",
        "docs/methods.md",
        "docs/privacy.md",
        "docs/ecological.md",
        "CONTRIBUTING.md",
    ],
)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize(
    "name", ["README.md", "docs/tables.md", "docs/sweeps.md", "docs/privacy.md"]
)
def test_options_in_commands_exist(name: str) -> None:
    for command, rest in re.findall(r"^    bagwise (\w+)(.*)", (ROOT / name).read_text(), re.M):
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in shown, (command, option)
