"""How well a model fits bags, without the label of any instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln, xlogy

from bagwise.bags import Bags, FloatArray
from bagwise.posterior import bag_posterior

SHOWN_BAGS = 1000
SURPRISING = 15
_COVERAGE = {"50 %": 0.6745, "80 %": 1.2816, "95 %": 1.9600}
_CHUNK = 500_000


def log_likelihoods(log_probs: torch.Tensor, bags: Bags) -> FloatArray:
    """(B,) log P(S|X) of each bag, computed for some bags at a time."""
    parts = []
    for index in bags.batches(_CHUNK, torch.arange(len(bags))):
        rows = torch.from_numpy(bags.rows(index))
        posterior = bag_posterior(log_probs[rows].double(), bags.select(index))
        parts.append(posterior.log_likelihood.numpy())
    found: FloatArray = np.concatenate(parts)
    return found


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
) -> dict[str, Any]:
    """What held-out bags say about a model, as JSON can hold it.

    Args:
        log_probs: (N, C) of their instances.
        bags: sizes and counts.
        ids: (B,) their names.
        shares: (C,) the overall share of each class, the baseline.

    Returns:
        `log_likelihood` and `baseline`, mean log P(S|X) per instance; `error`, the mean absolute
        difference of predicted and true proportions by class, and their `correlation`; `coverage`,
        the share of counts that lie in the model's central intervals; `calibration`, by class bins
        of bags with mean predicted and true proportion; `bags`, at most 1000 of them with both.
    """
    expected, variance = _moments(log_probs, bags)
    predicted = expected / bags.sizes[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.abs(bags.counts - expected) / np.sqrt(variance)
    z = z[variance > 1e-9]
    n = bags.n_instances
    shown = np.unique(np.linspace(0, len(bags) - 1, min(len(bags), SHOWN_BAGS)).astype(int))
    return {
        "n_bags": len(bags),
        "n_instances": n,
        "log_likelihood": float(log_likelihoods(log_probs, bags).sum() / n),
        "baseline": float(baseline_log_likelihoods(bags, shares).sum() / n),
        "correlation": [
            _correlation(predicted[:, c], bags.proportions[:, c]) for c in range(bags.n_classes)
        ],
        "error": np.abs(predicted - bags.proportions).mean(axis=0).tolist(),
        "coverage": {name: float((z <= width).mean()) for name, width in _COVERAGE.items()}
        if len(z)
        else {},
        "calibration": [
            _bins(predicted[:, c], bags.proportions[:, c], bags.sizes)
            for c in range(bags.n_classes)
        ],
        "bags": [
            {
                "bag": str(ids[b]),
                "size": int(bags.sizes[b]),
                "true": bags.proportions[b].tolist(),
                "predicted": predicted[b].tolist(),
            }
            for b in shown
        ],
    }


def surprising_bags(
    log_probs: torch.Tensor, bags: Bags, ids: npt.NDArray[Any]
) -> list[dict[str, Any]]:
    """The bags whose counts are least probable, compared with the counts the model expects.

    surprise = log P(S'|X) - log P(S|X), S' the model's expected counts, rounded. Zero or less is no
    surprise; wrong counts stand out.
    """
    expected, _ = _moments(log_probs, bags)
    likely = Bags.from_proportions(expected / bags.sizes[:, None], bags.sizes, rounding="nearest")
    surprise = log_likelihoods(log_probs, likely) - log_likelihoods(log_probs, bags)
    order = np.argsort(-surprise, kind="stable")[:SURPRISING]
    return [
        {
            "bag": str(ids[b]),
            "size": int(bags.sizes[b]),
            "counts": bags.counts[b].tolist(),
            "expected": np.round(expected[b], 1).tolist(),
            "surprise": float(surprise[b]),
        }
        for b in order
        if surprise[b] > 0
    ]


def _moments(log_probs: torch.Tensor, bags: Bags) -> tuple[FloatArray, FloatArray]:
    """(B, C) expected counts of the bags and their variances."""
    p = log_probs.double().exp()
    bag = torch.from_numpy(bags.bag_of_row)
    zeros = torch.zeros(len(bags), bags.n_classes, dtype=torch.float64)
    expected: FloatArray = zeros.index_add(0, bag, p).numpy()
    variance: FloatArray = zeros.index_add(0, bag, p * (1 - p)).numpy()
    return expected, variance


def _correlation(predicted: FloatArray, true: FloatArray) -> float | None:
    if len(true) < 3 or min(predicted.std(), true.std()) < 1e-12:
        return None
    return float(np.corrcoef(predicted, true)[0, 1])


def _bins(predicted: FloatArray, true: FloatArray, sizes: npt.NDArray[Any]) -> list[list[float]]:
    """[mean predicted, mean true proportion, instances] of up to ten groups of bags."""
    groups = np.array_split(np.argsort(predicted, kind="stable"), min(10, len(predicted)))
    return [
        [
            float(np.average(predicted[group], weights=sizes[group])),
            float(np.average(true[group], weights=sizes[group])),
            int(sizes[group].sum()),
        ]
        for group in groups
    ]
