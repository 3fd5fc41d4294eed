"""Shares of parties within groups, from the counts of groups and of votes in units.

The votes of unit b have, with n_bg people of group g and P_g the shares of parties within it,

    mean        m_b = sum_g n_bg P_g
    covariance  V_b = sum_g n_bg (1 + (n_bg - 1) rho) D_g + tau^2 A_b A_b'

with D_g = diag(P_g) - P_g P_g' and A_b = sum_g n_bg D_g. For rho = tau = 0 people vote
independently. With rho, the shares of a group differ from unit to unit (Dirichlet with 1 / (a + 1)
= rho). With tau, the logits of a unit differ by a normal vector of variance tau^2 that all groups
share: the bag effects of `bagwise.likelihood`. Large units make the counts normal, and then the
likelihood of these two moments is that of the counts; in small ones it is the best that is linear
in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from bagwise.bags import FloatArray
from bagwise.likelihood.coordinates import contrasts

_ROUNDS = 20  # of shares and variances in turn
_STEPS, _VARIANCE_STEPS = 5, 2  # in each of them
_CLOSE = 1e-3  # of a step, in logits
_SETTLED = 0.01
_PRIOR = 0.5  # logits of small shares lie far out, so a wider prior makes smaller errors
_LONGEST = 1.5  # of a step
_MOST = np.array([0.9, 10.0])  # of rho and of tau^2


@dataclass(frozen=True)
class Moments:
    """Fitted shares and variances.

    Attributes:
        logits: (R, D) of the groups, in the coordinates of `contrasts`.
        precision: (R D, R D) of the logits given the counts.
        rho: how much groups' shares differ from unit to unit.
        tau: how much units' logits differ.
    """

    logits: FloatArray
    precision: FloatArray
    rho: float
    tau: float

    @property
    def shares(self) -> FloatArray:
        """(R, C)."""
        return shares_of(self.logits)


def shares_of(logits: FloatArray) -> FloatArray:
    """(..., R, C) shares from logits (..., R, D)."""
    basis = contrasts(logits.shape[-1] + 1)
    found: FloatArray = softmax(logits @ basis.T, axis=-1)
    return found


def spreads_of(shares: FloatArray) -> FloatArray:
    """(R, D, D) the covariances of single votes."""
    basis = contrasts(shares.shape[1])
    q = shares @ basis
    square: FloatArray = np.einsum("gc,ce,cf->gef", shares, basis, basis, optimize=True)
    return square - q[:, :, None] * q[:, None, :]


def fit_moments(groups: FloatArray, votes: FloatArray) -> Moments:
    """The most likely shares and variances, with a normal prior of logits around their mean.

    The variance of the prior is fitted, too, by expectation and maximization (empirical Bayes): it
    says how far groups are alike where the counts do not tell. Shares and variances are fitted in
    turn, all of them by Fisher scoring.

    Args:
        groups: (B, R) people of each group.
        votes: (B, C) of each party, with the same sums.
    """
    R, C = groups.shape[1], votes.shape[1]
    y = votes @ contrasts(C)
    theta = np.tile(np.log(votes.sum(axis=0) + 0.5) @ contrasts(C), (R, 1))
    rho, tau2, ridge = 1e-3, 1e-3, 1.0
    H = np.eye(theta.size)
    for _ in range(_ROUNDS):
        before = theta, rho, tau2
        theta, H, inverse = _fit_shares(groups, y, theta, rho, tau2, ridge)
        spread = ((theta - theta.mean(axis=0)) ** 2).sum() + np.trace(inverse)
        ridge = _PRIOR * (theta.size + 1.0) / (spread + 1.0)
        rho, tau2 = _fit_variances(groups, y, theta, rho, tau2)
        moved = abs(rho - before[1]) + abs(tau2 - before[2])
        if np.abs(theta - before[0]).max() < _SETTLED and moved < _SETTLED * (rho + tau2 + 1e-3):
            break
    return Moments(theta, H, rho, tau2**0.5)


def covariance_parts(groups: FloatArray, spreads: FloatArray) -> tuple[FloatArray, ...]:
    """(B, D, D) each: the covariances of independent votes, their derivatives by rho and tau^2,
    and A.
    """
    B, (R, D, _) = len(groups), spreads.shape
    flat = spreads.reshape(R, -1)
    A = (groups @ flat).reshape(B, D, D)
    base = A.copy()
    base[:, range(D), range(D)] += 1e-9 * (1 + groups.sum(axis=1))[:, None]
    by_rho = ((groups * np.maximum(groups - 1, 0)) @ flat).reshape(B, D, D)
    return base, by_rho, A @ A, A


def _fit_shares(
    groups: FloatArray, y: FloatArray, theta: FloatArray, rho: float, tau2: float, ridge: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Logits (R, D), their precision, and its inverse."""
    R, D = theta.shape
    basis, value = contrasts(D + 1), np.inf
    pull = ridge * np.kron(np.eye(R) - 1.0 / R, np.eye(D)) + 1e-6 * np.eye(R * D)
    base, by_rho, by_tau, _ = covariance_parts(groups, spreads_of(shares_of(theta)))
    V_inverse = np.linalg.inv(base + rho * by_rho + tau2 * by_tau)
    products = (groups[:, :, None] * groups[:, None]).reshape(len(groups), -1)
    W = (products.T @ V_inverse.reshape(len(groups), -1)).reshape(R, R, D, D)
    step = np.zeros_like(theta)
    H = inverse = np.eye(R * D)
    for _ in range(_STEPS):
        shares = shares_of(theta)
        residuals = y - groups @ (shares @ basis)
        weighted = (V_inverse @ residuals[:, :, None])[:, :, 0]
        prior = pull @ theta.ravel()
        new = 0.5 * float((weighted * residuals).sum()) + 0.5 * float(theta.ravel() @ prior)
        if new > value:  # the step was too long
            step /= 2
            theta = theta - step
        else:
            value, spreads = new, spreads_of(shares)
            score = (spreads @ (groups.T @ weighted)[:, :, None]).ravel() - prior
            of_counts = np.einsum("gia,ghab,hbj->gihj", spreads, W, spreads, optimize=True)
            H = of_counts.reshape(R * D, R * D) + pull
            inverse = np.linalg.inv(H)
            step = np.clip((inverse @ score).reshape(R, D), -_LONGEST, _LONGEST)
            theta = theta + step
        if np.abs(step).max() < _CLOSE:
            break
    return theta, H, inverse


def _fit_variances(
    groups: FloatArray, y: FloatArray, theta: FloatArray, rho: float, tau2: float
) -> tuple[float, float]:
    """rho and tau^2 under which residuals are more likely, both at least 0."""
    shares, basis = shares_of(theta), contrasts(theta.shape[1] + 1)
    base, *parts, _ = covariance_parts(groups, spreads_of(shares))
    residuals = (y - groups @ (shares @ basis))[:, :, None]
    at = np.array([rho, tau2])
    for _ in range(_VARIANCE_STEPS):
        V_inverse = np.linalg.inv(base + at[0] * parts[0] + at[1] * parts[1])
        weighted = V_inverse @ residuals
        turned = [V_inverse @ part for part in parts]
        score = np.array(
            [
                float((weighted * (part @ weighted)).sum() - np.trace(own, axis1=1, axis2=2).sum())
                for part, own in zip(parts, turned, strict=True)
            ]
        )
        information = np.array(
            [[float((a * b.transpose(0, 2, 1)).sum()) for b in turned] for a in turned]
        )
        information[[0, 1], [0, 1]] *= 1 + 1e-9
        new = at + np.linalg.solve(information, score)
        for i in (0, 1):
            if new[i] < 0:  # the other one alone
                j = 1 - i
                new[i] = 0.0
                gain = score[j] + information[j, i] * at[i]
                new[j] = max(at[j] + gain / information[j, j], 0.0)
                break
        at = np.clip(new, 0.0, np.minimum(_MOST, 20 * at + 0.01))
    return float(at[0]), float(at[1])
