"""The exact engine: a dynamic program over the lattice of partial counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import number
from bagwise.errors import InputError
from bagwise.memory_size import shown_size
from bagwise.posterior._engine import KERNELS, Engine, posterior
from bagwise.posterior._kernels import at_places, inline, kernel, over_bags, written_out
from bagwise.posterior._result import Posterior, Values
from bagwise.posterior._tilt import classes_by_count, tilt
from bagwise.posterior.exact_potentials import curve_exact_potentials, fill_exact_potentials
from bagwise.posterior.pairs import fill_pairs, is_pair

MAX_STATES = 2**24
STATES = number(0, math.inf)
_Numbers = npt.NDArray[Any]  # real, or complex for derivatives
_STEP = 1e-100  # of the complex step


def lattice_states(bags: Bags) -> FloatArray:
    """(B,) states of each bag's lattice, prod_c (n_c + 1), as floats because they can be huge.

    Of bags with potentials it counts those up to the largest possible counts; the engine finds out
    which of them carry mass.

    >>> lattice_states(Bags([4, 2], [[2, 1, 1], [2, 0, 0]]))
    array([12.,  3.])
    """
    with np.errstate(over="ignore"):  # infinitely many are as good as 1e308
        states: FloatArray = np.prod(bags.max_counts + 1.0, axis=1)
    return states


def exact_posterior(
    log_probs: Values, bags: Bags, max_states: int = MAX_STATES
) -> Posterior[Values]:
    """P(S|X) and P(Y_k = c | S, X) exactly, by a dynamic program over partial label counts.

    A state is the counts s <= n that the first |s| instances of the bag have used up:

        F[0] = 1,  F[s] = sum_c F[s - e_c] p[|s| - 1, c]        P(S|X) = F[n]
        B[n] = 1,  B[s] = sum_c p[|s|, c] B[s + e_c]
        w[k, c] = sum over |s| = k of F[s] p[k, c] B[s + e_c] / P(S|X)

    Cost: time C * prod_c (n_c + 1), memory 16 bytes a state for each thread (32 to 48 with two to
    four classes). With ten classes that is easy up to bags of about 32. Of two classes, from 16
    instances on, the same is computed without a lattice, to ten digits, from 12 to 25 values of the
    count's characteristic function, in time proportional to K: easy up to a million.
    Accuracy: that of double precision.
    Choose it whenever the lattice is small enough; `auto` does.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and counts of the bags of these N instances.
        max_states: a bag whose lattice has more states than this is an error.

    >>> post = exact_posterior(np.log([[.8, .2], [.4, .6]]), Bags([2], [[1, 1]]))
    >>> np.exp(post.log_likelihood)          # .8 * .6 + .2 * .4
    array([0.56])
    >>> post.weights.round(4)
    array([[0.8571, 0.1429],
           [0.1429, 0.8571]])
    """
    STATES(max_states, "max_states")
    return posterior("exact", log_probs, bags, (max_states,))


def _fill(
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
    max_states: float,
) -> None:
    sharp = np.flatnonzero(bags.is_sharp)
    states = np.where(bags.is_sharp & ~is_pair(bags), lattice_states(bags), 0.0)
    if (states <= max_states).all():
        fill_exact(sharp, states, log_p, bags, log_likelihood, weights)
        if bags.potentials is not None:
            soft = np.flatnonzero(~bags.is_sharp)
            states = fill_exact_potentials(soft, log_p, bags, log_likelihood, weights, max_states)
    if (states > max_states).any():
        bad = int(np.argmax(states > max_states))
        needed = _lattice_bytes(bags.min_counts[bad]) if bags.is_sharp[bad] else 8 * states[bad]
        raise InputError(
            f"the exact lattice of bag {bad} (size {bags.totals[bad]}) has {states[bad]:.3g} "
            f"states, which need {shown_size(needed)} of memory; "
            f'max_states is {max_states:.0f}. Use engine="bethe" (or "auto"), or raise max_states.'
        )


def fill_exact(
    index: IntArray,
    states: FloatArray,
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
) -> None:
    """Compute the bags in `index`, whose counts are sharp: their entries of `log_likelihood`, their
    rows of `weights`. `states` (B,) are those of all bags' lattices.
    """
    if len(index) == 0:
        return
    pairs = is_pair(bags)[index]
    if pairs.any():
        fill_pairs(index[pairs], log_p, bags, log_likelihood, weights)
        index = index[~pairs]

    def run(part: IntArray) -> None:
        space = np.empty(2 * int(states[part].max()))
        known = (bags.offsets, bags.copies, bags.min_counts)
        _exact(part, log_p, *known, space, log_likelihood, weights)

    over_bags(run, index, states[index] * bags.n_classes)


def curve_exact(log_p: FloatArray, bags: Bags, direction: FloatArray, *_: float) -> FloatArray:
    """The derivative of the weights in a direction of log p, (N, C): covariances of labels.

        d w[k, c] / d log p[j, d] = P(Y_k = c, Y_j = d | S, X) - w[k, c] w[j, d]

    By a complex step: the lattice program is run on p (1 + i h v). Nothing is subtracted, so h can
    be so small that the answer is that of double precision.
    """
    bent = np.empty(log_p.shape)
    states = lattice_states(bags)

    def run(part: IntArray) -> None:
        space = np.empty(2 * int(states[part].max()), np.complex128)
        known = (bags.offsets, bags.copies, bags.min_counts)
        _exact_curve(part, log_p, *known, direction, space, bent)

    sharp = np.flatnonzero(bags.is_sharp)
    if len(sharp):
        over_bags(run, sharp, 4 * states[sharp] * bags.n_classes)
    if bags.potentials is not None:
        soft = np.flatnonzero(~bags.is_sharp)
        curve_exact_potentials(soft, log_p, bags, direction, bent)
    return bent


KERNELS["exact"] = Engine(_fill, curve=curve_exact, bound=0.0)


def _lattice_bytes(counts: IntArray) -> float:
    """Memory for a bag: two tables of states, and two of steps in and between blocks."""
    n = np.sort(counts[counts > 0]).astype(np.float64)
    if len(n) < 2:
        return 0.0
    block = (n[-1] + 1) * (n[-2] + 1)
    return float(16 * np.prod(n + 1) + 16 * (len(n) - 1) * (n[:-2].sum() + 1) * block)


@kernel
def _exact(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    space: FloatArray,
    log_likelihood: FloatArray,
    weights: FloatArray,
) -> None:
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        log_p, w, m = log_probs[rows], weights[rows], copies[rows]
        classes = classes_by_count(counts[bag])
        w[:] = 0.0
        if len(classes) == 1:
            w[:, classes[0]] = 1.0
            log_likelihood[bag] = 0.0
            for k in range(len(m)):
                log_likelihood[bag] += m[k] * log_p[k, classes[0]]
            continue
        p = np.empty((len(log_p), len(classes)))
        offset = tilt(log_p, counts[bag], classes, m, p)
        p = written_out(p, m)
        found = np.empty_like(p)
        log_likelihood[bag] = offset + np.log(
            _lattice(p, at_places(counts[bag], classes), space, found)
        )
        place = 0
        for k in range(len(w)):
            for a in range(len(classes)):
                w[k, classes[a]] = found[place, a]
            place += m[k]


@kernel
def _exact_curve(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    direction: FloatArray,
    space: npt.NDArray[np.complex128],
    bent: FloatArray,
) -> None:
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        log_p, v, slope, m = log_probs[rows], direction[rows], bent[rows], copies[rows]
        classes = classes_by_count(counts[bag])
        slope[:] = 0.0
        if len(classes) == 1:
            continue
        p = np.empty((len(log_p), len(classes)))
        tilt(log_p, counts[bag], classes, m, p)
        moved = np.empty(p.shape, np.complex128)
        for k in range(len(p)):
            for a in range(len(classes)):
                moved[k, a] = p[k, a] * (1.0 + 1j * (_STEP * v[k, classes[a]]))
        moved = written_out(moved, m)
        found = np.empty_like(moved)
        _lattice(moved, at_places(counts[bag], classes), space, found)
        place = 0
        for k in range(len(p)):
            for a in range(len(classes)):
                slope[k, classes[a]] = found[place, a].imag / _STEP
            place += m[k]


@inline
def _lattice(p: _Numbers, n: IntArray, space: _Numbers, weights: _Numbers) -> Any:
    """P(S) of one bag of at least two classes, its weights written to `weights` (K, A).

    `p` (K, A) are tilted probabilities of the occurring classes, rarest first. The kind of number,
    real or complex, is that of `p`, `space` and `weights`.
    """
    K, A = p.shape
    # The two commonest classes are the inner digits of a state's number: a block. A step along any
    # other class goes to the same place of another block, so whole blocks are combined at once,
    # with multipliers that depend on the place in the block and on the total of the outer digits.
    width = n[A - 1] + 1
    block = (n[A - 2] + 1) * width
    outer_total = K - n[A - 2] - n[A - 1]
    strides = np.empty(A - 2, np.int64)
    blocks = 1
    for c in range(A - 3, -1, -1):
        strides[c] = blocks
        blocks *= n[c] + 1
    # step[t, c, i] = p[t + (total of the inner digits at place i), c]
    step = np.zeros((outer_total + 1, A - 2, block), p.dtype)
    for t in range(outer_total + 1):
        for c in range(A - 2):
            for row in range(n[A - 2] + 1):
                for j in range(min(width, K - t - row)):
                    step[t, c, row * width + j] = p[t + row + j, c]
    inner = np.ascontiguousarray(p[:, A - 2 :].T)

    forward = space[: blocks * block].reshape(blocks, block)
    backward = space[blocks * block : 2 * blocks * block].reshape(blocks, block)
    _sweep_forward(forward, step, inner, n, strides)
    found = np.zeros_like(step)
    found_inner = np.zeros((outer_total + 1, 2, block), p.dtype)
    _sweep_backward(forward, backward, step, inner, n, strides, found, found_inner)

    weights[:] = 0.0
    for t in range(outer_total + 1):
        for row in range(n[A - 2] + 1):
            begin = row * width
            for c in range(A - 2):
                for j in range(min(width, K - t - row)):
                    weights[t + row + j, c] += found[t, c, begin + j]
            for j in range(width if row < n[A - 2] else 0):
                k = t + row + j
                weights[k, A - 2] += found_inner[t, 0, begin + j] * inner[0, k]
            for j in range(width - 1):
                k = t + row + j
                weights[k, A - 1] += found_inner[t, 1, begin + j] * inner[1, k]
    for k in range(K):
        total = weights[k, 0]
        for a in range(1, A):
            total += weights[k, a]
        for a in range(A):
            weights[k, a] /= total
    return forward[blocks - 1, block - 1]


@inline
def _sweep_forward(
    forward: _Numbers, step: _Numbers, inner: _Numbers, n: IntArray, strides: IntArray
) -> None:
    """F of all states: block after block, first from other blocks, then within the block."""
    blocks, block = forward.shape
    outer = len(strides)
    width = n[outer + 1] + 1
    digits = np.zeros(outer, np.int64)
    total = 0
    for o in range(blocks):
        for i in range(block):
            forward[o, i] = 0.0
        for c in range(outer):
            if digits[c] > 0:
                source = o - strides[c]
                for i in range(block):
                    forward[o, i] += forward[source, i] * step[total - 1, c, i]
        here = forward[o]
        if o == 0:
            here[0] = 1.0
        last = here[0]
        for j in range(1, width):
            last = here[j] + last * inner[1, total + j - 1]
            here[j] = last
        # Both classes in one loop: a vector of numbers just written one by one is slow to read.
        for row in range(1, n[outer] + 1):
            begin = row * width
            k = total + row - 1
            last = here[begin] + here[begin - width] * inner[0, k]
            here[begin] = last
            for j in range(1, width):
                k += 1
                above = here[begin - width + j] * inner[0, k]
                last = here[begin + j] + above + last * inner[1, k]
                here[begin + j] = last
        total += _count_up(digits, n)


@inline
def _sweep_backward(
    forward: _Numbers,
    backward: _Numbers,
    step: _Numbers,
    inner: _Numbers,
    n: IntArray,
    strides: IntArray,
    found: _Numbers,
    found_inner: _Numbers,
) -> None:
    """B of all states, and the sums over states s of F[s] p B[s + e_c].

    They are kept as found[t, c, i] for the outer classes, as in `step`, and as found_inner[t, ., i]
    for the inner ones, there without the factor p.
    """
    blocks, block = forward.shape
    outer = len(strides)
    width = n[outer + 1] + 1
    digits = n[:outer].copy()
    total = len(step) - 1
    for o in range(blocks - 1, -1, -1):
        for i in range(block):
            backward[o, i] = 0.0
        for c in range(outer):
            if digits[c] < n[c]:
                source = o + strides[c]
                for i in range(block):
                    term = backward[source, i] * step[total, c, i]
                    backward[o, i] += term
                    found[total, c, i] += term * forward[o, i]
        here = backward[o]
        if o == blocks - 1:
            here[block - 1] = 1.0
        begin = block - width
        last = here[block - 1]
        for j in range(width - 2, -1, -1):
            last = here[begin + j] + last * inner[1, total + n[outer] + j]
            here[begin + j] = last
        for row in range(n[outer] - 1, -1, -1):
            begin = row * width
            k = total + row + width - 1
            last = here[begin + width - 1] + here[begin + width + width - 1] * inner[0, k]
            here[begin + width - 1] = last
            for j in range(width - 2, -1, -1):
                k -= 1
                below = here[begin + width + j] * inner[0, k]
                last = here[begin + j] + below + last * inner[1, k]
                here[begin + j] = last
        for i in range(block - width):
            found_inner[total, 0, i] += forward[o, i] * backward[o, i + width]
        for i in range(block - 1):
            found_inner[total, 1, i] += forward[o, i] * backward[o, i + 1]
        total -= _count_down(digits, n)


@inline
def _count_up(digits: IntArray, n: IntArray) -> int:
    """Add one to a number in mixed radix n + 1; returns the change of the digits' sum."""
    change = 0
    for c in range(len(digits) - 1, -1, -1):
        if digits[c] < n[c]:
            digits[c] += 1
            return change + 1
        change -= digits[c]
        digits[c] = 0
    return change


@inline
def _count_down(digits: IntArray, n: IntArray) -> int:
    """Subtract one in mixed radix n + 1; returns how much the digits' sum falls."""
    fall = 0
    for c in range(len(digits) - 1, -1, -1):
        if digits[c] > 0:
            digits[c] -= 1
            return fall + 1
        fall -= n[c]
        digits[c] = n[c]
    return fall
