"""Shares of classes in groups of rows, by a model with bag effects, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray
from bagwise.errors import InputError
from bagwise.likelihood.coefficient_covariance import Covariance, mean_and_slopes
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.effects_from_shares import BagEffects
from bagwise.likelihood.linear_fit import occurring
from bagwise.likelihood.objective import BagLikelihood, checked_features

_STEP = 0.01  # of log tau, in a difference of probabilities
_MOST_VARIANCE = 1.0  # of log tau that is allowed for
_CHUNK = 200_000  # rows whose derivatives are held at a time


@dataclass(frozen=True)
class EffectsOfFit(BagEffects):
    """The effects of the bags of a fit, given their counts, and what they follow.

    Attributes:
        centres: (B, d) the features that an error of the weights moves a bag's logits by, see
            `effects_of_fit`.
    """

    centres: FloatArray

    @property
    def kept(self) -> FloatArray:
        """(B,) the share of an effect that the counts tell: 1 - spread^2 / tau^2."""
        shares: FloatArray = np.clip(1.0 - (self.spreads / self.tau) ** 2, 0.0, 1.0)
        return shares

    def variance_of_log_tau(self) -> float:
        """Roughly: a bag that tells the share s of its effect has the information 2 s^2 for each
        of the C - 1 directions. No more than 1, where bags tell next to nothing.
        """
        directions = self.means.shape[1] - 1
        information = 2.0 * directions * float((self.kept**2).sum())
        return float(min(1.0 / max(information, 1e-12), _MOST_VARIANCE))


def effects_of_fit(X: npt.ArrayLike, bags: Bags, fit: LinearFit) -> EffectsOfFit:
    """What is known of the effects of the bags that a fit with bag effects was made with.

    The counts of a bag pin down its logits as a whole, not its effect: where the weights are off by
    dW, the effect of bag b moves by

        du_b = - s_b x_b dW,     x_b = sum_k t_k x_k / sum_k t_k,   t_k = 1 - sum_c p_kc^2

    with s_b the share of the effect that the counts tell. With two classes that is the derivative
    of the effect's mode; with more it is that of the mean of all directions.

    Args:
        X: (N, d) features that the fit was made with.
        fit: a fit with bag effects.

    >>> from bagwise.likelihood import fit_linear
    >>> X = np.array([[0.], [1.], [2.], [3.]])
    >>> bags = Bags([2, 2], [[1, 1], [0, 2]])
    >>> effects_of_fit(X, bags, fit_linear(X, bags, bag_effects=1.0)).centres.shape
    (2, 1)
    """
    features = checked_features(X, bags)
    if fit.effects is None or fit.spreads is None:
        raise InputError("fit has no bag effects; use fit_linear with bag_effects above 0.")
    part, classes = occurring(bags)
    likelihood = BagLikelihood(features, part)
    p = likelihood.evaluate(fit.theta(classes), fit.bag_effects).probabilities
    t = bags.copies * np.maximum(1.0 - (p**2).sum(axis=1), 1e-12)
    starts = bags.offsets[:-1]
    weights = np.add.reduceat(t, starts)
    centres = np.add.reduceat(features * t[:, None], starts) / weights[:, None]
    return EffectsOfFit(fit.bag_effects, fit.effects, fit.spreads, centres)


def group_shares_with_effects(
    covariance: Covariance,
    effects: EffectsOfFit,
    X: npt.ArrayLike,
    bag: npt.ArrayLike,
    groups: npt.ArrayLike,
    n_groups: int,
    copies: npt.ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The share of each class in groups of rows, its standard error, (G, C) each, and its
    derivative by the coefficients (G, C, d + 1, C).

        share[g, c] = mean over rows k of the group of p[k, c]

    where p is the mean of softmax(z + u) over what is known of the effect u of the row's bag: its
    mean and spread given the counts, or, of a new bag, 0 and tau. The error is that of the share
    among the very rows. Its square is the sum of four parts:

        coefficients    by the delta method, an effect moving against them (`effects_of_fit`)
        effects         independent between bags, the same for all rows of a bag
        tau             by the delta method: means and spreads of effects grow with it
        labels          sum_k of the mean of q (1 - q), q = softmax(z + u), divided by n^2

    Args:
        covariance: of the fit's coefficients, tau taken as known.
        effects: of the fit's bags, B of them.
        X: (N, d) features, standardized as those of the fit.
        bag: (N,) the number of each row's bag: 0 .. B - 1 those of the fit, other numbers of new
            bags, the same for rows of the same bag.
        groups: (N,) the group of each row, 0 .. G - 1.
        n_groups: G. A group without rows gets NaN.
        copies: (N,) how many identical rows each row stands for; one if not given.
    """
    features = np.asarray(X, dtype=np.float64)
    times = np.ones(len(features)) if copies is None else np.asarray(copies, dtype=np.float64)
    of_row, group = np.asarray(bag), np.asarray(groups)
    n, d = features.shape
    B, C = effects.means.shape
    tau = effects.tau
    place = np.where((of_row >= 0) & (of_row < B), of_row, B)
    means = np.vstack([effects.means, np.zeros(C)])
    spreads, kept = np.append(effects.spreads, tau), np.append(effects.kept, 0.0)
    centres = np.column_stack([np.vstack([effects.centres, np.zeros(d)]), np.ones(B + 1)])
    # The bags of each group, whose effects its rows share.
    numbers = np.unique(of_row, return_inverse=True)[1].ravel()
    pairs, pair = np.unique(group * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)
    group_of_pair, place_of_pair = (np.empty(len(pairs), dtype=np.int64) for _ in range(2))
    group_of_pair[pair], place_of_pair[pair] = group, place
    totals, of_tau, of_labels = (np.zeros((n_groups, C)) for _ in range(3))
    gradient, of_bags = np.zeros((n_groups, C, d + 1, C)), np.zeros((len(pairs), C, C))
    grown = 1.0 + _STEP * (spreads / tau) ** 2
    for begin in range(0, n, _CHUNK):
        some = slice(begin, begin + _CHUNK)
        own, at = group[some], place[some]
        z = covariance.fit.logits(features[some])
        m = times[some, None]
        p, slopes = mean_and_slopes(z + means[at], spreads[at])
        more, _ = mean_and_slopes(z + means[at] * grown[at, None] ** 2, spreads[at] * grown[at])
        moved = np.column_stack([features[some], np.ones(len(z))]) - kept[at, None] * centres[at]
        varied = (spreads[at, None, None] * slopes) ** 2
        np.add.at(totals, own, m * p)
        np.add.at(of_tau, own, m * (more - p) / _STEP)
        np.add.at(of_labels, own, m * np.maximum(p * (1 - p) - varied.sum(axis=2), 0.0))
        slopes *= m[:, :, None]
        np.add.at(of_bags, pair[some], slopes)
        for c in range(C):
            for a in range(C):
                np.add.at(gradient[:, c, :, a], own, moved * slopes[:, c, a, None])
    rows = np.bincount(group, times, minlength=n_groups)
    rows[rows == 0] = np.nan
    rows = rows[:, None]
    gradient /= rows[..., None, None]
    variances = covariance.error_of(gradient) ** 2
    own_effects = np.zeros((n_groups, C))
    of_pairs = spreads[place_of_pair, None] ** 2 * (of_bags**2).sum(axis=2)
    np.add.at(own_effects, group_of_pair, of_pairs)
    variances += (own_effects + of_labels) / rows**2
    variances += effects.variance_of_log_tau() * (of_tau / rows) ** 2
    return totals / rows, np.sqrt(variances), gradient
