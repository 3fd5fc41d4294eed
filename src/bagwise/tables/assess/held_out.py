"""How well a model fits bags, without the label of any instance."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.bag_effects import bags_differ
from bagwise.likelihood.mixing import drawn_counts, mean_softmax
from bagwise.likelihood.objective import log_likelihoods_with_effects
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.posterior import bag_posterior, log_likelihoods
from bagwise.posterior.auto import AUTO_STATES
from bagwise.posterior.poisson_binomial import count_intervals, count_probabilities
from bagwise.tables.assess.baseline import baseline_log_likelihoods
from bagwise.tables.model.fit_facts import (
    BinOfBags,
    Coverage,
    HeldOutBag,
    HeldOutFacts,
    SurprisingBag,
)

SHOWN_BAGS = 1000
SURPRISING = 15
_LEVELS = (0.5, 0.8, 0.95)  # of intervals
_CHUNK = 500_000


def assess(
    log_probs: FloatArray,
    bags: Bags,
    ids: npt.NDArray[Any],
    shares: FloatArray,
    tau: FloatArray | None = None,
    degree: float = 1.0,
) -> HeldOutFacts:
    """What held-out bags say about a model.

    Likelihoods are those of all that is known: of ranges or noisy counts where counts are not
    exact, and of the labels of rows that are known, for the model and the baseline alike. Labeled
    rows of no bag count there as bags of one, and nowhere else. Proportions that are not known
    exactly are those to be expected by the label file alone, if it says anything of them, and
    counts are compared with intervals only where they are exact.

    Args:
        log_probs: (N, C) of their instances.
        bags: sizes and counts.
        ids: (B,) their names.
        shares: (C,) the overall share of each class, the baseline.
        tau: (B,) standard deviation of the bags' own effects, where there are any; `log_probs` are
            then for an effect of zero.
        degree: the number of bags that an average row is in. Bags that share rows are not
            independent: as far as standard errors go, there are as many fewer of them.
    """
    expected, variances = _moments(log_probs, bags, tau)
    n = bags.total
    of_bags = _log_likelihoods(log_probs, bags, tau)
    baseline = baseline_log_likelihoods(bags, shares)
    if tau is not None:
        same = np.tile(np.log(np.maximum(shares, 1e-12)), (bags.n_instances, 1))
        of_same = np.full(len(bags), bags_differ(same, bags)[0])
        baseline = log_likelihoods_with_effects(same, bags, of_same)
    ours = of_label_file(bags)
    sharp = ours[bags.is_sharp[ours]]
    coverage: list[Coverage] = []
    if len(sharp):
        rows = bags.rows(sharp)
        own = None if tau is None else tau[sharp]
        off_centre = 2 * np.abs(count_levels(log_probs[rows], bags.select(sharp), own) - 0.5)
        coverage = [Coverage(level, float((off_centre <= level).mean())) for level in _LEVELS]
    predicted = (expected / bags.totals[:, None])[ours]
    true, sizes, told = bags.proportions[ours], bags.totals[ours], _told(bags)[ours]
    shown = np.unique(np.linspace(0, len(ours) - 1, min(len(ours), SHOWN_BAGS)).astype(int))
    return HeldOutFacts(
        n_bags=len(bags),
        n_instances=n,
        log_likelihood=float(of_bags.sum() / n),
        baseline=float(baseline.sum() / n),
        gain_error=math.sqrt(degree) * mean_per_instance(of_bags - baseline, bags)[1],
        correlation=[
            _correlation(predicted[there, c], true[there, c]) for c, there in enumerate(told.T)
        ],
        error=_errors(predicted, true, told),
        baseline_error=_errors(np.broadcast_to(shares, true.shape), true, told),
        coverage=coverage,
        calibration=[
            _bins(predicted[there, c], true[there, c], variances[ours][there, c], sizes[there])
            for c, there in enumerate(told.T)
        ],
        bags=[
            HeldOutBag(
                bag=str(ids[ours[b]]),
                size=int(sizes[b]),
                true=[
                    float(x) if there else None for x, there in zip(true[b], told[b], strict=True)
                ],
                predicted=predicted[b].tolist(),
            )
            for b in shown
        ],
        covered_bags=len(sharp),
        degrees=max(len(bags) / degree - 1, 0.0),
    )


def _told(bags: Bags) -> npt.NDArray[np.bool_]:
    """(B, C) whether something is known of a count: not where each of a range of more than half of
    the rows is as good as another.
    """
    known = bags.potentials
    if known is None:
        return np.ones(bags.min_counts.shape, dtype=np.bool_)
    begins = known.begins[:-1]
    flat = np.maximum.reduceat(known.log_f, begins) == np.minimum.reduceat(known.log_f, begins)
    wide = known.widths - 1 > bags.totals[:, None] / 2
    told: npt.NDArray[np.bool_] = ~(flat.reshape(wide.shape) & wide)
    return told


def of_label_file(bags: Bags) -> IntArray:
    """The bags that are not single rows of which the label is known; all if they all are."""
    if bags.row_labels is None:
        return np.arange(len(bags))
    alone = (bags.sizes == 1) & (bags.row_labels[bags.offsets[:-1]] >= 0)
    return np.arange(len(bags)) if alone.all() else np.flatnonzero(~alone)


def surprising_bags(
    log_probs: FloatArray, bags: Bags, ids: npt.NDArray[Any], tau: FloatArray | None = None
) -> list[SurprisingBag]:
    """The bags whose counts are least probable, compared with the counts the model expects.

    surprise = log P(S'|X) - log P(S|X), S' the model's expected counts, rounded. Zero or less is no
    surprise; wrong counts stand out. Labels of rows do not matter here.

    Where counts are not exact, S is what the model and the label file agree on best, the expected
    counts given both, and what it costs the label file is added: log f(S'') - log f(S), S'' the
    counts to be expected by the file alone.
    """
    expected, _ = _moments(log_probs, bags, tau)
    likely = _nearest(expected, bags)
    found, given, cost = bags, bags.expected_counts, np.zeros(len(bags))
    if bags.potentials is not None:
        agreed = _nearest(_expected_by_both(log_probs, bags), bags)
        cost = _log_potential(bags, _nearest(given, bags)) - _log_potential(bags, agreed)
        found = agreed
    elif bags.row_labels is not None:
        found = Bags.of_arrays(bags.sizes, bags.counts, bags.weights)
    surprise = _log_likelihoods(log_probs, likely, tau) - _log_likelihoods(log_probs, found, tau)
    surprise += cost
    order = np.argsort(-surprise, kind="stable")[:SURPRISING]
    return [
        SurprisingBag(
            bag=str(ids[b]),
            size=int(bags.totals[b]),
            counts=_plain(np.round(given[b], 1)),
            expected=np.round(expected[b], 1).tolist(),
            surprise=float(surprise[b]),
        )
        for b in order
        if surprise[b] > 0
    ]


def _plain(numbers: FloatArray) -> list[float]:
    """Whole numbers without a point."""
    return [int(x) if x == int(x) else x for x in numbers.tolist()]


def _nearest(counts: FloatArray, bags: Bags) -> Bags:
    """Counts (B, C) of the bags' sizes, rounded."""
    shares = counts / bags.totals[:, None]
    return Bags.from_proportions(shares, bags.sizes, rounding="nearest", weights=bags.weights)


def _expected_by_both(log_probs: FloatArray, bags: Bags) -> FloatArray:
    """(B, C) expected counts given what is known of the bags."""
    counts = np.empty((len(bags), bags.n_classes))
    for index in bags.batches(_CHUNK):
        rows, some = bags.rows(index), bags.select(index)
        log_p = log_probs[rows].astype(np.float64)
        weights = bag_posterior(log_p, some, max_states=AUTO_STATES).weights
        counts[index] = np.add.reduceat(some.copies[:, None] * weights, some.offsets[:-1])
    return counts


def _log_potential(bags: Bags, counts: Bags) -> FloatArray:
    """(B,) sum_c log f_c of counts; those outside the window are taken for its nearest end."""
    known = bags.potentials
    assert known is not None
    inside = np.clip(counts.counts, known.low, known.high) - known.low
    places = known.begins[:-1].reshape(inside.shape) + inside
    found: FloatArray = known.log_f[places].sum(axis=1)
    return found


def held_out_table(
    log_probs: FloatArray,
    bags: Bags,
    ids: npt.NDArray[Any],
    classes: Sequence[str],
    tau: FloatArray | None = None,
) -> str:
    """CSV with a row for each bag: its size and, of each class, the true count, the predicted one
    and the ends of the model's 95% interval.

    Where counts are not exact, `expected_...` by the label file alone, and the `least_...` and
    `most_...` that it allows, stand in place of the true ones.

    >>> log_probs = np.log(np.full((4, 2), 0.5))
    >>> bags, ids = Bags([4], [[1, 3]]), np.array(["A"])
    >>> print(held_out_table(log_probs, bags, ids, ["no", "yes"]), end="")
    bag,size,true_no,predicted_no,low_no,high_no,true_yes,predicted_yes,low_yes,high_yes
    A,4,1,2,0,4,3,2,0,4
    """
    expected, _ = _moments(log_probs, bags, tau)
    if tau is None:
        low, high = count_intervals(log_probs, bags)
    else:
        _, _, low, high = drawn_counts(log_probs.astype(np.float64), bags, tau)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    given: dict[str, npt.NDArray[Any]] = {"true": bags.expected_counts}
    if bags.potentials is not None:
        given = {
            "expected": bags.expected_counts,
            "least": bags.min_counts,
            "most": bags.max_counts,
        }
    parts = (*given, "predicted", "low", "high")
    writer.writerow(["bag", "size", *(f"{part}_{name}" for name in classes for part in parts)])
    numbers = np.stack([*given.values(), expected, low, high], axis=2).reshape(len(bags), -1)
    for name, size, row in zip(ids.tolist(), bags.totals.tolist(), numbers.tolist(), strict=True):
        writer.writerow([name, size, *(f"{x:.6g}" if x % 1 else int(x) for x in row)])
    return text.getvalue()


def count_levels(
    log_probs: FloatArray, bags: Bags, tau: FloatArray | None = None, seed: int = 0
) -> FloatArray:
    """(B, C) where each count lies in its distribution under the model, in 0 .. 1.

    The count of a class in a bag is a sum of independent yes-or-no's with probabilities p_k. With N
    such a sum and V uniform, the level is P(N < n) + V P(N = n): uniform if the model is right,
    whatever the bag's size. A count that the model holds impossible is at 0 or 1. Where bags have
    effects of their own, the distribution is that of draws (`likelihood.mixing.drawn_counts`).
    """
    V = np.random.default_rng(seed).random(bags.counts.shape)
    if tau is None:
        below, equal = count_probabilities(log_probs, bags)
    else:
        below, equal, _, _ = drawn_counts(log_probs.astype(np.float64), bags, tau)
    levels: FloatArray = np.clip(below + V * equal, 0, 1)
    return levels


def _log_likelihoods(log_probs: FloatArray, bags: Bags, tau: FloatArray | None) -> FloatArray:
    """(B,) log P(S|X)."""
    if tau is None:
        return log_likelihoods(log_probs, bags)
    return log_likelihoods_with_effects(log_probs.astype(np.float64), bags, tau)


def _moments(
    log_probs: FloatArray, bags: Bags, tau: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """(B, C) each: expected counts of the bags, and the variances of the counts.

    With bag effects the variances are those within a bag, whose effect is not known.
    """
    if tau is not None:
        none = np.zeros((len(bags), bags.n_classes))
        shares = mean_softmax(log_probs.astype(np.float64), bags.bag_of_row, none, tau)
        log_probs = np.log(shares)
    mean, variance = np.zeros((2, len(bags), bags.n_classes))
    for index in bags.batches(_CHUNK):
        rows, begins = bags.rows(index), bags.select(index).offsets[:-1]
        p = np.exp(log_probs[rows].astype(np.float64))
        copies = bags.copies[rows][:, None]
        mean[index] = np.add.reduceat(copies * p, begins)
        variance[index] = np.add.reduceat(copies * p * (1 - p), begins)
    return mean, np.maximum(variance, 0)


def _correlation(predicted: FloatArray, true: FloatArray) -> float | None:
    if len(true) < 3 or min(predicted.std(), true.std()) < 1e-12:
        return None
    return float(np.corrcoef(predicted, true)[0, 1])


def _errors(
    predicted: FloatArray, true: FloatArray, told: npt.NDArray[np.bool_]
) -> list[float | None]:
    """(C,) mean absolute difference of proportions (B, C), of those that are known."""
    gaps = np.abs(predicted - true)
    return [float(gaps[there, c].mean()) if there.any() else None for c, there in enumerate(told.T)]


def _bins(
    predicted: FloatArray, true: FloatArray, variances: FloatArray, sizes: npt.NDArray[Any]
) -> list[BinOfBags]:
    """Mean predicted and mean true proportion of up to ten groups of bags."""
    if not len(predicted):
        return []
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
