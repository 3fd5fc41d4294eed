"""What only some users need: without it the rest works, and what is missing is named."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bagwise
from bagwise.__main__ import main

ROOT = Path(__file__).parent.parent

WITHOUT = """
import sys
for name in ("pyarrow", "matplotlib", "typer", "ray", "pooch", "tensorboard", "tqdm"):
    sys.modules[name] = None  # as if it were not installed
import numpy as np
from bagwise import Bags, LLPClassifier, bag_posterior, cc_loss, train
from bagwise.paper.datasets import load_dataset
from bagwise.paper.sweep import run_sweep
from bagwise.paper.accuracy import collect
from bagwise.extras import MissingExtraError

X = load_dataset("digits").train_inputs.flatten(1)[:40].numpy()
LLPClassifier(model="linear", epochs=1).fit(X, np.arange(40) // 4, [[2, 2]] * 10).predict(X)

def tables(): from bagwise import read_bags
def report(): import bagwise.reports
def figures(): import bagwise.paper.figures
def demo(): import bagwise.demo; bagwise.demo.main()
def mnist(): load_dataset("mnist")
def board():
    from bagwise.training import TensorBoard
    TensorBoard("x")
def ray():
    from bagwise.paper.ray_backend import ray_backend
    ray_backend()
for attempt in (tables, report, figures, demo, mnist, board, ray):
    try:
        attempt()
    except MissingExtraError as error:
        print(attempt.__name__, "->", error)
    else:
        print(attempt.__name__, "-> nothing was missing")
from bagwise.__main__ import main
main()
"""


@pytest.mark.slow
def test_what_is_missing_is_named_and_the_rest_works() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    extras = {
        "tables": 'pyarrow is not installed; pip install "bagwise[tables]" brings it.',
        "report": 'matplotlib is not installed; pip install "bagwise[plots]" brings it.',
        "figures": 'matplotlib is not installed; pip install "bagwise[plots]" brings it.',
        "demo": 'matplotlib is not installed; pip install "bagwise[plots]" brings it.',
        "mnist": 'pooch is not installed; pip install "bagwise[datasets]" brings it.',
        "board": 'tensorboard is not installed; pip install "bagwise[tensorboard]" brings it.',
        "ray": 'ray is not installed; pip install "bagwise[ray]" brings it.',
    }
    assert done.stdout.splitlines() == [f"{name} -> {text}" for name, text in extras.items()]
    assert done.stderr == 'Error: typer is not installed; pip install "bagwise[cli]" brings it.\n'
    assert done.returncode in (2, 3)


def test_a_missing_extra_is_one_line_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("bagwise.tables")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(sys, "argv", ["bagwise", "predict", "model", "rows.csv", "--out", "x.csv"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code in (2, 3)
    assert capsys.readouterr().err == (
        'Error: pyarrow is not installed; pip install "bagwise[tables]" brings it.\n'
    )


def test_the_logistic_regression_names_the_extra_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(vars(bagwise), "BagLogisticRegression", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(bagwise.BagwiseError, match=r"pip install \"bagwise\[sklearn\]\""):
        _ = bagwise.BagLogisticRegression


def test_every_extra_that_is_named_exists_and_all_has_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = set()
    for path in [*(ROOT / "src").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = path.read_text()
        named |= set(re.findall(r'require\("\w+", "(\w+)"\)', text))
        named |= set(re.findall(r"(?:bagwise|\.)\[(\w+)\]", text))
    assert {"tables", "torch", "plots", "cli", "ray", "all"} <= named <= extras.keys()

    def parts(extra: str) -> set[str]:
        inner = [re.match(r"bagwise\[(.*)\]", item) for item in extras[extra]]
        names = {name for found in inner if found for name in found[1].split(",")}
        return names.union(*(parts(name) for name in names))

    assert parts("all") == extras.keys() - {"all", "dev", "docs", "fuzz", "recipes"}
    core = " ".join(project["dependencies"])
    for optional in (
        "pyarrow", "jinja2", "matplotlib", "typer", "ray", "pooch", "tensorboard", "torch",
        "scikit-learn",
    ):  # fmt: skip
        assert optional not in core
