"""Weights whose columns sum to the counts."""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._kernels import inline

_SINKHORN_STEPS = 30
_NEWTON_STEPS = 60
_NEAR = 0.1  # of column sums: where Newton steps are sure to be short ...
_SLOW = 0.1  # ... and better, unless a Sinkhorn step leaves less than this of the error
_BALANCED = 1e-7  # column sums this close to the counts are as good as equal
_LONGEST = 2.0  # step of a logarithm


@inline
def covariance(w: FloatArray, copies: IntArray) -> FloatArray:
    """diag(sum_k w) - w'w: covariances (A, A) of the counts of instances with label shares w.

    Here and below, `copies` (K,) says how often each row is to be counted.
    """
    K, A = w.shape
    sigma = np.zeros((A, A))
    variance = np.zeros(A)  # of their own: 1 - w is accurate where w w' would cancel
    for k in range(K):
        for a in range(A):
            share = copies[k] * w[k, a]
            variance[a] += share * (1.0 - w[k, a])
            for b in range(A):
                sigma[a, b] -= share * w[k, b]
    for a in range(A):
        sigma[a, a] = variance[a]
    return sigma


@inline
def balance(w: FloatArray, n: IntArray | FloatArray, copies: IntArray) -> bool:
    """Scale columns and rows of w (K, A) until columns sum to n and rows to 1; whether they do.

    Sinkhorn steps are cheap but can be slow; where they are, Newton steps on the logarithms of the
    column factors do the rest. They minimize the convex sum_k log sum_a w[k, a] x_a - sum_a n_a log
    x_a, whose gradient is what the columns sum to too much and whose Hessian is the covariance.
    """
    A = w.shape[1]
    column = np.empty(A)
    last = np.inf
    for _ in range(_SINKHORN_STEPS):
        error = _left_over(w, n, copies, column)
        if error < _BALANCED:
            return True
        if error < _NEAR and error > _SLOW * last:
            break
        last = error
        for a in range(A):
            column[a] = n[a] / column[a] if column[a] > 0.0 else 1.0
        _scale(w, column)
    for _ in range(_NEWTON_STEPS):
        if _left_over(w, n, copies, column) < _BALANCED:
            return True
        sigma = covariance(w, copies)
        longest = _LONGEST
        for a in range(A):
            column[a] -= n[a]
            sigma[a, a] += 1e-9 * (n[a] + abs(column[a])) + 1e-14
        solve(sigma, column)
        for a in range(A):
            longest = max(longest, abs(column[a]))
        for a in range(A):
            column[a] = np.exp(-column[a] * _LONGEST / longest)
        _scale(w, column)
    return _left_over(w, n, copies, column) < _BALANCED


@inline
def _scale(w: FloatArray, factor: FloatArray) -> None:
    """Multiply columns by factors, and rows so that they sum to 1."""
    K, A = w.shape
    for k in range(K):
        for a in range(A):
            w[k, a] *= factor[a]
    normalize_rows(w)


@inline
def normalize_rows(w: FloatArray) -> None:
    """Divide rows by their sums, number by number: slices take numba much longer."""
    K, A = w.shape
    for k in range(K):
        total = 0.0
        for a in range(A):
            total += w[k, a]
        for a in range(A):
            w[k, a] /= total


@inline
def column_sum(w: FloatArray, a: int, copies: IntArray) -> float:
    """Sum of column a of w (K, A)."""
    total = 0.0
    for k in range(len(w)):
        total += copies[k] * w[k, a]
    return total


@inline
def _left_over(
    w: FloatArray, n: IntArray | FloatArray, copies: IntArray, column: FloatArray
) -> float:
    """How far column sums, which are put into `column`, are from the counts."""
    K, A = w.shape
    column[:] = 0.0
    for k in range(K):
        for a in range(A):
            column[a] += copies[k] * w[k, a]
    worst = 0.0
    for a in range(A):
        worst = max(worst, abs(column[a] - n[a]))
    return worst


@inline
def solve(matrix: FloatArray, x: FloatArray) -> None:
    """Replace x by the solution y of matrix y = x, for a positive definite matrix.

    By plain elimination: numba takes six seconds to compile a call of LAPACK.
    """
    A = len(x)
    for i in range(A):
        for j in range(i + 1, A):
            factor = matrix[j, i] / matrix[i, i]
            x[j] -= factor * x[i]
            for c in range(i, A):
                matrix[j, c] -= factor * matrix[i, c]
    for i in range(A - 1, -1, -1):
        for c in range(i + 1, A):
            x[i] -= matrix[i, c] * x[c]
        x[i] /= matrix[i, i]
