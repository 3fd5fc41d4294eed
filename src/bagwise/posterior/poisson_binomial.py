"""The Poisson-binomial distribution: sums of independent yes/no variables, also all but one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._kernels import inline, kernel, over_bags

_LEAST = 1e-7  # of what it is the rest of: a smaller probability has lost too many digits
_FEW = 3  # variables that are left out one by one; for more a tree is faster


@inline
def cardinality_ratios(
    yes: FloatArray, no: FloatArray, n: int, most: float, ratio: FloatArray
) -> None:
    """ratio[k] = P(N_-k = n - 1) / P(N_-k = n), clipped to [1 / most, most].

    N counts the ones among independent variables that are one with odds yes[k] : no[k], and N_-k
    leaves variable k out. n is at least 1.

    Each variable is divided out of the distribution of N, in time K n. Where rounding would show,
    that of the others is computed, or if that happens often, a tree over the variables.
    """
    if n == 1:
        _single_ratios(yes, no, most, ratio)
        return
    rough = _divided_ratios(yes, no, n, ratio)
    if rough > _FEW:
        both = yes + no
        _tree_ratios(yes / both, no / both, n, most, ratio)
    elif rough > 0:
        for k in range(len(yes)):
            if ratio[k] < 0.0:
                ratio[k] = _ratio_of_others(yes, no, n, k)
    for k in range(len(yes)):
        ratio[k] = min(max(ratio[k], 1.0 / most), most)


@inline
def _ratio_of_others(yes: FloatArray, no: FloatArray, n: int, left_out: int) -> float:
    """The ratio of one variable, from the distribution of the others."""
    found = np.zeros(n + 1)
    found[0] = 1.0
    for k in range(len(yes)):
        if k != left_out:
            one, zero = yes[k] / (yes[k] + no[k]), no[k] / (yes[k] + no[k])
            for m in range(n, 0, -1):
                found[m] = found[m] * zero + found[m - 1] * one
            found[0] *= zero
    return float(found[n - 1] / found[n]) if found[n] > 0.0 else np.inf


@inline
def _single_ratios(yes: FloatArray, no: FloatArray, most: float, ratio: FloatArray) -> None:
    """The ratios for n = 1: one over the sum of the others' odds."""
    total, likeliest = 0.0, 0.0
    for k in range(len(yes)):
        ratio[k] = yes[k] / no[k]
        total += ratio[k]
        likeliest = max(likeliest, ratio[k])
    if 2.0 * likeliest < total:
        for k in range(len(yes)):
            ratio[k] = 1.0 / (total - ratio[k])
    else:  # of the likeliest, most digits could cancel
        for k in range(len(yes)):
            others = total - ratio[k]
            if 2.0 * ratio[k] >= total:
                others = 0.0
                for j in range(len(yes)):
                    others += 0.0 if j == k else yes[j] / no[j]
            ratio[k] = 1.0 / others
    for k in range(len(yes)):
        ratio[k] = min(max(ratio[k], 1.0 / most), most)


@inline
def _divided_ratios(yes: FloatArray, no: FloatArray, n: int, ratio: FloatArray) -> int:
    """The ratios, each variable divided out of the distribution of N; returns how many are too
    rough, which are -1.

    All distributions are relative to the probability of every variable's likelier value. With q
    the one without k, and odds o of k's less likely value, that of N is q(m) + o q(m - 1) if k is
    rather no, and o q(m) + q(m - 1) if it is rather yes. Solved from below in the one case, from
    above in the other, errors shrink from step to step: with plus in place of minus, the recursion
    gives a bound of them. Those from above are few, so their own sum is kept apart; how the others
    add up to it is known to n only.
    """
    K = len(yes)
    likely = np.empty(K, np.int64)
    odds = np.empty(K)
    h = 0
    cold = np.zeros(n + 1)
    cold[0] = 1.0
    for k in range(K):
        if yes[k] > no[k]:
            likely[h] = k
            h += 1
            odds[k] = 0.0
            continue
        odds[k] = yes[k] / no[k]
        for m in range(n, 0, -1):
            cold[m] += cold[m - 1] * odds[k]
    hot = np.zeros(h + 1)
    hot[0] = 1.0
    for i in range(h):
        odds_i = no[likely[i]] / yes[likely[i]]
        for m in range(i + 1, 0, -1):
            hot[m] = hot[m] * odds_i + hot[m - 1]
        hot[0] *= odds_i
    whole = np.zeros(n + 1)
    for j in range(min(h, n) + 1):
        for m in range(j, n + 1):
            whole[m] += hot[j] * cold[m - j]

    at, error = np.full(K, whole[0]), np.full(K, whole[0])
    for m in range(1, n):
        for k in range(K):
            at[k] = whole[m] - odds[k] * at[k]
            error[k] = whole[m] + odds[k] * error[k]
    below, below_error = at.copy(), error.copy()
    for k in range(K):
        at[k] = whole[n] - odds[k] * at[k]
        error[k] = whole[n] + odds[k] * error[k]
    for i in range(h):
        k = likely[i]
        odds_i, last, last_error = no[k] / yes[k], 0.0, 0.0
        at[k], below[k], error[k], below_error[k] = 0.0, 0.0, 0.0, 0.0
        for j in range(h - 1, -1, -1):
            last = hot[j + 1] - odds_i * last
            last_error = hot[j + 1] + odds_i * last_error
            if j <= n:
                at[k] += last * cold[n - j]
                error[k] += last_error * cold[n - j]
            if j < n:
                below[k] += last * cold[n - 1 - j]
                below_error[k] += last_error * cold[n - 1 - j]
    rough = 0
    for k in range(K):
        ratio[k] = below[k] / at[k]
        if not (at[k] > _LEAST * error[k] and below[k] > _LEAST * below_error[k]):
            ratio[k] = -1.0
            rough += 1
    return rough


@inline
def _tree_ratios(yes: FloatArray, no: FloatArray, n: int, most: float, ratio: FloatArray) -> None:
    """The ratios with all their digits, however small the probabilities.

    A binary tree over the variables: a node holds the distribution of the sum of the variables
    outside it, made from its parent's by adding its sibling's variables one by one. The leaf of k
    then holds that of N_-k. Nothing is subtracted, so small probabilities are as accurate as large
    ones. A node of m variables needs the entries n - m .. n only: time K n log(K / n), memory
    n log K.
    """
    K = len(yes)
    depth = 2
    while 1 << (depth - 2) < K:
        depth += 1
    outside = np.zeros((depth, n + 1))
    outside[0, 0] = 1.0
    begins = np.empty(2 * depth, np.int64)  # the nodes still to visit
    ends = np.empty(2 * depth, np.int64)
    levels = np.empty(2 * depth, np.int64)
    added_begins = np.empty(2 * depth, np.int64)  # and their siblings
    added_ends = np.empty(2 * depth, np.int64)
    begins[0], ends[0], levels[0], added_begins[0], added_ends[0] = 0, K, 0, 0, 0
    waiting = 1
    while waiting > 0:
        waiting -= 1
        begin, end, level = begins[waiting], ends[waiting], levels[waiting]
        lowest = max(0, n - (end - begin))
        if level > 0:
            added_begin, added_end = added_begins[waiting], added_ends[waiting]
            first = max(0, lowest - (added_end - added_begin))
            for m in range(first, n + 1):
                outside[level, m] = outside[level - 1, m]
            for k in range(added_begin, added_end):
                for m in range(n, first, -1):
                    outside[level, m] = outside[level, m] * no[k] + outside[level, m - 1] * yes[k]
                if first == 0:
                    outside[level, 0] *= no[k]
                else:
                    first += 1
        if end - begin == 1:
            below, at = outside[level, n - 1], outside[level, n]
            ratio[begin] = most if below >= most * at else max(below / at, 1.0 / most)
            continue
        middle = (begin + end) // 2
        for left in (False, True):
            begins[waiting] = begin if left else middle
            ends[waiting] = middle if left else end
            added_begins[waiting] = middle if left else begin
            added_ends[waiting] = end if left else middle
            levels[waiting] = level + 1
            waiting += 1


@inline
def window_ratios(
    yes: FloatArray,
    no: FloatArray,
    low: int,
    f: FloatArray,
    most: float,
    ratio: FloatArray,
) -> None:
    """ratio[k] = sum_m P(N_-k = m) f(m + 1) / sum_m P(N_-k = m) f(m), clipped to [1 / most, most].

    N_-k as in `cardinality_ratios`; f(low), f(low + 1), ... are given, and f is 0 elsewhere. The
    same tree, seen from the other side: a node holds G(m) = E f(m + what the variables outside it
    add), made from its parent's by taking its sibling's variables in one by one. The leaf of k then
    holds G(0) and G(1). A node of s variables needs m = 0 .. s only: time K max m, at most 2 K^2.
    """
    K = len(yes)
    depth = 2
    while 1 << (depth - 2) < K:
        depth += 1
    G = np.zeros((depth, K + 1))
    for i in range(len(f)):
        G[0, low + i] = f[i]
    tops = np.empty(depth, np.int64)  # no entry of a level is above it
    tops[0] = low + len(f) - 1
    begins = np.empty(2 * depth, np.int64)  # the nodes still to visit
    ends = np.empty(2 * depth, np.int64)
    levels = np.empty(2 * depth, np.int64)
    added_begins = np.empty(2 * depth, np.int64)  # and their siblings
    added_ends = np.empty(2 * depth, np.int64)
    begins[0], ends[0], levels[0], added_begins[0], added_ends[0] = 0, K, 0, 0, 0
    waiting = 1
    while waiting > 0:
        waiting -= 1
        begin, end, level = begins[waiting], ends[waiting], levels[waiting]
        if level > 0:
            size = end - begin + added_ends[waiting] - added_begins[waiting]  # of the parent
            above, here = G[level - 1], G[level]
            top = min(tops[level - 1], size)
            for m in range(top + 1):
                here[m] = above[m]
            for m in range(top + 1, min(size + 1, K) + 1):
                here[m] = 0.0
            for k in range(added_begins[waiting], added_ends[waiting]):
                size -= 1
                for m in range(min(top, size) + 1):
                    here[m] = no[k] * here[m] + yes[k] * here[m + 1]
                top = min(top, size)
            tops[level] = top
        if end - begin == 1:
            without, with_it = G[level, 0], G[level, 1]
            ratio[begin] = most if with_it >= most * without else max(with_it / without, 1.0 / most)
            continue
        middle = (begin + end) // 2
        for left in (False, True):
            begins[waiting] = begin if left else middle
            ends[waiting] = middle if left else end
            added_begins[waiting] = middle if left else begin
            added_ends[waiting] = end if left else middle
            levels[waiting] = level + 1
            waiting += 1


@inline
def window_moments(yes: FloatArray, no: FloatArray, low: int, f: FloatArray) -> tuple[float, float]:
    """Z = sum_m P(N = m) f(m) for the same N and f, and the variance of m with probabilities
    P(N = m) f(m) / Z. Time K max m.
    """
    found = _probabilities_up_to(yes, no, low + len(f) - 1)
    total, mean, variance = 0.0, 0.0, 0.0
    for i in range(len(f)):
        total += found[low + i] * f[i]
        mean += found[low + i] * f[i] * i
    mean /= total
    for i in range(len(f)):
        variance += found[low + i] * f[i] * (i - mean) ** 2
    return total, variance / total


@inline
def cardinality_probability(yes: FloatArray, no: FloatArray, n: int) -> float:
    """P(N = n) for the same N. Time K * n."""
    return float(_probabilities_up_to(yes, no, n)[n])


@inline
def _probabilities_up_to(yes: FloatArray, no: FloatArray, n: int) -> FloatArray:
    """P(N = m) for m = 0 .. n."""
    found = np.zeros(n + 1)
    found[0] = 1.0
    for k in range(len(yes)):
        for m in range(min(n, k + 1), 0, -1):
            found[m] = found[m] * no[k] + found[m - 1] * yes[k]
        found[0] *= no[k]
    return found


def count_probabilities(
    log_probs: npt.NDArray[np.floating], bags: Bags
) -> tuple[FloatArray, FloatArray]:
    """P(N < n) and P(N = n), (B, C) each, of every count n of the bags under a model alone.

    N is the number of a bag's instances that are of the class, with probabilities exp(log_probs)
    (N, C), rows normalized.

    >>> below, at = count_probabilities(np.log([[.5, .5], [.5, .5]]), Bags([2], [[1, 1]]))
    >>> below, at
    (array([[0.25, 0.25]]), array([[0.5, 0.5]]))
    """
    below, at = np.empty(bags.counts.shape), np.empty(bags.counts.shape)
    log_p = np.ascontiguousarray(log_probs, dtype=np.float64)

    def run(part: IntArray) -> None:
        known = (bags.offsets, bags.copies, bags.counts)
        _count_probabilities(part, log_p, *known, below, at)

    over_bags(run, np.arange(len(bags)), 1.0 * bags.sizes**2)
    return below, at


@kernel
def _count_probabilities(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    below: FloatArray,
    at: FloatArray,
) -> None:
    for bag in index:
        for c in range(counts.shape[1]):
            n = counts[bag, c]
            found = np.zeros(n + 1)
            found[0] = 1.0
            for k in range(offsets[bag], offsets[bag + 1]):
                yes = np.exp(log_probs[k, c])
                for _ in range(copies[k]):
                    for m in range(n, 0, -1):
                        found[m] = found[m] * (1.0 - yes) + found[m - 1] * yes
                    found[0] *= 1.0 - yes
            below[bag, c] = 0.0
            for m in range(n):
                below[bag, c] += found[m]
            at[bag, c] = found[n]


def count_intervals(
    log_probs: npt.NDArray[np.floating], bags: Bags, level: float = 0.95
) -> tuple[IntArray, IntArray]:
    """The ends, (B, C) each, of the central interval of each count under a model alone.

    The low end is the least m with P(N <= m) >= (1 - level) / 2, the high end that with
    P(N <= m) >= (1 + level) / 2. `log_probs` are as in `count_probabilities`.

    >>> low, high = count_intervals(np.log(np.full((10, 2), 0.5)), Bags([10], [[4, 6]]))
    >>> low, high
    (array([[2, 2]]), array([[8, 8]]))
    """
    low, high = np.empty_like(bags.min_counts), np.empty_like(bags.min_counts)
    log_p = np.ascontiguousarray(log_probs, dtype=np.float64)

    def run(part: IntArray) -> None:
        _count_intervals(part, log_p, bags.offsets, bags.copies, (1 - level) / 2, low, high)

    over_bags(run, np.arange(len(bags)), 15.0 * bags.sizes**1.5 * bags.n_classes)
    return low, high


@kernel
def _count_intervals(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    tail: float,
    low: IntArray,
    high: IntArray,
) -> None:
    for bag in index:
        for c in range(log_probs.shape[1]):
            n_rows = 0
            for k in range(offsets[bag], offsets[bag + 1]):
                n_rows += copies[k]
            found = np.zeros(n_rows + 1)
            found[0] = 1.0
            first, last = 0, 0  # counts outside have next to no probability
            for k in range(offsets[bag], offsets[bag + 1]):
                yes = np.exp(log_probs[k, c])
                for _ in range(copies[k]):
                    last += 1
                    for m in range(last, first, -1):
                        found[m] = found[m] * (1.0 - yes) + found[m - 1] * yes
                    found[first] *= 1.0 - yes
                    while first < last and found[first] < 1e-15:
                        found[first] = 0.0
                        first += 1
                    while last > first and found[last] < 1e-15:
                        found[last] = 0.0
                        last -= 1
            total, below = 0.0, 0.0
            for m in range(first, last + 1):
                total += found[m]
            low[bag, c] = -1
            for m in range(first, last + 1):
                below += found[m] / total
                if low[bag, c] < 0 and below >= tail:
                    low[bag, c] = m
                high[bag, c] = m
                if below >= 1.0 - tail:
                    break
