"""How well a model fits bags, without the label of any instance."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln, xlogy

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.bag_effects import bags_differ
from bagwise.likelihood.mixing import drawn_counts, mean_softmax
from bagwise.likelihood.objective import log_likelihoods_with_effects
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.posterior.poisson_binomial import count_intervals, count_probabilities
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
    log_probs: torch.Tensor,
    bags: Bags,
    ids: npt.NDArray[Any],
    shares: FloatArray,
    tau: FloatArray | None = None,
) -> HeldOutFacts:
    """What held-out bags say about a model.

    Args:
        log_probs: (N, C) of their instances.
        bags: sizes and counts.
        ids: (B,) their names.
        shares: (C,) the overall share of each class, the baseline.
        tau: (B,) standard deviation of the bags' own effects, where there are any; `log_probs` are
            then for an effect of zero.
    """
    expected, variances = _moments(log_probs, bags, tau)
    predicted = expected / bags.sizes[:, None]
    off_centre = 2 * np.abs(count_levels(log_probs, bags, tau) - 0.5)
    n = bags.n_instances
    of_bags = _log_likelihoods(log_probs, bags, tau)
    baseline = baseline_log_likelihoods(bags, shares)
    if tau is not None:
        same = np.tile(np.log(np.maximum(shares, 1e-12)), (n, 1))
        of_same = np.full(len(bags), bags_differ(same, bags)[0])
        baseline = log_likelihoods_with_effects(same, bags, of_same)
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
    log_probs: torch.Tensor, bags: Bags, ids: npt.NDArray[Any], tau: FloatArray | None = None
) -> list[SurprisingBag]:
    """The bags whose counts are least probable, compared with the counts the model expects.

    surprise = log P(S'|X) - log P(S|X), S' the model's expected counts, rounded. Zero or less is no
    surprise; wrong counts stand out.
    """
    expected, _ = _moments(log_probs, bags, tau)
    likely = Bags.from_proportions(expected / bags.sizes[:, None], bags.sizes, rounding="nearest")
    surprise = _log_likelihoods(log_probs, likely, tau) - _log_likelihoods(log_probs, bags, tau)
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


def held_out_table(
    log_probs: torch.Tensor,
    bags: Bags,
    ids: npt.NDArray[Any],
    classes: Sequence[str],
    tau: FloatArray | None = None,
) -> str:
    """CSV with a row for each bag: its size and, of each class, the true count, the predicted one
    and the ends of the model's 95 % interval.

    >>> log_probs = torch.full((4, 2), 0.5).log()
    >>> bags, ids = Bags([4], [[1, 3]]), np.array(["A"])
    >>> print(held_out_table(log_probs, bags, ids, ["no", "yes"]), end="")
    bag,size,true_no,predicted_no,low_no,high_no,true_yes,predicted_yes,low_yes,high_yes
    A,4,1,2,0,4,3,2,0,4
    """
    expected, _ = _moments(log_probs, bags, tau)
    if tau is None:
        low, high = count_intervals(log_probs.numpy(), bags)
    else:
        _, _, low, high = drawn_counts(log_probs.double().numpy(), bags, tau)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("true", "predicted", "low", "high")
    writer.writerow(["bag", "size", *(f"{part}_{name}" for name in classes for part in parts)])
    numbers = np.stack([bags.counts, expected, low, high], axis=2).reshape(len(bags), -1)
    for name, size, row in zip(ids.tolist(), bags.sizes.tolist(), numbers.tolist(), strict=True):
        writer.writerow([name, size, *(f"{x:.6g}" if x % 1 else int(x) for x in row)])
    return text.getvalue()


def count_levels(
    log_probs: torch.Tensor, bags: Bags, tau: FloatArray | None = None, seed: int = 0
) -> FloatArray:
    """(B, C) where each count lies in its distribution under the model, in 0 .. 1.

    The count of a class in a bag is a sum of independent yes-or-no's with probabilities p_k. With N
    such a sum and V uniform, the level is P(N < n) + V P(N = n): uniform if the model is right,
    whatever the bag's size. A count that the model holds impossible is at 0 or 1. Where bags have
    effects of their own, the distribution is that of draws (`likelihood.mixing.drawn_counts`).
    """
    V = np.random.default_rng(seed).random(bags.counts.shape)
    if tau is None:
        below, equal = count_probabilities(log_probs.numpy(), bags)
    else:
        below, equal, _, _ = drawn_counts(log_probs.double().numpy(), bags, tau)
    levels: FloatArray = np.clip(below + V * equal, 0, 1)
    return levels


def _log_likelihoods(log_probs: torch.Tensor, bags: Bags, tau: FloatArray | None) -> FloatArray:
    """(B,) log P(S|X)."""
    if tau is None:
        found: FloatArray = log_likelihoods(log_probs, bags).numpy()
        return found
    return log_likelihoods_with_effects(log_probs.double().numpy(), bags, tau)


def _moments(
    log_probs: torch.Tensor, bags: Bags, tau: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """(B, C) each: expected counts of the bags, and the variances of the counts.

    With bag effects the variances are those within a bag, whose effect is not known.
    """
    if tau is not None:
        none = np.zeros((len(bags), bags.n_classes))
        shares = mean_softmax(log_probs.double().numpy(), bags.bag_of_row, none, tau)
        log_probs = torch.from_numpy(shares).log()
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
