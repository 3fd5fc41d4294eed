"""How much a model needs each column: by how much bags become less probable without it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.limits import LIMITS, Limits
from bagwise.posterior import log_likelihoods
from bagwise.progress import WorkProgress
from bagwise.tables.encode.columns import Inputs
from bagwise.tables.labels.counts import Counts
from bagwise.tables.match.bag_table import encode_rows
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.use.counted_rows import matched_rows, stored_rows, weight_column

REPEATS = 5


@dataclass(frozen=True)
class Importance:
    """What a model loses when a column is shuffled.

    Attributes:
        column: of the table.
        fall: of the mean log P(S|X) per row.
        error: its standard error over bags.
        low: of the 95% interval.
        high: of the same.
    """

    column: str
    fall: float
    error: float
    low: float
    high: float


def importances(
    model: FittedTable,
    data: Table,
    counts: Counts,
    *,
    seed: int = 0,
    memory: int | None = None,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> list[Importance]:
    """The importance of each column of the table for the bags' counts, the largest first.

    Each column's values are shuffled among all rows, five times, all that it was encoded into
    together, and log P(S|X) of every bag is compared with what it was:

        fall = sum_b (log P(S_b|X_b) - mean over shuffles of log P(S_b|X'_b)) / N

    Its standard error is that over bags, which are what is sampled. A column that says the same as
    another one loses little alone. Of more than 50,000 rows, some bags are drawn.

    Args:
        model: a fitted one, linear or not.
        data: rows with the model's feature columns.
        counts: their bags and the counts of these.
        seed: of shuffles, and of the bags that are drawn.
        memory: bytes that may be used for the rows; None holds the bag of each in memory.
        progress: show a bar, on a terminal.
        limits: how many rows are taken, and sizes of what is read at a time.
    """
    source = model.with_context(open_rows(data, limits=limits, budget=memory), counts.key)
    rng = np.random.default_rng(seed)
    if memory is None:
        found = matched_rows(model, source, counts, progress)
        order, bags = found.targets.order, found.targets.bags
        drawn = _drawn(bags, limits.importance_rows, rng)
        order, bags = order[bags.rows(drawn)], bags.select(drawn)
        inputs, _ = encode_rows(source, model.columns, order, found.n_rows, progress)
    else:
        counts = replace(counts, weights=weight_column(model, source, counts.weights))
        with stored_rows(model, source, counts, memory, progress) as store:
            found, bags = store.rows, store.rows.targets.bags
            drawn = _drawn(bags, limits.importance_rows, rng)
            inputs = store.some(model.columns.names, model.columns.encode, drawn)
            bags = bags.select(drawn)
    widths = [len(column.encoded_names) for column in model.columns.columns]
    with WorkProgress("importance", "shuffles", len(widths) * REPEATS, progress) as bar:
        falls = _falls(model, inputs, bags, widths, rng, bar)
    quantile = float(stdtrit(max(len(bags) - 1, 1), 0.975))
    listed = []
    for column, of_bags in zip(model.columns.columns, falls, strict=True):
        fall, error = mean_per_instance(of_bags, bags)
        error *= math.sqrt(found.degree)  # bags that share rows are not independent
        reach = quantile * error
        listed.append(Importance(column.name, fall, error, fall - reach, fall + reach))
    return sorted(listed, key=lambda importance: -importance.fall)


def _drawn(bags: Bags, most: int, rng: np.random.Generator) -> IntArray:
    """All bags, or some of them with so many rows."""
    if bags.n_instances <= most:
        return np.arange(len(bags))
    drawn = rng.permutation(len(bags))
    return np.sort(drawn[: max(int((bags.sizes[drawn].cumsum() <= most).sum()), 2)])


def _falls(
    model: FittedTable,
    inputs: Inputs,
    bags: Bags,
    widths: list[int],
    rng: np.random.Generator,
    bar: WorkProgress,
) -> FloatArray:
    """(columns, B) the fall of each bag's log P(S|X), mean over shuffles."""
    before = log_likelihoods(model.log_probs(inputs), bags)
    ends = np.cumsum(widths)
    falls = np.zeros((len(widths), len(bags)))
    for number, (end, width) in enumerate(zip(ends, widths, strict=True)):
        bar.begin(model.columns.columns[number].name)
        own = slice(end - width, end)
        kept = inputs[:, own].copy()
        for _ in range(REPEATS):
            inputs[:, own] = kept[rng.permutation(len(kept))]
            falls[number] += (before - log_likelihoods(model.log_probs(inputs), bags)) / REPEATS
            bar.advance()
        inputs[:, own] = kept
    return falls
