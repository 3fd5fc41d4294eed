"""What a release consists of: one version, links that lead somewhere, commands that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import bagwise

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_link_of_the_description_on_the_package_index_is_absolute() -> None:
    readme = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = "".join((ROOT / part["path"]).read_text() for part in readme["fragments"])
    for change in readme["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    links = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    assert len(links) > 10
    assert all("".join(link).startswith("https://") for link in links)
    for path in re.findall(r"bagwise/(?:blob/)?main/([^)#\"]+)", text):
        assert (ROOT / path).exists(), path


def test_the_version_is_the_same_wherever_it_must_be_written() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == bagwise.__version__
    assert f" {bagwise.__version__}" in (ROOT / "CHANGELOG.md").read_text().split("\n### ")[0]
    assert "version" in PROJECT["project"]["dynamic"]


def test_the_address_of_the_repository_is_one() -> None:
    home = PROJECT["project"]["urls"]["Homepage"]
    assert all(url.startswith(home) for url in PROJECT["project"]["urls"].values())
    assert f"repository-code: {home}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_of_the_makefile(workflow: Path) -> None:
    targets = re.findall(r"run: make ([a-z-]+)", workflow.read_text())
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    for target in targets:
        assert f"\n{target}:" in makefile, target


def test_every_python_that_is_promised_is_tested() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
    assert f">={promised[0]}" == PROJECT["project"]["requires-python"]
    assert re.search(r"python: \[(.*)\]", workflow)[1] == ", ".join(f'"{v}"' for v in promised)
