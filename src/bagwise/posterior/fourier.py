"""Poisson-binomial probabilities near the mean, from a few values of the characteristic function.

The count N of independent ones and noes has the characteristic function

    phi(t) = prod_k (no_k + yes_k e^it)

and for any M larger than the range in which N has mass, P(N = n) is the mean of phi(t) e^-itn over
t = 2 pi m / M, m = 0 .. M - 1, but for the P(N = n + jM), j != 0, that are added to it. Without
variable k, phi is divided by its factor. Tilted so that its mean is n, N has next to no mass beyond
M ~ 8.3 standard deviations, and phi next to none beyond m ~ 12: whatever K is, some 12 to 25 values
are enough for an error of 1e-13 of the largest probability.

Of `copies` (K,) identical variables, phi has the factor of one to that power, and one copy is left
out. So time follows the variables that differ.
"""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._bethe import MOST
from bagwise.posterior._kernels import inline_as_written

_NATS = 34.0  # what is left out is below exp(-34) of the largest probability
_STEPS = 100  # of Newton and bisection
_NEAR = 1e-2  # of a count or a standard deviation: near enough to the mean
MOST_POINTS = 26  # of `on_circle`: the variance with most is about 17


@inline_as_written
def tilted_odds(
    logits: FloatArray, copies: IntArray, n: float, yes: FloatArray, no: FloatArray
) -> tuple[float, float]:
    """The shift x of the logits that makes the mean of N equal n, 0 < n < the number of them, and
    the variance of N then.

    Fills yes = 1 / (1 + exp(-(logits + x))) and no = 1 - yes. Logits may be infinite as long as a
    count of n is possible.
    """
    low, high = np.inf, -np.inf
    for k in range(len(logits)):
        if -np.inf < logits[k] < np.inf:
            low, high = min(low, logits[k]), max(high, logits[k])
    x = 0.0
    if low > high:  # all are certain
        _shifted(logits, copies, x, yes, no)
        return x, 0.0
    low, high = -high - 40.0, -low + 40.0  # between them the mean rises from least to most
    variance = 0.0
    for _ in range(_STEPS):
        mean, variance = _shifted(logits, copies, x, yes, no)
        if mean > n:
            high = min(high, x)
        else:
            low = max(low, x)
        if abs(mean - n) < _NEAR * max(variance, 1.0) ** 0.5 or high - low < 1e-15 * (
            abs(low) + abs(high)
        ):
            break
        # Newton's step where it stays inside, and in the middle where it does not.
        step = (n - mean) / variance if variance > 0.0 else np.inf
        x = x + step if low < x + step < high else 0.5 * (low + high)
    return x, variance


@inline_as_written
def _shifted(
    logits: FloatArray, copies: IntArray, x: float, yes: FloatArray, no: FloatArray
) -> tuple[float, float]:
    """Fill yes and no; returns the mean and the variance of N."""
    mean, variance = 0.0, 0.0
    for k in range(len(logits)):
        small = np.exp(-abs(logits[k] + x))
        large = 1.0 / (1.0 + small)
        small *= large
        yes[k], no[k] = (large, small) if logits[k] + x > 0.0 else (small, large)
        mean += copies[k] * yes[k]
        variance += copies[k] * yes[k] * no[k]
    return mean, variance


@inline_as_written
def tilted_shares(yes: FloatArray, no: FloatArray, copies: IntArray, n: int) -> tuple[float, float]:
    """The logarithm of the factor of all odds yes / no that makes the mean of N equal n, and the
    variance of N then; changes yes and no.

    Where that is out of reach, n being all there can be, the factor is as far as it goes.
    """
    log_x, variance = 0.0, 0.0
    low, high = -700.0, 700.0
    for _ in range(_STEPS):
        mean, variance = 0.0, 0.0
        for k in range(len(yes)):
            mean += copies[k] * yes[k]
            variance += copies[k] * yes[k] * no[k]
        if mean > n:
            high = min(high, log_x)
        else:
            low = max(low, log_x)
        if abs(mean - n) < _NEAR * max(variance, 1.0) ** 0.5 or high - low < 1e-6:
            break
        step = (n - mean) / variance if variance > 0.0 else np.inf
        if not low < log_x + step < high:
            step = 0.5 * (low + high) - log_x
        log_x += step
        factor = np.exp(step)
        for k in range(len(yes)):
            total = yes[k] * factor + no[k]
            yes[k] *= factor / total
            no[k] /= total
    return log_x, variance


@inline_as_written
def on_circle(
    yes: FloatArray, no: FloatArray, copies: IntArray, n: int, variance: float
) -> FloatArray:
    """Points t and the terms of P(N = n) there: cos t, sin t, and a term's two parts, (4, points).

    A term is phi(t) e^-itn / M, twice for t > 0, as that of -t is its conjugate.
    """
    # By Bernstein's inequality, P(|N - n| >= M) < 2 exp(-M^2 / (2 variance + 2 M / 3)). M is odd,
    # so that no point is pi, where a factor can be 0.
    M = int(_NATS / 3.0 + np.sqrt((_NATS / 3.0) ** 2 + 2.0 * _NATS * variance)) + 3
    M += 1 - M % 2
    points = M // 2 + 1
    if 2.0 * variance > _NATS:  # as |phi(t)| <= exp(-(1 - cos t) variance)
        points = min(points, int(np.ceil(M / (2.0 * np.pi) * np.arccos(1.0 - _NATS / variance))))
    circle = np.empty((6, points))
    cosine, sine, real, imaginary, back, aside = circle
    step, turn = 2.0 * np.pi / M, 2.0 * np.pi * (n % M) / M
    less, ahead = 2.0 * np.sin(0.5 * step) ** 2, np.sin(step)
    less_back, ahead_back = 2.0 * np.sin(0.5 * turn) ** 2, -np.sin(turn)
    x, y, u, v = 1.0, 0.0, 2.0 / M, 0.0
    for m in range(points):  # each turned on from the one before
        cosine[m], sine[m], back[m], aside[m] = x, y, u, v
        x, y = x - (less * x + ahead * y), y - (less * y - ahead * x)
        u, v = u - (less_back * u + ahead_back * v), v - (less_back * v - ahead_back * u)
    back[0] = 1.0 / M
    real[:], imaginary[:] = 1.0, 0.0
    most, bits = 1, 1
    for k in range(len(copies)):
        most = max(most, copies[k])
    while most >> bits:
        bits += 1
    for bit in range(bits - 1, -1, -1):  # all powers at once, by squaring
        if bit < bits - 1:
            for m in range(points):
                x, y = real[m], imaginary[m]
                real[m], imaginary[m] = x * x - y * y, 2.0 * x * y
        for k in range(len(yes)):
            if copies[k] >> bit & 1:
                for m in range(points):  # no point waits for another: in vectors
                    a, b = no[k] + yes[k] * cosine[m], yes[k] * sine[m]
                    x, y = real[m], imaginary[m]
                    real[m], imaginary[m] = x * a - y * b, x * b + y * a
    for m in range(points):
        x, y = real[m], imaginary[m]
        real[m], imaginary[m] = x * back[m] - y * aside[m], x * aside[m] + y * back[m]
    return circle


@inline_as_written
def probability(
    yes: FloatArray, no: FloatArray, copies: IntArray, n: int, variance: float
) -> float:
    """P(N = n); the mean of N is n, or near it."""
    return float(on_circle(yes, no, copies, n, variance)[2].sum())


@inline_as_written
def leave_one_out(
    yes: FloatArray, no: FloatArray, copies: IntArray, n: int, variance: float, ratio: FloatArray
) -> float:
    """P(N = n), and in `ratio` for each k P(N_-k = n - 1) / P(N_-k = n), clipped.

    The mean of N is n, or near it. Time 25 K. The errors are about 1e-13 of P(N = n).
    """
    circle = on_circle(yes, no, copies, n, variance)
    cosine, sine, real, imaginary = circle[0], circle[1], circle[2], circle[3]
    K = len(yes)
    at, below = np.zeros(K), np.zeros(K)
    for m in range(len(real)):
        c, s, x, y = cosine[m], sine[m], real[m], imaginary[m]
        u, v = x * c - y * s, x * s + y * c  # that of n - 1
        for k in range(K):
            a, b = no[k] + yes[k] * c, yes[k] * s
            scale = 1.0 / (a * a + b * b)
            at[k] += (x * a + y * b) * scale
            below[k] += (u * a + v * b) * scale
    for k in range(K):
        above, here = max(below[k], 0.0), max(at[k], 0.0)
        ratio[k] = MOST if above >= MOST * here else max(above / here, 1.0 / MOST)
    total = 0.0
    for m in range(len(real)):
        total += real[m]
    return total
