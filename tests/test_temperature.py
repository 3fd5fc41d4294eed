"""Calibration on held-out bags: the temperature, and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from bagwise import Bags
from bagwise.bags import FloatArray
from bagwise.likelihood.temperature import _slopes, fit_temperature, tempered
from bagwise.networks import make_model
from bagwise.posterior import log_likelihoods
from bagwise.tables import fitting
from bagwise.tables.assess.held_out import assess
from bagwise.tables.model.fit_file import from_json, to_json
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.training.divide_logits import divide_logits
from bagwise.training.evaluation import predict_logits
from bagwise.wording import fit_words
from fitted import fit_table


def drawn(B: int, K: int, true: float, seed: int) -> tuple[FloatArray, Bags]:
    """Log-probabilities, and bags whose labels follow them at this temperature."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(B * K, 3)) + np.repeat(rng.normal(size=(B, 3)), K, axis=0)
    noisy = softmax(z / true, axis=-1)
    labels = (noisy.cumsum(axis=1) < rng.random((B * K, 1))).sum(axis=1)
    return log_softmax(z, axis=-1), Bags.from_labels(labels, [K] * B, n_classes=3)


@pytest.mark.parametrize("true", [0.4, 2.0, 4.0])
def test_the_temperature_that_labels_follow_is_found(true: float) -> None:
    log_probs, bags = drawn(300, 8, true, seed=1)
    found = fit_temperature(log_probs, bags)
    assert found == pytest.approx(true, rel=0.15)
    grid = [
        log_likelihoods(tempered(log_probs, T), bags).sum() for T in (0.95 * found, 1.05 * found)
    ]
    assert log_likelihoods(tempered(log_probs, found), bags).sum() > max(grid)


def test_a_model_that_is_right_keeps_its_probabilities() -> None:
    found = [fit_temperature(*drawn(40, 5, 1.0, seed)) for seed in range(30)]
    assert found.count(1.0) >= 28


def test_one_bag_tells_nothing() -> None:
    assert fit_temperature(*drawn(1, 30, 4.0, seed=0)) == 1.0


@given(st.integers(0, 1000))
def test_slopes_are_derivatives(seed: int) -> None:
    log_probs, bags = drawn(4, 4, 1.5, seed)
    step = 1e-5
    up, down = (log_likelihoods(log_probs * (1 + s), bags) for s in (step, -step))
    np.testing.assert_allclose(
        _slopes(log_probs, bags, None), (up - down) / (2 * step), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_dividing_the_last_layer_divides_the_logits(name: str) -> None:
    torch.manual_seed(0)
    model, X = make_model(name, (4,), 3).eval(), torch.randn(50, 4)
    before = predict_logits(model, X).log_softmax(-1)
    divide_logits(model, 2.5)
    after = predict_logits(model, X).log_softmax(-1).numpy()
    np.testing.assert_allclose(after, tempered(before.numpy(), 2.5), rtol=1e-5, atol=1e-6)


def test_predictions_have_the_temperature_and_the_model_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x, ward = rng.normal(size=300), np.arange(300) % 30
    y = (x + rng.logistic(size=300) > 0).astype(int)
    rows = [f"{w},{v:.4f}" for w, v in zip(ward, x, strict=True)]
    (tmp_path / "rows.csv").write_text("ward,x\n" + "\n".join(rows) + "\n")
    counts = [f"{w},{sum(y[ward == w] == 0)},{sum(y[ward == w])}" for w in range(30)]
    (tmp_path / "bags.csv").write_text("ward,no,yes\n" + "\n".join(counts) + "\n")
    files = (tmp_path / "rows.csv", "ward", tmp_path / "bags.csv")
    # A mean over coefficients needs no temperature; other models may.
    monkeypatch.setattr("bagwise.tables.search.linear_candidates.averages", lambda _: False)
    plain = fit_table(*files, model="linear")
    assert plain.facts.settings.temperature == 1.0
    monkeypatch.setattr(fitting, "fit_temperature", lambda *_: 2.0)
    fit_table(*files, model="linear", out=tmp_path / "model")
    model = FittedTable.load(tmp_path / "model")
    inputs = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    expected = tempered(plain.log_probs(inputs), 2.0)
    np.testing.assert_allclose(model.log_probs(inputs), expected, rtol=1e-9)
    assert model.facts.settings.temperature == 2.0
    assert "log-odds were divided by 2.00" in fit_words.calibration(model.facts)
    assert model.intervals is not None  # coefficients are those of the fit, without a temperature
    assert plain.intervals is not None
    np.testing.assert_allclose(model.intervals.fit.weights, plain.intervals.fit.weights)
    content = json.loads(json.dumps(to_json(plain.facts)))
    del content["settings"]["temperature"]  # as earlier versions wrote it
    content["held_out"]["calibration"] = [
        [point[:3] for point in bins] for bins in content["held_out"]["calibration"]
    ]
    earlier = from_json(content)
    assert earlier.settings.temperature == 1.0
    assert earlier.held_out.calibration[0][0].error is None
    for spoilt in (0, -1, "hot", float("nan"), 1e9):
        content["settings"]["temperature"] = spoilt
        with pytest.raises(ValueError, match=r"settings\.temperature is"):
            from_json(content)


def test_bars_of_the_calibration_are_as_long_as_chance_makes_them() -> None:
    off = []
    for seed in range(60):
        log_probs, bags = drawn(20, 6, 1.0, seed)
        held_out = assess(log_probs, bags, np.arange(20), np.full(3, 1 / 3))
        for bins in held_out.calibration:
            for point in bins:
                assert point.error is not None
                off.append((point.true - point.predicted) / point.error)
    assert np.std(off) == pytest.approx(1, abs=0.08)
    assert np.mean(off) == pytest.approx(0, abs=0.1)
