"""What the spread of counts, beside their mean, says about a linear model."""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.likelihood._curvature import add_times, whitened
from bagwise.posterior._kernels import inline, kernel, over_bags

MOST_CLASSES = 4  # products of counts, and their covariances, are many where classes are


def quadratic_rows(
    X1: FloatArray,
    p: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    basis: FloatArray,
    bags: IntArray,
) -> FloatArray:
    """(bags, Q, P) further rows A of the information A'A of some bags, beyond `information_rows`.

    Where bags are alike, their mean counts say little about a model, and how much the counts spread
    says as much. The best score among all that are quadratic in the counts N has, beside the linear
    part, with m, V and kappa the cumulants of N, one of their products (a pair of classes) a row:

        U = (N - m)(N - m)' - V - kappa3 V^-1 (N - m)
        information = D' cov(U)^-1 D,      D = dV / d theta - kappa3 V^-1 dm / d theta
        cov(U) = V V + V V + kappa4 - kappa3 V^-1 kappa3'

    Like that of the linear score it is never more than the information of the counts: in bags of
    one instance, where the linear score has all, D is 0.
    """
    d, D = X1.shape[1], basis.shape[1]
    Q = D * (D + 1) // 2
    rows = np.empty((len(bags), Q, d * D))
    sizes = np.diff(offsets)[bags].astype(np.float64)

    def run(index: IntArray) -> None:
        _quadratic_rows(index, bags, X1, p, offsets, copies, basis, rows)

    over_bags(run, np.arange(len(bags)), sizes * (Q * D * d + len(basis) * Q * Q))
    return rows


@kernel
def _quadratic_rows(
    index: IntArray,
    bags: IntArray,
    X1: FloatArray,
    probabilities: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    basis: FloatArray,
    rows: FloatArray,
) -> None:
    C, D = basis.shape
    d = X1.shape[1]
    Q = D * (D + 1) // 2
    u, products = np.empty((C, D)), np.empty((C, Q))
    first, second = np.empty(Q, np.int64), np.empty(Q, np.int64)
    i = 0
    for e in range(D):
        for g in range(e + 1):
            first[i], second[i] = e, g
            i += 1
    T, third = np.empty((D, D)), np.empty((Q, D))
    slope, bend, unused = np.empty((D, D, d)), np.empty((Q, D, d)), np.empty((D, d * D))
    for place in index:
        bag = bags[place]
        V, kappa, spread = np.zeros((D, D)), np.zeros((Q, D)), np.zeros((Q, Q))
        slope[:], bend[:] = 0.0, 0.0
        for k in range(offsets[bag], offsets[bag + 1]):
            p = probabilities[k]
            _moments(p, basis, first, second, u, products, T, third)
            m = copies[k]
            for f in range(D):
                for e in range(D):
                    V[e, f] += m * T[e, f]
                    add_times(slope[e, f], m * T[e, f], X1[k])
                for i in range(Q):
                    kappa[i, f] += m * third[i, f]
                    add_times(bend[i, f], m * third[i, f], X1[k])
            _add_fourth(p, m, products, T, first, second, spread)
        for i in range(Q):
            for j in range(Q):
                e, g, a, b = first[i], second[i], first[j], second[j]
                spread[i, j] += V[e, a] * V[g, b] + V[e, b] * V[g, a]
        # L^-1 kappa3' and L^-1 dm / d theta for V = L L'.
        for e in range(D):
            V[e, e] += 1e-12
        whitened(V, slope, unused)
        for i in range(Q):
            for e in range(D):
                for g in range(e):
                    kappa[i, e] -= V[e, g] * kappa[i, g]
                kappa[i, e] /= V[e, e]
        jitter = 1e-12
        for i in range(Q):
            for f in range(D):
                for e in range(D):
                    add_times(bend[i, f], -kappa[i, e], slope[e, f])
            for j in range(Q):
                for e in range(D):
                    spread[i, j] -= kappa[i, e] * kappa[j, e]
            jitter += 1e-9 * spread[i, i]
        for i in range(Q):
            spread[i, i] += jitter
        whitened(spread, bend, rows[place])


@inline
def _moments(
    p: FloatArray,
    basis: FloatArray,
    first: IntArray,
    second: IntArray,
    u: FloatArray,
    products: FloatArray,
    T: FloatArray,
    third: FloatArray,
) -> None:
    """Of one label: its classes' places u about their mean and products of two of these, its
    covariance T and third moments.
    """
    C, D = basis.shape
    for e in range(D):
        mean = 0.0
        for c in range(C):
            mean += basis[c, e] * p[c]
        for c in range(C):
            u[c, e] = basis[c, e] - mean
    for i in range(len(first)):
        for c in range(C):
            products[c, i] = u[c, first[i]] * u[c, second[i]]
        total = 0.0
        for c in range(C):
            total += p[c] * products[c, i]
        T[first[i], second[i]] = T[second[i], first[i]] = total
        for f in range(D):
            third[i, f] = 0.0
            for c in range(C):
                third[i, f] += p[c] * products[c, i] * u[c, f]


@inline
def _add_fourth(
    p: FloatArray,
    copies: int,
    products: FloatArray,
    T: FloatArray,
    first: IntArray,
    second: IntArray,
    spread: FloatArray,
) -> None:
    """Add the fourth cumulants of one label, as often as it is there."""
    C, Q = products.shape
    for i in range(Q):
        for j in range(Q):
            e, g, a, b = first[i], second[i], first[j], second[j]
            total = -T[e, g] * T[a, b] - T[e, a] * T[g, b] - T[e, b] * T[g, a]
            for c in range(C):
                total += p[c] * products[c, i] * products[c, j]
            spread[i, j] += copies * total
