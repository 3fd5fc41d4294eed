"""The rooms of the package, and the direction in which data flows through them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import bagwise

PACKAGE = Path(bagwise.__file__).parent
ROOT = PACKAGE.parent.parent
# A module imports only from its own room and from those before it. What PyTorch is not needed for:
TORCH_FREE = (
    "errors", "limits", "checks", "extras", "registry", "wording", "memory_size", "progress",
    "ray_cluster", "training_options", "bags", "labels", "posterior", "likelihood", "logistic",
    "storage", "tables", "reports", "table_model", "ecological",
)  # fmt: skip
ROOMS = (
    *TORCH_FREE,
    "autograd", "augmentations", "losses", "networks", "data", "methods", "training", "estimator",
    "paper", "cli", "demo",
)  # fmt: skip
DOORS = {
    "posterior/_engine.py": "bagwise.autograd",  # taken where a tensor is given
    "bags/bags.py": "bagwise.autograd",  # and where bags are sent to a device
    "bags/constructors.py": "bagwise.labels.targets.bag_targets",  # and where bag ids are
}
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
    assert wrong <= {DOORS.get(path.relative_to(PACKAGE).as_posix())}


WITHOUT_TORCH = """
import importlib.abc, pkgutil, sys
from importlib import import_module

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{name} is imported")

blocked = {"torch", "sklearn", "numba"}
sys.meta_path.insert(0, Blocked())
import bagwise.bags, bagwise.labels.targets
assert bagwise.Bags([2], [[1, 1]]).proportions.tolist() == [[0.5, 0.5]]

blocked = {"torch"}
for name in ROOMS:
    room = import_module(f"bagwise.{name}")
    for module in pkgutil.walk_packages(getattr(room, "__path__", []), f"bagwise.{name}."):
        import_module(module.name)

import numpy as np
from bagwise.likelihood import covariance, fit_linear
rng = np.random.default_rng(0)
X = rng.normal(size=(240, 2))
labels = (X[:, 0] + rng.logistic(size=240) > 0).astype(int)
bags = bagwise.Bags.from_labels(labels, [6] * 40)
post = bagwise.bag_posterior(X, bags)
assert np.allclose(np.add.reduceat(post.weights, bags.offsets[:-1]), bags.counts)
found = bagwise.most_probable_labeling(X, bags)
assert (np.add.reduceat(found, bags.offsets[:-1]) == bags.counts[:, 1]).all()
fit = fit_linear(X, bags)
errors, _ = covariance(X, bags, fit).standard_errors()
slopes = fit.weights[:, 1]
assert slopes[0] > 3 * errors[0, 1] > 0 and abs(slopes[1]) < 3 * errors[1, 1]
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_the_first_half_works_where_pytorch_cannot_be_imported() -> None:
    code = WITHOUT_TORCH.replace("ROOMS", repr(TORCH_FREE))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
