"""The bethe engine: belief propagation between instances and label counts, for bags of any size."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import flag, number, whole
from bagwise.posterior._balance import balance
from bagwise.posterior._bethe import (
    MOST,
    add_gap,
    add_up,
    beliefs,
    gap_tables,
    largest,
    odds,
    totals,
    without,
)
from bagwise.posterior._costs import costs
from bagwise.posterior._engine import KERNELS, Engine, posterior
from bagwise.posterior._kernels import LARGE, inline, kernel, over_bags
from bagwise.posterior._result import Posterior, Values, windows_of
from bagwise.posterior._tilt import classes_by_count, tilt
from bagwise.posterior.bethe_potentials import bethe_with_potentials
from bagwise.posterior.large_bags import bethe_of_large_bags
from bagwise.posterior.pairs import fill_pairs, is_pair
from bagwise.posterior.poisson_binomial import cardinality_probability, cardinality_ratios

TOLERANCE = 1e-3
MAX_ITERATIONS = 200
_ROUGHER = 10.0  # times the tolerance: where a fixed point is only corrected, not returned
_LARGE_COUNT = 80  # instances a class from which `large_bags` is faster, if counts are exact


def bethe_posterior(
    log_probs: Values,
    bags: Bags,
    correction: bool = True,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> Posterior[Values]:
    """P(S|X) and P(Y_k = c | S, X) by belief propagation with exact cardinality factors.

    Each class c is a factor that knows exactly how many of the bag's instances are c. It tells
    instance k the ratio r, the instances answer with the odds o that all other classes leave:

        r[k, c] = P(N_-k = n_c - 1) / P(N_-k = n_c)      N_-k: Poisson-binomial count without k
        o[k, c] = p[k, c] / sum over c' != c of p[k, c'] r[k, c']
        w[k, c] ~ p[k, c] r[k, c]

    until the weights w stand still. The Bethe value of the fixed point is a lower bound of
    log P(S|X). With `correction`, the factors' ignorance of each other is made up for by a
    covariance term. With Sigma = diag(sum_k w) - w'w, v_c its diagonal, d_i its pivots (smallest
    first, one class left out) and g(v) = exp(-v) I_0(v):

        log P(S|X) ~ bethe + gap(w),     gap(w) = sum_i log g(d_i) - sum_c log g(v_c)

    and the weights are those of a second fixed point, for log p + a d gap/d w: to first order what
    the gap adds to d log P / d log p. The factor a = 1 - .7 exp(-mean_c v_c / 1.7) keeps the step
    short where few instances are uncertain and g is a poor guide; its two constants were fitted by
    eye on generated bags (K = 4 to 64, 3 and 10 classes), like those of `benchmarks/accuracy.py`.

    Where the counts are not exact, a class weighs a window of them by its potential,

        r[k, c] = sum_m P(N_-k = m) f_c(m + 1) / sum_m P(N_-k = m) f_c(m)

    and no class is left out of Sigma, to whose diagonal is added how wide f_c is: u v / (v - u), if
    the variance of the count is v by the other classes' messages alone and u with f_c.

    In bags of more than 80 instances a class, or 2048 in all, and in those with weighted rows, the
    messages come from 12 to 25 values of the counts' characteristic functions. Counts that are not
    exact are taken as normal in bags of more than 2048, if their variance is above 100. Exact
    counts of two classes, from 16 instances on, are computed as `exact` does.

    Cost: about K^2 steps an iteration over all classes (K^2 log C where counts are improbable),
    K C^2 in such large bags, typically 3 to 12 iterations in all; memory K C.
    Accuracy: `benchmarks/accuracy.py` compares it with the exact engine; the mean L1 error of an
    instance's weights is .001 to .04 at K = 16, .0007 to .04 at K = 32.
    It is at its weakest where a confident classifier leaves a few instances in doubt, which then
    depend on each other: single weights can be far off. `auto` computes such bags exactly.
    Choose it for bags beyond the exact engine's reach; `auto` does.

    What backward returns as the gradient of the log-likelihood is the weights. Without the
    correction they are the gradient of the value; with it they are a stand-in, an instance's L1
    distance from the derivative of the corrected value being .03 to .04. They are the better
    direction: that derivative is .051, .036, .035 away from the gradient of the exact log P(S|X) at
    K = 8, 16, 32, the weights .019, .017, .006 (means of `benchmarks/accuracy.py`); and they are
    what EM needs, rows that sum to 1, columns that sum to the counts, no entry below 0.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and counts of the bags of these N instances.
        correction: False gives the plain Bethe weights and their lower bound of the log-likelihood.
        tolerance: iterations end when no weight changes by more than this. Those for the first of
            two fixed points end at ten times as much: it is only where the correction starts, and
            is best not followed where convergence is slow.
        max_iterations: bags that need more are counted in a warning. Rows always sum to 1, and
            columns to the counts, within 1e-7; should that not be reached, a warning says so.

    >>> labels = np.arange(100) % 5
    >>> log_probs = 2 * np.eye(5)[labels] + np.random.default_rng(0).normal(size=(100, 5))
    >>> bags = Bags.from_labels(labels, sizes=[100])
    >>> post = bethe_posterior(log_probs, bags)
    >>> post.weights.sum(axis=0).round(3)
    array([20., 20., 20., 20., 20.])
    """
    flag(correction, "correction")
    number(above=0)(tolerance, "tolerance")
    whole(1)(max_iterations, "max_iterations")
    return posterior("bethe", log_probs, bags, (correction, tolerance, max_iterations))


def _fill(
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
    correction: float,
    tolerance: float,
    max_iterations: float,
) -> None:
    fill_bethe(
        np.arange(len(bags)),
        log_p,
        bags,
        log_likelihood,
        weights,
        bool(correction),
        tolerance,
        int(max_iterations),
    )


KERNELS["bethe"] = Engine(_fill)


def fill_bethe(
    index: IntArray,
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
    correction: bool = True,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    large_count: int = _LARGE_COUNT,
) -> None:
    """Compute the bags in `index`: their entries of `log_likelihood`, their rows of `weights`.

    Of the three kernels, that for large bags takes weighted rows; the others see bags without. Two
    classes are one factor, whose messages are exact: `fill_pairs` has them.
    """
    pairs = (is_pair(bags) & bags.is_sharp)[index]
    if pairs.any():
        fill_pairs(index[pairs], log_p, bags, log_likelihood, weights)
        index = index[~pairs]
    converged = np.ones(len(bags), dtype=np.bool_)
    balanced = np.ones(len(bags), dtype=np.bool_)
    how: tuple[Any, ...] = (correction, float(tolerance), max_iterations, *gap_tables())
    found: tuple[Any, ...] = (log_likelihood, weights, converged, balanced)

    def run(part: IntArray) -> None:
        _bethe(part, log_p, bags.offsets, bags.copies, bags.min_counts, *how, *found)

    def run_potentials(part: IntArray) -> None:
        assert bags.potentials is not None
        known = (bags.min_counts, bags.potentials.begins, bags.potentials.log_f)
        bethe_with_potentials(part, log_p, bags.offsets, bags.copies, *known, *how, *found)

    most = np.where(bags.is_sharp[index], min(large_count * bags.n_classes, LARGE), LARGE)
    is_large = (bags.sizes[index] > most) | (bags.totals > bags.sizes)[index]
    if is_large.any():
        _fill_large(index[is_large], log_p, bags, how, found)
        index = index[~is_large]
    sharp = index[bags.is_sharp[index]]
    if len(sharp):
        over_bags(run, sharp, costs(bags).bethe[sharp])
    if len(sharp) < len(index):
        soft = index[~bags.is_sharp[index]]
        over_bags(run_potentials, soft, 20.0 * bags.n_classes * bags.sizes[soft] ** 2)
    if not balanced.all():
        warnings.warn(
            f"the weights of {(~balanced).sum()} of {len(bags)} bags (the first is bag "
            f"{np.argmin(balanced)}) do not sum to the counts by class: almost no labeling is "
            'possible there. Use engine="exact" if their lattice is small enough.',
            RuntimeWarning,
            stacklevel=2,
        )
    if not converged.all():
        warnings.warn(
            f"belief propagation did not converge to {tolerance:g} in {max_iterations} iterations "
            f"for {(~converged).sum()} of {len(bags)} bags (the first is bag "
            f"{np.argmin(converged)}); their weights are approximate. Raise max_iterations, or use "
            'engine="exact" if their lattice is small enough.',
            RuntimeWarning,
            stacklevel=2,
        )


def _fill_large(
    index: IntArray, log_p: FloatArray, bags: Bags, how: tuple[Any, ...], found: tuple[Any, ...]
) -> None:
    windows = windows_of(bags)

    def run(part: IntArray) -> None:
        known = (bags.offsets, bags.copies, bags.min_counts, *windows)
        bethe_of_large_bags(part, log_p, *known, *how, *found)

    over_bags(run, index, 100.0 * bags.sizes[index] * bags.n_classes**2)


@kernel
def _bethe(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray,
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
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        classes = classes_by_count(counts[bag])
        n = counts[bag][classes]
        K, A = offsets[bag + 1] - offsets[bag], len(classes)
        p = np.empty((K, A))
        m = copies[rows]
        log_likelihood[bag] = tilt(log_probs[rows], counts[bag], classes, m, p)
        converged[bag] = True
        weights[rows] = 0.0
        if A > 1:
            messages = np.ones((K, A))
            first = _ROUGHER * tolerance if correction else tolerance
            converged[bag] = _propagate(p, n, messages, first, max_iterations)
            log_likelihood[bag] += _bethe_value(p, n, messages)
            if correction:
                w = beliefs(p, messages)
                log_likelihood[bag] += add_gap(w, m, np.zeros(A), A - 1, log_g, slope, p)
                again = _propagate(p, n, messages, tolerance, max_iterations)
                converged[bag] = converged[bag] and again
            p = beliefs(p, messages)
            balanced[bag] = balance(p, n, m)
        for k in range(K):
            for a in range(A):
                weights[offsets[bag] + k, classes[a]] = p[k, a]


@inline
def _propagate(
    p: FloatArray, n: IntArray, messages: FloatArray, tolerance: float, max_iterations: int
) -> bool:
    """Iterate the messages of the classes, one class after the other, until beliefs stand still."""
    K, A = p.shape
    yes = np.empty((A, K))  # p; a class is a row, so that loops over instances run in vectors
    sent = np.empty((A, K))  # messages
    joint = np.empty((A, K))  # p * message
    for k in range(K):
        for a in range(A):
            yes[a, k] = p[k, a]
            sent[a, k] = messages[k, a]
            joint[a, k] = p[k, a] * messages[k, a]
    total = np.empty(K)  # sum over classes of p * message
    rest = np.empty(K)  # the same without the class at hand
    moved = np.empty(K)
    converged = False
    for _ in range(max_iterations):
        change = 0.0
        add_up(joint, total)
        for a in range(A):
            without(joint, total, a, rest)
            cardinality_ratios(yes[a], rest, n[a], MOST, sent[a])
            for k in range(K):
                before = joint[a, k] / (rest[k] + joint[a, k])
                joint[a, k] = yes[a, k] * sent[a, k]
                total[k] = rest[k] + joint[a, k]
                moved[k] = joint[a, k] / total[k] - before
            change = max(change, largest(moved))
        converged = change < tolerance
        if converged:
            break
    for k in range(K):
        for a in range(A):
            messages[k, a] = sent[a, k]
    return converged


@inline
def _bethe_value(p: FloatArray, n: IntArray, messages: FloatArray) -> float:
    """log of prod_c Z_c / prod_k Z_k^(C - 1); stationary in the messages, so they may be rough."""
    K, A = p.shape
    total = np.empty(K)
    rest = np.empty(K)
    yes = np.empty(K)
    no = np.empty(K)
    totals(p, messages, total)
    value = 0.0
    for k in range(K):
        value -= (A - 1) * np.log(total[k])
    for a in range(A):
        odds(p, messages, total, a, rest, yes, no)
        value += np.log(cardinality_probability(yes, no, n[a]))
        for k in range(K):
            value += np.log(p[k, a] + rest[k])
    return value
