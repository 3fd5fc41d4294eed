"""The tilt: class factors under which a bag's expected label counts are its true ones.

Multiplying class c of every instance by a factor x_c multiplies each labeling with counts n by the
same prod_c x_c^n_c. So the posterior weights stay as they are, and P(S|X) changes by a known
factor. With the factors that make the columns of the normalised probabilities sum to the counts,
these counts are among the likely ones, and their probability is far from underflow.
"""

from __future__ import annotations

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior._kernels import inline

_SINKHORN_STEPS = 60
# A column sum this close to its count is close enough. One that is off by one would not be: if all
# instances are certain, such counts are impossible.
_CLOSE = 0.3
_ROUNDING = 1e-12


@inline
def classes_by_count(counts: IntArray) -> IntArray:
    """The classes that occur, rarest first (ties in class order)."""
    # By insertion: numba takes ten seconds to compile its own sort.
    found = np.empty(len(counts), np.int64)
    n_found = 0
    for c in range(len(counts)):
        if counts[c] > 0:
            place = n_found
            while place > 0 and counts[found[place - 1]] > counts[c]:
                found[place] = found[place - 1]
                place -= 1
            found[place] = c
            n_found += 1
    return found[:n_found].copy()


@inline
def tilt(
    log_probs: FloatArray,
    counts: IntArray,
    classes: IntArray,
    copies: IntArray,
    tilted: FloatArray,
) -> float:
    """Fill `tilted` (K, A) with tilted probabilities of the occurring classes; rows sum to 1.

    `copies` (K,) are the rows' weights. Returns log P(S|X) - log P(S|tilted). Some labeling with
    these counts must be possible.
    """
    start = np.zeros(len(classes))
    offset, error = _sinkhorn(log_probs, counts, classes, copies, start, tilted)
    if error > _CLOSE:
        _potentials(log_probs, counts, classes, copies, start)
        offset, error = _sinkhorn(log_probs, counts, classes, copies, start, tilted)
    return offset


@inline
def _sinkhorn(
    log_probs: FloatArray,
    counts: IntArray,
    classes: IntArray,
    copies: IntArray,
    start: FloatArray,
    tilted: FloatArray,
) -> tuple[float, float]:
    """Sinkhorn steps from the class potentials `start`: (log scale, error of the column sums)."""
    K, A = tilted.shape
    offset = 0.0
    for k in range(K):
        top = -np.inf
        for a in range(A):
            top = max(top, log_probs[k, classes[a]] + start[a])
        offset += copies[k] * top
        for a in range(A):
            tilted[k, a] = np.exp(log_probs[k, classes[a]] + start[a] - top)
    for a in range(A):
        offset -= counts[classes[a]] * start[a]

    row = np.empty(K)
    column = np.empty(A)
    factor = np.ones(A)
    error = np.inf
    for step in range(_SINKHORN_STEPS + 1):
        column[:] = 0.0
        for k in range(K):
            total = 0.0
            for a in range(A):
                total += tilted[k, a] * factor[a]
            row[k] = 1.0 / total
            for a in range(A):
                column[a] += copies[k] * tilted[k, a] * row[k]
        error = 0.0
        for a in range(A):
            error = max(error, abs(column[a] * factor[a] - counts[classes[a]]))
        if error < _CLOSE or step == _SINKHORN_STEPS:
            break
        for a in range(A):
            factor[a] = counts[classes[a]] / column[a]
            if not 1e-100 < factor[a] < 1e100:  # sums of products could leave the range of floats
                return 0.0, np.inf
    for k in range(K):
        offset -= copies[k] * np.log(row[k])
        for a in range(A):
            tilted[k, a] *= row[k] * factor[a]
    for a in range(A):
        offset -= counts[classes[a]] * np.log(factor[a])
    return offset, error


@inline
def _potentials(
    log_probs: FloatArray,
    counts: IntArray,
    classes: IntArray,
    copies: IntArray,
    potentials: FloatArray,
) -> None:
    """Class potentials under which each instance's label in the best labeling is its best label."""
    K, A = len(log_probs), len(classes)
    placed = np.empty((K, A), np.int64)
    moves = np.empty((A, A))
    assign(log_probs, counts, classes, copies, placed, moves)
    potentials[:] = 0.0
    for _ in range(A):
        changed = False
        for a in range(A):
            for b in range(A):
                if potentials[a] + moves[a, b] < potentials[b]:
                    potentials[b] = potentials[a] + moves[a, b]
                    changed = True
        if not changed:
            break


@inline
def assign(
    log_probs: FloatArray,
    counts: IntArray,
    classes: IntArray,
    copies: IntArray,
    placed: IntArray,
    moves: FloatArray,
) -> bool:
    """The most probable labeling with the given counts; False if there is none.

    Successive shortest paths: rows come one at a time, as many of their copies as can go the same
    way; where the class they want is full, a chain of moves frees places. No chain passes a class
    twice, so each has an end. `placed` (K, A) gets how many copies of each row are of the classes;
    `moves` (A, A) gets the least loss of log-probability of moving one from class a to class b.
    """
    K, A = len(log_probs), len(classes)
    free = counts[classes].copy()
    placed[:] = 0
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
                if distance[a] == np.inf or free[a] > 0:
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
        for a in range(A):
            if free[a] > 0 and distance[a] < np.inf and (end < 0 or distance[a] < distance[end]):
                end = a
        if end < 0:
            return False
        amount = most_along(before, mover, placed, end, min(left, free[end]))
        free[end] -= amount
        move_along(log_probs, classes, before, mover, placed, moves, end, k, amount)
        left -= amount
        if left == 0:
            k += 1
            left = copies[k] if k < K else 0
    return True


@inline
def most_along(before: IntArray, mover: IntArray, placed: IntArray, end: int, amount: int) -> int:
    """How many copies can go along the chain of moves that ends in class `end`."""
    while before[end] >= 0:
        origin = before[end]
        amount = min(amount, placed[mover[origin, end], origin])
        end = origin
    return amount


@inline
def move_along(
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
        moves_from(log_probs, classes, placed, end, k + 1, moves, mover)
        end = origin
    placed[k, end] += amount
    moves_from(log_probs, classes, placed, end, k + 1, moves, mover)


@inline
def leads_to(before: IntArray, b: int, a: int) -> bool:
    """Whether the chain of moves that ends in class a passes class b.

    A circle of moves gains nothing but rounding errors, which can look like a gain each time round:
    without this, chains would have no end.
    """
    while a >= 0 and a != b:
        a = before[a]
    return a == b


@inline
def moves_from(
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
