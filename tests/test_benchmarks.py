"""The page of benchmarks, written with sizes that take seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "page.py"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page where POT is not installed."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "without").mkdir()
    absent = "raise ModuleNotFoundError(\"No module named 'ot'\", name='ot')\n"
    (folder / "without" / "ot.py").write_text(absent)
    paths = [str(folder / "without"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    out = folder / "measured.md"
    sections = ["training", "steps", "accuracy", "bounds", "others", "losses", "growth"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--tiny", "--out", str(out), "--only", *sections],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def cells(text: str, heading: str) -> list[list[str]]:
    """The rows of the table whose first line begins so."""
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_table_has_its_figures(page: Path) -> None:
    text = page.read_text()
    steps = cells(text, "| C | K | method |")
    assert [row[:3] for row in steps] == [["3", "4", "rc"], ["3", "4", "cc"]]
    assert all(float(cell) > 0 for row in steps for cell in row[3:6])
    by_size = cells(text, "| C | K | RC, ms |")
    assert [row[:2] for row in by_size] == [["3", "2"], ["3", "4"]]
    assert all(float(cell) > 0 for row in by_size for cell in row[4:7])
    along = cells(text, "| K | epochs | RC, ms |")
    assert [row[:2] for row in along] == [["16", "0"], ["16", "1"]]
    (distances,) = cells(text, "| K | s |")
    multinomial, auto = float(distances[2]), float(distances[6])
    assert auto < 1e-3 < multinomial
    assert "outside of the bound of 0." in text


def test_growth_has_the_time_of_each_call_and_its_exponents(page: Path) -> None:
    text = page.read_text()
    ((rows, columns, *times),) = cells(text, "| rows | columns | fit, CPU s |")
    assert (rows, columns) == ("2,000", "8")
    assert all(float(time) > 0 for time in times)
    grows = cells(text, "| grows | size | fit, CPU s |")
    assert [row[0] for row in grows if row[1] == "exponent"] == [
        "rows",
        "columns",
        "classes",
        "bag size",
    ]
    assert all(len(row) == 6 for row in grows)


def test_a_section_takes_the_place_of_the_old_one(page: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    out.write_text("# Benchmarks\n\n## Growth\n\nold figures\n\n## Two workers\n\nkept\n")
    command = [sys.executable, str(SCRIPT), "--tiny", "--keep", "--out", str(out)]
    subprocess.run([*command, "--only", "growth"], capture_output=True, check=True)
    text = out.read_text()
    assert "old figures" not in text
    assert text.index("## Growth") < text.index("| rows | columns |") < text.index("## Two workers")
    assert text.endswith("## Two workers\n\nkept\n")


def test_other_software_finds_the_same(page: Path) -> None:
    text = page.read_text()
    for name in ("permanents by thewalrus", "all labelings, listed"):
        (row,) = cells(text, f"| K | Bagwise, ms | {name}, ms |")
        assert float(row[1]) > 0
        assert float(row[2]) > 0
        assert float(row[4]) < 1e-12


def test_other_losses_are_measured_beside_the_same_formulas(page: Path) -> None:
    text = page.read_text()
    rows = cells(text, "| K | loss |")
    names = ["`cc_loss`", "`rc_loss`", "`dllp_loss`", "PVC by FFT", "3 moments", "plain DLLP"]
    assert [row[1] for row in rows][: len(names)] == names
    assert all(float(cell) > 0 for row in rows for cell in row[2:])
    found = re.search(r"differ from `pvc_loss` and `dllp_loss` by (\S+) at most", text)
    assert found
    assert float(found[1]) < 1e-12


def test_what_is_not_installed_is_named(page: Path) -> None:
    assert "not measured: ot is not installed." in page.read_text()


def test_the_pictures_are_there(page: Path) -> None:
    shown = re.findall(r"!\[.*\]\((.*)\)", page.read_text())
    assert shown == ["measured/steps.png", "measured/others.png", "measured/losses.png"]
    for name in shown:
        assert (page.parent / name).read_bytes().startswith(b"\x89PNG")


def test_the_page_says_what_it_was_measured_on(page: Path) -> None:
    text = page.read_text()
    assert re.search(r"\d+ cores, PyTorch's threads: \d+", text)
    assert "no POT" in text or "POT 0" in text
