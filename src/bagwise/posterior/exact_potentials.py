"""The exact engine for bags with potentials: partial counts, layer after layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._flow import possible_classes
from bagwise.posterior._kernels import inline, kernel, over_bags, written_out
from bagwise.posterior._windows import cut_windows, tilt_potentials

_Numbers = npt.NDArray[Any]  # real, or complex for derivatives
_STEP = 1e-100  # of the complex step
_LOSS = 1e-13  # largest share of P(S|X) that cutting windows may lose


def fill_exact_potentials(
    index: IntArray,
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
    max_states: float,
) -> FloatArray:
    """Compute the bags in `index` that need at most `max_states`.

    A state is the counts s that the first |s| instances of the bag have used up, s_c at most the
    largest possible count; every state with |s| = K is an end of weight prod_c f_c(s_c):

        F[0] = 1,  F[s] = sum_c F[s - e_c] p[|s| - 1, c]
        B[s] = prod_c f_c(s_c) for |s| = K,  B[s] = sum_c p[|s|, c] B[s + e_c]

    Counts at the ends of the windows are left out where that is proved to lose less than a share of
    1e-13 of P(S|X).

    Returns:
        (B,) the states of the bags that were not computed; 0 for the others.
    """
    assert bags.potentials is not None
    states = np.zeros(len(bags))
    known = bags.potentials

    def run(part: IntArray) -> None:
        _exact(
            part,
            log_p,
            bags.offsets,
            bags.copies,
            bags.min_counts,
            known.begins,
            known.log_f,
            max_states,
            log_likelihood,
            weights,
            states,
        )

    over_bags(run, index, 10.0 * bags.sizes[index] * bags.n_classes**2)
    return states


def curve_exact_potentials(
    index: IntArray, log_p: FloatArray, bags: Bags, direction: FloatArray, bent: FloatArray
) -> None:
    """As `curve_exact`, for the bags in `index`."""
    assert bags.potentials is not None
    known = bags.potentials

    def run(part: IntArray) -> None:
        known_of = (bags.copies, bags.min_counts, known.begins, known.log_f)
        _exact_curve(part, log_p, bags.offsets, *known_of, direction, bent)

    over_bags(run, index, 40.0 * bags.sizes[index] * bags.n_classes**2)


@kernel
def _exact(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    max_states: float,
    log_likelihood: FloatArray,
    weights: FloatArray,
    too_many: FloatArray,
) -> None:
    C = low.shape[1]
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        windows = begins[bag * C : (bag + 1) * C + 1]
        classes = possible_classes(low[bag], windows)
        K, A = offsets[bag + 1] - offsets[bag], len(classes)
        p = np.empty((K, A))
        f = np.empty(windows[C] - windows[0])
        variance = np.empty(A)
        offset = tilt_potentials(
            log_probs[rows], low[bag], windows, log_f, classes, copies[rows], p, f, variance
        )
        p = written_out(p, copies[rows])
        found = np.empty_like(p)
        P, states = _lattice(
            p, p, f, variance, low[bag][classes], windows, classes, max_states, found
        )
        if states > max_states:
            too_many[bag] = states
            continue
        log_likelihood[bag] = offset + np.log(P)
        weights[rows] = 0.0
        place = 0
        for k in range(offsets[bag], offsets[bag + 1]):
            for a in range(A):
                weights[k, classes[a]] = found[place, a]
            place += copies[k]


@kernel
def _exact_curve(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    direction: FloatArray,
    bent: FloatArray,
) -> None:
    C = low.shape[1]
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        windows = begins[bag * C : (bag + 1) * C + 1]
        classes = possible_classes(low[bag], windows)
        K, A = offsets[bag + 1] - offsets[bag], len(classes)
        p = np.empty((K, A))
        f = np.empty(windows[C] - windows[0])
        variance = np.empty(A)
        m = copies[rows]
        tilt_potentials(log_probs[rows], low[bag], windows, log_f, classes, m, p, f, variance)
        moved = np.empty((K, A), np.complex128)
        for k in range(K):
            for a in range(A):
                v = direction[offsets[bag] + k, classes[a]]
                moved[k, a] = p[k, a] * (1.0 + 1j * (_STEP * v))
        p, moved = written_out(p, m), written_out(moved, m)
        found = np.empty_like(moved)
        _lattice(p, moved, f, variance, low[bag][classes], windows, classes, np.inf, found)
        bent[rows] = 0.0
        place = 0
        for k in range(offsets[bag], offsets[bag + 1]):
            for a in range(A):
                bent[k, classes[a]] = found[place, a].imag / _STEP
            place += copies[k]


@inline
def _lattice(
    p: FloatArray,
    moved: _Numbers,
    f: FloatArray,
    variance: FloatArray,
    low: IntArray,
    begins: IntArray,
    classes: IntArray,
    max_states: float,
    found: _Numbers,
) -> tuple[float, float]:
    """P(S) of tilted probabilities and the states it took, the weights of `moved` in `found`.

    `moved` is p, or p with an imaginary part. Nothing is computed with more than `max_states`.
    """
    K, A = p.shape
    widths = (begins[1:] - begins[:-1])[classes]
    cut_low = np.empty(A, np.int64)
    cut = np.empty(A, np.int64)
    cut_f = np.empty_like(f)
    lost = cut_windows(p, np.ones(K, np.int64), variance, low, widths, f, cut_low, cut, cut_f)
    states = count_states(cut_low + cut - 1, K)
    if states > max_states:
        return 0.0, states
    P = _layers(moved, cut_low, cut, cut_f, found)
    if lost > _LOSS * P:
        states = count_states(low + widths - 1, K)
        if states <= max_states:
            P = _layers(moved, low, widths, f, found)
    return P, states


@inline
def count_states(high: IntArray, K: int) -> float:
    """States s <= high with |s| <= K, as a float because they can be many."""
    ways = np.zeros(K + 1)
    ways[0] = 1.0
    sums = np.empty(K + 2)
    for a in range(len(high)):
        sums[0] = 0.0
        for r in range(K + 1):
            sums[r + 1] = sums[r] + ways[r]
        for r in range(K + 1):
            ways[r] = sums[r + 1] - sums[max(r - high[a], 0)]
    return float(ways.sum())


@inline
def _layers(
    p: _Numbers, low: IntArray, widths: IntArray, f: FloatArray, weights: _Numbers
) -> float:
    """P(S) of one bag, its weights written to `weights` (K, A).

    The states of a layer, |s| = k, have numbers in lexicographic order. With below[c][r] the ways
    in which classes c, c + 1, ... can have fewer than r instances together, the number of s is

        sum_c below[c + 1][r_c + 1] - below[c + 1][r_c + 1 - s_c],     r_c = k - s_0 - ... - s_{c-1}

    and those of its followers s + e_c differ from it in few terms.
    """
    K, A = p.shape
    high = low + widths - 1
    below = np.zeros((A + 1, K + 4), np.int64)
    below[A, 1:] = 1
    for c in range(A - 1, -1, -1):
        for r in range(K + 3):
            ways = below[c + 1, r + 1] - below[c + 1, max(r - high[c], 0)]
            below[c, r + 1] = below[c, r] + ways
    first = np.empty(K + 2, np.int64)  # where layers begin
    first[0] = 0
    for k in range(K + 1):
        first[k + 1] = first[k] + below[0, k + 1] - below[0, k]
    forward = np.zeros(first[K + 1], p.dtype)
    forward[0] = 1.0
    s = np.empty(A, np.int64)
    to = np.empty(A, np.int64)
    for k in range(K):
        _first_state(s, high, k)
        for i in range(first[k], first[k + 1]):
            _followers(s, k, below, to)
            for a in range(A):
                if s[a] < high[a]:
                    forward[first[k + 1] + to[a]] += forward[i] * p[k, a]
            _next_state(s, high)

    begins = np.zeros(A, np.int64)
    for a in range(1, A):
        begins[a] = begins[a - 1] + widths[a - 1]
    onward = np.zeros(first[K + 1] - first[K], p.dtype)
    P = 0.0 * forward[0]
    _first_state(s, high, K)
    for i in range(len(onward)):
        end = 1.0
        for a in range(A):
            end *= f[begins[a] + s[a] - low[a]] if s[a] >= low[a] else 0.0
        onward[i] = end
        P += forward[first[K] + i] * end
        _next_state(s, high)

    weights[:] = 0.0
    for k in range(K - 1, -1, -1):
        _first_state(s, high, k)
        here = np.zeros(first[k + 1] - first[k], p.dtype)
        for i in range(len(here)):
            _followers(s, k, below, to)
            for a in range(A):
                if s[a] < high[a]:
                    term = p[k, a] * onward[to[a]]
                    here[i] += term
                    weights[k, a] += forward[first[k] + i] * term
            _next_state(s, high)
        onward = here
        weights[k] /= weights[k].sum()
    return float(P.real)


@inline
def _followers(s: IntArray, k: int, below: npt.NDArray[np.int64], to: IntArray) -> None:
    """Numbers of the states s + e_c in the layer k + 1."""
    A = len(s)
    rest = k
    shifted = 0  # terms of classes before c: one instance more is left for them
    unshifted = 0  # terms of classes behind c, which see no difference
    for c in range(A):
        unshifted += below[c + 1, rest + 1] - below[c + 1, rest + 1 - s[c]]
        rest -= s[c]
    rest = k
    for c in range(A):
        unshifted -= below[c + 1, rest + 1] - below[c + 1, rest + 1 - s[c]]
        own = below[c + 1, rest + 2] - below[c + 1, rest + 1 - s[c]]
        to[c] = shifted + own + unshifted
        shifted += below[c + 1, rest + 2] - below[c + 1, rest + 2 - s[c]]
        rest -= s[c]


@inline
def _first_state(s: IntArray, high: IntArray, k: int) -> None:
    """The first state of layer k: as many as can be in the last classes."""
    for a in range(len(s) - 1, -1, -1):
        s[a] = min(high[a], k)
        k -= s[a]


@inline
def _next_state(s: IntArray, high: IntArray) -> None:
    """The next one of the same layer; after the last, anything."""
    behind = s[len(s) - 1]
    for a in range(len(s) - 2, -1, -1):
        if behind > 0 and s[a] < high[a]:
            s[a] += 1
            behind -= 1
            for b in range(len(s) - 1, a, -1):
                s[b] = min(high[b], behind)
                behind -= s[b]
            return
        behind += s[a]
