"""The multinomial engine: the approximation of the paper's section 5."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._engine import KERNELS, Engine, posterior
from bagwise.posterior._expected import likely_counts
from bagwise.posterior._kernels import inline, kernel, log_sum_exp, over_bags
from bagwise.posterior._result import Posterior, Values


def multinomial_posterior(log_probs: Values, bags: Bags) -> Posterior[Values]:
    r"""RC_Approx's weights and CC_Approx's likelihood: the other instances as one multinomial.

    The label counts of all instances but k are taken as multinomial with their mean probabilities:

        P~(S \ y | X \ X_k) = (K-1)! / prod_c m_c! * prod_c mean_{j != k} p[j, c]^m_c,  m = n - e_y
        q[k, y]        = p[k, y] P~(S \ y | X \ X_k)
        w[k, y]        = q[k, y] / sum_y' q[k, y']
        log_likelihood = mean_k log sum_y q[k, y]

    Rows of p are normalized first, and their scale is given back to the log-likelihood. The
    gradient of the log-likelihood flows through every term, so it is not the weights.

    Cost: K C. Accuracy: exact for K <= 2; otherwise the coarsest of the engines, and the columns of
    the weights do not sum to the counts. Where counts are not exact, it takes the expected ones.
    Choose it to reproduce RC_Approx and CC_Approx; `bethe` is closer at any bag size.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalized.
        bags: sizes and counts of the bags of these N instances.

    >>> log_probs = np.log([[.8, .2], [.4, .6], [.5, .5]])
    >>> multinomial_posterior(log_probs, Bags([3], [[2, 1]])).weights.round(4)
    array([[0.9072, 0.0928],
           [0.4179, 0.5821],
           [0.5714, 0.4286]])
    """
    return posterior("multinomial", log_probs, bags)


def _fill(
    log_p: FloatArray, bags: Bags, log_likelihood: FloatArray, weights: FloatArray
) -> FloatArray:
    gradient = np.empty(log_p.shape)
    # log (K-1)! / prod_c n_c!, the part of the multinomial coefficient all y share
    counts = likely_counts(log_p, bags)
    if bags.potentials is None:
        factorials = _log_factorial(bags.min_counts)
    else:
        from scipy.special import gammaln  # takes long to import, and is seldom needed

        factorials = gammaln(counts + 1)
    shared = _log_factorial(bags.totals - 1) - factorials.sum(axis=1)

    def run(index: IntArray) -> None:
        known = (bags.offsets, bags.copies, counts, shared)
        _multinomial(index, log_p, *known, log_likelihood, weights, gradient)

    over_bags(run, np.arange(len(bags)), 100.0 * bags.sizes * bags.n_classes)
    return gradient


KERNELS["multinomial"] = Engine(_fill, own_gradient=True)


def _log_factorial(n: IntArray) -> FloatArray:
    table = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n.max() + 1)))])
    values: FloatArray = table[n]
    return values


@kernel
def _multinomial(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    counts: IntArray | FloatArray,
    shared: FloatArray,
    log_likelihood: FloatArray,
    weights: FloatArray,
    gradient: FloatArray,
) -> None:
    C = counts.shape[1]
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        n, w, slope = counts[bag], weights[rows], gradient[rows]
        log_p = log_probs[rows].copy()
        K, m = len(log_p), copies[rows]
        total = m.sum()
        scale = 0.0
        for k in range(K):
            row = log_sum_exp(log_p[k])
            log_p[k] -= row
            scale += m[k] * row

        top = np.empty(C, np.int64)  # the instance most probably of class c
        second = np.empty(C)  # log of the largest probability of the others
        mean = np.full((K, C), -np.inf)  # log mean_{j != k} p[j, c]
        if total > 1:
            for c in range(C):
                _log_means_without_one(log_p, m, c, top, second, mean)
        value = 0.0
        for k in range(K):
            value += m[k] * _weigh(log_p[k], mean[k], n, w[k])
        log_likelihood[bag] = scale + value / total + shared[bag]

        # d/d log p[j, c] of one copy: own term, and through the means of all other instances k.
        slope[:] = w
        if total > 1:
            for c in range(C):
                if n[c] > 0:
                    _through_means(log_p, m, c, n[c], top[c], second[c], mean, w, slope)
        for k in range(K):  # back through the normalization of the rows
            own = slope[k].sum() / total
            for c in range(C):
                slope[k, c] = slope[k, c] / total + np.exp(log_p[k, c]) * (1.0 - own)


@inline
def _log_means_without_one(
    log_p: FloatArray,
    copies: IntArray,
    c: int,
    top: IntArray,
    second: FloatArray,
    mean: FloatArray,
) -> None:
    """Fill mean[:, c]. Relative to the largest p[j, c], leaving out any other k is a harmless
    subtraction; the largest itself is left out by summing the others relative to the second, which
    is as large if there are copies of the largest.
    """
    K = len(log_p)
    best = 0
    for k in range(1, K):
        if log_p[k, c] > log_p[best, c]:
            best = k
    runner_up = -np.inf if copies[best] == 1 else log_p[best, c]
    for k in range(K):
        if k != best:
            runner_up = max(runner_up, log_p[k, c])
    top[c] = best
    second[c] = runner_up
    if log_p[best, c] == -np.inf:
        return
    total = 0.0
    others = 0.0
    rest_size = copies.sum() - 1
    for k in range(K):
        total += copies[k] * np.exp(log_p[k, c] - log_p[best, c])
        left = copies[k] - (1 if k == best else 0)
        if left > 0 and runner_up > -np.inf:
            others += left * np.exp(log_p[k, c] - runner_up)
    for k in range(K):
        if k != best:
            rest = total - np.exp(log_p[k, c] - log_p[best, c])
            mean[k, c] = log_p[best, c] + np.log(rest / rest_size)
    if runner_up > -np.inf:
        mean[best, c] = runner_up + np.log(others / rest_size)


@inline
def _weigh(log_p: FloatArray, mean: FloatArray, n: IntArray, w: FloatArray) -> float:
    """w[y] = softmax of log p[y] + log n_y + sum_c m_c mean[c]; returns the log-sum-exp.

    A class that no other instance can have is this one's, as far as it is expected at all.
    """
    C = len(n)
    power = 0.0  # sum of n_c mean[c] over finite means
    missing = 0.0  # sum of n_c over the others
    for c in range(C):
        if mean[c] == -np.inf:
            if log_p[c] > -np.inf:
                missing += n[c]
        else:
            power += n[c] * mean[c]
    left = np.log(1.0 - missing) if missing < 1 else -np.inf  # 0 unless counts are expected ones
    for y in range(C):
        w[y] = -np.inf
        if n[y] > 0:
            if mean[y] > -np.inf:
                w[y] = log_p[y] + np.log(n[y]) + power - mean[y] + left
            else:
                w[y] = log_p[y] + np.log(n[y]) + power
    total = log_sum_exp(w)
    for y in range(C):
        w[y] = np.exp(w[y] - total)
    w /= w.sum()  # at huge values the logarithm of the sum is only roughly right
    return total


@inline
def _through_means(
    log_p: FloatArray,
    copies: IntArray,
    c: int,
    n: int,
    best: int,
    second: float,
    mean: FloatArray,
    w: FloatArray,
    slope: FloatArray,
) -> None:
    """Add sum over k != j of (n_c - w[k, c]) p[j, c] / sum_{i != k} p[i, c] to slope[j, c].

    k are all instances but one copy of row j.
    """
    K, rest_size = len(log_p), copies.sum() - 1
    top = log_p[best, c]
    if top == -np.inf:
        return
    total = 0.0  # over k != best, relative to the largest probability
    for k in range(K):
        if k != best:
            total += copies[k] * (n - w[k, c]) * np.exp(top - mean[k, c]) / rest_size
    from_best = 0.0
    if second > -np.inf:
        from_best = (n - w[best, c]) * np.exp(second - mean[best, c]) / rest_size
    for j in range(K):
        if j == best:
            slope[j, c] += total + (copies[best] - 1) * from_best
        else:
            own = (n - w[j, c]) * np.exp(top - mean[j, c]) / rest_size
            slope[j, c] += np.exp(log_p[j, c] - top) * max(total - own, 0.0)
            if second > -np.inf:
                slope[j, c] += copies[best] * np.exp(log_p[j, c] - second) * from_best
