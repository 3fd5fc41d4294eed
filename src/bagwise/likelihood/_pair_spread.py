"""How the labels of a bag of two classes vary together, given its counts."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._kernels import kernel, over_bags
from bagwise.posterior.fourier import MOST_POINTS, on_circle, tilted_odds


def pair_spread(
    index: IntArray, one: int, two: int, X1: FloatArray, z: FloatArray, bags: Bags
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Cov(sum_k Y_k x_k | S) of bags of two classes, summed up, as own, plus and minus.

        sum_k own_k x_k x_k' + plus' plus - minus' minus

    Y_k is 1 if row k is of class `one`. With the characteristic function phi(t) = prod_k f_k(t) of
    the tilted count (see `fourier`), f_k = no_k + yes_k e^it, and u_k(t) = yes_k e^it / f_k,

        w_k = sum_t c_t u_k(t),    P(Y_k = Y_l = 1 | S) = sum_t c_t u_k(t) u_l(t)  for k != l

    with c_t = phi(t) e^-itn / sum: so the covariance of all pairs has a few terms G_t G_t' with
    G_t = sqrt(c_t) sum_k (u_k(t) - w_k) x_k, complex numbers whose products' real parts count.

    Args:
        index: bags with exact counts of these two classes.
        X1: (N, d) features of all rows.
        z: (N, C) logits.

    Returns:
        (n,) for the rows of these bags, and twice (bags * points, d), where unused rows are 0.
    """
    n, d = len(index), X1.shape[1]
    begins = np.zeros(n + 1, np.int64)
    np.cumsum(bags.sizes[index], out=begins[1:])
    own = np.empty(begins[-1])
    plus, minus = np.zeros((n, MOST_POINTS, d)), np.zeros((n, MOST_POINTS, d))
    logits = z[:, one] - z[:, two]
    counts = np.ascontiguousarray(bags.min_counts[:, one])

    def run(places: IntArray) -> None:
        _spread(
            places, index, begins, X1, logits, bags.offsets, bags.copies, counts, own, plus, minus
        )

    over_bags(run, np.arange(n), bags.sizes[index] * (20.0 * d))
    return own, plus.reshape(-1, d), minus.reshape(-1, d)


@kernel
def _spread(
    places: IntArray,
    index: IntArray,
    begins: IntArray,
    X1: FloatArray,
    logits: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    own: FloatArray,
    plus: FloatArray,
    minus: FloatArray,
) -> None:
    d = X1.shape[1]
    for place in places:
        first, end = offsets[index[place]], offsets[index[place] + 1]
        K, n, m = end - first, counts[index[place]], copies[first:end]
        yes, no = np.empty(K), np.empty(K)
        _, variance = tilted_odds(logits[first:end], m, n, yes, no)
        circle = on_circle(yes, no, m, n, variance)
        points, P = circle.shape[1], 0.0
        for t in range(points):
            P += circle[2, t]
        real, imaginary = np.empty((K, points)), np.empty((K, points))
        square = own[begins[place] : begins[place + 1]]
        for k in range(K):
            mean = 0.0
            for t in range(points):
                a, b = no[k] + yes[k] * circle[0, t], yes[k] * circle[1, t]
                x, y = yes[k] * circle[0, t], yes[k] * circle[1, t]
                scale = 1.0 / (a * a + b * b)
                real[k, t], imaginary[k, t] = (x * a + y * b) * scale, (y * a - x * b) * scale
                mean += circle[2, t] * real[k, t] - circle[3, t] * imaginary[k, t]
            mean /= P
            total = 0.0
            for t in range(points):
                real[k, t] -= mean
                x, y = real[k, t], imaginary[k, t]
                total += circle[2, t] * (x * x - y * y) - circle[3, t] * (2.0 * x * y)
            square[k] = m[k] * (mean * (1.0 - mean) - total / P)
        for t in range(points):
            root = np.sqrt(complex(circle[2, t] / P, circle[3, t] / P))
            for k in range(K):
                x = root.real * real[k, t] - root.imag * imaginary[k, t]
                y = root.imag * real[k, t] + root.real * imaginary[k, t]
                real[k, t], imaginary[k, t] = m[k] * x, m[k] * y
        for k in range(K):
            for t in range(points):
                x, y = real[k, t], imaginary[k, t]
                for j in range(d):
                    plus[place, t, j] += x * X1[first + k, j]
                    minus[place, t, j] += y * X1[first + k, j]
