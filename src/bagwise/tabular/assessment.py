"""How well a model fits bags, without the label of any instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln, xlogy

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.posterior.poisson_binomial import count_probabilities
from bagwise.tabular.facts import BinOfBags, HeldOutBag, HeldOutFacts, SurprisingBag
from bagwise.training.evaluation import log_likelihoods

SHOWN_BAGS = 1000
SURPRISING = 15
_INTERVALS = {"50 %": 0.5, "80 %": 0.8, "95 %": 0.95}
_CHUNK = 500_000


def baseline_log_likelihoods(bags: Bags, shares: FloatArray) -> FloatArray:
    """(B,) log P(S) where every instance has the same class probabilities, `shares`.

    log K! / (n_1! ... n_C!) + sum_c n_c log shares_c

    >>> baseline_log_likelihoods(Bags([2], [[1, 1]]), np.array([.5, .5])).round(4)
    array([-0.6931])
    """
    ways = gammaln(bags.sizes + 1) - gammaln(bags.counts + 1).sum(axis=1)
    found: FloatArray = ways + xlogy(bags.counts, np.maximum(shares, 1e-12)).sum(axis=1)
    return found


def assess(
    log_probs: torch.Tensor, bags: Bags, ids: npt.NDArray[Any], shares: FloatArray
) -> HeldOutFacts:
    """What held-out bags say about a model.

    Args:
        log_probs: (N, C) of their instances.
        bags: sizes and counts.
        ids: (B,) their names.
        shares: (C,) the overall share of each class, the baseline.
    """
    expected, variances = _moments(log_probs, bags)
    predicted = expected / bags.sizes[:, None]
    off_centre = 2 * np.abs(count_levels(log_probs, bags) - 0.5)
    n = bags.n_instances
    of_bags = log_likelihoods(log_probs, bags).numpy()
    baseline = baseline_log_likelihoods(bags, shares)
    shown = np.unique(np.linspace(0, len(bags) - 1, min(len(bags), SHOWN_BAGS)).astype(int))
    return HeldOutFacts(
        n_bags=len(bags),
        n_instances=n,
        log_likelihood=float(of_bags.sum() / n),
        baseline=float(baseline.sum() / n),
        gain_error=mean_per_instance(of_bags - baseline, bags)[1],
        correlation=[
            _correlation(predicted[:, c], bags.proportions[:, c]) for c in range(bags.n_classes)
        ],
        error=np.abs(predicted - bags.proportions).mean(axis=0).tolist(),
        coverage={name: float((off_centre <= width).mean()) for name, width in _INTERVALS.items()},
        calibration=[
            _bins(predicted[:, c], bags.proportions[:, c], variances[:, c], bags.sizes)
            for c in range(bags.n_classes)
        ],
        bags=[
            HeldOutBag(
                bag=str(ids[b]),
                size=int(bags.sizes[b]),
                true=bags.proportions[b].tolist(),
                predicted=predicted[b].tolist(),
            )
            for b in shown
        ],
    )


def surprising_bags(
    log_probs: torch.Tensor, bags: Bags, ids: npt.NDArray[Any]
) -> list[SurprisingBag]:
    """The bags whose counts are least probable, compared with the counts the model expects.

    surprise = log P(S'|X) - log P(S|X), S' the model's expected counts, rounded. Zero or less is no
    surprise; wrong counts stand out.
    """
    expected, _ = _moments(log_probs, bags)
    likely = Bags.from_proportions(expected / bags.sizes[:, None], bags.sizes, rounding="nearest")
    surprise = (log_likelihoods(log_probs, likely) - log_likelihoods(log_probs, bags)).numpy()
    order = np.argsort(-surprise, kind="stable")[:SURPRISING]
    return [
        SurprisingBag(
            bag=str(ids[b]),
            size=int(bags.sizes[b]),
            counts=bags.counts[b].tolist(),
            expected=np.round(expected[b], 1).tolist(),
            surprise=float(surprise[b]),
        )
        for b in order
        if surprise[b] > 0
    ]


def count_levels(log_probs: torch.Tensor, bags: Bags, seed: int = 0) -> FloatArray:
    """(B, C) where each count lies in its distribution under the model, in 0 .. 1.

    The count of a class in a bag is a sum of independent yes-or-no's with probabilities p_k. With N
    such a sum and V uniform, the level is P(N < n) + V P(N = n): uniform if the model is right,
    whatever the bag's size. A count that the model holds impossible is at 0 or 1.
    """
    V = np.random.default_rng(seed).random(bags.counts.shape)
    below, equal = count_probabilities(log_probs.numpy(), bags)
    levels: FloatArray = np.clip(below + V * equal, 0, 1)
    return levels


def _moments(log_probs: torch.Tensor, bags: Bags) -> tuple[FloatArray, FloatArray]:
    """(B, C) each: expected counts of the bags, and the variances of the counts."""
    mean, variance = torch.zeros(2, len(bags), bags.n_classes, dtype=torch.float64)
    bag = torch.from_numpy(bags.bag_of_row)
    for part, bag_of_part in zip(
        torch.split(log_probs, _CHUNK), torch.split(bag, _CHUNK), strict=True
    ):
        p = part.double().exp()
        mean.index_add_(0, bag_of_part, p)
        variance.index_add_(0, bag_of_part, p * (1 - p))
    return mean.numpy(), variance.clamp(min=0).numpy()


def _correlation(predicted: FloatArray, true: FloatArray) -> float | None:
    if len(true) < 3 or min(predicted.std(), true.std()) < 1e-12:
        return None
    return float(np.corrcoef(predicted, true)[0, 1])


def _bins(
    predicted: FloatArray, true: FloatArray, variances: FloatArray, sizes: npt.NDArray[Any]
) -> list[BinOfBags]:
    """Mean predicted and mean true proportion of up to ten groups of bags."""
    groups = np.array_split(np.argsort(predicted, kind="stable"), min(10, len(predicted)))
    return [
        BinOfBags(
            predicted=float(np.average(predicted[group], weights=sizes[group])),
            true=float(np.average(true[group], weights=sizes[group])),
            instances=int(sizes[group].sum()),
            error=float(np.sqrt(variances[group].sum()) / sizes[group].sum()),
        )
        for group in groups
    ]
