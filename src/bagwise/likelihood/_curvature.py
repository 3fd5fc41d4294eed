"""How sharply the bag likelihood bends: the information that bags hold about a linear model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.likelihood._effects import cholesky
from bagwise.posterior._kernels import inline, kernel, over_bags

_LARGEST = 1200  # rows or columns up to which eigenvectors are computed
_CHUNK = 4_000_000  # numbers of information rows that are held at a time


def information_rows(
    X1: FloatArray,
    p: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    basis: FloatArray,
    tau: float,
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Rows A of the information A'A, for some bags at a time: (their indexes, (bags, D, P)).

    The counts of a bag are sums over its instances, of mean m = sum_k p_k and covariance V = sum_k
    diag(p_k) - p_k p_k'. Of all scores that are linear in the counts the best has the information

        (dm / d theta)' V^-1 (dm / d theta)

    which the information of the counts cannot be below. It is theirs in bags of one instance, where
    the counts are the label, and in large bags, where they are normal. A bag's own intercept of
    variance tau^2 adds tau^2 V^2 to the covariance. All in the D = C - 1 coordinates of `basis`.
    Rows of bag b are those from offsets[b] to offsets[b + 1]; row k stands for copies[k] instances.
    """
    d, D, sizes = X1.shape[1], basis.shape[1], np.diff(offsets)
    step = max(_CHUNK // (D * d * D), 1)
    for begin in range(0, len(sizes), step):
        part = np.arange(begin, min(begin + step, len(sizes)))
        rows = np.empty((len(part), D, d * D))

        def run(index: IntArray, begin: int = begin, rows: FloatArray = rows) -> None:
            _information_rows(index, begin, X1, p, offsets, copies, basis, tau, rows)

        over_bags(run, part, sizes[part] * float(D * D * d))
        yield part, rows


@kernel
def _information_rows(
    index: IntArray,
    begin: int,
    X1: FloatArray,
    probabilities: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    basis: FloatArray,
    tau: float,
    rows: FloatArray,
) -> None:
    C, D = basis.shape
    d = X1.shape[1]
    q = np.empty(D)
    T = np.empty((D, D))
    slope = np.empty((D, D, d))
    for bag in index:
        slope[:] = 0.0
        V = np.zeros((D, D))
        for k in range(offsets[bag], offsets[bag + 1]):
            p = probabilities[k]
            for e in range(D):
                q[e] = 0.0
                for c in range(C):
                    q[e] += basis[c, e] * p[c]
            for e in range(D):
                for f in range(e + 1):
                    total = -q[e] * q[f]
                    for c in range(C):
                        total += basis[c, e] * basis[c, f] * p[c]
                    T[e, f] = T[f, e] = copies[k] * total
            for e in range(D):
                for f in range(D):
                    V[e, f] += T[e, f]
                    add_times(slope[e, f], T[e, f], X1[k])
        whitened(_with_effect(V, tau), slope, rows[bag - begin])


@inline
def _with_effect(V: FloatArray, tau: float) -> FloatArray:
    D = len(V)
    both = V.copy()
    for e in range(D):
        both[e, e] += 1e-12
        for f in range(D):
            for g in range(D):
                both[e, f] += tau * tau * V[e, g] * V[g, f]
    return both


@inline
def add_times(total: FloatArray, factor: float, x: FloatArray) -> None:
    """Add a multiple of a row."""
    for j in range(len(x)):
        total[j] += factor * x[j]


@inline
def whitened(covariance: FloatArray, slope: FloatArray, rows: FloatArray) -> None:
    """rows := L^-1 slope for covariance = L L', of slopes (Q, D, d) with d and D in turn."""
    cholesky(covariance)
    Q, D, d = slope.shape
    for e in range(Q):
        for f in range(D):
            for g in range(e):
                add_times(slope[e, f], -covariance[e, g], slope[g, f])
            scale = 1.0 / covariance[e, e]
            for j in range(d):
                slope[e, f, j] *= scale
                rows[e, j * D + f] = slope[e, f, j]


class Curvature:
    """A'A of information rows A where it is small, else its diagonal; A itself, if it has few rows.

    Those of some bags and of others can be added.

    Args:
        n_rows: of all bags together, D for each bag.
        penalty: (P,), all above zero.
    """

    def __init__(self, n_rows: int, penalty: FloatArray) -> None:
        P = len(penalty)
        self.root = 1.0 / np.sqrt(penalty)
        self.few_rows = n_rows < P
        self.full = min(n_rows, P) <= _LARGEST
        self.gram = np.zeros((P, P)) if self.full and not self.few_rows else np.zeros(P)
        self.kept: list[FloatArray] = []

    def with_rows(self, information: Iterable[FloatArray]) -> Curvature:
        """Take rows of A into account, (bags, D, P) for some bags at a time."""
        for rows in information:
            A = rows.reshape(-1, len(self.root)) * self.root
            if not self.full:
                self.gram += (A**2).sum(axis=0)
            elif self.few_rows:
                self.kept.append(A)
            else:
                self.gram += A.T @ A
        return self

    def __add__(self, other: Curvature) -> Curvature:
        both = copy(self)
        both.gram, both.kept = self.gram + other.gram, self.kept + other.kept
        return both


class Scale:
    """Coordinates phi in which the penalized likelihood bends about equally in all directions.

        theta = R phi,    R R' = (A'A + diag(penalty))^-1,    R = D^-1/2 (1 + V diag(r) V')

    with D = diag(penalty), V the eigenvectors of D^-1/2 A'A D^-1/2, s their values and r = (1 + s)
    ^-1/2 - 1. A step of length one in phi is one standard error of a parameter. Where neither A's
    rows nor its columns are few, only the diagonal of A'A is used.
    """

    def __init__(self, curvature: Curvature) -> None:
        self.root = curvature.root
        self.vectors = np.zeros((len(self.root), 0))
        self.factors = np.zeros(0)
        if not curvature.full:
            self.root = self.root / np.sqrt(1.0 + curvature.gram)
            return
        if curvature.few_rows:
            A = np.concatenate(curvature.kept)
            values, left = np.linalg.eigh(A @ A.T)
            used = values > 1e-9 * values[-1]
            values = values[used]
            self.vectors = (A.T @ left[:, used]) / np.sqrt(values)
        else:
            values, self.vectors = np.linalg.eigh(curvature.gram)
        self.factors = 1.0 / np.sqrt(1.0 + np.maximum(values, 0.0)) - 1.0

    def apply(self, phi: FloatArray) -> FloatArray:
        """R phi."""
        moved: FloatArray = phi + self.vectors @ (self.factors * (phi @ self.vectors))
        return self.root * moved

    def transpose(self, gradient: FloatArray) -> FloatArray:
        """R' times a gradient with respect to theta: that with respect to phi."""
        g = self.root * gradient
        moved: FloatArray = g + self.vectors @ (self.factors * (g @ self.vectors))
        return moved
