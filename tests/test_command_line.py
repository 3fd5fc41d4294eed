"""What all commands share: start-up, help, mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import bagwise
from bagwise.cli import app
from bagwise.extras import MissingExtraError
from bagwise.methods import METHODS
from bagwise.networks import MODELS
from bagwise.paper.datasets import DATASETS
from bagwise.posterior import ENGINES
from bagwise.training import DivergedError
from bagwise.training.distributed import WorkerError

HEAVY = ("torch", "numba", "numpy", "sklearn", "scipy", "pyarrow", "matplotlib", "ray", "pooch")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["predict", "--help"], ["--version"]])
def test_help_needs_none_of_the_large_libraries(arguments: list[str]) -> None:
    code = f"""
import sys
from bagwise.cli import app
try:
    app({arguments!r}, prog_name="bagwise")
except SystemExit:
    pass
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_every_public_name_is_found_when_it_is_first_used() -> None:
    code = """
import sys, bagwise
assert "torch" not in sys.modules
assert dir(bagwise) == sorted([*bagwise.__all__, "__version__"])
for name in bagwise.__all__:
    assert getattr(bagwise, name).__name__ == name, name
from bagwise import *
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bagwise.nothing  # noqa: B018
    with pytest.raises(ImportError):
        from bagwise import nothing  # noqa: F401


def test_help_lists_commands_for_tables_first_and_under_headings() -> None:
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    start = lines.index("From a table to predictions:")
    middle = lines.index("The paper's experiments:")
    tables = [line.split()[0] for line in lines[start + 1 : middle] if line]
    assert tables == ["fit", "predict", "label", "evaluate", "explain", "estimate", "report"]
    experiments = [line.split()[0] for line in lines[middle + 1 :] if line]
    assert experiments == ["datasets", "train", "sweep", "table", "figures", "export"]


@pytest.mark.parametrize(
    ("command", "names"),
    [("train", [*DATASETS, *METHODS, *MODELS]), ("fit", [*ENGINES, *METHODS])],
)
def test_help_lists_the_built_in_names(command: str, names: list[str]) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    own = {name for name in METHODS if METHODS[name].__module__.startswith("bagwise.")}
    for name in names:
        of_tables = name not in ("supervised", "two_views")  # of labels, of images
        if name in METHODS and (name not in own or (command == "fit" and not of_tables)):
            continue
        assert name in shown, name


def test_a_mistake_is_one_line_and_with_debug_a_traceback(tmp_path: Path) -> None:
    arguments = ["table", str(tmp_path / "nothing")]
    short = CliRunner().invoke(app, arguments)
    assert short.exit_code == 2
    assert short.output.startswith("Error: there is no result below ")
    assert short.output.count("\n") == 1
    long = CliRunner().invoke(app, ["--debug", *arguments])
    assert isinstance(long.exception, ValueError)
    assert isinstance(CliRunner().invoke(app, arguments).exception, SystemExit)


def test_a_bug_is_a_traceback_and_no_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(*_: object) -> None:
        np.zeros(2) + np.zeros(3)

    monkeypatch.setattr("bagwise.paper.export.read_runs", planted)
    done = CliRunner().invoke(app, ["table", str(tmp_path)])
    assert done.exit_code == 1
    assert not isinstance(done.exception, bagwise.BagwiseError)
    assert "broadcast" in str(done.exception)
    assert "Error:" not in done.output


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (bagwise.InputError, ValueError),
        (MissingExtraError, ImportError),
        (DivergedError, RuntimeError),
        (WorkerError, RuntimeError),
    ],
)
def test_errors_for_users_have_one_class_and_one_of_python(
    error: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(error, bagwise.BagwiseError)
    assert issubclass(error, builtin)


def _options(repeatable: bool) -> list[tuple[str, str]]:
    """(command, option) of every option with a value."""
    return [
        (name, max(param.opts, key=len))
        for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
        for param in command.params
        if param.param_type_name == "option" and not param.is_flag and param.multiple == repeatable
    ]


def test_every_option_that_takes_one_value_is_refused_when_given_twice() -> None:
    found = _options(repeatable=False)
    assert {name for name, _ in found} >= {"fit", "predict", "label", "estimate", "sweep"}
    for name, option in found:
        result = CliRunner().invoke(app, [name, option, "1", option, "2"], env={"COLUMNS": "400"})
        assert result.exit_code == 2, (name, option)
        assert f"{option} is given 2 times, and only the last" in result.output, (name, option)


def test_options_that_may_be_repeated_and_flags_stay() -> None:
    for name, option in _options(repeatable=True):
        result = CliRunner().invoke(app, [name, option, "a=1", option, "b=2"])
        assert "is given" not in result.output, (name, option)
    result = CliRunner().invoke(app, ["predict", "--force", "--force", "no/model", "no.csv"])
    assert "is given" not in result.output


def test_predict_takes_one_pair_of_bags_and_labels(tmp_path: Path) -> None:
    pair = ["--bag", "ward", "--labels", "wards.csv", "--bag", "town", "--labels", "towns.csv"]
    out = ["--out", str(tmp_path / "p.csv")]
    result = CliRunner().invoke(app, ["predict", "model", "rows.csv", *pair, *out])
    assert result.exit_code == 2
    assert "--bag is given 2 times" in result.output
    assert not (tmp_path / "p.csv").exists()
