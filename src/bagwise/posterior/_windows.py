"""Bags with potentials: their tilt, and the windows of counts that matter.

Multiplying class c of every instance by x_c and its potential f_c(m) by x_c^-m changes no
labeling's weight. With the factors that minimize the convex

    Phi(log x) = sum_k log sum_c p[k, c] x_c + sum_c log sum_m f_c(m) x_c^-m   (>= log P(S|X))

the expected counts of the instances are those of the potentials: both sides then have their mass in
the same place, far from underflow. For sharp counts that is the tilt of `_tilt`.
"""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._balance import covariance, solve
from bagwise.posterior._flow import class_potentials
from bagwise.posterior._kernels import LARGE, inline

_NEWTON_STEPS = 60
_LONGEST = 4.0  # Newton step of a logarithm
_CLOSE = 0.05  # of expected counts
_CUT = 1e-18  # share of P(S|X) that a count carries if it is cut, roughly


@inline
def tilt_potentials(
    log_probs: FloatArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    classes: IntArray,
    copies: IntArray,
    tilted: FloatArray,
    f: FloatArray,
    variance: FloatArray,
) -> float:
    """Tilt a bag's probabilities and potentials; `copies` (K,) are the rows' weights.

    Fills `tilted` (K, A), rows summing to 1, `f`, windows one after the other, each with a largest
    value of 1, and `variance` (A,) of a count with probabilities f. Returns log P(S|X) - log P(S)
    of what was tilted.
    """
    log_x = np.zeros(len(classes))
    error = _newton(log_probs, low, begins, log_f, classes, copies, log_x, tilted, f, variance)
    if error > _CLOSE and copies.sum() <= LARGE:
        # Far from 0 Newton's steps are too short: begin where the best labeling is.
        other = np.zeros(len(classes))
        class_potentials(log_probs, low, begins, log_f, classes, copies, other)
        again = _newton(log_probs, low, begins, log_f, classes, copies, other, tilted, f, variance)
        if again < error:
            log_x[:] = other
    column = np.empty(len(classes))
    mean = np.empty(len(classes))
    offset = _phi(
        log_probs, low, begins, log_f, classes, copies, log_x, tilted, f, column, mean, variance
    )
    place = 0
    for a in range(len(classes)):
        width = begins[classes[a] + 1] - begins[classes[a]]
        offset -= np.log(f[place : place + width].sum())
        place += width
    return offset


@inline
def _newton(
    log_probs: FloatArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    classes: IntArray,
    copies: IntArray,
    log_x: FloatArray,
    tilted: FloatArray,
    f: FloatArray,
    variance: FloatArray,
) -> float:
    """Minimize Phi from `log_x` on, in place; returns the largest error of an expected count."""
    A = len(classes)
    column = np.empty(A)
    mean = np.empty(A)
    step = np.empty(A)
    trial = np.empty(A)
    value = _phi(
        log_probs, low, begins, log_f, classes, copies, log_x, tilted, f, column, mean, variance
    )
    error = np.abs(column - mean).max()
    for _ in range(_NEWTON_STEPS):
        if error < _CLOSE:
            break
        hessian = covariance(tilted, copies)
        for a in range(A):
            step[a] = column[a] - mean[a]
            hessian[a, a] += variance[a] + 1e-9 * (mean[a] + abs(step[a])) + 1e-12
        slope = step.copy()
        solve(hessian, step)
        longest = np.abs(step).max()
        scale = min(1.0, _LONGEST / longest)
        promised = (slope * step).sum()
        better = False
        for _ in range(40):
            for a in range(A):
                trial[a] = log_x[a] - scale * step[a]
            found = _phi(
                log_probs,
                low,
                begins,
                log_f,
                classes,
                copies,
                trial,
                tilted,
                f,
                column,
                mean,
                variance,
            )
            if found <= value - 1e-4 * scale * promised:
                better = True
                break
            scale *= 0.5
        if not better:
            break
        value = found
        log_x[:] = trial
        error = np.abs(column - mean).max()
    return float(error)


@inline
def _phi(
    log_probs: FloatArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    classes: IntArray,
    copies: IntArray,
    log_x: FloatArray,
    tilted: FloatArray,
    f: FloatArray,
    column: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
) -> float:
    """Phi, and its parts: tilted rows, their column sums, tilted potentials and their moments."""
    K, A = tilted.shape
    column[:] = 0.0
    value = 0.0
    for k in range(K):
        total = _log_row(log_probs[k], classes, log_x)
        value += copies[k] * total
        for a in range(A):
            tilted[k, a] = np.exp(log_probs[k, classes[a]] + log_x[a] - total)
            column[a] += copies[k] * tilted[k, a]
    place = 0
    for a in range(A):
        c = classes[a]
        width = begins[c + 1] - begins[c]
        top = -np.inf
        for i in range(width):
            f[place + i] = log_f[begins[c] + i] - log_x[a] * (low[c] + i)
            top = max(top, f[place + i])
        total = 0.0
        first = 0.0
        for i in range(width):
            f[place + i] = np.exp(f[place + i] - top)
            total += f[place + i]
            first += f[place + i] * i
        first /= total
        second = 0.0
        for i in range(width):
            second += f[place + i] * (i - first) ** 2
        mean[a] = low[c] + first
        variance[a] = second / total
        value += top + np.log(total)
        place += width
    return value


@inline
def _log_row(log_p: FloatArray, classes: IntArray, log_x: FloatArray) -> float:
    """log sum_c p[c] x_c of an instance."""
    top = -np.inf
    for a in range(len(classes)):
        top = max(top, log_p[classes[a]] + log_x[a])
    total = 0.0
    for a in range(len(classes)):
        total += np.exp(log_p[classes[a]] + log_x[a] - top)
    return float(top + np.log(total))


@inline
def cut_windows(
    tilted: FloatArray,
    copies: IntArray,
    variance: FloatArray,
    low: IntArray,
    widths: IntArray,
    f: FloatArray,
    new_low: IntArray,
    new_widths: IntArray,
    new_f: FloatArray,
) -> float:
    """Leave out counts at the ends of the windows that carry no mass; returns a bound of the loss.

    Given tilted probabilities, class a has m instances with a probability of at most (Bernstein)

        exp(-t^2 / (2 (v + t / 3))),     t = |m - mean|, v the variance of the count

    and no labeling with m has a potential above f_a(m), the others being at most 1. So leaving out
    m takes at most the product of both from P(S).
    """
    K, A = tilted.shape
    likely = 1.0
    spread = np.zeros(A)
    mean = np.zeros(A)
    for k in range(K):
        for a in range(A):
            mean[a] += copies[k] * tilted[k, a]
            spread[a] += copies[k] * tilted[k, a] * (1.0 - tilted[k, a])
    for a in range(A):
        likely *= np.sqrt((variance[a] + 0.1) / (variance[a] + spread[a] + 0.1))
    lost = 0.0
    place = 0
    kept = 0
    for a in range(A):
        begin, end, best = widths[a], -1, 0
        largest = -1.0
        for i in range(widths[a]):
            mass = f[place + i] * _bernstein(low[a] + i - mean[a], spread[a])
            if mass > largest:
                largest, best = mass, i
            if mass >= _CUT * likely:
                begin, end = min(begin, i), i
        if end < 0:
            begin = end = best
        for i in range(widths[a]):
            if begin <= i <= end:
                new_f[kept] = f[place + i]
                kept += 1
            else:
                lost += f[place + i] * _bernstein(low[a] + i - mean[a], spread[a])
        new_low[a] = low[a] + begin
        new_widths[a] = end - begin + 1
        place += widths[a]
    return lost


@inline
def joined_windows(
    K: int, low: IntArray, widths: IntArray, f: FloatArray
) -> tuple[int, FloatArray]:
    """Of two classes, what is known of both as a potential of the first: f_0(m) f_1(K - m)."""
    begin = max(low[0], K - (low[1] + widths[1] - 1))
    end = min(low[0] + widths[0] - 1, K - low[1])
    joined = np.empty(end - begin + 1)
    for m in range(begin, end + 1):
        joined[m - begin] = f[m - low[0]] * f[widths[0] + K - m - low[1]]
    return begin, joined


@inline
def _bernstein(t: float, spread: float) -> float:
    if t == 0.0:
        return 1.0
    return float(np.exp(-0.5 * t * t / (spread + abs(t) / 3.0)))
