"""Tables where PyTorch is not installed: linear models do without it, and the rest is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bagwise

PACKAGE = Path(bagwise.__file__).parent
WITHOUT = """
import sys


class Absent:  # as if they were not installed
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
{program}
"""
RUN = """
sys.argv[1:] = {arguments!r}
from bagwise.__main__ import main
main()
"""
IMPORT = """
import importlib
for name in {modules!r}:
    importlib.import_module(name)
"""
LIGHT = """
import atexit
there = lambda: print("imported:", sorted({heavy!r} & sys.modules.keys()))
atexit.register(there)
"""


def run(program: str, *absent: str) -> subprocess.CompletedProcess[str]:
    text = WITHOUT.format(absent=absent, program=program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run(RUN.format(arguments=list(map(str, arguments))), "torch", "sklearn")


def modules_of(*rooms: str) -> list[str]:
    paths = [path for room in rooms for path in sorted((PACKAGE / room).rglob("*.py"))]
    parts = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in paths]
    return [".".join(part).removesuffix(".__init__") for part in parts]


@pytest.mark.slow
def test_storage_tables_and_pages_of_models_import_no_torch() -> None:
    modules = [name for name in modules_of("storage", "tables", "reports") if "sweep" not in name]
    done = run(IMPORT.format(modules=modules), "torch", "sklearn")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_table_is_fitted_and_used_where_there_is_no_torch(wards: Path, tmp_path: Path) -> None:
    rows, bags = wards / "rows.csv", ("--bag", "ward", "--labels", wards / "bags.csv")
    fit = command("fit", rows, *bags, "--out", tmp_path / "m")
    assert fit.returncode == 0, fit.stderr
    assert 'perceptrons need PyTorch, pip install "bagwise[torch]" brings it' in fit.stderr
    for arguments in (
        ("predict", tmp_path / "m", rows, "--out", tmp_path / "p.csv"),
        ("label", tmp_path / "m", rows, *bags, "--out", tmp_path / "l.csv"),
        ("estimate", tmp_path / "m", rows, "--by", "town"),
        ("explain", tmp_path / "m", rows, *bags),
        ("report", tmp_path / "m", rows, *bags, "--by", "town", "--out", tmp_path / "r.html"),
    ):
        done = command(*arguments)
        assert done.returncode == 0, (arguments[0], done.stderr)
    expected = tmp_path / "with.csv"
    subprocess.run(
        [sys.executable, "-m", "bagwise", "predict", wards / "linear", rows, "--out", expected],
        check=True,
        capture_output=True,
    )
    assert expected.read_text() == (tmp_path / "p.csv").read_text()


@pytest.mark.slow
def test_what_needs_torch_says_so(wards: Path, tmp_path: Path) -> None:
    rows, bags = wards / "rows.csv", ("--bag", "ward", "--labels", wards / "bags.csv")
    for arguments, what in (
        (("fit", rows, *bags, "--model", "mlp", "--out", tmp_path / "m"), "a perceptron"),
        (("fit", rows, *bags, "--lr", "0.1", "--out", tmp_path / "m"), "training step by step"),
        (("predict", wards / "mlp", rows, "--out", tmp_path / "p.csv"), "is a perceptron, which"),
    ):
        done = command(*arguments)
        assert done.returncode in (2, 3)
        assert done.stderr.startswith("Error: ")
        assert what in done.stderr
        assert 'needs PyTorch: pip install "bagwise[torch]"' in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "heavy"),
    [
        ("predict", {"torch", "sklearn", "pandas", "numba", "scipy", "matplotlib"}),
        ("label", {"torch", "sklearn", "pandas", "scipy.special", "scipy.sparse", "matplotlib"}),
    ],
)
def test_a_linear_model_is_used_without_what_only_fits_need(
    wards: Path, tmp_path: Path, command: str, heavy: set[str]
) -> None:
    labels = ["--bag", "ward", "--labels", wards / "bags.csv"] if command == "label" else []
    arguments = [
        command,
        wards / "linear",
        wards / "rows.csv",
        "--out",
        tmp_path / "p.csv",
        *labels,
    ]
    program = LIGHT.format(heavy=heavy) + RUN.format(arguments=list(map(str, arguments)))
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"


@pytest.mark.slow
def test_losses_are_imported_without_the_compiler_of_pytorch() -> None:
    program = LIGHT.format(heavy={"torch._dynamo", "sympy", "sklearn", "pandas"})
    done = run(program + "import bagwise; bagwise.cc_loss")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"
