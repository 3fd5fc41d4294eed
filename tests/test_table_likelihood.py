"""`fit` by maximum likelihood: what it chooses, how sure it says to be, and that it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise.bags import FloatArray, IntArray
from bagwise.cli import app
from bagwise.limits import Limits
from bagwise.tables.model.fit_facts import BagsDiffer, Coverage
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.model.linear_model import LinearModel
from bagwise.tables.search import linear_candidates as linear
from bagwise.tables.use.evaluate import evaluate_table
from bagwise.wording import fit_words
from fitted import fit_table


def write(folder: Path, X: FloatArray, y: IntArray, bag: IntArray) -> tuple[Path, str, Path]:
    """A table with bags, their counts, and the truth for `evaluate`."""
    folder.mkdir(exist_ok=True)
    names = [f"x{i}" for i in range(X.shape[1])]
    rows = [[f"b{b}", *(f"{x:.5f}" for x in row)] for b, row in zip(bag, X, strict=True)]
    lines = [",".join(["bag", *names]), *(",".join(row) for row in rows)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    told = [f"{line},{'yes' if label else 'no'}" for line, label in zip(lines[1:], y, strict=True)]
    (folder / "truth.csv").write_text("\n".join([f"{lines[0]},truth", *told]) + "\n")
    counts = [f"b{b},{(y[bag == b] == 0).sum()},{(y[bag == b] == 1).sum()}" for b in np.unique(bag)]
    (folder / "bags.csv").write_text("\n".join(["bag,no,yes", *counts]) + "\n")
    return folder / "rows.csv", "bag", folder / "bags.csv"


def drawn(rng: np.random.Generator, logits: FloatArray) -> IntArray:
    labels: IntArray = (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(int)
    return labels


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Path]:
    """Two useful columns and one of noise, sixty bags of ten."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = drawn(rng, 2 * X[:, 0] - X[:, 1])
    return write(tmp_path_factory.mktemp("plain"), X, y, np.arange(600) % 60)


def slopes(model: FittedTable) -> FloatArray:
    """Of the second class against the first."""
    assert isinstance(model.model, LinearModel)
    difference: FloatArray = model.model.weights[:, 1] - model.model.weights[:, 0]
    return difference


def test_the_linear_model_is_that_of_maximum_likelihood(plain: tuple[Path, str, Path]) -> None:
    model = fit_table(*plain)
    settings = model.facts.settings
    assert settings.model == "linear"
    assert settings.lr is settings.epochs is None
    assert settings.ridge is not None
    assert "averaged over its prior" in fit_words.settings(settings)
    assert model.facts.curve == []
    slope = slopes(model).tolist()
    assert 1.2 < slope[0] < 2.8  # 2, of columns that are nearly standard
    assert -1.7 < slope[1] < -0.4
    assert abs(slope[2]) < 0.5
    assert evaluate_table(model, plain[0].with_name("truth.csv"), "truth").accuracy > 0.78
    assert model.facts.verdict == "learned"
    assert not model.facts.is_overconfident


def test_chance_does_not_decide(plain: tuple[Path, str, Path]) -> None:
    probabilities = []
    for seed in (0, 1, 2):
        model = fit_table(*plain, model="linear", seed=seed)
        probabilities.append(slopes(model))
    assert np.corrcoef(probabilities).min() > 0.99


def test_what_was_saved_predicts_the_same(plain: tuple[Path, str, Path], tmp_path: Path) -> None:
    model = fit_table(*plain, model="linear", out=tmp_path / "m")
    again = FittedTable.load(tmp_path / "m")
    assert again.facts == model.facts
    inputs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert (again.log_probs(inputs) == model.log_probs(inputs)).all()


def test_a_stopped_fit_does_not_do_its_linear_model_again(
    plain: tuple[Path, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fit_table(*plain)

    def stop(*rest: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bagwise.estimator.network_candidates.train_fold", stop)
        with pytest.raises(KeyboardInterrupt):
            fit_table(*plain, out=tmp_path / "m")
    monkeypatch.setattr(linear, "choose_on", stop)
    model = fit_table(*plain, out=tmp_path / "m")
    assert (slopes(model) == slopes(expected)).all()
    assert model.facts.tried == expected.facts.tried


def test_a_rate_or_another_method_is_gradient_descent(plain: tuple[Path, str, Path]) -> None:
    for options in ({"lr": 0.03, "epochs": 2}, {"method": "dllp", "epochs": 2, "lr": 0.03}):
        settings = fit_table(*plain, model="linear", **options).facts.settings  # type: ignore[arg-type]
        assert (settings.lr, settings.epochs, settings.ridge) == (0.03, 2, None)


def test_a_table_too_large_for_it_is_gradient_descent(
    plain: tuple[Path, str, Path],
) -> None:
    model = fit_table(*plain, model="linear", limits=Limits(linear_cells=100))
    assert model.facts.settings.lr is not None


def test_a_large_table_is_fitted_to_all_bags_with_one_split(
    plain: tuple[Path, str, Path],
) -> None:
    whole = fit_table(*plain, model="linear")
    model = fit_table(*plain, model="linear", limits=Limits(cross_validated=0, few_bags=0))
    assert model.facts.folds == 1
    assert model.facts.held_out.n_bags == 6
    assert np.corrcoef(slopes(model), slopes(whole))[0, 1] > 0.95


def test_an_unfinished_fit_does_not_go_on_with_other_limits(
    plain: tuple[Path, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("bagwise.tables.fitting.assess", None)
        with pytest.raises(TypeError):
            fit_table(*plain, model="linear", out=tmp_path / "m")
    limits = Limits(cross_validated=0, few_bags=0)
    model = fit_table(*plain, model="linear", out=tmp_path / "m", limits=limits)
    assert model.facts.tried == fit_table(*plain, model="linear", limits=limits).facts.tried


def test_a_perceptron_is_taken_where_a_line_cannot_tell(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    y = drawn(rng, 8 * np.sign(X[:, 0] * X[:, 1]) * np.minimum(np.abs(X).min(axis=1), 1))
    where = write(tmp_path, X, y, np.arange(1200) // 4)
    model = fit_table(*where)
    assert model.facts.settings.model == "mlp"
    assert evaluate_table(model, where[0].with_name("truth.csv"), "truth").accuracy > 0.8
    assert {trial.model for trial in model.facts.tried} == {"linear", "mlp"}


def test_noise_is_not_said_to_have_been_learned(tmp_path: Path) -> None:
    said = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(240, 3)), rng.integers(2, size=240)
        facts = fit_table(*write(tmp_path, X, y, np.arange(240) % 24), model="linear").facts
        said.append(facts.verdict == "learned")
    assert sum(said) <= 1


def test_why_counts_miss_their_intervals_is_said_only_where_it_is_known(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    bag = np.arange(400) % 20
    facts = fit_table(*write(tmp_path, X, drawn(rng, X[:, 0]), bag), model="linear").facts
    assert facts.bags_differ is not None
    for p_value, inexact_bags, bag_effects, said, offered in (
        (1e-6, 0, None, "Bags differ by more than", True),
        (0.5, 0, None, "Perhaps there are too few bags", False),
        (None, 0, None, "Perhaps bags differ by more than", True),
        (None, 20, None, "Perhaps bags differ by more than", False),
        (None, 0, 0.01, "Perhaps there are too few bags", False),
    ):
        odd = replace(
            facts,
            bags_differ=None if p_value is None else BagsDiffer(1.0, p_value),
            held_out=replace(facts.held_out, coverage=[Coverage(0.95, 0.5)]),
            data=replace(facts.data, inexact_bags=inexact_bags),
            settings=replace(facts.settings, bag_effects=bag_effects),
        )
        told = fit_words.verdict(odd)
        assert "only 50% of the counts lie in their 95% intervals" in told
        assert said in told
        assert ("bag_effects=True" in told) == offered


def test_bags_that_differ_by_more_than_their_rows_are_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bag = np.arange(1200) % 40
    X = rng.normal(size=(1200, 2))
    y = drawn(rng, X[:, 0] + rng.normal(scale=1.5, size=40)[bag])
    facts = fit_table(*write(tmp_path, X, y, bag), model="linear", out=tmp_path / "m").facts
    assert facts.is_overconfident
    assert "Bags differ by more than their rows explain" in fit_words.verdict(facts)
    rows, out = str(tmp_path / "rows.csv"), str(tmp_path / "p.csv")
    shown = CliRunner().invoke(app, ["predict", str(tmp_path / "m"), rows, "--out", out]).output
    assert fit_words.doubt(facts) in " ".join(shown.split())
