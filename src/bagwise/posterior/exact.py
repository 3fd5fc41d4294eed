"""The exact engine: a dynamic program over the lattice of partial counts."""

from __future__ import annotations

import numpy as np
import torch

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._kernels import inline, kernel, over_bags
from bagwise.posterior._result import Posterior, posterior
from bagwise.posterior._tilt import classes_by_count, tilt

MAX_STATES = 2**24


def lattice_states(bags: Bags) -> FloatArray:
    """(B,) states of each bag's lattice, prod_c (n_c + 1), as floats because they can be huge.

    >>> lattice_states(Bags([4, 2], [[2, 1, 1], [2, 0, 0]]))
    array([12.,  3.])
    """
    states: FloatArray = np.prod(bags.counts + 1.0, axis=1)
    return states


def exact_posterior(log_probs: torch.Tensor, bags: Bags, max_states: int = MAX_STATES) -> Posterior:
    """P(S|X) and P(Y_k = c | S, X) exactly, by a dynamic program over partial label counts.

    A state is the counts s <= n that the first |s| instances of the bag have used up:

        F[0] = 1,  F[s] = sum_c F[s - e_c] p[|s| - 1, c]        P(S|X) = F[n]
        B[n] = 1,  B[s] = sum_c p[|s|, c] B[s + e_c]
        w[k, c] = sum over |s| = k of F[s] p[k, c] B[s + e_c] / P(S|X)

    Cost: time C * prod_c (n_c + 1), memory 16 bytes a state for each thread (32 to 48 with three or
    four classes). With ten classes that
    is easy up to bags of about 32; with two classes it is K^2 / 4 states, easy up to thousands.
    Accuracy: that of double precision.
    Choose it whenever the lattice is small enough; `auto` does.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalised.
        bags: sizes and counts of the bags of these N instances.
        max_states: a bag with more states than this is an error.

    >>> log_probs = torch.tensor([[.8, .2], [.4, .6]]).log()
    >>> post = exact_posterior(log_probs, Bags([2], [[1, 1]]))
    >>> post.log_likelihood.exp()          # .8 * .6 + .2 * .4
    tensor([0.5600])
    >>> post.weights
    tensor([[0.8571, 0.1429],
            [0.1429, 0.8571]])
    """

    def compute(log_p: FloatArray, log_likelihood: FloatArray, weights: FloatArray) -> None:
        states = lattice_states(bags)
        if (states > max_states).any():
            bad = int(np.argmax(states > max_states))
            raise ValueError(
                f"the exact lattice of bag {bad} (size {bags.sizes[bad]}) has {states[bad]:.3g} "
                f"states, which need {_memory(_lattice_bytes(bags.counts[bad]))} of memory; "
                f'max_states is {max_states}. Use engine="bethe" (or "auto"), or raise max_states.'
            )
        fill_exact(np.arange(len(bags)), log_p, bags, log_likelihood, weights)

    return posterior(compute, log_probs, bags)


def fill_exact(
    index: IntArray, log_p: FloatArray, bags: Bags, log_likelihood: FloatArray, weights: FloatArray
) -> None:
    """Compute the bags in `index`: their entries of `log_likelihood`, their rows of `weights`."""
    states = lattice_states(bags)

    def run(part: IntArray) -> None:
        space = np.empty(2 * int(states[part].max()))
        _exact(part, log_p, bags.offsets, bags.counts, space, log_likelihood, weights)

    over_bags(run, index, states[index] * bags.n_classes)


def _lattice_bytes(counts: IntArray) -> float:
    """Memory for a bag: two tables of states, and two of steps between blocks."""
    n = np.sort(counts[counts > 0]).astype(np.float64)
    states = np.prod(n + 1)
    if len(n) < 3:
        return float(16 * states)
    block = (n[-1] + 1) * (n[-2] + 1)
    return float(16 * states + 16 * (len(n) - 2) * (n[:-2].sum() + 1) * block)


def _memory(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


@kernel
def _exact(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    counts: IntArray,
    space: FloatArray,
    log_likelihood: FloatArray,
    weights: FloatArray,
) -> None:
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        log_likelihood[bag] = _exact_bag(log_probs[rows], counts[bag], space, weights[rows])


@inline
def _exact_bag(
    log_probs: FloatArray, counts: IntArray, space: FloatArray, weights: FloatArray
) -> float:
    """log P(S|X) of one bag, its weights written to `weights` (K, C)."""
    weights[:] = 0.0
    classes = classes_by_count(counts)
    K, A = len(log_probs), len(classes)
    if A == 1:
        weights[:, classes[0]] = 1.0
        return float(log_probs[:, classes[0]].sum())
    p = np.empty((K, A))
    offset = tilt(log_probs, counts, classes, p)

    # The two commonest classes are the inner digits of a state's number: a block. A step along any
    # other class goes to the same place of another block, so whole blocks are combined at once,
    # with multipliers that depend on the place in the block and on the total of the outer digits.
    n = counts[classes]
    width = n[A - 1] + 1
    block = (n[A - 2] + 1) * width
    outer_total = K - n[A - 2] - n[A - 1]
    strides = np.empty(A - 2, np.int64)
    blocks = 1
    for c in range(A - 3, -1, -1):
        strides[c] = blocks
        blocks *= n[c] + 1
    # step[t, c, i] = p[t + (total of the inner digits at place i), c]
    step = np.zeros((outer_total + 1, A - 2, block))
    for t in range(outer_total + 1):
        for i in range(block if A > 2 else 0):
            k = t + i // width + i % width
            if k < K:
                for c in range(A - 2):
                    step[t, c, i] = p[k, c]
    inner = np.ascontiguousarray(p[:, A - 2 :].T)

    forward = space[: blocks * block].reshape(blocks, block)
    backward = space[blocks * block : 2 * blocks * block].reshape(blocks, block)
    _sweep_forward(forward, step, inner, n, strides)
    found = np.zeros(step.shape)
    found_inner = np.zeros(inner.shape)
    _sweep_backward(forward, backward, step, inner, n, strides, found, found_inner)

    for t in range(outer_total + 1):
        for i in range(block if A > 2 else 0):
            k = t + i // width + i % width
            if k < K:
                for c in range(A - 2):
                    weights[k, classes[c]] += found[t, c, i]
    for k in range(K):
        weights[k, classes[A - 2]] = found_inner[0, k]
        weights[k, classes[A - 1]] = found_inner[1, k]
        total = 0.0
        for a in range(A):
            total += weights[k, classes[a]]
        for a in range(A):
            weights[k, classes[a]] /= total
    return offset + float(np.log(forward[blocks - 1, block - 1]))


@inline
def _sweep_forward(
    forward: FloatArray, step: FloatArray, inner: FloatArray, n: IntArray, strides: IntArray
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
        if o == 0:
            forward[0, 0] = 1.0
        for row in range(n[outer] + 1):
            begin = row * width
            if row > 0:
                for j in range(width):
                    taken = total + row - 1 + j
                    forward[o, begin + j] += forward[o, begin - width + j] * inner[0, taken]
            last = forward[o, begin]
            for j in range(width - 1):
                last = forward[o, begin + j + 1] + last * inner[1, total + row + j]
                forward[o, begin + j + 1] = last
        total += _count_up(digits, n)


@inline
def _sweep_backward(
    forward: FloatArray,
    backward: FloatArray,
    step: FloatArray,
    inner: FloatArray,
    n: IntArray,
    strides: IntArray,
    found: FloatArray,
    found_inner: FloatArray,
) -> None:
    """B of all states, and the sums over states s of F[s] p B[s + e_c].

    They are kept as found[t, c, i] for the outer classes, as in `step`, and found_inner[., k] for
    the inner ones.
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
        if o == blocks - 1:
            backward[o, block - 1] = 1.0
        for row in range(n[outer], -1, -1):
            begin = row * width
            if row < n[outer]:
                for j in range(width):
                    term = backward[o, begin + width + j] * inner[0, total + row + j]
                    backward[o, begin + j] += term
                    found_inner[0, total + row + j] += term * forward[o, begin + j]
            last = backward[o, begin + width - 1]
            for j in range(width - 2, -1, -1):
                term = last * inner[1, total + row + j]
                last = backward[o, begin + j] + term
                backward[o, begin + j] = last
                found_inner[1, total + row + j] += term * forward[o, begin + j]
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
