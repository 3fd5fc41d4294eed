"""The most probable labeling of a bag with potentials, and class factors under which it is best.

Log-concave potentials make it a flow problem with convex costs: the (m + 1)-th instance of a class
costs log f(m) - log f(m + 1), which only grows. So instances can come one at a time.
"""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._kernels import inline
from bagwise.posterior._tilt import leads_to, most_along, move_along

_ROUNDING = 1e-12


@inline
def possible_classes(low: IntArray, begins: IntArray) -> IntArray:
    """Classes that can occur."""
    found = np.empty(len(low), np.int64)
    n_found = 0
    for c in range(len(low)):
        if low[c] + begins[c + 1] - begins[c] > 1:
            found[n_found] = c
            n_found += 1
    return found[:n_found].copy()


@inline
def assign_potentials(
    log_probs: FloatArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    classes: IntArray,
    copies: IntArray,
    placed: IntArray,
    filled: IntArray,
    moves: FloatArray,
) -> bool:
    """The labeling Y with the largest sum_k log p[k, Y_k] + sum_c log f_c(N_c); False if none has
    counts within the windows.

    Successive shortest paths, as in `assign`: an instance goes to a class, or pushes another one on
    to a further class, as is cheapest. `placed` (K, A) gets how many copies of each row are of the
    classes, `filled` (A,) the sums, `moves` (A, A) the least loss of moving one from class a to b.
    """
    K, A = len(log_probs), len(classes)
    reward = _reward(log_probs, low, begins, log_f, classes)
    placed[:] = 0
    filled[:] = 0
    moves[:] = np.inf
    mover = np.full((A, A), -1)
    distance = np.empty(A)
    before = np.empty(A, np.int64)
    k, left = 0, copies[0]
    while k < K:
        for a in range(A):
            distance[a] = -log_probs[k, classes[a]]
            before[a] = -1
        for _ in range(A):
            changed = False
            for a in range(A):
                if distance[a] == np.inf:
                    continue
                for b in range(A):
                    through = distance[a] + moves[a, b]
                    if through + _ROUNDING * (1.0 + abs(through)) >= distance[b]:
                        continue
                    if not leads_to(before, b, a):
                        distance[b] = through
                        before[b] = a
                        changed = True
            if not changed:
                break
        end = -1
        least = np.inf
        for a in range(A):
            cost = distance[a] + next_cost(low, begins, log_f, classes[a], filled[a], reward)
            if cost < least:
                least, end = cost, a
        if end < 0:
            return False
        same = max(low[classes[end]] - filled[end], 1)  # beyond the window's begin, costs differ
        amount = most_along(before, mover, placed, end, min(left, same))
        filled[end] += amount
        move_along(log_probs, classes, before, mover, placed, moves, end, k, amount)
        left -= amount
        if left == 0:
            k += 1
            left = copies[k] if k < K else 0
    return bool((filled >= low[classes]).all())


@inline
def next_cost(
    low: IntArray, begins: IntArray, log_f: FloatArray, c: int, filled: int, reward: float
) -> float:
    """log f(m) - log f(m + 1) for m = filled; below the window every instance is welcome."""
    if filled < low[c]:
        return -reward
    place = begins[c] + filled - low[c]
    if place + 1 >= begins[c + 1]:
        return np.inf
    return float(log_f[place] - log_f[place + 1])


@inline
def _reward(
    log_probs: FloatArray, low: IntArray, begins: IntArray, log_f: FloatArray, classes: IntArray
) -> float:
    """More than any chain of moves can cost."""
    lowest, highest = 0.0, 0.0
    for k in range(len(log_probs)):
        for a in range(len(classes)):
            value = log_probs[k, classes[a]]
            if value > -np.inf:
                lowest, highest = min(lowest, value), max(highest, value)
    steepest = 0.0
    for a in range(len(classes)):
        for i in range(begins[classes[a]] + 1, begins[classes[a] + 1]):
            steepest = max(steepest, abs(log_f[i] - log_f[i - 1]))
    return float(2.0 * (len(classes) + 1) * (highest - lowest + steepest + 1.0))


@inline
def class_potentials(
    log_probs: FloatArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    classes: IntArray,
    copies: IntArray,
    log_x: FloatArray,
) -> None:
    """Logarithms of class factors under which the best labeling is each instance's best, and its
    counts are those of the largest potentials.

    Differences of `log_x` are bounded by the losses of moves, and each by the potentials' slopes:
    bounds that shortest paths fulfil, with node A for the potentials.
    """
    K, A = len(log_probs), len(classes)
    placed = np.empty((K, A), np.int64)
    filled = np.empty(A, np.int64)
    moves = np.empty((A, A))
    log_x[:] = 0.0
    if not assign_potentials(log_probs, low, begins, log_f, classes, copies, placed, filled, moves):
        return
    level = 0.0  # of node A
    for _ in range(A + 1):
        changed = False
        for a in range(A):
            c = classes[a]
            for b in range(A):
                if log_x[a] + moves[a, b] < log_x[b]:
                    log_x[b] = log_x[a] + moves[a, b]
                    changed = True
            onward = log_x[a] + next_cost(low, begins, log_f, c, filled[a], 0.0)
            if onward < level:
                level = onward
                changed = True
            place = begins[c] + filled[a] - low[c]
            if place > begins[c]:
                back = level + log_f[place] - log_f[place - 1]
                if back < log_x[a]:
                    log_x[a] = back
                    changed = True
        if not changed:
            break
    for a in range(A):
        log_x[a] -= level
