"""The rooms of the package, and the direction in which data flows through them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import bagwise

PACKAGE = Path(bagwise.__file__).parent
ROOT = PACKAGE.parent.parent
# A module imports only from its own room and from those before it.
ROOMS = (
    "errors", "limits", "checks", "extras", "registry", "wording", "memory_size", "progress",
    "ray_cluster", "training_options", "bags", "labels", "posterior", "likelihood", "logistic",
    "storage", "tables", "reports", "table_model",
    "autograd", "augmentations", "losses", "networks", "data", "methods", "training", "estimator",
    "paper", "cli", "demo",
)  # fmt: skip
OUTSIDE = ("__init__", "__main__")  # the front door


def room_of(module: str) -> str:
    return module.split(".")[1]


def imported(path: Path) -> set[str]:
    """Modules of Bagwise that a file imports, also within functions, but not for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("bagwise.")}


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_a_file_imports_only_from_rooms_before_its_own(path: Path) -> None:
    room = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if room in OUTSIDE:
        return
    assert room in ROOMS, f"{room} has no place in the order of rooms"
    known = ROOMS[: ROOMS.index(room) + 1]
    wrong = {name for name in imported(path) if room_of(name) not in (*known, "__version__")}
    assert not wrong


def test_the_order_is_written_down() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    places = [text.find(f"\n    {room} ") for room in ROOMS]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_a_file_is_short_enough_to_be_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 450


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "fuzz"])
def test_scripts_beside_the_package_import_what_there_is(folder: str) -> None:
    for path in sorted((ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("bagwise"):
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    there = hasattr(module, alias.name)
                    assert there or importlib.import_module(f"{node.module}.{alias.name}"), path
