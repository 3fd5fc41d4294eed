"""Linear models of several groupings: composite and joint likelihood, and intervals."""

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from bagwise import Bags, Groupings
from bagwise.errors import InputTypeError
from bagwise.likelihood import covariance, fit_joint, fit_linear
from bagwise.likelihood._overlap import clusters_of, cross_terms
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.joint_fit import JointLikelihood
from bagwise.likelihood.objective import BagLikelihood


def grouped(labels, C, **bags_of_rows):
    found = {}
    for name, of_row in bags_of_rows.items():
        of_row = np.asarray(of_row)
        there = of_row >= 0
        counts = np.zeros((of_row.max() + 1, C), int)
        np.add.at(counts, (of_row[there], labels[there]), 1)
        found[name] = (of_row, Bags(np.bincount(of_row[there]), counts))
    return Groupings(found)


def sample(C=3, N=300, n_bags=15, seed=0):
    """Rows by two features, with labels that follow a linear model, in two groupings."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    W = np.array([[1.5, -1.0, 0.0], [0.0, 1.0, -1.0]])[:, :C]
    p = softmax(X @ W, axis=1)
    labels = (p.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1)
    by = {name: rng.permutation(N) % n_bags for name in ("ward", "age")}
    return X, labels, grouped(labels, C, **by)


def test_connected_bags_are_one_cluster():
    rows = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    bags = Bags([2, 1, 1, 1, 1, 2, 1, 1], [[s, 0] for s in (2, 1, 1, 1, 1, 2, 1, 1)])
    #        bags 0: {0, 1}, 1: {2}, 2: {3}, 3: {4}; 4: {0}, 5: {1, 2}, 6: {3}, 7: {4}
    assert clusters_of(rows, bags).tolist() == [0, 0, 1, 2, 0, 0, 1, 2]


@pytest.mark.parametrize("C", [2, 3])
def test_cross_terms_are_the_covariances_of_scores_over_all_labelings(C):
    """By enumeration of the labels of six rows in three groupings, one of them partial."""
    rng = np.random.default_rng(C)
    N, basis = 6, contrasts(C)
    X = rng.normal(size=(N, 2))
    by = {"a": [0, 0, 0, 1, 1, 1], "b": [0, 1, 2, 0, 1, 2], "c": [0, 0, -1, -1, 1, 1]}
    groupings = grouped(rng.integers(C, size=N), C, **by)
    rows, bags = groupings.stacked()
    theta = rng.normal(size=(3, C - 1))
    likelihood = BagLikelihood(X[rows], bags)
    found = cross_terms(likelihood, theta, likelihood.evaluate(theta), rows)

    X1 = np.column_stack([X, np.ones(N)])
    p = softmax(X1 @ theta @ basis.T, axis=1)
    labelings = np.array(list(itertools.product(range(C), repeat=N)))
    shares = p[np.arange(N), labelings].prod(axis=1)
    off = np.eye(C)[labelings] - p  # (labelings, rows, classes)
    scores = []  # of each bag, linear in its counts: the best linear guess of its labels' score
    for g in groupings:
        for b in range(len(g.bags)):
            own = np.flatnonzero(g.bag_of_row == b)
            counts = off[:, own].sum(axis=1) @ basis
            full = np.einsum("ki,lke->lie", X1[own], off[:, own] @ basis).reshape(len(off), -1)
            V = (shares[:, None] * counts).T @ counts
            scores.append(counts @ np.linalg.solve(V, (shares[:, None] * counts).T @ full))
    total = sum(scores)
    wanted = (shares[:, None] * total).T @ total
    wanted -= sum((shares[:, None] * s).T @ s for s in scores)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)


def test_without_shared_rows_intervals_are_those_of_one_grouping():
    X, labels, _ = sample(C=2)
    half = np.arange(len(X)) < 150
    of_first = np.where(half, np.arange(300) // 10, -1)
    of_second = np.where(half, -1, (np.arange(300) - 150) // 10)
    groupings = grouped(labels, 2, first=of_first, second=of_second)
    rows, bags = groupings.stacked()
    fit = fit_linear(X[rows], bags, 0.1)
    alone = covariance(X[rows], bags, fit)
    shared = covariance(X[rows], bags, fit, rows=rows)
    np.testing.assert_allclose(shared.matrix, alone.matrix, rtol=1e-10)
    assert shared.n_bags == alone.n_bags == 30


def test_the_same_grouping_twice_says_nothing_new():
    """Clustered, or by what the model expects of shared rows: intervals are not narrower."""
    X, labels, _ = sample(C=2, N=600)
    for n_bags in (30, 10):  # more and fewer clusters than are needed
        of_row = np.arange(600) % n_bags
        twice = grouped(labels, 2, one=of_row, two=of_row)
        rows, bags = twice.stacked()
        once = grouped(labels, 2, one=of_row).groupings[0]
        fit = fit_linear(X[rows], bags, 1e-6)
        errors, _ = covariance(X[rows], bags, fit, rows=rows).standard_errors()
        wanted, _ = covariance(X[once.rows], once.bags, fit).standard_errors()
        np.testing.assert_allclose(errors, wanted, rtol=0.05 if n_bags == 30 else 0.35)


def test_joint_gradient_is_that_of_its_value():
    X, _, groupings = sample(N=60, n_bags=6)
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(3, 2))
    step = 1e-4

    def total(at):
        likelihood = JointLikelihood(X, groupings)
        for _ in range(20):  # until messages have settled for good
            found = likelihood.evaluate(at)
        return likelihood.total(found)

    gradient = total(theta)[1]
    for place in np.ndindex(*theta.shape):
        moved = np.zeros_like(theta)
        moved[place] = step
        slope = (total(theta + moved)[0] - total(theta - moved)[0]) / (2 * step)
        np.testing.assert_allclose(gradient[place], slope, rtol=2e-3, atol=2e-3)


def test_joint_fit_maximizes_the_enumerated_likelihood():
    """Three chains of wards and counties without loops: belief propagation is exact."""
    rng = np.random.default_rng(3)
    N, C = 9, 2
    X = rng.normal(size=(N, 1))
    labels = np.array([0, 1, 1, 0, 0, 1, 1, 0, 1])
    groupings = grouped(labels, C, a=[0, 0, 0, 1, 1, 1, 2, 2, 2], b=[0, -1, 1, 1, -1, 2, 2, -1, -1])
    fit = fit_joint(X, groupings, 0.5, tolerance=1e-4)
    labelings = np.array(list(itertools.product(range(C), repeat=N)))
    possible = np.ones(len(labelings), bool)
    for g in groupings:
        for b in range(len(g.bags)):
            inside = labelings[:, g.bag_of_row == b]
            possible &= (inside == 1).sum(axis=1) == g.bags.counts[b, 1]

    def objective(theta):
        z = log_softmax(np.column_stack([X, np.ones(N)]) @ theta @ contrasts(C).T, axis=1)
        value = logsumexp(z[np.arange(N), labelings[possible]].sum(axis=1))
        return -value + 0.25 * theta[0, 0] ** 2

    at = fit.theta()
    best = objective(at)
    for place in np.ndindex(*at.shape):
        for sign in (1, -1):
            moved = at.copy()
            moved[place] += sign * 0.1
            assert objective(moved) > best - 1e-4


def test_joint_fit_of_one_grouping_is_the_fit():
    X, labels, _ = sample()
    groupings = grouped(labels, 3, only=np.arange(300) // 20)
    fit = fit_joint(X, groupings, 1.0)
    np.testing.assert_allclose(
        fit.weights, fit_linear(X, groupings.groupings[0].bags, 1.0).weights, atol=1e-3
    )


def test_joint_fit_knows_absent_classes():
    X, labels, _ = sample(C=2)
    by = {"ward": np.arange(300) // 20, "age": np.arange(300) % 15}
    three, two = (fit_joint(X, grouped(labels, C, **by), 1.0) for C in (3, 2))
    p = three.probabilities(X)
    assert p[:, 2].max() < 0.01
    np.testing.assert_allclose(
        p[:, 1] / p[:, :2].sum(axis=1), two.probabilities(X)[:, 1], atol=0.02
    )


def test_joint_fit_refuses_bags():
    with pytest.raises(InputTypeError, match="Groupings is expected"):
        fit_joint(np.zeros((2, 1)), Bags([2], [[1, 1]]))
