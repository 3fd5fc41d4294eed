"""Intervals of shares of groups: of new rows, and of rows that were counted."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import expit

from bagwise import Bags
from bagwise.likelihood import covariance, fit_for_intervals, fit_linear
from bagwise.likelihood.coefficient_covariance import Covariance
from bagwise.likelihood.counted_shares import counted_share_intervals, given_counts
from bagwise.likelihood.share_intervals import share_intervals

RNG = np.random.default_rng(5)


def generated(seed: int, B: int = 60, K: int = 10) -> tuple[np.ndarray, np.ndarray, Bags]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(B * K, 2)) + np.repeat(0.5 * rng.normal(size=(B, 2)), K, axis=0)
    y = (rng.random(B * K) < expit(X @ [1.0, -0.5] - 0.5)).astype(int)
    return X, y, Bags.from_labels(y, [K] * B, n_classes=2)


def known(X: np.ndarray, bags: Bags) -> Covariance:
    return covariance(X, bags, fit_for_intervals(X, bags, fit_linear(X, bags)))


def test_intervals_of_new_and_of_counted_rows_hold_the_truth() -> None:
    """Of 95% intervals of three groups in 40 generated tables."""
    held = {"new": 0, "counted": 0}
    widths = {"new": 0.0, "counted": 0.0}
    for seed in range(40):
        X, y, bags = generated(seed)
        found, group = known(X, bags), np.digitize(X[:, 0], [-0.5, 0.5])
        X2, y2, _ = generated(seed + 1000)
        group2 = np.digitize(X2[:, 0], [-0.5, 0.5])
        one = np.ones(len(X), dtype=int)
        for name, labels, groups, ends in (
            ("new", y2, group2, share_intervals(found, X2, group2, 3, one)),
            ("counted", y, group, counted_share_intervals(found, X, bags, group, 3)),
        ):
            truth = np.bincount(groups, labels) / np.bincount(groups)
            share, low, high = (x[:, 1] for x in ends[:3])
            assert ((low <= share + 1e-9) & (share <= high + 1e-9)).all()
            held[name] += int(((low - 1e-9 <= truth) & (truth <= high + 1e-9)).sum())
            widths[name] += float((high - low).sum())
    assert 107 <= held["new"] <= 120  # 114 of 120 are expected
    assert 107 <= held["counted"] <= 120
    assert widths["counted"] < widths["new"]


@pytest.mark.parametrize(("K", "n"), [(4, 2), (6, 3), (7, 2)])
def test_the_variance_given_counts_is_near_that_of_all_labelings(K: int, n: int) -> None:
    p = RNG.uniform(0.25, 0.75, K)
    group = (np.arange(K) < K // 2).astype(int)
    labelings = np.array([y for y in product((0, 1), repeat=K) if sum(y) == n])
    weight = np.prod(np.where(labelings == 1, p, 1 - p), axis=1)
    weight /= weight.sum()
    w = weight @ labelings
    sums = labelings @ group
    exact = weight @ (sums - weight @ sums) ** 2
    bags = Bags([K], [[K - n, n]])
    ours = given_counts(np.stack([1 - w, w], axis=1), bags, group, 2)
    np.testing.assert_allclose(ours[1], exact, rtol=0.15)


def test_the_variance_given_counts_is_exact_for_rows_that_are_alike() -> None:
    bags, group = Bags([5], [[3, 2]]), np.array([0, 0, 1, 1, 1])
    w = np.tile([0.6, 0.4], (5, 1))
    hypergeometric = 2 * 0.4 * 0.6 * 3 / 4
    np.testing.assert_allclose(given_counts(w, bags, group, 2), hypergeometric)


def test_ends_are_shares_of_whole_rows() -> None:
    X, _, bags = generated(0)
    found = share_intervals(known(X, bags), X[:3], np.zeros(3, dtype=int), 1, np.ones(3, dtype=int))
    for end in (found.low, found.high):
        np.testing.assert_allclose(3 * end, np.round(3 * end), atol=1e-9)


def test_rows_with_weights_are_rows_written_out() -> None:
    X, _, bags = generated(0)
    found, copies = known(X, bags), np.arange(20) % 3 + 1
    group = np.arange(20) % 2
    twice = share_intervals(
        found, np.repeat(X[:20], copies, axis=0), np.repeat(group, copies), 2, np.ones(39, int)
    )
    once = share_intervals(found, X[:20], group, 2, copies)
    for a, b in zip(once[:4], twice[:4], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_a_count_that_is_not_exact_makes_intervals_longer() -> None:
    X, _, bags = generated(0)
    group = np.digitize(X[:, 0], [0.0])
    low, high = np.maximum(bags.counts - 2, 0), np.minimum(bags.counts + 2, 10)
    loose = Bags.from_ranges(low, high, bags.sizes)
    found = known(X, bags)
    exact, wide = (counted_share_intervals(found, X, b, group, 2) for b in (bags, loose))
    assert ((wide.high - wide.low) > (exact.high - exact.low)).all()


def test_where_bags_disagree_intervals_stretch() -> None:
    X, _, bags = generated(0)
    found = known(X, bags)
    gradient = found.group_slopes(X[:50], np.zeros(50, dtype=int), 1)[1]
    doubled = Covariance(
        found.fit, 100 * found.matrix, 60, "", found.absent, posterior=found.posterior
    )
    assert (doubled.stretch_of(gradient) > 5).all()
    assert (found.stretch_of(gradient) >= 1).all()
