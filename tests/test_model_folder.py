"""A model's folder: what it says of the fit, and files that are missing, added or exchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import bagwise
from bagwise import InputError, LLPClassifier
from bagwise.storage.manifest import MANIFEST
from bagwise.tables import FittedTable
from bagwise.tables.model.linear_model import LinearModel, read_linear_network
from fitted import fit_table

OLD = Path(__file__).parent / "old_models"  # of formats 1 (without a manifest) and 2
X = np.arange(36.0).reshape(12, 3) % 7
BAGS = np.arange(12) // 3
COUNTS = np.array([[1, 2], [2, 1], [3, 0], [0, 3]])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rows.csv, bags.csv, and two models of the same shape with bag effects."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    bags = np.repeat(np.arange(12), 6)
    rows = pd.DataFrame(rng.normal(size=(72, 3)), columns=list("abc")).assign(bag=bags)
    yes = (rows["a"] > 0).groupby(bags).sum()
    rows.to_csv(folder / "rows.csv", index=False)
    for name, column in (("bags", yes), ("others", 6 - yes)):
        labels = pd.DataFrame({"no": 6 - column, "yes": column}).rename_axis("bag")
        labels.to_csv(folder / f"{name}.csv")
        fit_table(
            folder / "rows.csv",
            "bag",
            folder / f"{name}.csv",
            bag_effects=True,
            out=folder / f"of_{name}",
        )
    return folder


@pytest.fixture
def model(tables: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tables / "of_bags", tmp_path / "model"))


@pytest.fixture(scope="module")
def linear() -> LLPClassifier:
    return LLPClassifier(model="linear").fit(X, BAGS, COUNTS)


def test_a_model_by_maximum_likelihood_is_saved_as_what_it_is(
    linear: LLPClassifier, tmp_path: Path
) -> None:
    linear.save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert linear.likelihood_ is not None
    assert config["maximum_likelihood"] == {
        "ridge": linear.likelihood_.ridge,
        "objective": linear.likelihood_.objective,
        "bag_effects": 0.0,
    }
    assert config["best_epoch"] is config["params"]["lr"] is config["params"]["epochs"] is None
    again = LLPClassifier.load(tmp_path / "m")
    assert again.likelihood_ == linear.likelihood_
    assert again.temperature_ == linear.temperature_
    refitted = clone(again).fit(X, BAGS, COUNTS)
    np.testing.assert_array_equal(refitted.predict_proba(X), linear.predict_proba(X))


def test_a_function_that_was_not_saved_is_missed_when_the_model_is_fitted_again(
    tmp_path: Path,
) -> None:
    def shaken(inputs: Any, generator: Any) -> Any:
        return inputs

    LLPClassifier(model="linear", augment=shaken, epochs=1).fit(X, BAGS, COUNTS).save(
        tmp_path / "m"
    )
    again = LLPClassifier.load(tmp_path / "m")
    assert again.predict(X).shape == (12,)
    with pytest.raises(InputError, match="shaken"):
        clone(again).fit(X, BAGS, COUNTS)


def test_a_table_model_is_not_taken_for_one_of_raw_columns(model: Path, tables: Path) -> None:
    for folder in (model, OLD / "table"):
        with pytest.raises(InputError, match=r"model of a table.*bagwise predict.*bagwise\.load"):
            LLPClassifier.load(folder)
    written = bagwise.load(model).predict(tables / "rows.csv", out=model.parent / "p.csv")
    assert len(pd.read_csv(model.parent / "p.csv")) == 72
    assert written


@pytest.mark.parametrize(
    "name",
    ["effects.safetensors", "intervals.safetensors", "columns.json", "model.safetensors", MANIFEST],
)
def test_a_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(InputError, match=name):
        FittedTable.load(model)


@pytest.mark.parametrize(
    "name", ["effects.safetensors", "intervals.safetensors", "columns.json", "model.safetensors"]
)
def test_a_file_of_another_model_is_named(model: Path, tables: Path, name: str) -> None:
    theirs = tables / "of_others" / name
    if theirs.read_bytes() == (model / name).read_bytes():
        pytest.skip("both models have the same")
    shutil.copy(theirs, model / name)
    with pytest.raises(InputError, match=f"{name} is not as it was"):
        FittedTable.load(model)


def test_a_file_too_many_is_named_unless_it_is_hidden(model: Path) -> None:
    (model / ".DS_Store").write_bytes(b"of a file manager")
    FittedTable.load(model)
    (model / "notes.txt").write_text("?")
    with pytest.raises(InputError, match=r"notes\.txt was not there"):
        FittedTable.load(model)


def test_the_table_for_people_may_be_changed_or_missing(model: Path) -> None:
    (model / "held_out_bags.csv").write_text("sorted,in,a,spreadsheet\n")
    FittedTable.load(model)
    (model / "held_out_bags.csv").unlink()
    FittedTable.load(model)


def test_changed_facts_are_refused_where_they_are_used(model: Path) -> None:
    facts = json.loads((model / "fit.json").read_text())
    facts["settings"]["seed"] = 17
    (model / "fit.json").write_text(json.dumps(facts))
    loaded = FittedTable.load(model)
    with pytest.raises(InputError, match=r"fit\.json is not as it was"):
        _ = loaded.facts


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "files": {"config.json": 3}}'])
def test_a_damaged_manifest_is_named(model: Path, content: str) -> None:
    (model / MANIFEST).write_text(content)
    with pytest.raises(InputError, match=MANIFEST):
        FittedTable.load(model)


def test_folders_of_earlier_versions_load() -> None:
    loaded = LLPClassifier.load(OLD / "estimator")
    expected = [
        [0.22828059389319638, 0.7717194061068037],
        [0.31450876800482924, 0.6854912319951708],
    ]
    np.testing.assert_allclose(loaded.predict_proba(X)[:2], expected, rtol=1e-6)
    assert (loaded.lr, loaded.epochs, loaded.temperature_) == (0.001, 2, 1.0)
    assert loaded.likelihood_ is None
    table = FittedTable.load(OLD / "table")
    assert table.facts.settings.ridge is not None
    assert table.classes == ["no", "yes"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("table", [0.5112142168280733, 0.5964985594258497, 0.16298098797390356]),
        ("table_with_effects", [0.33882645898505004, 0.9894511283953665, 4.594595987168672e-06]),
        ("table_by_steps", [0.5163025131903402, 0.5235706283671187, 0.5098994220972733]),
    ],
)
def test_linear_models_of_earlier_formats_predict_what_they_did(
    name: str, expected: list[float], tmp_path: Path
) -> None:
    loaded = FittedTable.load(OLD / name)
    assert isinstance(loaded.model, LinearModel)
    rows = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5], [-2.0, 0.25, 1.0]], dtype=np.float32)
    np.testing.assert_allclose(np.exp(loaded.predict(rows))[:, 1], expected, atol=1e-6)
    loaded.save(tmp_path / "m")
    again = FittedTable.load(tmp_path / "m")
    assert np.array_equal(again.predict(rows), loaded.predict(rows))
    assert again.model.temperature == loaded.model.temperature
    assert again.model.fit == loaded.model.fit  # type: ignore[union-attr]


def test_a_standardization_becomes_part_of_the_weights(
    linear: LLPClassifier, tmp_path: Path
) -> None:
    linear.save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    found = read_linear_network(tmp_path / "m", config)
    np.testing.assert_allclose(np.exp(found.log_probs(X)), linear.predict_proba(X), atol=1e-6)
    assert found.fit == linear.likelihood_
    assert found.temperature == linear.temperature_


def test_a_model_for_a_device_that_is_not_here_can_be_loaded_elsewhere(
    linear: LLPClassifier, tmp_path: Path
) -> None:
    away = clone(linear).fit(X, BAGS, COUNTS)
    away.device = "hpu"
    away.save(tmp_path / "m")
    with pytest.raises(InputError, match=r'"hpu"|\'hpu\'.*device="cpu"'):
        LLPClassifier.load(tmp_path / "m")
    found = LLPClassifier.load(tmp_path / "m", device="cpu").predict_proba(X)
    np.testing.assert_array_equal(found, linear.predict_proba(X))
