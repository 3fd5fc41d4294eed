"""The most probable labeling of a bag, and class factors under which it is best.

Log-concave potentials make it a flow problem with convex costs: the (m + 1)-th instance of a class
costs log f(m) - log f(m + 1), which only grows. So instances can come one at a time. A sharp count
is a window of one.
"""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._kernels import inline

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
def assign(
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

    Successive shortest paths: rows come one at a time, as many of their copies as can go the same
    way, to a class, or push others on to a further class, as is cheapest; classes below their
    windows come first. No chain of moves passes a class twice, so each has an end. `placed` (K, A)
    gets how many copies of each row are of the classes, `filled` (A,) the sums, `moves` (A, A) the
    least loss of moving one from class a to b.
    """
    K, A = len(log_probs), len(classes)
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
                if distance[a] == np.inf or filled[a] < low[classes[a]]:  # the end, if any
                    continue
                for b in range(A):
                    through = distance[a] + moves[a, b]
                    if through + _ROUNDING * (1.0 + abs(through)) >= distance[b]:
                        continue
                    if not _leads_to(before, b, a):
                        distance[b] = through
                        before[b] = a
                        changed = True
            if not changed:
                break
        end, least, needed = -1, np.inf, False
        for a in range(A):
            needs = filled[a] < low[classes[a]]
            cost = distance[a] + _next_cost(low, begins, log_f, classes[a], filled[a])
            if cost < np.inf and ((needs and not needed) or (needs == needed and cost < least)):
                end, least, needed = a, cost, needs
        if end < 0:
            return False
        same = max(low[classes[end]] - filled[end], 1)  # beyond the window's begin, costs differ
        amount = _most_along(before, mover, placed, end, min(left, same))
        filled[end] += amount
        _move_along(log_probs, classes, before, mover, placed, moves, end, k, amount)
        left -= amount
        if left == 0:
            k += 1
            left = copies[k] if k < K else 0
    missing = 0
    for a in range(A):
        missing += max(low[classes[a]] - filled[a], 0)
    return missing == 0


@inline
def _next_cost(low: IntArray, begins: IntArray, log_f: FloatArray, c: int, filled: int) -> float:
    """log f(m) - log f(m + 1) for m = filled, 0 below the window."""
    if filled < low[c]:
        return 0.0
    place = begins[c] + filled - low[c]
    if place + 1 >= begins[c + 1]:
        return np.inf
    return float(log_f[place] - log_f[place + 1])


@inline
def _most_along(before: IntArray, mover: IntArray, placed: IntArray, end: int, amount: int) -> int:
    """How many copies can go along the chain of moves that ends in class `end`."""
    while before[end] >= 0:
        origin = before[end]
        amount = min(amount, placed[mover[origin, end], origin])
        end = origin
    return amount


@inline
def _move_along(
    log_probs: FloatArray,
    classes: IntArray,
    before: IntArray,
    mover: IntArray,
    placed: IntArray,
    moves: FloatArray,
    end: int,
    k: int,
    amount: int,
) -> None:
    """Place so many copies of row k, moving others along the chain that ends in class `end`."""
    while before[end] >= 0:
        origin = before[end]
        row = mover[origin, end]
        placed[row, origin] -= amount
        placed[row, end] += amount
        _moves_from(log_probs, classes, placed, end, k + 1, moves, mover)
        end = origin
    placed[k, end] += amount
    _moves_from(log_probs, classes, placed, end, k + 1, moves, mover)


@inline
def _leads_to(before: IntArray, b: int, a: int) -> bool:
    """Whether the chain of moves that ends in class a passes class b.

    A circle of moves gains nothing but rounding errors, which can look like a gain each time round:
    without this, chains would have no end.
    """
    while a >= 0 and a != b:
        a = before[a]
    return a == b


@inline
def _moves_from(
    log_probs: FloatArray,
    classes: IntArray,
    placed: IntArray,
    a: int,
    rows: int,
    moves: FloatArray,
    mover: IntArray,
) -> None:
    """Find anew the cheapest move out of class a among the first rows."""
    for b in range(len(classes)):
        moves[a, b] = np.inf
        mover[a, b] = -1
    for k in range(rows):
        if placed[k, a] == 0:
            continue
        own = log_probs[k, classes[a]]
        for b in range(len(classes)):
            loss = own - log_probs[k, classes[b]]
            if b != a and loss < moves[a, b]:
                moves[a, b] = loss
                mover[a, b] = k


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
    if not assign(log_probs, low, begins, log_f, classes, copies, placed, filled, moves):
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
            onward = log_x[a] + _next_cost(low, begins, log_f, c, filled[a])
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
