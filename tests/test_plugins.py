"""What docs/how_to/extend.md says about adding things, done from outside the package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from bagwise import LLPClassifier
from bagwise.cli import app
from bagwise.methods import METHODS, Method, make_method
from bagwise.networks import MODELS, make_model
from bagwise.paper.datasets import DATASETS, load_dataset
from bagwise.posterior import ENGINES
from bagwise.registry import PLUGINS, Registry, load_plugins

GUIDE = Path(__file__).parent.parent / "docs" / "how_to" / "extend.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
BLOCKS = [snippet for snippet in SNIPPETS if "register(" in snippet]
NAMES = {"cc_entropy": METHODS, "independent": ENGINES, "narrow": MODELS, "blobs": DATASETS}


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with everything that the guide adds, in the current folder and not imported yet."""
    (tmp_path / "stranger.py").write_text("\n".join(BLOCKS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PLUGINS, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "stranger"
    sys.modules.pop("stranger", None)
    for name, registry in NAMES.items():
        registry._known.pop(name, None)


def bagwise(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bagwise", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_plugin_s_names_are_known_once_it_is_loaded(stranger: str) -> None:
    for name, registry in NAMES.items():
        assert name not in registry
    load_plugins([stranger])
    for name, registry in NAMES.items():
        assert name in registry
        assert name in list(registry)
    assert make_method("cc_entropy", strength=0.3).get_params()["strength"] == 0.3
    assert make_model("narrow", (2,), 3)[1].out_features == 16  # type: ignore[index]


def test_the_estimator_takes_what_a_plugin_brings(stranger: str, tmp_path: Path) -> None:
    load_plugins([stranger])
    data = load_dataset("blobs")
    X, y = data.train_inputs.numpy(), data.train_labels.numpy()
    ids = np.arange(1000) // 5
    counts = {b: np.bincount(y[ids == b], minlength=3) for b in range(200)}
    model = LLPClassifier(
        "cc_entropy", "narrow", method__engine="independent", method__strength=0.05,
        epochs=20, lr=1e-2, random_state=0,
    )  # fmt: skip
    fitted = clone(model).fit(X, ids, counts)
    assert fitted.score(X, y) > 0.9
    fitted.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.get_params()["method__strength"] == 0.05


@pytest.mark.slow
def test_a_sweep_in_other_processes_takes_it_and_shows_its_title(
    stranger: str, tmp_path: Path
) -> None:
    (tmp_path / "sweep.toml").write_text(
        'datasets = ["blobs"]\nmodels = ["narrow"]\nmethods = ["cc", "cc_entropy"]\n'
        'bag_sizes = [4]\nlrs = [0.01]\nepochs = 2\nengine = "independent"\n'
        "method.strength = [0.1, 0.2]\n"
    )
    done = bagwise(
        tmp_path, "--plugin", stranger, "sweep", "sweep.toml", "--out", "runs", "--processes", "2"
    )
    assert done.returncode == 0, done.stderr
    assert "3 runs done, 0 failed" in done.stdout
    table = bagwise(tmp_path, "--plugin", stranger, "table", "runs").stdout
    assert "CC + entropy, strength 0.2" in table
    without = bagwise(tmp_path, "table", "runs")  # results are read without what made them
    assert "cc_entropy, strength 0.2" in without.stdout


@pytest.mark.slow
def test_the_command_line_takes_it(stranger: str, tmp_path: Path) -> None:
    arguments = [
        "train",
        "--dataset",
        "blobs",
        "--model",
        "narrow",
        "--method",
        "cc_entropy",
        "--set",
        "strength=0.3",
        "--engine",
        "independent",
        "--bag-size",
        "8",
        "--epochs",
        "2",
        "--out",
        "run",
    ]
    done = bagwise(tmp_path, "--plugin", stranger, *arguments)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "run" / "result.json").read_text())["settings"]
    assert settings["method_options"] == [["strength", 0.3]]
    assert "plugin" in bagwise(tmp_path, "--plugin", stranger, "datasets").stdout
    unknown = bagwise(tmp_path, *arguments)
    assert unknown.returncode in (2, 3)
    assert "dataset is 'blobs'; choose one of digits" in unknown.stderr


def test_a_plugin_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "taking.py").write_text(BLOCKS[2].replace('"narrow"', '"mlp"'))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PLUGINS, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, problem in (
        ("nowhere", "No module named 'nowhere'"),
        ("broken", "ZeroDivisionError"),
        ("broken.py", "without the .py"),
        ("taking", "there is a model 'mlp' already, bagwise.networks.mlp"),
    ):
        done = CliRunner().invoke(app, ["--plugin", name, "datasets"])
        assert done.exit_code in (2, 3)
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
    assert os.environ[PLUGINS] == ""


def package(folder: Path, name: str, points: str) -> None:
    """What pip leaves of a package with entry points."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)


POINTS = """
[bagwise.methods]
cc_entropy = stranger:CCEntropy
[bagwise.networks]
narrow = stranger:narrow
[bagwise.engines]
independent = stranger:independent_posterior
[bagwise.datasets]
blobs = stranger:blobs
"""


def test_an_installed_package_is_found_by_its_entry_points(
    stranger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "strange", POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    for name, registry in NAMES.items():
        assert name in registry
        assert name in list(registry)
    assert "stranger" not in sys.modules  # not before it is used
    assert METHODS["cc_entropy"].title == "CC + entropy"
    assert issubclass(METHODS["cc_entropy"], Method)
    assert load_dataset("blobs").n_classes == 3
    assert make_method("cc_entropy", engine="independent").name == "cc_entropy"


def test_an_entry_point_without_a_registration_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plainly.py").write_text("def thing(): return 7")
    package(tmp_path, "plain", "[example.things]\nseven = plainly:thing\ngone = plainly:absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    things = Registry[object]("thing", "example.things")
    assert things["seven"]() == 7  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"thing 'gone' of the package 'plain' cannot be loaded"):
        things["gone"]
    with pytest.raises(ValueError, match=r"thing is 'other'; choose one of seven, gone"):
        things["other"]


def test_a_package_that_takes_a_name_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "greedy", "[bagwise.methods]\ncc = somewhere:CC\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ValueError, match=r"'greedy' brings a method 'cc'.*already, bagwise\.method"
    ):
        "something" in METHODS  # noqa: B015
    assert make_method("cc").name == "cc"  # what works does not depend on it


def test_two_packages_cannot_bring_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "one", "[example.things]\nx = one:thing\n")
    package(tmp_path, "two", "[example.things]\nx = two:thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="brings a thing 'x', but there is one already"):
        list(Registry[object]("thing", "example.things"))


def test_what_is_registered_can_be_called_and_has_a_name() -> None:
    things = Registry[object]("thing", "example.things")
    with pytest.raises(TypeError, match="7 is registered as a thing"):
        things["seven"] = 7
    with pytest.raises(ValueError, match="registered as 'a b'"):
        things.register("a b")(len)
    things["length"] = len
    with pytest.raises(ValueError, match="registered as 'length' already"):
        things["len"] = len
    assert things.pop("other", None) is None
    assert things.pop("length") is len
