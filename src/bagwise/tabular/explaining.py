"""What a linear model says: the effect of each column, and the shares of classes in groups of rows,
both with intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.estimator.targets import NumbersAre
from bagwise.likelihood import Covariance
from bagwise.tabular.bag_table import encode_rows, match_rows
from bagwise.tabular.columns import Column
from bagwise.tabular.labels import read_labels
from bagwise.tabular.model import TableModel
from bagwise.tabular.source import Paths, Source

MISSING = "(missing)"
_UNITS = {"numeric": "1", "boolean": "true instead of false", "date": "a day"}


@dataclass(frozen=True)
class Effect:
    """What an encoded column does to the log-odds of a class.

    Attributes:
        column: encoded.
        label: the class. Of two classes it is the second, against the first; of more, each against
            the mean of all.
        effect: of one standard deviation, or of a category.
        error: its standard error over bags.
        low: of the 95 % interval.
        high: of the same.
        per_unit: effect, low and high of one unit of the column.
        unit: what that is.
    """

    column: str
    label: str
    effect: float
    error: float
    low: float
    high: float
    per_unit: tuple[float, float, float]
    unit: str


@dataclass(frozen=True)
class GroupShare:
    """The share of a class among the rows of a group.

    Attributes:
        group: values of the columns that make it.
        label: the class.
        rows: how many the group has.
        share: of the class.
        low: of the 95 % interval.
        high: of the same.
        bounds: least and largest share that the bags' counts allow, whatever the model says; None
            where the counts were not given.
    """

    group: tuple[str, ...]
    label: str
    rows: int
    share: float
    low: float
    high: float
    bounds: tuple[float, float] | None = None


def effects(model: TableModel) -> list[Effect]:
    """The effect of every encoded column, the surest first.

    Coefficients and errors are those of `fit_for_intervals` and `covariance` in
    `bagwise.likelihood`: a weaker ridge than that of the predictions, and bags as what is sampled.
    """
    found = _known(model)
    t = found.quantile()
    weights, (errors, _) = found.fit.weights, found.standard_errors()
    labels = list(enumerate(model.classes))
    if len(labels) == 2:
        labels = labels[1:]
        weights, errors = 2 * weights, 2 * errors  # w[1] - w[0], and w[0] is -w[1]
    listed = []
    for row, (column, name) in enumerate(_encoded(model)):
        scale, unit = _unit(column, name)
        for c, label in labels:
            w, e = float(weights[row, c]), float(errors[row, c])
            ends = (w, w - t * e, w + t * e)
            per_unit = (ends[0] / scale, ends[1] / scale, ends[2] / scale)
            listed.append(Effect(name, label, w, e, ends[1], ends[2], per_unit, unit))
    return sorted(listed, key=lambda effect: -abs(effect.effect) / max(effect.error, 1e-300))


def _known(model: TableModel) -> Covariance:
    if model.intervals is not None:
        return model.intervals
    raise ValueError(
        "this model has no intervals: they are known of linear models that bagwise fit has fitted "
        "by maximum likelihood, with at most 2000 coefficients; fit it with --model linear, and "
        "without --lr, --epochs and --method."
    )


def _encoded(model: TableModel) -> list[tuple[Column, str]]:
    return [(column, name) for column in model.columns.columns for name in column.encoded_names]


def _unit(column: Column, name: str) -> tuple[float, str]:
    """By what an effect is divided to be that of a unit, and what that is."""
    if column.kind == "category" or name != column.name:
        return 1.0, "this value"
    return column.std, _UNITS[column.kind]


def estimate_shares(
    model: TableModel,
    data: Paths,
    by: Sequence[str],
    *,
    key: Sequence[str] = (),
    labels: Paths | None = None,
    labels_are: NumbersAre = "auto",
    skip_unmatched: bool = False,
    progress: bool = False,
) -> list[GroupShare]:
    """The share of each class among the rows of each group, with a 95 % interval.

    The interval allows for the coefficients, by the delta method with bags as what is sampled, and
    for the labels of the very rows: a group of three rows has no share of .4.

    Args:
        model: linear, with intervals.
        data: rows with the model's feature columns and those of `by`.
        by: columns whose values make the groups.
        key: the bag's columns; with `labels`, the bounds that follow from the counts are given too.
        labels: counts of these bags.
        labels_are: what the numbers in the label file are.
        skip_unmatched: leave out bags that only one of the files has.
        progress: show a bar, on a terminal.
    """
    known = _known(model)
    source = Source(data, typed=False, as_text=list(by))
    source.require([*by, *key, *model.columns.names])
    bags, n_rows = None, 0
    order: IntArray | None = None
    if labels is not None:
        table = read_labels(labels, list(key), known=model.classes)
        matched = match_rows(
            source,
            list(key),
            table,
            columns=model.columns,
            labels_are=labels_are,
            skip_unmatched=skip_unmatched,
            progress=progress,
        )
        bags, order, n_rows = matched.targets.bags, matched.targets.order, matched.n_rows
    codes, names = _groups(source, by)
    if order is None:
        n_rows, order = len(codes), np.arange(len(codes))
    inputs, _ = encode_rows(source, model.columns, order, n_rows, progress)
    group = codes[order]
    X = inputs.astype(np.float64)
    shares, errors = known.group_shares(X, group, len(names))
    p = known.fit.probabilities(X)
    rows = np.bincount(group, minlength=len(names))
    bounds = None if bags is None else duncan_davis(group, len(names), bags)
    spread = np.stack([np.bincount(group, v, len(names)) for v in (p * (1 - p)).T], axis=1)
    found = []
    for g in np.flatnonzero(rows):
        reach = known.quantile() * np.sqrt(errors[g] ** 2 + spread[g] / rows[g] ** 2)
        for c, label in enumerate(model.classes):
            low, high = np.clip([shares[g, c] - reach[c], shares[g, c] + reach[c]], 0, 1)
            own = None if bounds is None else (float(bounds[g, c, 0]), float(bounds[g, c, 1]))
            found.append(
                GroupShare(
                    names[g], label, int(rows[g]), float(shares[g, c]), float(low), float(high), own
                )
            )
    return found


def duncan_davis(group: IntArray, n_groups: int, bags: Bags) -> FloatArray:
    """(G, C, 2) least and largest share of each class in each group that the bags' counts allow.

    Of the m rows of a group in a bag of K, of which n have a class, at least max(0, n - (K - m))
    and at most min(m, n) have it; summed over bags.

    Args:
        group: (N,) the group of each row, in the order of the bags.
        n_groups: G.
        bags: sizes and counts.

    >>> duncan_davis(np.array([0, 0, 0, 1]), 2, Bags([4], [[3, 1]]))[0]
    array([[0.66666667, 1.        ],
           [0.        , 0.33333333]])
    """
    m = np.zeros((len(bags), n_groups), dtype=np.int64)
    np.add.at(m, (bags.bag_of_row, group), 1)
    n = bags.counts[:, None, :]
    m = m[:, :, None]
    least = np.maximum(0, n - (bags.sizes[:, None, None] - m)).sum(axis=0)
    most = np.minimum(m, n).sum(axis=0)
    shares: FloatArray = np.stack([least, most], axis=-1) / np.maximum(m.sum(axis=0), 1)[..., None]
    return shares


def _groups(source: Source, by: Sequence[str]) -> tuple[IntArray, list[tuple[str, ...]]]:
    """(N,) the group of each row, and the values that make each group, sorted."""
    numbers: dict[tuple[str, ...], int] = {}
    parts = []
    for batch in source.batches(list(by)):
        texts = [pc.fill_null(batch.column(name).cast(pa.string()), MISSING) for name in by]
        values = list(zip(*(text.to_pylist() for text in texts), strict=True))
        parts.append([numbers.setdefault(value, len(numbers)) for value in values])
    if not numbers:
        raise ValueError(f"{source.files[0]} has no rows.")
    names = sorted(numbers)
    place = np.empty(len(names), dtype=np.int64)
    for position, name in enumerate(names):
        place[numbers[name]] = position
    return place[np.concatenate(parts)], names
