"""Linear models of rows that are read piece by piece: the optimum of those that are in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagwise import Bags
from bagwise.likelihood import bag_log_likelihoods, fit_in_pieces, fit_linear
from bagwise.likelihood.in_pieces import LikelihoodInPieces, bag_log_likelihoods_in_pieces
from bagwise.likelihood.objective import BagLikelihood
from bagwise.limits import Limits
from fitted import fit_table

SIZES = [3, 1, 40, 7, 7, 2, 25, 5, 5, 5] * 4  # of which 40 and 25 are more than a piece


def generated(C: int, seed: int = 0) -> tuple[np.ndarray, Bags]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(SIZES), 3))
    weights = rng.normal(size=(3, C))
    labels = (X @ weights + rng.gumbel(size=(len(X), C))).argmax(axis=1)
    return X, Bags.from_labels(labels, SIZES, n_classes=C)


@pytest.mark.parametrize("C", [2, 3])
def test_a_pass_finds_the_likelihood_and_its_gradient(C: int) -> None:
    X, bags = generated(C)
    theta = np.random.default_rng(1).normal(size=(4, C - 1))
    whole = BagLikelihood(X, bags)
    expected = whole.evaluate(theta)
    for most in (1, 9, 30, 1000):
        pieces = LikelihoodInPieces(lambda begin, end: X[begin:end], 3, bags, most)
        found = pieces.evaluate(theta)
        np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-10)
        np.testing.assert_allclose(found.gradient, whole.total(expected)[1], rtol=1e-9)
        coefficients = theta @ pieces.basis.T
        assert pieces.mean_level(coefficients) == pytest.approx(whole.mean_level(coefficients))
    phi = np.random.default_rng(2).normal(size=theta.size)
    ours, theirs = (
        x.scale(found, np.ones(theta.size))
        for x, found in ((pieces, pieces.evaluate(theta)), (whole, expected))
    )
    np.testing.assert_allclose(ours.apply(phi), theirs.apply(phi), rtol=1e-8)


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize(("C", "most"), [(2, 10), (2, 1000), (3, 30)])
def test_the_optimum_is_that_of_all_rows_at_once(C: int, most: int, absent: bool) -> None:
    X, bags = generated(C)
    if absent:
        bags = Bags(bags.sizes, np.insert(bags.counts, 1, 0, axis=1))
    expected = fit_linear(X, bags, 0.5, tolerance=1e-4)
    found = fit_in_pieces(lambda begin, end: X[begin:end], 3, bags, 0.5, most=most, tolerance=1e-4)
    assert found.converged
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-3)
    np.testing.assert_allclose(found.intercept, expected.intercept, atol=1e-3)
    ours, theirs = (x.log_likelihood - 0.25 * (x.weights**2).sum() for x in (found, expected))
    assert ours == pytest.approx(theirs, abs=1e-6)  # what is maximized
    np.testing.assert_allclose(
        bag_log_likelihoods_in_pieces(found, lambda begin, end: X[begin:end], bags, most),
        bag_log_likelihoods(found, X, bags),
        rtol=1e-9,
    )


def test_what_passes_found_before_leads_the_same_way() -> None:
    X, bags = generated(3)
    known: dict[int, Any] = {}

    def keep(number: int, do: Any) -> Any:
        if number not in known:
            known[number] = do()
        return known[number]

    def read(begin: int, end: int) -> np.ndarray:
        return X[begin:end]

    found = fit_in_pieces(read, 3, bags, most=20, keep=keep)
    for number in range(3, len(known)):  # as if it had been stopped after three
        del known[number]
    again = fit_in_pieces(read, 3, bags, most=20, keep=keep)
    assert (found.weights == again.weights).all()
    assert found.evaluations == again.evaluations


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Path]:
    """1,200 rows in 120 bags, and the counts of these."""
    folder = tmp_path_factory.mktemp("pieces")
    rng = np.random.default_rng(0)
    bag = rng.permutation(np.repeat(np.arange(120), 10))
    X = rng.normal(size=(1200, 4))
    yes = rng.random(1200) < 1 / (1 + np.exp(-2 * X[:, 0] + X[:, 1] + 0.5))
    rows = [f"{b},{','.join(f'{v:.6f}' for v in x)}" for b, x in zip(bag, X, strict=True)]
    (folder / "rows.csv").write_text("\n".join(["bag,a,b,c,d", *rows]) + "\n")
    counts = [f"{b},{(~yes[bag == b]).sum()},{yes[bag == b].sum()}" for b in range(120)]
    (folder / "bags.csv").write_text("\n".join(["bag,no,yes", *counts]) + "\n")
    return folder / "rows.csv", "bag", folder / "bags.csv"


# The table counts as a large one, and is read in many pieces.
LARGE = Limits(cross_validated=0, linear_cells=4000, linear_cells_at_once=600)


def weights(model: Any) -> np.ndarray:
    return np.append(model.model.weights.ravel(), model.model.intercept)


def test_a_large_table_has_a_model_of_maximum_likelihood(
    table: tuple[Path, str, Path], tmp_path: Path
) -> None:
    model = fit_table(*table, model="linear", limits=LARGE)
    settings = model.facts.settings
    assert settings.lr is None
    assert settings.ridge is not None
    assert (model.facts.folds, model.facts.held_out.n_bags) == (1, 12)
    assert all(tried.some_bags for tried in model.facts.tried[1:])
    out = tmp_path / "stored"
    stored = fit_table(*table, model="linear", out=out, memory="80MB", limits=LARGE)
    np.testing.assert_allclose(weights(stored), weights(model), rtol=1e-4)
    whole = fit_table(*table, model="linear", limits=replace(LARGE, linear_cells=10**6))
    np.testing.assert_allclose(weights(model), weights(whole), atol=0.3)
    assert model.facts.held_out.log_likelihood == pytest.approx(
        whole.facts.held_out.log_likelihood, abs=0.02
    )


def test_a_fit_in_pieces_that_was_stopped_goes_on_where_it_was(
    table: tuple[Path, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fit_table(*table, model="linear", limits=LARGE)
    passes: list[int] = []
    whole_pass = LikelihoodInPieces.passed

    def stopping(likelihood: LikelihoodInPieces, theta: np.ndarray) -> Any:
        passes.append(len(likelihood.bags))
        if len(passes) == stop:
            raise KeyboardInterrupt
        return whole_pass(likelihood, theta)

    monkeypatch.setattr(LikelihoodInPieces, "passed", stopping)
    stop = 6
    with pytest.raises(KeyboardInterrupt):
        fit_table(*table, model="linear", out=tmp_path / "m", limits=LARGE)
    stop, before = 0, len(passes)
    model = fit_table(*table, model="linear", out=tmp_path / "m", limits=LARGE)
    after = len(passes) - before
    passes.clear()
    fit_table(*table, model="linear", limits=LARGE)
    assert after == len(passes) - 5  # those that were whole
    assert (weights(model) == weights(expected)).all()


def test_bags_too_large_to_begin_with_are_learned_by_gradient_descent(
    table: tuple[Path, str, Path],
) -> None:
    model = fit_table(*table, model="linear", limits=replace(LARGE, linear_cells=500))
    assert model.facts.settings.lr is not None
