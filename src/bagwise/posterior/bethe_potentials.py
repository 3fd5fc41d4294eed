"""The bethe engine for bags with potentials: a factor weighs a window of counts, not one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._balance import balance, column_sum
from bagwise.posterior._bethe import MOST, add_gap, beliefs, odds, totals
from bagwise.posterior._flow import possible_classes
from bagwise.posterior._kernels import inline, kernel
from bagwise.posterior._windows import cut_windows, joined_windows, tilt_potentials
from bagwise.posterior.poisson_binomial import window_moments, window_ratios

_LARGEST = 1e8  # variance of a factor that says nothing
_LOSS = 1e-9  # largest share of P(S|X) that cutting windows may lose, by the value found


@kernel
def bethe_with_potentials(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    correction: bool,
    tolerance: float,
    max_iterations: int,
    log_g: FloatArray,
    slope: FloatArray,
    log_likelihood: FloatArray,
    weights: FloatArray,
    converged: npt.NDArray[np.bool_],
    balanced: npt.NDArray[np.bool_],
) -> None:
    """As `_bethe`, for bags whose potentials over counts begin at `low`."""
    C = low.shape[1]
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        windows = begins[bag * C : (bag + 1) * C + 1]
        classes = possible_classes(low[bag], windows)
        K, A, m = offsets[bag + 1] - offsets[bag], len(classes), copies[rows]
        p = np.empty((K, A))
        whole_f = np.empty(windows[C] - windows[0])
        variance = np.empty(A)
        offset = tilt_potentials(
            log_probs[rows], low[bag], windows, log_f, classes, m, p, whole_f, variance
        )
        whole_low = low[bag][classes]
        whole = (windows[1:] - windows[:-1])[classes]
        bottom = np.empty(A, np.int64)
        widths = np.empty(A, np.int64)
        f = np.empty_like(whole_f)
        lost = cut_windows(p, m, variance, whole_low, whole, whole_f, bottom, widths, f)
        messages = np.ones((K, A))
        if A == 2:  # one factor is enough, and exact
            begin, joined = joined_windows(K, whole_low, whole, whole_f)
            window_ratios(p[:, 0].copy(), p[:, 1].copy(), begin, joined, MOST, messages[:, 0])
            total, _ = window_moments(p[:, 0].copy(), p[:, 1].copy(), begin, joined)
            log_likelihood[bag] = offset + np.log(total)
            write_weights(beliefs(p, messages), offsets[bag], classes, weights)
            continue
        width_of = np.empty(A)
        converged[bag] = _propagate(p, bottom, widths, f, messages, tolerance, max_iterations)
        value = _value(p, bottom, widths, f, messages, width_of)
        if lost > 0.0 and not np.log(lost) < np.log(_LOSS) + value:
            bottom, widths, f = whole_low, whole, whole_f
            messages[:] = 1.0
            converged[bag] = _propagate(p, bottom, widths, f, messages, tolerance, max_iterations)
            value = _value(p, bottom, widths, f, messages, width_of)
        log_likelihood[bag] = offset + value
        if correction:
            w = beliefs(p, messages)
            log_likelihood[bag] += add_gap(w, m, width_of, A, log_g, slope, p)
            again = _propagate(p, bottom, widths, f, messages, tolerance, max_iterations)
            converged[bag] = converged[bag] and again
        p = beliefs(p, messages)
        if (whole == 1).any():
            balanced[bag] = balance(p, targets_of(p, m, whole_low, whole), m)
        write_weights(p, offsets[bag], classes, weights)


@inline
def write_weights(p: FloatArray, begin: int, classes: IntArray, weights: FloatArray) -> None:
    """Put a bag's weights (K, A) into their rows, from `begin` on, and columns."""
    for k in range(len(p)):
        for c in range(weights.shape[1]):
            weights[begin + k, c] = 0.0
        for a in range(len(classes)):
            weights[begin + k, classes[a]] = p[k, a]


@inline
def _propagate(
    p: FloatArray,
    low: IntArray,
    widths: IntArray,
    f: FloatArray,
    messages: FloatArray,
    tolerance: float,
    max_iterations: int,
) -> bool:
    """Iterate the messages of the classes, one class after the other, until beliefs stand still."""
    K, A = p.shape
    total = np.empty(K)  # sum over classes of p * message
    rest = np.empty(K)  # the same without the class at hand
    yes = np.empty(K)
    no = np.empty(K)
    ratio = np.empty(K)
    for _ in range(max_iterations):
        change = 0.0
        totals(p, messages, total)
        begin = 0
        for a in range(A):
            odds(p, messages, total, a, rest, yes, no)
            window_ratios(yes, no, low[a], f[begin : begin + widths[a]], MOST, ratio)
            begin += widths[a]
            for k in range(K):
                before = p[k, a] * messages[k, a] / (rest[k] + p[k, a] * messages[k, a])
                messages[k, a] = ratio[k]
                total[k] = rest[k] + p[k, a] * ratio[k]
                change = max(change, abs(p[k, a] * ratio[k] / total[k] - before))
        if change < tolerance:
            return True
    return False


@inline
def _value(
    p: FloatArray,
    low: IntArray,
    widths: IntArray,
    f: FloatArray,
    messages: FloatArray,
    effective: FloatArray,
) -> float:
    """log of prod_c Z_c / prod_k Z_k^(C - 1), Z_c = sum_m P(N_c = m) f_c(m).

    `effective` (A,) gets the variance of the normal factor that narrows the count as f_c does: if
    its variance is v by the instances alone and u with f_c, then u v / (v - u).
    """
    K, A = p.shape
    total = np.empty(K)
    rest = np.empty(K)
    yes = np.empty(K)
    no = np.empty(K)
    totals(p, messages, total)
    value = 0.0
    for k in range(K):
        value -= (A - 1) * np.log(total[k])
    begin = 0
    for a in range(A):
        odds(p, messages, total, a, rest, yes, no)
        total_a, narrowed = window_moments(yes, no, low[a], f[begin : begin + widths[a]])
        spread = (yes * no).sum()
        effective[a] = _LARGEST
        if narrowed < spread:
            effective[a] = min(narrowed * spread / (spread - narrowed), _LARGEST)
        value += np.log(total_a)
        begin += widths[a]
        for k in range(K):
            value += np.log(p[k, a] + rest[k])
    return value


@inline
def targets_of(w: FloatArray, copies: IntArray, low: IntArray, widths: IntArray) -> FloatArray:
    """What columns should sum to: the count where only one is possible, else about what they do."""
    A = len(low)
    n = np.empty(A)
    fixed, free = 0.0, 0.0
    for a in range(A):
        n[a] = column_sum(w, a, copies)
        if widths[a] == 1:
            n[a] = low[a]
            fixed += n[a]
        else:
            free += n[a]
    for a in range(A):
        if widths[a] > 1:
            n[a] *= (copies.sum() - fixed) / free
    return n
