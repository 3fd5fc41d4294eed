"""The transport engine: entropic optimal transport between instances and labels."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import number, whole
from bagwise.posterior._engine import KERNELS, Engine, posterior
from bagwise.posterior._expected import likely_counts
from bagwise.posterior._kernels import inline, kernel, log_sum_exp, over_bags
from bagwise.posterior._result import Posterior, Values
from bagwise.posterior._tilt import classes_by_count

TRANSPORT_OPTIONS = {"epsilon": number(above=0), "iterations": whole(1)}
_SMALLEST = -300.0  # smallest exponent for which scaling cannot lose an entry to underflow


def transport_posterior(
    log_probs: Values, bags: Bags, epsilon: float = 1.0, iterations: int = 75
) -> Posterior[Values]:
    """The OT method's pseudo-labels: a transport plan between instances and label counts.

        maximize  sum w log p - epsilon sum w log w   over w >= 0 with rows 1 and columns n_c

    by Sinkhorn iterations on the normalized rows of p, columns first and rows last: what POT's
    `sinkhorn` does with cost -log p, row masses 1 and column masses n_c. Where plain scalings could
    underflow, a bag is computed in the log domain.

    Cost: iterations * K C. Accuracy: with epsilon = 1 the weights are those of the class factors
    that give the right expected counts (the tilt), an error of order 1 / K; the value, returned as
    the log-likelihood, is then the capacity bound: an upper bound of log P(S|X), after any number
    of iterations. Its gradient is w.
    Where counts are not exact, it takes the expected ones.
    Choose it to reproduce OT; `bethe` costs little more and is much closer.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and counts of the bags of these N instances.
        epsilon: strength of the entropy; towards 0 the plan becomes a hard labeling.
        iterations: how many times columns and rows are scaled.

    >>> log_probs = np.log([[.8, .2], [.4, .6]])
    >>> transport_posterior(log_probs, Bags([2], [[1, 1]])).weights.round(4)
    array([[0.7101, 0.2899],
           [0.2899, 0.7101]])
    """
    TRANSPORT_OPTIONS["epsilon"](epsilon, "epsilon")
    TRANSPORT_OPTIONS["iterations"](iterations, "iterations")
    return posterior("transport", log_probs, bags, (epsilon, iterations))


def _fill(
    log_p: FloatArray,
    bags: Bags,
    log_likelihood: FloatArray,
    weights: FloatArray,
    epsilon: float,
    iterations: float,
) -> None:
    steps = int(iterations)
    counts = likely_counts(log_p, bags)

    def run(index: IntArray) -> None:
        known = (bags.offsets, bags.copies, counts)
        _transport(index, log_p, *known, epsilon, steps, log_likelihood, weights)

    over_bags(run, np.arange(len(bags)), 2.0 * steps * bags.sizes * bags.n_classes)


KERNELS["transport"] = Engine(_fill)


@kernel
def _transport(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray | FloatArray,
    epsilon: float,
    iterations: int,
    log_likelihood: FloatArray,
    weights: FloatArray,
) -> None:
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        log_p = log_probs[rows]
        weights[rows] = 0.0
        classes = classes_by_count(counts[bag])
        n = counts[bag][classes]
        K, A = len(log_p), len(classes)
        plan = np.empty((K, A))
        for k in range(K):
            scale = log_sum_exp(log_p[k])
            for a in range(A):
                plan[k, a] = (log_p[k, classes[a]] - scale) / epsilon
        if plan.min() > _SMALLEST:
            plan = np.exp(plan)
            scalings = _scale(plan, n, copies[rows], iterations)
        else:
            scalings = _scale_logs(plan, n, copies[rows], iterations)
        # The dual value: it bounds log P(S|X) also where columns are not yet those wanted.
        value = -epsilon * (n * scalings).sum()
        for k in range(K):
            for a in range(A):
                w = plan[k, a]
                weights[offsets[bag] + k, classes[a]] = w
                if w > 0.0:
                    value += (
                        copies[offsets[bag] + k]
                        * w
                        * (log_p[k, classes[a]] - epsilon * (np.log(w) - scalings[a]))
                    )
        log_likelihood[bag] = value


@inline
def _scale(plan: FloatArray, n: IntArray, copies: IntArray, iterations: int) -> FloatArray:
    """Scale columns and rows of `plan` in place; `copies` (K,) are the rows' weights. Returns the
    logarithms (A,) of what columns were scaled by.
    """
    K, A = plan.shape
    row = np.ones(K)
    column = np.empty(A)
    for _ in range(iterations):
        column[:] = 0.0
        for k in range(K):
            for a in range(A):
                column[a] += copies[k] * plan[k, a] * row[k]
        for a in range(A):
            column[a] = n[a] / column[a]
        for k in range(K):
            total = 0.0
            for a in range(A):
                total += plan[k, a] * column[a]
            row[k] = 1.0 / total
    for k in range(K):
        for a in range(A):
            plan[k, a] *= row[k] * column[a]
    return np.log(column)


@inline
def _scale_logs(plan: FloatArray, n: IntArray, copies: IntArray, iterations: int) -> FloatArray:
    """The same from and on logarithms."""
    K, A = plan.shape
    row = np.zeros(K)
    column = np.empty(A)
    for _ in range(iterations):
        for a in range(A):
            top = -np.inf
            for k in range(K):
                top = max(top, plan[k, a] + row[k])
            total = 0.0
            for k in range(K):
                total += copies[k] * np.exp(plan[k, a] + row[k] - top)
            column[a] = np.log(n[a] / total) - top
        for k in range(K):
            top = -np.inf
            for a in range(A):
                top = max(top, plan[k, a] + column[a])
            total = 0.0
            for a in range(A):
                total += np.exp(plan[k, a] + column[a] - top)
            row[k] = -np.log(total) - top
    for k in range(K):
        plan[k] += column
        plan[k] = np.exp(plan[k] - plan[k].max())
        plan[k] /= plan[k].sum()
    return column
