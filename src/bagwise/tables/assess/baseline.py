"""What bags say without any feature: the shares that every row has in common."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import gammaln, softmax, xlogy

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood import fit_linear
from bagwise.posterior import log_likelihoods

_ENOUGH = 200_000  # instances of bags that tell the overall shares, where counts are not exact


def overall_shares(bags: Bags) -> FloatArray:
    """(C,) the class probabilities under which all bags are most probable, the same for each row.

    With exact counts these are the shares of all rows. Otherwise the mean of what is expected of
    each bag alone would be too even: "fewer than 5" of a rare class is 0 most often.

    >>> overall_shares(Bags([2, 3], [[1, 1], [1, 2]]))
    array([0.4, 0.6])
    >>> rare = Bags.from_ranges(np.tile([0, 0], (50, 1)), np.tile([2, 9], (50, 1)), [9] * 50)
    >>> bool(overall_shares(rare)[0] < 0.05)
    True
    """
    if bags.potentials is None:
        shares: FloatArray = bags.counts.sum(axis=0) / bags.total
        return shares
    order = np.random.default_rng(0).permutation(len(bags))
    some = np.sort(order[: max(int((np.cumsum(bags.sizes[order]) <= _ENOUGH).sum()), 1)])
    part = bags.select(some)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a share may go to 0 without an end
        fit = fit_linear(np.zeros((part.n_instances, 1)), part)
    found: FloatArray = softmax(fit.intercept)
    return found


def baseline_log_likelihoods(bags: Bags, shares: FloatArray) -> FloatArray:
    """(B,) log P(S) where every instance has the same class probabilities, `shares`.

    log K! / (n_1! ... n_C!) + sum_c n_c log shares_c

    Where counts are not exact, or labels of rows are known, it is that of what is known, as it is
    of a model.

    >>> baseline_log_likelihoods(Bags([2], [[1, 1]]), np.array([.5, .5])).round(4)
    array([-0.6931])
    """
    least = np.maximum(shares, 1e-12)
    if bags.potentials is None and bags.row_labels is None:
        ways = gammaln(bags.totals + 1) - gammaln(bags.counts + 1).sum(axis=1)
        found: FloatArray = ways + xlogy(bags.counts, least).sum(axis=1)
        return found
    same = np.broadcast_to(np.log(least), (bags.n_instances, len(least)))
    return log_likelihoods(same, bags)
