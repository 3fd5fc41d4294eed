"""The table of every unit given its counts, and of all units together."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from bagwise.bags import FloatArray
from bagwise.ecological.moments import Moments, covariance_parts, shares_of, spreads_of
from bagwise.likelihood.coordinates import contrasts

_NEWTON, _SWEEPS = 8, 200
_CLOSE = 1e-6  # of a unit's votes
_FEWEST = 0.3  # votes of a party, as Newton's steps see them
_LONGEST = 3.0  # of a step, in logits
_DRAWS = 1000


def unit_tables(groups: FloatArray, votes: FloatArray, fit: Moments) -> FloatArray:
    """(B, R, C) the votes to be expected of each group for each party, given the unit's counts.

    With s = 1 + (n - 1) rho, they are n_g times

        softmax over c of log P_g + s_g l + tau^2 A_b l

    for the l under which parties have their counts. For small l that is the linear regression of
    the cells on the counts, and of people who vote independently the likeliest table.
    """
    shares, basis = fit.shares, contrasts(votes.shape[1])
    spreads = spreads_of(shares)
    B, R, D = len(groups), len(shares), len(basis) - 1
    s = 1 + np.maximum(groups - 1, 0) * fit.rho
    A = (groups @ spreads.reshape(R, -1)).reshape(B, D, D)
    mixed = s[:, :, None, None] * np.eye(D) + fit.tau**2 * A[:, None]  # (B, R, D, D)
    totals = votes.sum(axis=1, keepdims=True)
    wanted = np.maximum(votes, _FEWEST)
    wanted *= totals / wanted.sum(axis=1, keepdims=True)
    tilt = np.zeros((B, D))
    tables = groups[:, :, None] * shares
    for _ in range(_NEWTON):
        off = (wanted - tables.sum(axis=1)) @ basis
        jacobian = np.zeros((B, D, D))
        for g in range(R):
            p = tables[:, g] / np.maximum(groups[:, g, None], 1e-12)
            q = p @ basis
            spread = np.einsum("bc,ce,cf->bef", p, basis, basis, optimize=True)
            spread -= q[:, :, None] * q[:, None, :]
            jacobian += groups[:, g, None, None] * (spread @ mixed[:, g])
        jacobian[:, range(D), range(D)] += 1e-9 * (1 + totals)
        step = np.linalg.solve(jacobian, off[:, :, None])
        reach = np.abs(mixed @ step[:, None]).max(axis=(1, 2, 3))
        tilt += (np.minimum(1.0, _LONGEST / np.maximum(reach, 1e-12)))[:, None] * step[:, :, 0]
        logits = fit.logits + (mixed @ tilt[:, None, :, None])[..., 0]
        tables = groups[:, :, None] * shares_of(logits)
    return _with_margins(tables, groups, votes)


def _with_margins(tables: FloatArray, groups: FloatArray, votes: FloatArray) -> FloatArray:
    """Tables with exactly these sums, by proportional fitting."""
    least = 1e-12
    for _ in range(_SWEEPS):
        tables = tables * (votes / np.maximum(tables.sum(axis=1), least))[:, None]
        sums = tables.sum(axis=2)
        tables = tables * (groups / np.maximum(sums, least))[:, :, None]
        if (np.abs(sums - groups) <= _CLOSE * groups.sum(axis=1, keepdims=True)).all():
            break
    return tables


def table_intervals(
    groups: FloatArray, fit: Moments, table: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """(R, C) each: the ends of the interval of each share of the table of all units.

    The share is that of the very people. Given the shares P of the model it is, up to rounding,

        P_g + sum_b K_bg (votes_b - m_b) / N_g,    K_bg = cov(votes of group g, votes_b) V_b^-1

    and varies around that by what K leaves of the variance. P is drawn 1,000 times from the normal
    distribution of the logits, which are the same draws at every call. Of small shares the logits
    are far from normal, so an interval also holds Student's t times the standard deviation of the
    drawn shares to either side.

    Args:
        groups: (B, R) people of each group.
        table: (R, C) the shares around which intervals lie.
        level: of the intervals.
    """
    shares, basis = fit.shares, contrasts(table.shape[1])
    spreads = spreads_of(shares)
    B, R, D = len(groups), len(shares), len(basis) - 1
    base, by_rho, by_tau, A = covariance_parts(groups, spreads)
    V_inverse = np.linalg.inv(base + fit.rho * by_rho + fit.tau**2 * by_tau)
    s = 1 + np.maximum(groups - 1, 0) * fit.rho
    totals = groups.sum(axis=0)
    explained, remaining = np.empty((R, R, D, D)), np.empty((R, D, D))
    for g in range(R):
        n = groups[:, g, None, None]
        cross = n * (spreads[g] @ (s[:, g, None, None] * np.eye(D) + fit.tau**2 * A))
        K = cross @ V_inverse
        explained[g] = np.tensordot(groups, K, axes=([0], [0])) / totals[g]
        own = n * s[:, g, None, None] * spreads[g] + (n * fit.tau) ** 2 * (spreads[g] @ spreads[g])
        remaining[g] = (own - K @ cross.transpose(0, 2, 1)).sum(axis=0) / totals[g] ** 2
    rng = np.random.default_rng(0)
    root = np.linalg.inv(np.linalg.cholesky(fit.precision))
    drawn = fit.logits + (rng.normal(size=(_DRAWS, R * D)) @ root).reshape(-1, R, D)
    p = (shares_of(drawn) - shares) @ basis
    varied = np.einsum("ce,gef,cf->gc", basis, remaining, basis, optimize=True)
    found = (p - np.einsum("ghef,nhf->nge", explained, p, optimize=True)) @ basis.T
    found += table + rng.normal(size=found.shape) * np.sqrt(np.maximum(varied, 0.0))
    low, high = np.quantile(found, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    reach = float(stdtrit(max(B - 1, 1), 0.5 + level / 2)) * found.std(axis=0)
    low, high = np.minimum(low, table - reach), np.maximum(high, table + reach)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
