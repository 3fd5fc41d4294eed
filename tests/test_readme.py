from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.methods import METHODS, PAPER_METHODS
from bagwise.posterior import ENGINES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def page(name: str) -> str:
    """A page of the documents."""
    return (ROOT / "docs" / f"{name}.md").read_text()


# Pages that nobody can run here: they are about several machines.
NOT_RUN = ("workers", "how_to/cluster", "benchmarks")
RUN = sorted(
    name
    for folder in (".", "start", "how_to", "understand")
    for path in (ROOT / "docs" / folder).glob("*.md")
    if (name := str(path.relative_to(ROOT / "docs").with_suffix(""))) not in NOT_RUN
)


@pytest.fixture(scope="module")
def run_pages() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        yield import_module("run_pages")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def prepared(run_pages: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what pages take for granted."""
    with run_pages.folder_for_pages() as folder:
        yield folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it for each page, which is the working directory."""
    shutil.copytree(prepared, tmp_path / "page", symlinks=True)
    monkeypatch.chdir(tmp_path / "page")
    return tmp_path / "page"


def check(run_pages: ModuleType, text: str) -> None:
    """The page runs, and prints what it shows."""
    for block, printed in run_pages.run(text):
        if block.shown is not None:
            assert run_pages.same(block.shown, printed), f"{block.shown}\n---\n{printed}"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("12 rows, 61.3%", "12 rows,  61.2%", True),
        ("12 rows, 61.3%", "12 rows, 55.0%", False),
        ("12 rows", "12 bags", False),
        ("12 rows", "12 rows and more", False),
        ("12 rows ...", "12 rows and more", True),
        ("... 5 bags ...", "12 rows, 5 bags, and more", True),
        ("... 9 bags ...", "12 rows, 5 bags, and more", False),
    ],
)
def test_in_outputs_numbers_may_differ_a_little_and_words_may_not(
    run_pages: ModuleType, shown: str, printed: str, same: bool
) -> None:
    assert run_pages.same(shown, printed) is same


def test_an_output_belongs_to_the_block_above_it(run_pages: ModuleType) -> None:
    text = "```python\n1 + 1\n```\n\n```text\n2\n```\n\n    bagwise --version\n\nWords.\n"
    snippet, command = run_pages.run(text)
    assert (snippet[0].shown, snippet[1]) == ("2\n", "2\n")
    assert command[0].shown is None
    assert command[0].lines == ["bagwise --version"]
    assert run_pages.rewritten(text.replace("\n2\n", "\n3\n")) == text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_readme_runs_and_prints_what_it_shows(run_pages: ModuleType, folder: Path) -> None:
    check(run_pages, README)
    assert (folder / "predictions.csv").exists()
    assert (folder / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
@pytest.mark.filterwarnings("ignore::UserWarning")  # what pages are warned of, readers see
def test_a_page_runs_and_prints_what_it_shows(
    name: str, run_pages: ModuleType, folder: Path
) -> None:
    before = set(METHODS), set(ENGINES)
    try:
        check(run_pages, page(name))
    finally:
        for registry, names in zip((METHODS, ENGINES), before, strict=True):
            for added in set(registry) - names:
                registry.pop(added)


def test_every_command_is_in_a_page_that_is_run() -> None:
    shown = " ".join([README, *map(page, RUN)])
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
        place = ((ROOT / name).parent / target).resolve()
        # These are written when the site is built; tests/test_site.py follows their links.
        written = place.parent in (ROOT / "docs/examples", ROOT / "docs/start/tutorial")
        assert target.startswith("http") or written or place.exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_options_in_commands_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    shells = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    for command, rest in [
        *re.findall(r"^    bagwise (\w+)(.*)", text, re.M),
        *re.findall(r"^bagwise (\w+)(.*)", shells, re.M),
    ]:
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in shown, (command, option)
