"""Shares of classes in groups of rows, by a model with bag effects, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.errors import InputError
from bagwise.likelihood.coefficient_covariance import Covariance, mean_and_slopes
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.effects_from_shares import BagEffects
from bagwise.likelihood.linear_fit import occurring
from bagwise.likelihood.objective import BagLikelihood, checked_features

_STEP = 0.01  # of log tau, in a difference of probabilities
_MOST_VARIANCE = 1.0  # of log tau that is allowed for
_CHUNK = 16_384  # rows whose derivatives are held at a time


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
        bag: (N,) the number of each row's bag: 0 .. B - 1 those of the fit, larger numbers of new
            bags, the same for rows of the same bag; below 0 of rows that are alone in a new one.
        groups: (N,) the group of each row, 0 .. G - 1.
        n_groups: G. A group without rows gets NaN.
        copies: (N,) how many identical rows each row stands for; one if not given.
    """
    features, of_row, group = np.asarray(X), np.asarray(bag), np.asarray(groups)
    times = np.ones(len(features)) if copies is None else np.asarray(copies)
    sums = EffectSums(covariance, effects, n_groups)
    sums.add(features, of_row, group, times)
    return sums.shares()


class EffectSums:
    """Sums over rows of what `group_shares_with_effects` returns; rows may come in parts.

    A row whose bag has a number below 0 is alone in a new one.
    """

    def __init__(self, covariance: Covariance, effects: EffectsOfFit, n_groups: int) -> None:
        self._covariance, self._effects, self._n_groups = covariance, effects, n_groups
        B, C = effects.means.shape
        size = covariance.matrix.shape[0]
        tau = effects.tau
        self._means = np.vstack([effects.means, np.zeros(C)])
        self._spreads, self._kept = np.append(effects.spreads, tau), np.append(effects.kept, 0.0)
        centres = np.vstack([effects.centres, np.zeros(size - 1)])
        self._centres = np.column_stack([centres, np.ones(B + 1)])
        self._grown = 1.0 + _STEP * (self._spreads / tau) ** 2
        self._rows = np.zeros(n_groups)
        self._totals, self._of_tau, self._of_labels, self._of_alone = (
            np.zeros((n_groups, C)) for _ in range(4)
        )
        self._gradient = np.zeros((n_groups, C, size, C))
        # The bags of each group, whose effects its rows share: numbers of pairs, in order.
        self._pairs: IntArray = np.empty(0, dtype=np.int64)
        self._of_pairs = np.empty((0, C, C))

    def add(
        self,
        X: npt.NDArray[Any],
        bag: IntArray,
        groups: IntArray,
        copies: npt.NDArray[Any],
    ) -> None:
        """Take more rows (N, d) into account."""
        for begin in range(0, len(X), _CHUNK):
            some = slice(begin, begin + _CHUNK)
            times = copies[some].astype(np.float64)
            self._add(X[some].astype(np.float64), bag[some], groups[some], times)

    def _add(self, X: FloatArray, bag: IntArray, own: IntArray, times: FloatArray) -> None:
        B, C = self._effects.means.shape
        at = np.where((bag >= 0) & (bag < B), bag, B)
        spreads, kept, grown = self._spreads[at], self._kept[at], self._grown[at]
        z = self._covariance.fit.logits(X)
        m = times[:, None]
        p, slopes = mean_and_slopes(z + self._means[at], spreads)
        more, _ = mean_and_slopes(z + self._means[at] * grown[:, None] ** 2, spreads * grown)
        moved = np.column_stack([X, np.ones(len(z))]) - kept[:, None] * self._centres[at]
        varied = (spreads[:, None, None] * slopes) ** 2
        np.add.at(self._rows, own, times)
        np.add.at(self._totals, own, m * p)
        np.add.at(self._of_tau, own, m * (more - p) / _STEP)
        np.add.at(self._of_labels, own, m * np.maximum(p * (1 - p) - varied.sum(axis=2), 0.0))
        slopes *= m[:, :, None]
        self._add_pairs(bag, own, slopes)
        for c in range(C):
            for a in range(C):
                np.add.at(self._gradient[:, c, :, a], own, moved * slopes[:, c, a, None])

    def _add_pairs(self, bag: IntArray, own: IntArray, slopes: FloatArray) -> None:
        alone = bag < 0
        tau = self._effects.tau
        np.add.at(self._of_alone, own[alone], tau**2 * (slopes[alone] ** 2).sum(axis=2))
        bag, own, slopes = bag[~alone], own[~alone], slopes[~alone]
        codes, pair = np.unique(bag * self._n_groups + own, return_inverse=True)
        known: IntArray = np.union1d(self._pairs, codes)
        of_pairs: FloatArray = np.zeros((len(known), *slopes.shape[1:]))
        of_pairs[np.searchsorted(known, self._pairs)] = self._of_pairs
        place = np.searchsorted(known, np.asarray(codes))
        np.add.at(of_pairs, place[pair.ravel()], slopes)
        self._pairs, self._of_pairs = known, of_pairs

    def shares(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Shares, standard errors and derivatives."""
        rows = np.where(self._rows == 0, np.nan, self._rows)[:, None]
        gradient = self._gradient / rows[..., None, None]
        variances = self._covariance.error_of(gradient) ** 2
        bag, group = self._pairs // self._n_groups, self._pairs % self._n_groups
        known: IntArray = np.minimum(bag, len(self._spreads) - 1)
        spreads = self._spreads[known]
        of_effects = self._of_alone.copy()
        np.add.at(of_effects, group, spreads[:, None] ** 2 * (self._of_pairs**2).sum(axis=2))
        variances += (of_effects + self._of_labels) / rows**2
        variances += self._effects.variance_of_log_tau() * (self._of_tau / rows) ** 2
        return self._totals / rows, np.sqrt(variances), gradient
