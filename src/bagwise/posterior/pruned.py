"""The lattice of the exact engine without the states that carry no mass, and what that loses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._kernels import inline, kernel, over_bags, written_out
from bagwise.posterior._tilt import classes_by_count, tilt

HOPE = 2.0  # a bag is tried if so many times `most` states are guessed: guesses are rough
_TOLERANCE = 5e-7  # largest share of P(S|X) that may be lost
_CUT = 1e-10  # share of P(S|X) up to which a path is dropped
_FINER = 1e-3  # times that, where so much is dropped that too much is lost
_MOST = 2.0**30  # states at most: they are counted by 32 bits
_LARGEST = 1024  # instances of a bag that is tried


def fill_pruned(
    index: IntArray,
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
    bound: FloatArray,
    most: FloatArray,
    hope: float = HOPE,
    cut: float = _CUT,
    tolerance: float = _TOLERANCE,
) -> IntArray:
    """Compute the bags in `index` that need at most `most` (B,) states; returns those that need
    more.

    The dynamic program of `exact` on tilted probabilities, over those states only that can still
    matter. F(s) is the probability of reaching state s, and for B(s), that of going on from there
    to the bag's counts, there is a bound that needs no lattice:

        B(s) <= U(s) = min_c P(N_c = n_c - s_c),     N_c: Poisson-binomial count of the rest

    so that dropping s loses at most F(s) U(s) of P(S). What is dropped is added up, and as a share
    of what was found it becomes the bag's `bound`. The answer is taken only if that is below 5e-7:
    each instance's weights are then off by at most 1e-6 in L1 distance, usually by far less. Where
    a classifier is confident, a few hundred states are enough for a bag whose whole lattice has
    1e8.
    """
    done = np.zeros(len(bags), dtype=np.bool_)
    found = (log_likelihood, weights, bound, done)
    limits = np.minimum(np.maximum(most, 1.0), _MOST).astype(np.int64)
    tried = index[bags.totals[index] <= _LARGEST]

    def run(part: IntArray) -> None:
        offsets, copies = bags.offsets, bags.copies
        _pruned(part, log_p, offsets, copies, bags.min_counts, limits, hope, cut, tolerance, *found)

    over_bags(run, tried, 50.0 * bags.sizes[tried] ** 2)
    return index[~done[index]]


@kernel
def _pruned(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
    most: IntArray,
    hope: float,
    cut: float,
    tolerance: float,
    log_likelihood: FloatArray,
    weights: FloatArray,
    bound: FloatArray,
    done: npt.NDArray[np.bool_],
) -> None:
    most_classes, most_states = 0, 0
    for bag in index:
        most_classes = max(most_classes, (counts[bag] > 0).sum())
        most_states = max(most_states, most[bag])
    digits = np.empty((most_states, most_classes), np.int32)
    child = np.empty((most_states, most_classes), np.int32)
    code = np.empty(most_states, np.int64)
    mass = np.empty(most_states)
    places = 2
    while places < 2 * most_states:
        places *= 2
    table = np.empty(places, np.int32)
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        log_p, w, m = log_probs[rows], weights[rows], copies[rows]
        classes = classes_by_count(counts[bag])
        n = counts[bag][classes]
        A = len(classes)
        tilted = np.empty((len(log_p), A))
        offset = tilt(log_p, counts[bag], classes, m, tilted)
        order = _by_best_class(tilted)
        p = tilted[order]
        if _is_hopeless(p, m[order], hope * most[bag]):
            continue
        p = written_out(p, m[order])
        K = len(p)
        begins = np.zeros(A + 1, np.int64)
        begins[1:] = np.cumsum(n + 1)
        rest = _counts_of_the_rest(p, n, begins)
        likely = 1.0  # P(S), if the counts of all classes but one were independent
        for a in range(A - 1):
            likely *= rest[0, begins[a] + n[a]]
        first = np.zeros(K + 2, np.int64)
        P, lost = 0.0, 0.0
        for finer in (1.0, _FINER):  # many small losses can be too much together
            P, lost = _forward(
                p,
                n,
                rest,
                begins,
                digits,
                code[: most[bag]],
                mass,
                child,
                table,
                first,
                finer * cut * likely,
            )
            if lost == np.inf or lost <= tolerance * P:
                break
        if P == 0.0 or lost > tolerance * P:
            continue
        done[bag] = True
        bound[bag] = lost / P
        log_likelihood[bag] = offset + np.log(P)
        found = _backward(p, mass, child, first)
        w[:] = 0.0
        place = 0
        for k in order:
            for a in range(A):
                w[k, classes[a]] = found[place, a]
            place += m[k]


@inline
def _is_hopeless(p: FloatArray, copies: IntArray, most: float) -> bool:
    """Whether a bag needs more states, by a guess that is good to a factor of two or three.

    The counts of the first k instances, given the bag's, spread with the variance v of a bridge.
    About 2 prod_a (1 + 10^4 v_a)^.1 states of that layer carry mass (fitted on generated bags of 20
    to 256 instances and 3 to 30 classes).
    """
    K, A = p.shape
    before = np.zeros(A)
    behind = np.zeros(A)
    for k in range(K):
        for a in range(A):
            behind[a] += copies[k] * p[k, a] * (1.0 - p[k, a])
    states = 0.0
    for k in range(K):
        for _ in range(copies[k]):
            layer = 1.0
            for a in range(A):
                variance = p[k, a] * (1.0 - p[k, a])
                before[a] += variance
                behind[a] = max(behind[a] - variance, 0.0)
                if before[a] * behind[a] > 0.0:
                    layer *= 1.0 + 1e4 / (1.0 / before[a] + 1.0 / behind[a])
            states += 2.0 * layer**0.1
            if states > most:
                return True
    return False


@inline
def _by_best_class(p: FloatArray) -> IntArray:
    """Instances in the order of their most probable class: paths that differ meet again soon."""
    K, A = p.shape
    best = np.empty(K, np.int64)
    for k in range(K):
        best[k] = np.argmax(p[k])
    order = np.empty(K, np.int64)
    place = 0
    for a in range(A):
        for k in range(K):
            if best[k] == a:
                order[place] = k
                place += 1
    return order


@inline
def _counts_of_the_rest(p: FloatArray, n: IntArray, begins: IntArray) -> FloatArray:
    """rest[k, begins[a] + r] = P(r of the instances k, k + 1, ... are of class a), r <= n_a."""
    K, A = p.shape
    rest = np.zeros((K + 1, begins[A]))
    for a in range(A):
        rest[K, begins[a]] = 1.0
    for k in range(K - 1, -1, -1):
        for a in range(A):
            yes = p[k, a]
            no = 1.0 - yes
            if no < 1e-6:  # most digits canceled: add up the others instead
                no = 0.0
                for b in range(A):
                    if b != a:
                        no += p[k, b]
            rest[k, begins[a]] = rest[k + 1, begins[a]] * no
            for r in range(begins[a] + 1, begins[a + 1]):
                rest[k, r] = rest[k + 1, r] * no + rest[k + 1, r - 1] * yes
    return rest


@inline
def _forward(
    p: FloatArray,
    n: IntArray,
    rest: FloatArray,
    begins: IntArray,
    digits: npt.NDArray[np.int32],
    code: IntArray,
    mass: FloatArray,
    child: npt.NDArray[np.int32],
    table: npt.NDArray[np.int32],
    first: IntArray,
    cut: float,
) -> tuple[float, float]:
    """Fill states layer by layer (those of layer k are first[k] .. first[k + 1] - 1).

    Returns P(S) and a bound of what was lost; the latter is infinite if there are too many states.
    """
    K, A = p.shape
    steps = _code_steps(n)
    digits[0, :A] = 0
    code[0], mass[0] = 0, 1.0
    first[1] = states = 1
    table[:] = -1
    lost = 0.0
    for k in range(K):
        for i in range(first[k], first[k + 1]):
            for a in range(A):
                child[i, a] = -1
                step = mass[i] * p[k, a]
                if digits[i, a] == n[a] or step == 0.0:
                    continue
                to = code[i] + steps[a]
                place = _place(to, table, code, first[k + 1])
                if table[place] < first[k + 1]:
                    most = 1.0
                    for b in range(A):
                        left = n[b] - digits[i, b] - (1 if a == b else 0)
                        most = min(most, rest[k + 1, begins[b] + left])
                    if step * most < cut:
                        lost += step * most
                        continue
                    if states == len(code):
                        return 0.0, np.inf
                    digits[states, :A] = digits[i, :A]
                    digits[states, a] += 1
                    code[states], mass[states] = to, 0.0
                    table[place] = states
                    states += 1
                child[i, a] = table[place]
                mass[table[place]] += step
        first[k + 2] = states
    return (mass[states - 1] if first[K] < states else 0.0), lost


@inline
def _code_steps(n: IntArray) -> IntArray:
    """What one more instance of a class adds to a state's code."""
    A = len(n)
    steps = np.empty(A, np.int64)
    states = 1.0
    step = 1
    for a in range(A):
        steps[a] = step
        states *= n[a] + 1.0
        step *= n[a] + 1
    if states > 2.0**62:  # too many for codes that differ for sure; mixed ones do in all likelihood
        mixed = np.uint64(0)
        for a in range(A):
            mixed += np.uint64(0x9E3779B97F4A7C15)
            x = mixed
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            steps[a] = np.int64(x ^ (x >> np.uint64(31)))
    return steps


@inline
def _place(wanted: int, table: npt.NDArray[np.int32], code: IntArray, first: int) -> np.int64:
    """The place of a code in the hash table, or the free place where it belongs.

    Entries below `first` are of layers that are done with: their places are free. The table has
    at least twice as many places as there can be states, so a free one is found.
    """
    size = len(table)
    x = np.uint64(wanted) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64(x >> np.uint64(32)) & (size - 1)
    while table[place] >= first and code[table[place]] != wanted:
        place = (place + 1) & (size - 1)
    return place


@inline
def _backward(
    p: FloatArray, mass: FloatArray, child: npt.NDArray[np.int32], first: IntArray
) -> FloatArray:
    """The weights (K, A): sums over states of F p B, rows divided by their sum."""
    K, A = p.shape
    weights = np.zeros((K, A))
    onward = np.zeros(first[K + 1])
    onward[first[K + 1] - 1] = 1.0
    for k in range(K - 1, -1, -1):
        for i in range(first[k], first[k + 1]):
            for a in range(A):
                if child[i, a] >= 0:
                    term = p[k, a] * onward[child[i, a]]
                    onward[i] += term
                    weights[k, a] += mass[i] * term
        weights[k] /= weights[k].sum()
    return weights
