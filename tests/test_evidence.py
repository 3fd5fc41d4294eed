"""Linear models that are averaged over their coefficients and the prior's variance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import binom, chi2, kstest, norm

from bagwise import Bags
from bagwise.likelihood import PosteriorOfPriors, fit_by_evidence, fit_linear
from bagwise.likelihood.coordinates import orthogonal_normals
from bagwise.likelihood.evidence import refit
from bagwise.likelihood.linear_predictions import mean_log_probs


def some_bags(
    seed: int = 0, B: int = 40, K: int = 10, d: int = 2, tau: float = 0.0
) -> tuple[np.ndarray, Bags]:
    """Bags of a linear model with slopes 1, 0, 0 ..., and effects of bags."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(B * K, d)) + np.repeat(rng.normal(size=(B, d)), K, axis=0)
    own = np.repeat(tau * rng.normal(size=B), K)
    labels = (X[:, 0] + own + rng.logistic(size=B * K) > 0).astype(int)
    return X, Bags.from_labels(labels, [K] * B, n_classes=2)


def test_the_ratio_of_evidences_is_that_of_integrals() -> None:
    """Rows of a bag are alike and the intercept is known by symmetry: the evidence is an integral
    of binomial probabilities over one slope.
    """
    sizes, x = 12, np.array([-1.5, -0.5, 0.5, 1.5] * 3)
    X = np.repeat(x, sizes)[:, None]
    counts = np.array([3, 5, 7, 9] * 3)
    bags = Bags([sizes] * len(x), np.stack([sizes - counts, counts], axis=1))
    found = fit_by_evidence(X, bags)
    assert found.dispersion == 1.0
    path = dict(found.path)

    def log_evidence(ridge: float) -> float:
        # A slope s is w_1 - w_0 = sqrt(2) theta, and theta has the prior N(0, 1 / ridge).
        def value(s: float) -> float:
            p = expit(s * x)
            log_p = binom.logpmf(counts, sizes, p).sum() + 30
            return float(np.exp(log_p) * norm.pdf(s, 0, np.sqrt(2 / ridge)))

        return float(np.log(quad(value, -3, 4, limit=200)[0]))

    ridges = sorted(path)[3:7]
    ours = np.array([path[r] for r in ridges])
    spread = float(X.var())
    hyper = np.array([-0.5 * ((np.log(spread / r) - np.log(0.3)) / 1.15) ** 2 for r in ridges])
    exact = np.array([log_evidence(r) for r in ridges])
    np.testing.assert_allclose(np.diff(ours - hyper), np.diff(exact), atol=0.03)


def test_draws_have_the_mean_and_covariance_of_their_component() -> None:
    X, bags = some_bags()
    best = fit_by_evidence(X, bags).best
    alone = PosteriorOfPriors((replace(best, weight=1.0),), 1.0, ())
    slopes = alone.draws(4000)[:, :2, 1] - alone.draws(4000)[:, :2, 0]
    wanted = best.fit.weights[:, 1] - best.fit.weights[:, 0]
    np.testing.assert_allclose(slopes.mean(axis=0), wanted, atol=1e-10)  # they come in pairs
    covariance = 2 * (best.root @ best.root.T)[:2, :2]  # of differences of two classes
    np.testing.assert_allclose(np.cov(slopes.T), covariance, rtol=0.1, atol=0.002)


def test_predictions_of_many_bags_are_those_of_the_fit() -> None:
    X, bags = some_bags(B=600)
    found = fit_by_evidence(X, bags)
    p = np.exp(mean_log_probs(X[:200], found.draws()))
    np.testing.assert_allclose(p, fit_linear(X, bags).probabilities(X[:200]), atol=0.02)


def test_coefficients_that_few_bags_leave_open_make_no_sure_predictions() -> None:
    """Five bags and 20 columns: a fit explains every count, and is sure of itself."""
    X, bags = some_bags(B=5, K=40, d=20)
    new = np.random.default_rng(1).normal(size=(500, 20))
    sure = fit_linear(X, bags, 1e-3).probabilities(new).max(axis=1)
    averaged = np.exp(mean_log_probs(new, fit_by_evidence(X, bags).draws())).max(axis=1)
    assert (sure > 0.95).mean() > 0.2
    assert (averaged > 0.95).mean() < 0.02


def test_bags_that_differ_count_less() -> None:
    X, alike = some_bags(K=60)
    _, differing = some_bags(K=60, tau=1.5)
    same, other = fit_by_evidence(X, alike), fit_by_evidence(X, differing)
    assert same.dispersion < 1.5
    assert other.dispersion > 5
    spread = [(found.draws()[:, 0, 1] - found.draws()[:, 0, 0]).std() for found in (same, other)]
    assert spread[1] > 1.5 * spread[0]


def test_a_class_that_bags_hardly_have_is_hardly_drawn() -> None:
    X, bags = some_bags()
    counts = np.column_stack([bags.counts, np.zeros(len(bags), dtype=int)])
    counts[0] = [bags.counts[0, 0], bags.counts[0, 1] - 1, 1]
    found = fit_by_evidence(X, Bags(bags.sizes, counts))
    p = np.exp(mean_log_probs(X, found.draws()))
    assert p[:, 2].mean() < 0.03


def test_fits_to_some_bags_have_the_priors_of_all() -> None:
    X, bags = some_bags()
    found = fit_by_evidence(X, bags)
    part = np.arange(30)
    again = refit(found, X[bags.rows(part)], bags.select(part))
    for old, new in zip(found.components, again.components, strict=True):
        assert (new.weight, new.fit.ridge) == (old.weight, old.fit.ridge)
        assert new.fit.log_likelihood > old.fit.log_likelihood  # of fewer bags
    assert sum(component.weight for component in found.components) == pytest.approx(1)


@pytest.mark.parametrize("constant", [True, False])
def test_there_may_be_nothing_to_learn(constant: bool) -> None:
    """Columns without variance, or a single class."""
    X, bags = some_bags()
    if constant:
        found = fit_by_evidence(np.ones_like(X), bags)
        p = np.exp(mean_log_probs(np.ones((1, 2)), found.draws()))
        assert p[0, 1] == pytest.approx(bags.counts[:, 1].sum() / bags.total, abs=0.02)
    else:
        one = Bags(bags.sizes, np.column_stack([bags.sizes, 0 * bags.sizes]))
        draws = fit_by_evidence(X, one).draws()
        assert np.exp(mean_log_probs(X, draws))[:, 0].min() > 0.95


def test_draws_at_right_angles_are_normal_and_make_means_surer() -> None:
    rng = np.random.default_rng(3)
    draws = np.stack([orthogonal_normals(rng, 6, 4) for _ in range(3000)])
    for column in (draws[:, 0, 0], draws[:, 5, 3], (draws[:, 1] ** 2).sum(axis=1)):
        assert kstest(column, "norm" if column.min() < 0 else chi2(4).cdf).pvalue > 1e-3
    products = draws[:, :4] @ draws[:, :4].transpose(0, 2, 1)
    assert np.abs(products * (1 - np.eye(4))).max() < 1e-9

    def varies(normals: np.ndarray) -> float:
        return float(np.var(expit(3 + 2 * normals @ [1.0, 1.0, -1.0, 0.5]).mean(axis=1)))

    together = np.stack([orthogonal_normals(rng, 16, 4) for _ in range(500)])
    alone = rng.standard_normal(together.shape)
    mirrored = [np.concatenate([x, -x], axis=1) for x in (together, alone)]
    assert varies(mirrored[0]) < 0.75 * varies(mirrored[1])
