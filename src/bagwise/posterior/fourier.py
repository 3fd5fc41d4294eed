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
from bagwise.posterior._kernels import inline_as_written

_NATS = 34.0  # what is left out is below exp(-34) of the largest probability
_STEPS = 100  # of Newton and bisection
_NEAR = 1e-2  # of a count or a standard deviation: near enough to the mean


@inline_as_written
def tilted_odds(
    logits: FloatArray, copies: IntArray, n: float, yes: FloatArray, no: FloatArray
) -> float:
    """The shift x of the logits that makes the mean of N equal n, 0 < n < the number of them.

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
        return x
    low, high = -high - 40.0, -low + 40.0  # between them the mean rises from least to most
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
    return x


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
def tilted_shares(yes: FloatArray, no: FloatArray, copies: IntArray, n: int) -> float:
    """The factor x of all odds yes / no that makes the mean of N equal n; changes yes and no.

    Where that is out of reach, n being all there can be, x is as far as it goes.
    """
    log_x = 0.0
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
    return log_x


@inline_as_written
def leave_one_out(
    yes: FloatArray,
    no: FloatArray,
    copies: IntArray,
    n: int,
    below: FloatArray,
    at: FloatArray,
) -> float:
    """P(N = n), and for each k P(N_-k = n - 1) and P(N_-k = n); the mean of N is n, or near it.

    Time 25 K. The errors are about 1e-13 of P(N = n).
    """
    K = len(yes)
    variance = (copies * yes * no).sum()
    # By Bernstein's inequality, P(|N - n| >= M) < 2 exp(-M^2 / (2 variance + 2 M / 3)). M is odd,
    # so that no point is pi, where a factor can be 0.
    M = int(_NATS / 3.0 + np.sqrt((_NATS / 3.0) ** 2 + 2.0 * _NATS * variance)) + 3
    M += 1 - M % 2
    points = M // 2 + 1
    if 2.0 * variance > _NATS:  # as |phi(t)| <= exp(-(1 - cos t) variance)
        points = min(points, int(np.ceil(M / (2.0 * np.pi) * np.arccos(1.0 - _NATS / variance))))
    bits = 1
    while copies.max() >> bits:
        bits += 1
    cosine, sine = np.empty(points), np.empty(points)
    for m in range(points):
        cosine[m], sine[m] = np.cos(2.0 * np.pi * m / M), np.sin(2.0 * np.pi * m / M)
    real, imaginary = np.ones(points), np.zeros(points)
    for bit in range(bits - 1, -1, -1):  # all powers at once, by squaring
        if bit < bits - 1:
            for m in range(points):
                x, y = real[m], imaginary[m]
                real[m], imaginary[m] = x * x - y * y, 2.0 * x * y
        for k in range(K):
            if copies[k] >> bit & 1:
                for m in range(points):  # no point waits for another: in vectors
                    a, b = no[k] + yes[k] * cosine[m], yes[k] * sine[m]
                    x, y = real[m], imaginary[m]
                    real[m], imaginary[m] = x * a - y * b, x * b + y * a
    below[:] = 0.0
    at[:] = 0.0
    whole = 0.0
    turn, back = np.cos(2.0 * np.pi * (n % M) / M), np.sin(2.0 * np.pi * (n % M) / M)
    turned, turned_back = 1.0, 0.0  # the cosine and sine of m n, times 2 pi / M
    for m in range(points):
        share = (1.0 if m == 0 else 2.0) / M  # both halves of the circle
        x = share * (real[m] * turned + imaginary[m] * turned_back)
        y = share * (imaginary[m] * turned - real[m] * turned_back)
        turned, turned_back = (
            turned * turn - turned_back * back,
            turned * back + turned_back * turn,
        )
        whole += x
        u, v = x * cosine[m] - y * sine[m], x * sine[m] + y * cosine[m]  # that of n - 1
        for k in range(K):
            a, b = no[k] + yes[k] * cosine[m], yes[k] * sine[m]
            scale = 1.0 / (a * a + b * b)
            at[k] += (x * a + y * b) * scale
            below[k] += (u * a + v * b) * scale
    return whole
