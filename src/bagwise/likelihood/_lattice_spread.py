"""How the labels of a bag vary together, given its counts: one pass over the lattice for all."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior import lattice_states
from bagwise.posterior._flow import possible_classes
from bagwise.posterior._kernels import at_places, inline, kernel, over_bags
from bagwise.posterior._tilt import classes_by_count, tilt
from bagwise.posterior._windows import tilt_potentials

_SPACE = 1_000_000  # numbers of a table of states with sums


def lattice_spread(
    index: IntArray, X1: FloatArray, z: FloatArray, bags: Bags, basis: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Cov(sum_k Y_k (x) x_k | S) of bags, in the coordinates of `basis` (C, D).

        sum_k own_k (x) x_k x_k'  +  sum_k (x_k (x) Y_k + its transpose)

    A path over the lattice of partial counts is a labeling. With F and B the sums over paths to a
    state and from it on, and v_k = basis[Y_k] - E basis[Y_k], one pass carries along the sums over
    paths to each state of prod p times sum_k v_k (x) x_k,

        G[s] = sum_c p[k, c] G[s - e_c]  +  x_k (x) sum_c F[s - e_c] p[k, c] v[k, c],   k = |s| - 1

    and Y_k = sum over |s| = k of sum_c G[s] p[k, c] v[k, c] B[s + e_c] / P(S|X): what row k has to
    do with all rows before it. Where counts are not exact, every state of all rows is an end, with
    the weight that is known of its counts.

    Returns:
        own (n, D, D) and Y (n, D, D, d) of the rows of these bags; the first D is that of row k.
    """
    n, d, D = len(index), X1.shape[1], basis.shape[1]
    begins = np.zeros(n + 1, np.int64)
    np.cumsum(bags.sizes[index], out=begins[1:])
    own, Y = np.zeros((begins[-1], D, D)), np.zeros((begins[-1], D, D, d))
    states = lattice_states(bags)[index]
    sharp = bags.is_sharp[index]
    of_rows = X1, z, bags.offsets, bags.copies, bags.min_counts

    def run(places: IntArray) -> None:
        most = int(states[places].max())
        width = min(max(_SPACE // (most * D), 8), d)
        space = np.empty(most * (2 + D * width))
        of_bags = (places, index, begins, *of_rows)
        if bags.potentials is not None and not sharp[places[0]]:
            known = bags.potentials.begins, bags.potentials.log_f
            _spread_soft(*of_bags, *known, basis, space, own, Y)
        else:
            _spread(*of_bags, basis, space, own, Y)

    for part in (np.flatnonzero(sharp), np.flatnonzero(~sharp)):
        over_bags(run, part, states[part] * (bags.n_classes + 2.0 * D) * d)
    return own, Y


@kernel
def _spread(
    places: IntArray,
    index: IntArray,
    begins: IntArray,
    X1: FloatArray,
    z: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    basis: FloatArray,
    space: FloatArray,
    own: FloatArray,
    Y: FloatArray,
) -> None:
    for place in places:
        bag = index[place]
        rows = slice(offsets[bag], offsets[bag + 1])
        classes = classes_by_count(counts[bag])
        n = at_places(counts[bag], classes)
        p = np.empty((offsets[bag + 1] - offsets[bag], len(classes)))
        tilt(z[rows], counts[bag], classes, copies[rows], p)
        here = slice(begins[place], begins[place + 1])
        _spread_of(
            p,
            copies[rows],
            n,
            n,
            np.ones(len(n)),
            X1[rows],
            basis[classes],
            space,
            own[here],
            Y[here],
        )


@kernel
def _spread_soft(
    places: IntArray,
    index: IntArray,
    begins: IntArray,
    X1: FloatArray,
    z: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    least: IntArray,
    windows: IntArray,
    log_f: FloatArray,
    basis: FloatArray,
    space: FloatArray,
    own: FloatArray,
    Y: FloatArray,
) -> None:
    C = least.shape[1]
    for place in places:
        bag = index[place]
        rows = slice(offsets[bag], offsets[bag + 1])
        window = windows[bag * C : (bag + 1) * C + 1]
        classes = possible_classes(least[bag], window)
        A = len(classes)
        p = np.empty((offsets[bag + 1] - offsets[bag], A))
        f, variance = np.empty(window[C] - window[0]), np.empty(A)
        tilt_potentials(z[rows], least[bag], window, log_f, classes, copies[rows], p, f, variance)
        low = at_places(least[bag], classes)
        high = np.empty(A, np.int64)
        for a in range(A):
            high[a] = low[a] + window[classes[a] + 1] - window[classes[a]] - 1
        here = slice(begins[place], begins[place + 1])
        _spread_of(
            p, copies[rows], low, high, f, X1[rows], basis[classes], space, own[here], Y[here]
        )


@inline
def _spread_of(
    p: FloatArray,
    m: IntArray,
    low: IntArray,
    high: IntArray,
    f: FloatArray,
    X: FloatArray,
    basis: FloatArray,
    space: FloatArray,
    own: FloatArray,
    Y: FloatArray,
) -> None:
    """Of one bag: p (K, A) are tilted probabilities of the possible classes, `low` and `high` (A,)
    the least and the largest count of each, and `f` what is known of those between, class by class.
    """
    (K, A), D, d = p.shape, basis.shape[1], X.shape[1]
    strides, states = np.empty(A, np.int64), 1
    for a in range(A):
        strides[a] = states
        states *= high[a] + 1
    row_of = np.empty(m.sum(), np.int64)
    step = 0
    for k in range(K):
        for _ in range(m[k]):
            row_of[step] = k
            step += 1
    forward, backward, w = space[:states], space[states : 2 * states], np.empty((K, A))
    total = _sums(p, row_of, low, high, f, strides, forward, backward, w)
    v = np.empty((K, A, D))
    for k in range(K):
        for e in range(D):
            mean = 0.0
            for a in range(A):
                mean += w[k, a] * basis[a, e]
            for a in range(A):
                v[k, a, e] = basis[a, e] - mean
        for a in range(A):
            for e in range(D):
                for g in range(D):
                    own[k, e, g] += m[k] * w[k, a] * v[k, a, e] * v[k, a, g]
    width = min(max((len(space) - 2 * states) // (states * D), 1), d)
    for j in range(0, d, width):
        until = min(j + width, d)
        sums = space[2 * states : 2 * states + states * D * (until - j)]
        _carry(
            p,
            v,
            row_of,
            high,
            strides,
            forward,
            backward,
            total,
            X[:, j:until],
            sums.reshape(states, D, until - j),
            Y[:, :, :, j:until],
        )


@inline
def _sums(
    p: FloatArray,
    row_of: IntArray,
    low: IntArray,
    high: IntArray,
    f: FloatArray,
    strides: IntArray,
    forward: FloatArray,
    backward: FloatArray,
    w: FloatArray,
) -> float:
    """Fill F and B of all states and the weights w (K, A) of the rows; returns P(S).

    A step along a class leads to a state of a higher number.
    """
    A, states, steps = len(high), len(forward), len(row_of)
    digits = high.copy()
    level = 0
    for a in range(A):
        level += high[a]
    for s in range(states - 1, -1, -1):
        value = 0.0
        if level == steps:
            value, place = 1.0, 0
            for a in range(A):
                value *= f[place + digits[a] - low[a]] if digits[a] >= low[a] else 0.0
                place += high[a] - low[a] + 1
        elif level < steps:
            row = row_of[level]
            for a in range(A):
                if digits[a] < high[a]:
                    value += p[row, a] * backward[s + strides[a]]
        backward[s] = value
        forward[s] = 0.0
        level -= _previous(digits, high)
    forward[0], level = 1.0, 0
    for k in range(len(w)):
        for a in range(A):
            w[k, a] = 0.0
            digits[a] = 0
    for s in range(states):
        if level < steps:
            row = row_of[level]
            for a in range(A):
                if digits[a] < high[a]:
                    reached = forward[s] * p[row, a]
                    forward[s + strides[a]] += reached
                    w[row, a] += reached * backward[s + strides[a]]
        level += _next(digits, high)
    for k in range(len(w)):
        total = 0.0
        for a in range(A):
            total += w[k, a]
        for a in range(A):
            w[k, a] /= total
    return float(backward[0])


@inline
def _carry(
    p: FloatArray,
    v: FloatArray,
    row_of: IntArray,
    high: IntArray,
    strides: IntArray,
    forward: FloatArray,
    backward: FloatArray,
    total: float,
    X: FloatArray,
    sums: FloatArray,
    Y: FloatArray,
) -> None:
    """Fill G of all states in `sums` (states, D, width), and add to Y what it is for."""
    A, (states, D, width), steps = len(high), sums.shape, len(row_of)
    digits = np.zeros(A, np.int64)
    slope = np.empty(D)
    level = 0
    for s in range(states):
        if 0 < level <= steps:
            before = row_of[level - 1]
            for e in range(D):
                slope[e] = 0.0
                for j in range(width):
                    sums[s, e, j] = 0.0
            for a in range(A):
                if digits[a] > 0:
                    source, weight = s - strides[a], p[before, a]
                    for e in range(D):
                        slope[e] += forward[source] * weight * v[before, a, e]
                        for j in range(width):
                            sums[s, e, j] += weight * sums[source, e, j]
            for e in range(D):
                for j in range(width):
                    sums[s, e, j] += slope[e] * X[before, j]
        elif level == 0:
            for e in range(D):
                for j in range(width):
                    sums[s, e, j] = 0.0
        if level < steps:
            row = row_of[level]
            for e in range(D):
                slope[e] = 0.0
            for a in range(A):
                if digits[a] < high[a]:
                    weight = p[row, a] * backward[s + strides[a]] / total
                    for e in range(D):
                        slope[e] += weight * v[row, a, e]
            for e in range(D):
                for g in range(D):
                    for j in range(width):
                        Y[row, e, g, j] += slope[e] * sums[s, g, j]
        level += _next(digits, high)


@inline
def _next(digits: IntArray, high: IntArray) -> int:
    """Add one to a number in mixed radix high + 1, the first digit counting least; returns by how
    much the sum of its digits grows.
    """
    change = 1
    for a in range(len(high)):
        if digits[a] < high[a]:
            digits[a] += 1
            return change
        change -= digits[a]
        digits[a] = 0
    return change


@inline
def _previous(digits: IntArray, high: IntArray) -> int:
    """Subtract one; returns by how much the sum of the digits falls."""
    change = 1
    for a in range(len(high)):
        if digits[a] > 0:
            digits[a] -= 1
            return change
        change -= high[a] - digits[a]
        digits[a] = high[a]
    return change
