"""Options of a method, from the estimator, sweep files and the command line down to its loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from typer.testing import CliRunner

from bagwise import BagKFold, LLPClassifier, bag_scorer
from bagwise.cli import app
from bagwise.methods import OT
from bagwise.paper.accuracy import collect
from bagwise.paper.export import export_runs, read_runs
from bagwise.paper.run import RESULT, execute, read_result
from bagwise.paper.settings import RunSettings
from bagwise.paper.sweep_file import read_sweep

X, y = load_iris(return_X_y=True)
BAGS = np.random.default_rng(0).permutation(150) // 10
COUNTS = np.stack([np.bincount(y[b == BAGS], minlength=3) for b in range(15)])


def quick(**options: Any) -> LLPClassifier:
    return LLPClassifier(**{"epochs": 3, "model": "linear", "random_state": 0, **options})


def test_an_option_reaches_the_method_and_changes_what_is_learned() -> None:
    plain = quick(method="ot").fit(X, BAGS, COUNTS)
    sharp = quick(method="ot", method__epsilon=0.1).fit(X, BAGS, COUNTS)
    same = quick(method=OT(epsilon=0.1)).fit(X, BAGS, COUNTS)
    assert not np.array_equal(plain.predict_proba(X), sharp.predict_proba(X))
    assert np.array_equal(sharp.predict_proba(X), same.predict_proba(X))


def test_options_are_parameters_for_clone_and_grid_search(tmp_path: Path) -> None:
    model = quick(method="ot", method__epsilon=0.5)
    assert clone(model).get_params()["method__epsilon"] == 0.5
    assert clone(model).set_params(method__epsilon=2.0).method__epsilon == 2.0
    wrapped = quick(method=OT(epsilon=0.5))
    assert wrapped.get_params()["method__epsilon"] == 0.5
    assert clone(wrapped).set_params(method__epsilon=3.0).method.epsilon == 3.0
    search = GridSearchCV(
        quick(method="ot"),
        {"method__epsilon": [0.5, 1.0]},
        cv=BagKFold(3),
        scoring=bag_scorer(dict(enumerate(COUNTS))),
    ).fit(X, BAGS, proportions=dict(enumerate(COUNTS)))
    best = search.best_estimator_
    assert best.method__epsilon == search.best_params_["method__epsilon"]
    best.save(tmp_path / "model")
    loaded = LLPClassifier.load(tmp_path / "model")
    assert loaded.get_params()["method__epsilon"] == best.method__epsilon
    assert np.array_equal(loaded.predict_proba(X), best.predict_proba(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ot", "method__eps": 1}, "'ot' has no option 'eps'; it has epsilon"),
        ({"method": OT(), "engine": "exact"}, "method is a OT that has its own settings"),
        ({"engine": "exact", "method__engine": "bethe"}, "both given"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, BAGS, COUNTS)
    with pytest.raises(TypeError, match=r"no parameter 'epsilon'.*method__"):
        LLPClassifier(epsilon=1)


SWEEP = """
datasets = ["digits"]
models = ["linear"]
methods = ["ot", "dllp"]
bag_sizes = [8]
lrs = [1e-2]
epochs = 1
method.epsilon = [0.5, 1.0]

[method_options]
iterations = 20
"""


def test_a_sweep_tries_options_and_tables_tell_them_apart(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    runs = read_sweep(path).runs
    assert [(run.method, dict(run.method_options)) for run in runs] == [
        ("ot", {"epsilon": 0.5, "iterations": 20}),
        ("ot", {"epsilon": 1.0, "iterations": 20}),
        ("dllp", {}),
    ]
    assert len({run.name for run in runs}) == 3
    results = [execute(run, tmp_path / run.name) for run in runs]
    assert [read_result(tmp_path / run.name / RESULT) for run in runs] == results
    export_runs(results, tmp_path / "exported")
    assert {run.settings for run in read_runs(tmp_path / "exported")} == set(runs)
    (block,) = collect(results)
    assert set(block.methods) == {
        "dllp",
        "ot, epsilon 0.5, iterations 20",
        "ot, epsilon 1.0, iterations 20",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epsilon = [0.5, 1.0]", "eps = [1]"), "no method of this sweep has the option 'eps'"),
        (("epsilon = [0.5, 1.0]", "epsilon = 1"), r"method\.'epsilon' is 1; a list"),
        (("iterations = 20", "iterations = [20]"), r"method_options\.'iterations' is \[20\]"),
    ],
)
def test_mistakes_in_a_sweep_are_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP.replace(*change))
    with pytest.raises(ValueError, match=message):
        read_sweep(path)


def test_runs_without_options_keep_their_names() -> None:
    run = RunSettings("digits", "linear", "cc", 16, 1e-3, 30, 0)
    assert run.name == "digits-linear-cc-K16-lr0.001-e30-s0-b487ae6e"


def test_options_are_set_on_the_command_line(tmp_path: Path) -> None:
    arguments = ["train", "--dataset", "digits", "--model", "linear", "--method", "ot"]
    arguments += ["--epochs", "1", "--set", "epsilon=0.5", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    settings = json.loads((tmp_path / "run" / RESULT).read_text())["settings"]
    assert settings["method_options"] == [["epsilon", 0.5]]
    for wrong, message in (
        ("epsilon", "NAME=VALUE is expected"),
        ("eps=1", "no option 'eps'"),
        ("epsilon=abc", "a number is expected"),
    ):
        arguments[arguments.index("--set") + 1] = wrong
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in (2, 3)
        assert message in result.output
