"""Beliefs and messages of the bethe engine, and the covariance term that corrects it."""

from __future__ import annotations

from functools import cache

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._balance import covariance, normalize_rows
from bagwise.posterior._kernels import inline, inline_ordered

MOST = 1e50  # messages are clipped to [1 / MOST, MOST]: certain enough, and far from overflow


@cache
def gap_tables() -> tuple[FloatArray, FloatArray]:
    """log g(v) and its derivative for g(v) = exp(-v) I_0(v), tabulated over u = v / (1 + v).

    Their growth at large v is taken out; read with linear interpolation (error below 1e-7).
    """
    from scipy.special import i0e, i1e  # takes long to import, and is seldom needed

    u = np.linspace(0.0, 1.0, 4097)[:-1]
    v = u / (1.0 - u)
    log_g = np.append(np.log(i0e(v)) + 0.5 * np.log1p(v), -0.5 * np.log(2 * np.pi))
    return log_g, np.append((i1e(v) / i0e(v) - 1.0) * (1.0 + v), -0.5)


@inline
def totals(p: FloatArray, messages: FloatArray, total: FloatArray) -> None:
    """Sums over classes of p * message."""
    K, A = p.shape
    for k in range(K):
        total[k] = 0.0
        for a in range(A):
            total[k] += p[k, a] * messages[k, a]


@inline
def odds(
    p: FloatArray,
    messages: FloatArray,
    total: FloatArray,
    a: int,
    rest: FloatArray,
    yes: FloatArray,
    no: FloatArray,
) -> None:
    """What class a hears from each instance: the probability of a, and of any other class."""
    K, A = p.shape
    for k in range(K):
        rest[k] = total[k] - p[k, a] * messages[k, a]
        if rest[k] < 1e-6 * total[k]:  # most digits canceled: add up the others instead
            rest[k] = 0.0
            for b in range(A):
                if b != a:
                    rest[k] += p[k, b] * messages[k, b]
        both = p[k, a] + rest[k]
        yes[k] = p[k, a] / both
        no[k] = rest[k] / both


@inline
def add_up(joint: FloatArray, total: FloatArray) -> None:
    """Sums over the rows of joint (A, K)."""
    A, K = joint.shape
    total[:] = 0.0
    for a in range(A):
        for k in range(K):
            total[k] += joint[a, k]


@inline
def without(joint: FloatArray, total: FloatArray, a: int, rest: FloatArray) -> None:
    """The same sums without row a."""
    A, K = joint.shape
    canceled = 0
    for k in range(K):
        rest[k] = total[k] - joint[a, k]
        canceled += rest[k] < 1e-6 * total[k]
    if canceled > 0:  # most digits: add up the others instead
        for k in range(K):
            if rest[k] < 1e-6 * total[k]:
                rest[k] = 0.0
                for b in range(A):
                    if b != a:
                        rest[k] += joint[b, k]


@inline_ordered
def largest(x: FloatArray) -> float:
    """The largest absolute value."""
    found = 0.0
    for k in range(len(x)):
        found = max(found, abs(x[k]))
    return found


@inline
def beliefs(p: FloatArray, messages: FloatArray) -> FloatArray:
    """w[k, c] ~ p[k, c] r[k, c]."""
    w = p * messages
    normalize_rows(w)
    return w


@inline
def add_gap(
    w: FloatArray,
    copies: IntArray,
    known: FloatArray,
    pivots: int,
    log_g: FloatArray,
    slope: FloatArray,
    p: FloatArray,
) -> float:
    """Multiply p by exp(a * d gap / d w); returns gap(w).

    `known` (A,) are the variances of the potentials, 0 for sharp counts; of these one class follows
    from the others, and there are A - 1 pivots.
    """
    K, A = w.shape
    sigma = covariance(w, copies)
    for a in range(A):
        sigma[a, a] += known[a]
    variance = np.diag(sigma).copy()
    gap = 0.0
    slopes = np.empty(A)
    for a in range(A):
        value, slopes[a] = _log_g(variance[a], log_g, slope)
        gap -= value

    # Elimination, smallest pivot first: d d_i / d Sigma = m m' for row m of the inverse factor.
    gradient = np.zeros((A, A))
    inverse = np.eye(A)
    left = np.ones(A, np.bool_)
    for _ in range(pivots):
        i = -1
        for a in range(A):
            if left[a] and (i < 0 or sigma[a, a] < sigma[i, i]):
                i = a
        left[i] = False
        pivot = max(sigma[i, i], 0.0)
        value, rate = _log_g(pivot, log_g, slope)
        gap += value
        for a in range(A):
            for b in range(A):
                gradient[a, b] += rate * inverse[i, a] * inverse[i, b]
        if pivot > 1e-12:
            for a in range(A):
                if left[a]:
                    factor = sigma[a, i] / pivot
                    for b in range(A):
                        inverse[a, b] -= factor * inverse[i, b]
                        if left[b]:
                            sigma[a, b] -= factor * sigma[i, b]

    step = 1.0 - 0.7 * np.exp(-variance.mean() / 1.7)
    direction = np.empty(A)
    for k in range(K):
        for a in range(A):
            direction[a] = gradient[a, a] - slopes[a] * (1.0 - 2.0 * w[k, a])
        for b in range(A):  # the other way around, sums would wait for each other
            for a in range(A):
                direction[a] -= 2.0 * gradient[b, a] * w[k, b]
        for a in range(A):
            p[k, a] *= np.exp(step * direction[a])
    normalize_rows(p)
    return gap


@inline
def _log_g(v: float, log_g: FloatArray, slope: FloatArray) -> tuple[float, float]:
    """log g(v) and its derivative, from the tables."""
    place = v / (1.0 + v) * (len(log_g) - 1)
    i = min(int(place), len(log_g) - 2)
    f = place - i
    value = log_g[i] * (1.0 - f) + log_g[i + 1] * f - 0.5 * np.log1p(v)
    return value, (slope[i] * (1.0 - f) + slope[i + 1] * f) / (1.0 + v)
