"""Permutation importance by bag likelihood: `bagwise explain MODEL ROWS --bag ... --labels ...`."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.limits import Limits
from bagwise.tables.labels.counts import Counts
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.source import FileSource
from bagwise.tables.use import importance
from bagwise.tables.use.importance import importances


@pytest.fixture
def made(wards: Path) -> Path:
    return wards


def probability_of_count(p: np.ndarray, n: int) -> float:
    """Of n successes among independent ones, by convolution."""
    distribution = np.ones(1)
    for q in p:
        distribution = np.convolve(distribution, [1 - q, q])
    return float(distribution[n])


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_falls_are_those_of_the_likelihood_by_convolution(made: Path, name: str) -> None:
    model = FittedTable.load(made / name)
    counts = Counts(["ward"], made / "bags.csv")
    found = {i.column: i for i in importances(model, made / "rows.csv", counts, seed=4)}
    with (made / "rows.csv").open() as file:
        table = list(csv.DictReader(file))
    with (made / "bags.csv").open() as file:
        yes = {row["ward"]: int(row["yes"]) for row in csv.DictReader(file)}
    # The label file's order of bags is that of the rows; so is that of the encoded rows.
    from bagwise.tables.match.bag_table import encode_rows

    source = FileSource(made / "rows.csv", typed=False)
    inputs, _ = encode_rows(source, model.columns, np.arange(800), 800)
    rng = np.random.default_rng(4)

    def of_bags(X: np.ndarray) -> np.ndarray:
        p = np.exp(model.log_probs(X))[:, 1]
        parts = p.reshape(40, 20)
        names = [table[20 * b]["ward"] for b in range(40)]
        return np.log([probability_of_count(parts[b], yes[names[b]]) for b in range(40)])

    before, place = of_bags(inputs), 0
    for column in model.columns.columns:
        end = place + len(column.encoded_names)
        fall = np.zeros(40)
        for _ in range(importance.REPEATS):
            shuffled = inputs.copy()
            shuffled[:, place:end] = shuffled[rng.permutation(800), place:end]
            fall += (before - of_bags(shuffled)) / importance.REPEATS
        place = end
        assert found[column.name].fall == pytest.approx(fall.sum() / 800, rel=1e-3, abs=1e-6)
        # Bags are of one size: the standard error is that of a mean.
        assert found[column.name].error == pytest.approx(
            fall.std(ddof=1) / np.sqrt(40) / 20, rel=1e-3, abs=1e-6
        )


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_what_matters_comes_first(made: Path, name: str) -> None:
    counts = Counts(["ward"], made / "bags.csv")
    found = importances(FittedTable.load(made / name), made / "rows.csv", counts)
    assert found[0].column == "strong"
    assert found[0].low > 0
    assert {i.column for i in found} == {"strong", "town", "noise"}
    noise = next(i for i in found if i.column == "noise")
    assert abs(noise.fall) < found[0].fall / 4
    for i in found:
        assert i.low < i.fall < i.high


def test_of_many_rows_some_bags_are_drawn(made: Path) -> None:
    counts = Counts(["ward"], made / "bags.csv")
    model = FittedTable.load(made / "linear")
    found, everything = (
        importances(model, made / "rows.csv", counts, limits=Limits(importance_rows=most))
        for most in (300, 800)
    )
    assert found[0].error > everything[0].error


def test_explain_shows_and_writes_importances(made: Path, tmp_path: Path) -> None:
    rows = [str(made / "rows.csv"), "--bag", "ward", "--labels", str(made / "bags.csv")]
    out = ["--out", str(tmp_path / "importance.csv")]
    result = CliRunner().invoke(app, ["explain", str(made / "mlp"), *rows, *out])
    assert result.exit_code == 0, result.output
    assert "strong" in result.output
    with (tmp_path / "importance.csv").open() as file:
        written = list(csv.DictReader(file))
    assert written[0]["column"] == "strong"
    assert float(written[0]["low"]) < float(written[0]["fall"]) < float(written[0]["high"])


def test_mistakes_are_one_line(made: Path) -> None:
    for arguments, problem in (
        (["explain", str(made / "mlp")], "Give rows, --bag and --labels"),
        (["explain", str(made / "mlp"), str(made / "rows.csv")], "together with --bag and --lab"),
        (["explain", str(made / "mlp"), "--bag", "ward"], "--bag and --labels are given together"),
        (
            ["explain", str(made / "mlp"), "--bag", "ward", "--labels", str(made / "bags.csv")],
            "rows are given together",
        ),
        (
            [
                *("explain", str(made / "mlp"), str(made / "bags.csv"), "--bag", "ward"),
                *("--labels", str(made / "bags.csv")),
            ],
            "strong",
        ),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code in (2, 3), result.output
        assert problem in result.output
        assert result.output.count("\n") == 1
