from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.methods import METHODS
from bagwise.plotting import METHOD_NAMES
from bagwise.posterior import ENGINES

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_every_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(snippets) >= 4
    names: dict[str, object] = {}
    try:
        for snippet in snippets:  # one after the other, as a reader would type them
            exec(compile(snippet, "README.md", "exec"), names)
    finally:
        METHODS.pop("cc_entropy", None)
    assert (tmp_path / "model" / "config.json").exists()


def test_every_method_and_engine_is_in_a_table() -> None:
    for name in (*ENGINES, *METHOD_NAMES):
        assert f"`{name}`" in README


def test_the_commands_are_those_of_the_makefile() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", README):
        assert f"\n{target}:" in makefile


def test_the_command_lines_exist() -> None:
    commands = re.findall(r"^    bagwise (\w+)(.*)", README, flags=re.MULTILINE)
    assert {name for name, _ in commands} >= {"train", "sweep", "table", "figures", "datasets"}
    for name, rest in commands:
        shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in shown, (name, option)
