"""Bags that share rows: which are connected, and how their scores vary together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood._curvature import information_rows
from bagwise.likelihood._information import count_covariances, label_covariances, prior_covariances
from bagwise.likelihood.objective import BagLikelihood, Evaluation

_FEWEST_CLUSTERS = 20  # groups of connected bags from which these are what is sampled
_CHUNK = 4_000_000  # numbers that are held at a time


@dataclass(frozen=True)
class Overlap:
    """How bags share rows.

    Attributes:
        clusters: (B,) the group of connected bags that each is in; None where there are few groups.
        sampled: the number of groups, or of bags in an average grouping.
        degree: the number of bags that an average row is in.
    """

    clusters: IntArray | None
    sampled: int
    degree: float

    @classmethod
    def of(cls, rows: IntArray, bags: Bags) -> Overlap:
        """Of bags whose instances are these rows (M,)."""
        clusters, once = clusters_of(rows, bags), np.unique(rows, return_index=True)[1]
        degree = float(bags.total / bags.copies[once].sum())
        n = int(clusters.max()) + 1
        if n >= _FEWEST_CLUSTERS:
            return cls(clusters, n, degree)
        return cls(None, max(round(len(bags) / degree), 2), degree)


def clusters_of(rows: IntArray, bags: Bags) -> IntArray:
    """(B,) the number of the group of bags that are connected by rows they share.

    Args:
        rows: (M,) which row each instance of the bags is.

    >>> clusters_of(np.array([0, 1, 1, 2]), Bags([1, 1, 1, 1], [[1, 0]] * 4))
    array([0, 1, 1, 2])
    """
    B, N = len(bags), int(rows.max()) + 1
    edges = coo_array((np.ones(len(rows)), (bags.bag_of_row, B + rows)), shape=(B + N, B + N))
    return np.unique(connected_components(edges, directed=False)[1][:B], return_inverse=True)[1]


def cross_terms(
    likelihood: BagLikelihood, theta: FloatArray, found: Evaluation, rows: IntArray
) -> FloatArray:
    """(P, P) the sum of the covariances of the scores of different bags, by the model.

    The score of a bag is M_b (n_b - m_b), with n_b its counts, m_b their mean, and M_b = (dm / d
    theta)' V^-1 as in `information_rows`. Counts of two bags vary together by what the rows they
    share do, T_k = diag(p_k) - p_k p_k':

        sum over rows k of B_k T_k B_k' - sum over bags of M_b V_b M_b',    B_k = sum of M_b over
                                                                           the bags of row k

    Rows of the same bags are taken together.
    """
    bags, basis = likelihood.bags, likelihood.basis
    D, P = basis.shape[1], theta.size
    M = _score_weights(likelihood, theta, found)
    first, cells, cell_of_row = _cells(rows, bags)
    T = bags.copies[first, None, None] * label_covariances(found.probabilities[first], basis)
    of_cells = np.zeros((len(cells), D, D))
    np.add.at(of_cells, cell_of_row, T)
    total = np.zeros((P, P))
    step = max(_CHUNK // (P * D * cells.shape[1]), 1)
    none = np.zeros((1, P, D))
    padded = np.concatenate([M, none])  # bag -1 is none
    for begin in range(0, len(cells), step):
        some = cells[begin : begin + step]
        own = padded[some]  # (n, G, P, D)
        T = of_cells[begin : begin + step]
        total += _sums(own.sum(axis=1), T)
        for g in range(some.shape[1]):
            total -= _sums(own[:, g], T)
    return total


def _sums(M: FloatArray, T: FloatArray) -> FloatArray:
    """sum_n M_n T_n M_n' of (n, P, D) and (n, D, D)."""
    found: FloatArray = np.tensordot(M @ T, M, axes=([0, 2], [0, 2]))
    return found


def _score_weights(likelihood: BagLikelihood, theta: FloatArray, found: Evaluation) -> FloatArray:
    """(B, P, D) by which counts are multiplied in a bag's score; of counts that are not exact, as
    far as they are known.
    """
    bags, D = likelihood.bags, likelihood.basis.shape[1]
    weights = np.empty((len(bags), theta.size, D))
    p, basis = found.probabilities, likelihood.basis
    spread = None if bags.potentials is None else count_covariances(likelihood, theta)
    of_bags = likelihood.X1, p, bags.offsets, bags.copies, basis
    for part, whitened in information_rows(*of_bags, 0.0):
        V = prior_covariances(likelihood, p, part) + 1e-12 * np.eye(D)
        lower = np.linalg.cholesky(V)
        weights[part] = whitened.transpose(0, 2, 1) @ np.linalg.inv(lower)
        if spread is not None:
            weights[part] @= np.eye(D) - spread[part] @ np.linalg.inv(V)
    return weights


def _cells(rows: IntArray, bags: Bags) -> tuple[IntArray, IntArray, IntArray]:
    """Rows by the bags they are in: (n,) an instance of each row, (cells, G) the bags of each cell,
    padded by -1, and (n,) the cell of each row.
    """
    order = np.argsort(rows, kind="stable")
    begins = np.flatnonzero(np.diff(rows[order], prepend=-1))
    degrees = np.diff(begins, append=len(rows))
    row = np.repeat(np.arange(len(begins)), degrees)
    in_bags = np.full((len(begins), degrees.max()), -1)
    in_bags[row, np.arange(len(rows)) - begins[row]] = bags.bag_of_row[order]
    cells, cell_of_row = np.unique(in_bags, axis=0, return_inverse=True)
    return order[begins], cells, cell_of_row.ravel()
