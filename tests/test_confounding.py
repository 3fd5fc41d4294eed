"""How wrong shares could be: hidden differences between bags, and what the counts contradict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from bagwise import Bags
from bagwise.likelihood import Covariance, covariance, fit_linear
from bagwise.likelihood.confounding import (
    bias_bound,
    column_strengths,
    contrast_slopes,
    robustness,
)
from bagwise.likelihood.counted_shares import counted_share_intervals


def test_robustness_is_that_of_the_published_example() -> None:
    """Cinelli and Hazlett, table 1: estimate .097, standard error .023, 783 degrees, 13.9%."""
    assert robustness(0.0973, 0.0233, 783) == pytest.approx(0.139, abs=1e-3)


def test_a_difference_as_strong_as_the_robustness_moves_an_answer_just_so_far() -> None:
    distances = np.array([0.01, 0.3, 2.0])
    for distance, r in zip(distances, robustness(distances, 0.1, 40), strict=True):
        assert bias_bound(0.1, 40, r, r) == pytest.approx(distance)
    assert robustness(0.0, 0.1, 40) == 0


def test_strengths_of_a_linear_regression_are_its_partial_r_squared() -> None:
    """With unit variances the covariance is (X'X)^-1, and strengths follow from regressions."""
    rng = np.random.default_rng(0)
    n = 400
    hidden = rng.normal(size=n)
    x = 0.6 * hidden + rng.normal(size=n)
    y = 0.8 * x + 0.5 * hidden + rng.normal(size=n)
    X = np.column_stack([x, hidden, np.ones(n)])
    inverse = np.linalg.inv(X.T @ X)
    coefficients = inverse @ X.T @ y
    # Coefficients of two classes that sum to zero: halves of those of the regression.
    halves = np.array([-0.5, 0.5])
    matrix = np.einsum("ij,c,d->icjd", inverse, halves, halves)
    known = Covariance(
        replace(fit_linear(np.zeros((2, 2)), Bags([1, 1], [[1, 0], [0, 1]])),
                weights=np.outer(coefficients[:2], halves), intercept=coefficients[2] * halves),
        matrix, n, "", np.zeros(2, bool), posterior=matrix,
    )  # fmt: skip
    gradient = np.zeros((1, 3, 2))
    gradient[0, 0] = [-1.0, 1.0]
    found = column_strengths(known, gradient, [[1]])[0, 0]

    def residual(target: np.ndarray, *others: np.ndarray) -> np.ndarray:
        A = np.column_stack([*others, np.ones(n)])
        return target - A @ np.linalg.lstsq(A, target, rcond=None)[0]

    of_rows = 1 - residual(x, hidden).var() / residual(x).var()
    wald = coefficients[1] ** 2 / inverse[1, 1]
    of_counts = wald / (wald + n)
    assert found**2 / (1 - found) == pytest.approx(of_counts * of_rows / (1 - of_rows), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_bias_of_a_hidden_feature_is_near_its_bound(seed: int) -> None:
    """A feature of bags that is hidden from the fit; the bound is of first order."""
    rng = np.random.default_rng(seed)
    B, K = 500, 20
    hidden = rng.normal(size=B)
    x = np.repeat(0.8 * hidden + 0.6 * rng.normal(size=B), K) + rng.normal(size=B * K)
    p = expit(0.8 * x - 0.3 + 0.4 * np.repeat(hidden, K))
    bags = Bags.from_labels((rng.random(B * K) < p).astype(int), [K] * B)
    group = (x > 0.5).astype(int)
    short = fit_linear(x[:, None], bags, ridge=1e-6)
    both = np.column_stack([x, np.repeat(hidden, K)])
    # The information that a fit would have which knows the feature, at the same probabilities.
    long = replace(short, weights=np.vstack([short.weights, np.zeros(2)]))
    answers = []
    for features, fit in ((x[:, None], short), (both, long)):
        known = covariance(features, bags, fit)
        shares, slopes = known.group_slopes(features, group, 2)
        gradient = contrast_slopes(shares, slopes, np.bincount(group))[1, 1]
        assert known.posterior is not None
        variance = np.einsum("ic,icjd,jd", gradient, known.posterior, gradient)
        answers.append((shares[:, 1], variance, float(known.error_of(gradient))))
    (shares, variance, error), (_, with_feature, _) = answers
    starts = bags.offsets[:-1]
    q = short.probabilities(x[:, None])[:, 1]
    expected, truth = (np.add.reduceat(values, starts) for values in (q, p))
    spread = np.add.reduceat(q * (1 - q), starts)
    of_counts = ((truth - expected) ** 2 / spread).sum() / (
        (bags.counts[:, 1] - expected) ** 2 / spread
    ).sum()
    of_rows = 1 - variance / with_feature
    bias = (logit(shares[1]) - logit(q.mean())) - (logit(p[group == 1].mean()) - logit(p.mean()))
    bound = bias_bound(error, B, of_counts, of_rows)
    assert 0.1 < of_rows < 0.9
    assert 0.5 * bound < abs(bias) < 1.3 * bound + 2 * error


def _table(seed: int, shift: float) -> tuple[np.ndarray, Bags, np.ndarray]:
    """Rows whose groups have log-odds of their own, which the model does not know."""
    rng = np.random.default_rng(seed)
    B, K = 150, 12
    X = rng.normal(size=(B * K, 1))
    group = (rng.random(B * K) < np.repeat(rng.uniform(0.1, 0.9, B), K)).astype(int)
    y = rng.random(B * K) < expit(X[:, 0] + shift * group)
    return X, Bags.from_labels(y.astype(int), [K] * B), group


def test_the_counts_contradict_a_model_that_misses_a_group() -> None:
    X, bags, group = _table(0, 1.5)
    known = covariance(X, bags, fit_linear(X, bags))
    misfits = counted_share_intervals(known, X, bags, group, 2).misfits
    assert misfits is not None
    assert misfits[1, 1] > 4
    assert misfits[0, 1] < -4


@pytest.mark.parametrize("is_column", [False, True])
def test_misfits_of_a_right_model_are_within_those_of_chance(is_column: bool) -> None:
    found = []
    for seed in range(25):
        X, bags, group = _table(seed, 1.5 if is_column else 0.0)
        if is_column:  # a prior, too, shrinks its effect
            X = np.column_stack([X, group])
        known = covariance(X, bags, fit_linear(X, bags, 3.0))
        misfits = counted_share_intervals(known, X, bags, group, 2).misfits
        assert misfits is not None
        found.append(misfits[1, 1])
    assert np.abs(found).max() < 3.5
    assert is_column or 0.3 < np.std(found) < 1.3
