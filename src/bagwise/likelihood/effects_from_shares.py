"""What the known shares of a bag say about new rows of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.likelihood._effects import integrate_weighted, most_likely_tau
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.linear_fit import spread_of
from bagwise.likelihood.splits import some_bags

_TYPICAL = 32  # rows that stand for those of all bags
_ENOUGH = 100_000  # rows that tau is estimated from


@dataclass(frozen=True)
class BagEffects:
    """What is known of the own intercepts of bags.

    Attributes:
        tau: their standard deviation over bags.
        means: (B, C) the mean of each one given the bag's shares.
        spreads: (B,) its standard deviation given these, in a direction that sums to zero.
    """

    tau: float
    means: FloatArray
    spreads: FloatArray


def effects_of_shares(
    z: FloatArray,
    sizes: IntArray,
    shares: FloatArray,
    totals: FloatArray,
    tau: float | None = None,
    copies: IntArray | None = None,
) -> BagEffects:
    """The own intercept of bags whose shares are known, of which some rows are here.

    With logits z + u_b for the rows of bag b and u_b normal with variance tau^2,

        log P(u_b | n_b) = n_b . u_b - sum_j log sum_c exp(z_jc + u_bc) - |u_b|^2 / (2 tau^2)

    up to a constant, where j are the n rows that the shares are of: where u_b is free, the mean
    probability of each class over these rows is its share. They are not here; but they are taken to
    be like the m rows of the bag that are and, the fewer these, like the rows of all bags. Of the
    n, m n / (m + k) are divided between the former and k n / (m + k) between 32 typical ones of the
    latter, where k is the variance of logits within bags divided by that between them. As their
    mean logit may be off by e_b, of variance within / (m + k) + within / n, what is found is the
    posterior of u_b + e_b, and u_b has the share tau^2 / (tau^2 + Var e_b) of it.

    Where the rows are those that were counted, use `bag_posterior`, which knows that.

    Args:
        z: (N, C) logits, sorted by bag.
        sizes: (B,) how many of the rows each bag has, 1 or more.
        shares: (B, C) of the classes in the bags.
        totals: (B,) how many rows the shares are of.
        tau: if not given, that under which these shares are most probable.
        copies: (N,) how many identical rows each row stands for; one if not given.

    Bags differ much more than their rows, which are all alike: their shares are believed.

    >>> z, sizes = np.zeros((40, 2)), np.array([10, 10, 10, 10])
    >>> shares = np.array([[.1, .9], [.9, .1], [.3, .7], [.6, .4]])
    >>> found = effects_of_shares(z, sizes, shares, np.full(4, 500.))
    >>> p = np.exp(found.means) / np.exp(found.means).sum(axis=1, keepdims=True)
    >>> p.round(2)
    array([[0.1, 0.9],
           [0.9, 0.1],
           [0.3, 0.7],
           [0.6, 0.4]])
    """
    basis = contrasts(z.shape[1])
    if not basis.size:  # one class
        return BagEffects(0.0, np.zeros((len(sizes), 1)), np.zeros(len(sizes)))
    y = z @ basis
    copies = np.ones(len(z), np.int64) if copies is None else copies
    within, between = variance_components(y, sizes, copies)
    k = within / between if between > 0 else np.inf
    instances = np.add.reduceat(copies, np.cumsum(sizes) - sizes)
    of_rows = totals / (instances + k)
    of_all = totals - instances * of_rows
    off = within * (1.0 / (instances + k) + 1.0 / totals)
    rows, weights, offsets = _with_typical(y, sizes, copies, of_rows, of_all)
    logits: FloatArray = rows @ basis.T
    counts = shares * totals[:, None]
    if tau is None:
        some = some_bags(np.diff(offsets), _ENOUGH, 1)
        tau, _ = most_likely_tau(
            *_part(logits, weights, offsets, some), counts[some], basis, off[some]
        )
    of_bags = np.sqrt(tau**2 + off)
    _, _, v, squares = integrate_weighted(logits, weights, offsets, counts, basis, of_bags)
    own = tau**2 / of_bags**2
    spreads = np.sqrt((own * spread_of(v, squares)) ** 2 + tau**2 * (1 - own))
    return BagEffects(tau, (own[:, None] * v) @ basis.T, spreads)


def variance_components(y: FloatArray, sizes: IntArray, copies: IntArray) -> tuple[float, float]:
    """The variance of a coordinate within bags and between their means, by analysis of variance.

    Row k stands for copies[k] instances.

    Where no bag has two rows nothing tells them apart, and all of it is taken to be within.

    >>> y, once = np.array([[0.], [2.], [9.], [11.]]), np.ones(4, int)
    >>> variance_components(y, np.array([2, 2]), once)
    (2.0, 39.5)
    """
    N, B, D = int(copies.sum()), len(sizes), y.shape[1]
    starts = np.cumsum(sizes) - sizes
    instances = np.add.reduceat(copies, starts)
    means = np.add.reduceat(copies[:, None] * y, starts) / instances[:, None]
    inside = float((copies[:, None] * (y - np.repeat(means, sizes, axis=0)) ** 2).sum()) / D
    outside = float((instances[:, None] * (means - _mean(y, copies)) ** 2).sum()) / D
    if N == B or B == 1:
        return (inside + outside) / max(N - 1, 1), 0.0
    within = inside / (N - B)
    typical = (N - float((instances**2).sum()) / N) / (B - 1)
    return within, max((outside / (B - 1) - within) / typical, 0.0)


def _mean(y: FloatArray, copies: IntArray) -> FloatArray:
    mean: FloatArray = copies @ y / copies.sum()
    return mean


def _with_typical(
    y: FloatArray, sizes: IntArray, copies: IntArray, of_rows: FloatArray, of_all: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """The rows of each bag and typical ones of all bags: (rows, weights, offsets)."""
    order = np.argsort(y[:, 0], kind="stable")
    ends = np.cumsum(copies[order])
    places = ((np.arange(_TYPICAL) + 0.5) / _TYPICAL * ends[-1]).astype(int)
    every = order[np.searchsorted(ends, places, side="right")]
    typical = y[every] + (_mean(y, copies) - y[every].mean(axis=0))
    offsets = np.concatenate([[0], np.cumsum(sizes + _TYPICAL)])
    bag = np.repeat(np.arange(len(sizes)), sizes + _TYPICAL)
    place = np.arange(len(bag)) - offsets[bag]
    own = place < sizes[bag]
    rows, weights = np.empty((len(bag), y.shape[1])), np.empty(len(bag))
    rows[own], weights[own] = y, copies * np.repeat(of_rows, sizes)
    rows[~own] = typical[(place - sizes[bag])[~own]]
    weights[~own] = of_all[bag[~own]] / _TYPICAL
    return rows, weights, offsets


def _part(
    z: FloatArray, weights: FloatArray, offsets: IntArray, bags: IntArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Logits, weights and offsets of some bags."""
    if len(bags) == len(offsets) - 1:
        return z, weights, offsets
    wanted = np.zeros(len(offsets) - 1, dtype=bool)
    wanted[bags] = True
    rows = np.repeat(wanted, np.diff(offsets))
    return z[rows], weights[rows], np.concatenate([[0], np.cumsum(np.diff(offsets)[bags])])
