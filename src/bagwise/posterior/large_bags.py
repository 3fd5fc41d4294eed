"""The bethe engine for large bags: messages from characteristic functions or normal counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._balance import balance
from bagwise.posterior._bethe import MOST, add_gap, beliefs, odds, totals
from bagwise.posterior._flow import possible_classes
from bagwise.posterior._kernels import LARGE, inline, kernel
from bagwise.posterior._windows import cut_windows, joined_windows, tilt_potentials
from bagwise.posterior.bethe_potentials import targets_of, write_weights
from bagwise.posterior.fourier import leave_one_out, probability, tilted_shares

_NORMAL = 100.0  # variance from which a count is taken as normal
_POINTS = 33  # probabilities of an instance for which its message is computed; others in between
_LARGEST = 1e8  # variance of a factor that says nothing
_LOSS = 1e-9  # largest share of P(S|X) that cutting windows may lose in bags that are not large


@kernel
def bethe_of_large_bags(
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
    """As `bethe_with_potentials`, in time K C^2 rather than K^2 C; also for weighted rows.

    Where a count is known exactly, its messages are those of `leave_one_out`. Where it is not, and
    the variance of N_-k is above 100, it is taken as normal. What that misses of its shape is
    nearly the same for all instances, so that it changes the class's factor rather than the
    weights. A count that varies less has its mass in a narrow band, computed exactly, and so does
    any count of a bag that is here for its weights and not for its size.
    """
    C = low.shape[1]
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        windows = begins[bag * C : (bag + 1) * C + 1]
        classes = possible_classes(low[bag], windows)
        K, A, m = offsets[bag + 1] - offsets[bag], len(classes), copies[rows]
        total = m.sum()
        normal = _NORMAL if total > LARGE else np.inf
        p = np.empty((K, A))
        whole_f = np.empty(windows[C] - windows[0])
        variance = np.empty(A)
        log_likelihood[bag] = tilt_potentials(
            log_probs[rows], low[bag], windows, log_f, classes, m, p, whole_f, variance
        )
        whole_low = low[bag][classes]
        whole = (windows[1:] - windows[:-1])[classes]
        bottom = np.empty(A, np.int64)
        widths = np.empty(A, np.int64)
        f = np.empty_like(whole_f)
        lost = cut_windows(p, m, variance, whole_low, whole, whole_f, bottom, widths, f)
        messages = np.ones((K, A))
        if A == 2:  # one factor is enough
            if total <= LARGE:
                bottom, widths, f = whole_low, whole, whole_f
            begin, joined = joined_windows(total, bottom, widths, f)
            yes, no = p[:, 0].copy(), p[:, 1].copy()
            log_likelihood[bag] += _log_total(yes, no, m, normal, begin, joined)[0]
            _ratios(yes, no, m, normal, begin, joined, messages[:, 0])
            p = beliefs(p, messages)
        elif A > 2:
            effective = np.empty(A)
            how = (m, normal, tolerance, max_iterations)
            converged[bag] = _propagate(p, bottom, widths, f, messages, how)
            value = _value(p, bottom, widths, f, messages, m, normal, effective)
            if total <= LARGE and lost > 0.0 and not np.log(lost) < np.log(_LOSS) + value:
                bottom, widths, f = whole_low, whole, whole_f
                messages[:] = 1.0
                converged[bag] = _propagate(p, bottom, widths, f, messages, how)
                value = _value(p, bottom, widths, f, messages, m, normal, effective)
            log_likelihood[bag] += value
            if correction:
                w = beliefs(p, messages)
                log_likelihood[bag] += add_gap(w, m, effective, A, log_g, slope, p)
                again = _propagate(p, bottom, widths, f, messages, how)
                converged[bag] = converged[bag] and again
            p = beliefs(p, messages)
        if A > 1 and (whole == 1).any():
            balanced[bag] = balance(p, targets_of(p, m, whole_low, whole), m)
        write_weights(p, offsets[bag], classes, weights)


@inline
def _propagate(
    p: FloatArray,
    low: IntArray,
    widths: IntArray,
    f: FloatArray,
    messages: FloatArray,
    how: tuple[IntArray, float, float, int],
) -> bool:
    """Iterate the messages of the classes, one class after the other, until beliefs stand still."""
    copies, normal, tolerance, max_iterations = how
    K, A = p.shape
    total = np.empty(K)
    rest = np.empty(K)
    yes = np.empty(K)
    no = np.empty(K)
    ratio = np.empty(K)
    for _ in range(max_iterations):
        change = 0.0
        totals(p, messages, total)
        begin = 0
        for a in range(A):
            odds(p, messages, total, a, rest, yes, no)
            _ratios(yes, no, copies, normal, low[a], f[begin : begin + widths[a]], ratio)
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
    copies: IntArray,
    normal: float,
    effective: FloatArray,
) -> float:
    """As that of `bethe_potentials`."""
    K, A = p.shape
    total = np.empty(K)
    rest = np.empty(K)
    yes = np.empty(K)
    no = np.empty(K)
    totals(p, messages, total)
    value = 0.0
    for k in range(K):
        value -= copies[k] * (A - 1) * np.log(total[k])
    begin = 0
    for a in range(A):
        odds(p, messages, total, a, rest, yes, no)
        window = f[begin : begin + widths[a]]
        begin += widths[a]
        spread = (copies * yes * no).sum()
        log_total, narrowed = _log_total(yes, no, copies, normal, low[a], window)
        effective[a] = _LARGEST
        if narrowed < spread:
            effective[a] = min(narrowed * spread / (spread - narrowed), _LARGEST)
        value += log_total
        for k in range(K):
            value += copies[k] * np.log(p[k, a] + rest[k])
    return float(value)


@inline
def _log_total(
    yes: FloatArray, no: FloatArray, copies: IntArray, normal: float, low: int, f: FloatArray
) -> tuple[float, float]:
    """log of sum_m P(N = m) f(m), and the variance of m under these weights.

    From a variance of `normal` on, N is taken as normal.
    """
    if len(f) == 1 and 0 < low < copies.sum():
        return _log_probability(yes, no, copies, low) + np.log(f[0]), 0.0
    spread = (copies * yes * no).sum()
    if spread >= normal:
        return _normal((copies * yes).sum(), spread, low, f)
    first, band = _band(yes, no, copies)
    return _moments(first, band, low, f)


@inline
def _ratios(
    yes: FloatArray,
    no: FloatArray,
    copies: IntArray,
    normal: float,
    low: int,
    f: FloatArray,
    ratio: FloatArray,
) -> None:
    """ratio[k] = sum_m P(N_-k = m) f(m + 1) / sum_m P(N_-k = m) f(m), clipped."""
    if len(f) == 1 and 0 < low < copies.sum():
        _sharp_ratios(yes, no, copies, low, ratio)
        return
    spread = (copies * yes * no).sum()
    if spread < normal:
        _band_ratios(yes, no, copies, low, f, ratio)
        return
    mean = (copies * yes).sum()
    table = np.empty(_POINTS)  # of the logarithm, by the instance's own probability
    for i in range(_POINTS):
        own = i / (_POINTS - 1)
        left = spread - own * (1.0 - own)
        above, _ = _normal(mean - own + 1.0, left, low, f)
        here, _ = _normal(mean - own, left, low, f)
        table[i] = min(max(above - here, -np.log(MOST)), np.log(MOST))
    for k in range(len(yes)):
        place = yes[k] * (_POINTS - 1)
        i = min(int(place), _POINTS - 2)
        ratio[k] = np.exp(table[i] + (place - i) * (table[i + 1] - table[i]))


@inline
def _log_probability(yes: FloatArray, no: FloatArray, copies: IntArray, n: int) -> float:
    """log P(N = n)."""
    tilted_yes, tilted_no = yes.copy(), no.copy()
    log_x, variance = tilted_shares(tilted_yes, tilted_no, copies, n)
    x = np.exp(log_x)
    value: float = np.log(probability(tilted_yes, tilted_no, copies, n, variance)) - n * log_x
    for k in range(len(yes)):
        value += copies[k] * np.log(yes[k] * x + no[k])
    return float(value)


@inline
def _sharp_ratios(
    yes: FloatArray, no: FloatArray, copies: IntArray, n: int, ratio: FloatArray
) -> None:
    """ratio[k] = P(N_-k = n - 1) / P(N_-k = n), clipped; changes yes and no."""
    log_x, variance = tilted_shares(yes, no, copies, n)
    leave_one_out(yes, no, copies, n, variance, ratio)
    if log_x != 0.0:
        x = np.exp(log_x)
        for k in range(len(ratio)):
            ratio[k] = min(max(x * ratio[k], 1.0 / MOST), MOST)


@inline
def _normal(mean: float, variance: float, low: int, f: FloatArray) -> tuple[float, float]:
    """log of sum_m N(m; mean, variance) f(m), and the variance of m under these weights."""
    top = -np.inf
    for i in range(len(f)):
        if f[i] > 0.0:
            top = max(top, np.log(f[i]) - 0.5 * (low + i - mean) ** 2 / variance)
    total, first, second = 0.0, 0.0, 0.0
    for i in range(len(f)):
        if f[i] > 0.0:
            share = np.exp(np.log(f[i]) - 0.5 * (low + i - mean) ** 2 / variance - top)
            total += share
            first += share * i
            second += share * i * i
    narrowed = max(second / total - (first / total) ** 2, 0.0)
    return top + np.log(total) - 0.5 * np.log(2.0 * np.pi * variance), narrowed


@inline
def _band(yes: FloatArray, no: FloatArray, copies: IntArray) -> tuple[int, FloatArray]:
    """P(N = first), P(N = first + 1), ...: where the sum of all variables has its mass.

    A window moves with the mean of the sums so far, whose variance is no larger than the last.
    """
    reach = int(12.0 * np.sqrt((copies * yes * no).sum())) + 40
    band = np.zeros(2 * reach + 1)
    band[reach] = 1.0
    first = -reach
    mean = 0.0
    for k in range(len(yes)):
        for _ in range(copies[k]):
            for i in range(2 * reach, 0, -1):
                band[i] = band[i] * no[k] + band[i - 1] * yes[k]
            band[0] *= no[k]
            mean += yes[k]
            if mean - first > reach + 1.0:
                for i in range(2 * reach):
                    band[i] = band[i + 1]
                band[2 * reach] = 0.0
                first += 1
    return first, band


@inline
def _moments(first: int, band: FloatArray, low: int, f: FloatArray) -> tuple[float, float]:
    """log of sum_m P(N = m) f(m), and the variance of m under these weights."""
    total, mean, square = 0.0, 0.0, 0.0
    for i in range(len(f)):
        place = low + i - first
        if 0 <= place < len(band):
            mass = band[place] * f[i]
            total += mass
            mean += mass * i
            square += mass * i * i
    total = max(total, 1e-300)
    return np.log(total), max(square / total - (mean / total) ** 2, 0.0)


@inline
def _band_ratios(
    yes: FloatArray, no: FloatArray, copies: IntArray, low: int, f: FloatArray, ratio: FloatArray
) -> None:
    """The ratios of a count in a narrow band: an instance is divided out of it.

    From the side on which errors shrink: from below if it is rather not of the class, else from
    above.
    """
    first, band = _band(yes, no, copies)
    width = len(band)
    without = np.empty(width)
    for k in range(len(yes)):
        if yes[k] <= 0.5:
            last = 0.0
            for i in range(width):
                last = max((band[i] - yes[k] * last) / no[k], 0.0)
                without[i] = last
        else:
            last = 0.0
            for i in range(width - 1, 0, -1):
                last = max((band[i] - no[k] * last) / yes[k], 0.0)
                without[i - 1] = last
            without[width - 1] = 0.0
        here, above = 0.0, 0.0
        for i in range(len(f)):
            place = low + i - first
            if 0 <= place < width:
                here += without[place] * f[i]
            if 1 <= place <= width:
                above += without[place - 1] * f[i]
        ratio[k] = MOST if above >= MOST * here else max(above / here, 1.0 / MOST)
