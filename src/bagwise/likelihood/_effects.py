"""Integrals over a bag's own intercept: one number a bag and class that all its instances share.

With logits z + u for all instances of a bag, each labeling with counts n has the factor exp(n . u),
so that

    log P(S|X, u) = log E(z) + n . u - sum_k log sum_c exp(z[k, c] + u_c)

with E(z) the sum over labelings of exp(sum_k z[k, Y_k]). The lattice, E, does not depend on u: the
integral over u costs a few sums of exponentials, and the posterior weights stay as they are.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.coordinates import normal_nodes
from bagwise.posterior._kernels import inline, kernel, over_bags

_NEWTON_STEPS = 50
_CLOSE = 1e-8
_TAUS = (1e-3, 20.0)  # between which the most likely one is looked for


def integrate(
    z: FloatArray, bags: Bags, basis: FloatArray, tau: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """What each bag's intercept does, for u = basis v with v normal of variance tau^2 a coordinate.

    The nodes of the integral are put where its integrand is: at its mode, scaled by its curvature.

    Args:
        z: (N, C) logits.
        basis: (C, D) orthonormal.

    Returns:
        (B,) the logarithm of the mean over u of exp(n . u) / prod_k sum_c exp(z + u);
        (N, C) the mean of softmax(z + u) given the counts; (B, D) the mean of v given the counts;
        (B,) the mean of its square.
    """
    of_bags = np.full(len(bags), tau)
    counts = bags.counts.astype(np.float64)
    copies = bags.copies.astype(np.float64)
    return integrate_weighted(z, copies, bags.offsets, counts, basis, of_bags)


def integrate_weighted(
    z: FloatArray,
    weights: FloatArray,
    offsets: IntArray,
    counts: FloatArray,
    basis: FloatArray,
    tau: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """`integrate` where a row may stand for several, or for a part of one.

    Args:
        z: (N, C) logits, sorted by bag.
        weights: (N,) how many rows of its bag each stands for.
        offsets: (B + 1,) where bags begin and end.
        counts: (B, C) of each bag, whose sum is that of its weights; any numbers of 0 or more.
        basis: (C, D) orthonormal.
        tau: (B,) the standard deviation in each bag.
    """
    nodes, node_weights = normal_nodes(basis.shape[1])
    B = len(offsets) - 1
    values = np.empty(B)
    p = np.empty(z.shape)
    means = np.empty((B, basis.shape[1]))
    squares = np.empty(B)

    def run(part: IntArray) -> None:
        _integrate(
            part, z, weights, offsets, counts, basis, tau, nodes, np.log(node_weights),
            values, p, means, squares,
        )  # fmt: skip

    over_bags(run, np.arange(B), 10.0 * np.diff(offsets) * z.shape[1] * len(nodes))
    return values, p, means, squares


def most_likely_tau(
    z: FloatArray,
    weights: FloatArray,
    offsets: IntArray,
    counts: FloatArray,
    basis: FloatArray,
    more: FloatArray,
) -> tuple[float, float]:
    """The standard deviation of bag effects under which the counts are most probable, the logits
    being what they are, and the log-likelihood there less that without effects.

    Args:
        z: see `integrate_weighted`, also for the next four.
        more: (B,) variance that is there beside that of the effects.
    """

    def log_likelihood(tau: float) -> float:
        of_bags = np.sqrt(tau**2 + more)
        return float(integrate_weighted(z, weights, offsets, counts, basis, of_bags)[0].sum())

    found = minimize_scalar(
        lambda log_tau: -log_likelihood(np.exp(log_tau)),
        bounds=np.log(_TAUS),
        method="bounded",
        options={"xatol": 0.02},
    )
    least = log_likelihood(_TAUS[0]) if more.any() else -float(weights @ logsumexp(z, axis=1))
    gain = -float(found.fun) - least
    return (float(np.exp(found.x)), gain) if gain > 0 else (_TAUS[0], 0.0)


@kernel
def _integrate(
    index: IntArray,
    logits: FloatArray,
    row_weights: FloatArray,
    offsets: IntArray,
    counts: FloatArray,
    basis: FloatArray,
    taus: FloatArray,
    nodes: FloatArray,
    log_weights: FloatArray,
    values: FloatArray,
    probabilities: FloatArray,
    means: FloatArray,
    squares: FloatArray,
) -> None:
    C, D = basis.shape
    R = len(nodes)
    for bag in index:
        z = logits[offsets[bag] : offsets[bag + 1]]
        w = row_weights[offsets[bag] : offsets[bag + 1]]
        n = counts[bag]
        tau = taus[bag]
        p = np.empty(z.shape)
        mode = np.zeros(D)
        factor = np.empty((D, D))
        _find_mode(z, w, n, basis, tau, mode, factor, p)
        v = np.empty((R, D))
        h = np.empty(R)
        for r in range(R):
            _solve_upper(factor, nodes[r], v[r])
            length = 0.0
            for e in range(D):
                v[r, e] += mode[e]
                length += nodes[r, e] ** 2
            h[r] = _log_integrand(z, w, n, basis, v[r], tau, p) + 0.5 * length + log_weights[r]
        top = -np.inf
        for r in range(R):
            top = max(top, h[r])
        share, total = np.empty(R), 0.0
        for r in range(R):
            share[r] = np.exp(h[r] - top)
            total += share[r]
        for r in range(R):
            share[r] /= total
        value = top + np.log(total)
        for e in range(D):
            value -= np.log(factor[e, e]) + np.log(tau)
        values[bag] = value
        found = probabilities[offsets[bag] : offsets[bag + 1]]
        found[:] = 0.0
        means[bag] = 0.0
        squares[bag] = 0.0
        for r in range(R):
            if share[r] < 1e-12:
                continue
            _softmax(z, w, _shift(basis, v[r]), p)
            for k in range(len(z)):
                for c in range(C):
                    found[k, c] += share[r] * p[k, c]
            for e in range(D):
                means[bag, e] += share[r] * v[r, e]
                squares[bag] += share[r] * v[r, e] ** 2


@inline
def _shift(basis: FloatArray, v: FloatArray) -> FloatArray:
    C, D = basis.shape
    u = np.zeros(C)
    for c in range(C):
        for e in range(D):
            u[c] += basis[c, e] * v[e]
    return u


@inline
def _softmax(z: FloatArray, w: FloatArray, u: FloatArray, p: FloatArray) -> float:
    """Fill p with softmax(z + u); returns the sum over rows of log sum exp, weighted by w."""
    K, C = z.shape
    sum_of_logs = 0.0
    for k in range(K):
        top = -np.inf
        for c in range(C):
            top = max(top, z[k, c] + u[c])
        total = 0.0
        for c in range(C):
            p[k, c] = np.exp(z[k, c] + u[c] - top)
            total += p[k, c]
        for c in range(C):
            p[k, c] /= total
        sum_of_logs += w[k] * (top + np.log(total))
    return sum_of_logs


@inline
def _log_integrand(
    z: FloatArray,
    w: FloatArray,
    n: FloatArray,
    basis: FloatArray,
    v: FloatArray,
    tau: float,
    p: FloatArray,
) -> float:
    u = _shift(basis, v)
    value = -_softmax(z, w, u, p)
    for c in range(len(n)):
        value += n[c] * u[c]
    for e in range(len(v)):
        value -= 0.5 * (v[e] / tau) ** 2
    return value


@inline
def _find_mode(
    z: FloatArray,
    w: FloatArray,
    n: FloatArray,
    basis: FloatArray,
    tau: float,
    mode: FloatArray,
    factor: FloatArray,
    p: FloatArray,
) -> None:
    """Newton steps, halved where they overshoot: the integrand's logarithm is concave.

    `factor` (D, D), lower, gets the Cholesky factor of minus the second derivative at the mode.
    """
    D = basis.shape[1]
    slope = np.empty(D)
    step = np.empty(D)
    moved = np.empty(D)
    value = _log_integrand(z, w, n, basis, mode, tau, p)
    for _ in range(_NEWTON_STEPS):
        _derivatives(p, w, n, basis, mode, tau, slope, factor)
        _solve_lower(factor, slope, moved)
        gain = 0.0
        for e in range(D):
            gain += moved[e] ** 2
        if gain < _CLOSE:
            break
        _solve_upper(factor, moved, step)
        size = 1.0
        for _ in range(30):
            for e in range(D):
                moved[e] = mode[e] + size * step[e]
            new = _log_integrand(z, w, n, basis, moved, tau, p)
            if new >= value:
                break
            size *= 0.5
        for e in range(D):
            mode[e] = moved[e]
        value = new


@inline
def _derivatives(
    p: FloatArray,
    w: FloatArray,
    n: FloatArray,
    basis: FloatArray,
    v: FloatArray,
    tau: float,
    slope: FloatArray,
    factor: FloatArray,
) -> None:
    K, C = p.shape
    D = len(v)
    q = np.empty(D)
    columns = np.zeros(C)
    factor[:] = 0.0
    for k in range(K):
        for e in range(D):
            q[e] = 0.0
            for c in range(C):
                q[e] += basis[c, e] * p[k, c]
        for c in range(C):
            columns[c] += w[k] * p[k, c]
        for e in range(D):
            for f in range(e + 1):
                factor[e, f] -= w[k] * q[e] * q[f]
    for e in range(D):
        slope[e] = -v[e] / tau**2
        for c in range(C):
            slope[e] += basis[c, e] * (n[c] - columns[c])
        for f in range(e + 1):
            for c in range(C):
                factor[e, f] += basis[c, e] * basis[c, f] * columns[c]
        factor[e, e] += 1.0 / tau**2
    cholesky(factor)


@inline
def cholesky(a: FloatArray) -> None:
    """Overwrite the lower triangle of a positive definite matrix by its Cholesky factor."""
    for i in range(len(a)):
        for j in range(i + 1):
            total = a[i, j]
            for m in range(j):
                total -= a[i, m] * a[j, m]
            a[i, j] = np.sqrt(max(total, 1e-300)) if i == j else total / a[j, j]


@inline
def _solve_lower(factor: FloatArray, b: FloatArray, x: FloatArray) -> None:
    for i in range(len(b)):
        x[i] = b[i]
        for j in range(i):
            x[i] -= factor[i, j] * x[j]
        x[i] /= factor[i, i]


@inline
def _solve_upper(factor: FloatArray, b: FloatArray, x: FloatArray) -> None:
    """x with factor' x = b."""
    for i in range(len(b) - 1, -1, -1):
        x[i] = b[i]
        for j in range(i + 1, len(b)):
            x[i] -= factor[j, i] * x[j]
        x[i] /= factor[i, i]
