"""What a linear model says: the effect of each column, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

from bagwise.errors import InputError, Option
from bagwise.tables.encode.columns import Column, Role
from bagwise.tables.model.fitted_table import FittedTable

SHARED = "one of many values"
_UNITS = {"numeric": "1", "boolean": "true instead of false", "date": "a day"}
_VALUES = {"level": "this value or a higher one", "shared": SHARED}


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


def effects(model: FittedTable, level: float = 0.95) -> list[Effect]:
    """The effect of every encoded column, the surest first.

    Coefficients and errors are those of `fit_for_intervals` and `covariance` in
    `bagwise.likelihood`: a weaker ridge than that of the predictions, and bags as what is sampled.

    Args:
        model: a linear one.
        level: of the intervals.
    """
    found = model.intervals
    if found is None:
        raise InputError(
            "this model has no coefficients with intervals: only a linear one that bagwise fit has "
            "fitted by maximum likelihood has, of up to 2000 coefficients and 20 million cells. "
            "Give rows, ",
            Option("bag"),
            " and ",
            Option("labels"),
            " to see how important each column is.",
        )
    t = found.quantile(level)
    weights, (errors, _) = found.fit.weights, found.standard_errors()
    labels = list(enumerate(model.classes))
    if len(labels) == 2:
        labels = labels[1:]
        weights, errors = 2 * weights, 2 * errors  # w[1] - w[0], and w[0] is -w[1]
    listed = []
    for row, (column, name, role) in enumerate(_encoded(model)):
        scale, unit = _unit(column, role)
        for c, label in labels:
            w, e = float(weights[row, c]), float(errors[row, c])
            ends = (w, w - t * e, w + t * e)
            per_unit = (ends[0] / scale, ends[1] / scale, ends[2] / scale)
            listed.append(Effect(name, label, w, e, ends[1], ends[2], per_unit, unit))
    return sorted(listed, key=lambda effect: -abs(effect.effect) / max(effect.error, 1e-300))


def too_few_bags(model: FittedTable) -> str:
    """A sentence where there are too few bags for what a linear model's intervals are made of."""
    if model.intervals is None:
        return ""
    bags = model.intervals.n_bags
    coefficients = (len(model.columns.encoded_names) + 1) * (len(model.classes) - 1)
    if bags >= 2 * coefficients:
        return ""
    return f"There are {bags:,} bags for {coefficients:,} coefficients: the intervals say little."


def _encoded(model: FittedTable) -> list[tuple[Column, str, Role]]:
    columns = model.columns.columns
    return [(column, name, role) for column in columns for name, role in column.encoded]


def _unit(column: Column, role: Role) -> tuple[float, str]:
    """By what an effect is divided to be that of a unit, and what that is."""
    if role == "value":
        return column.std, f"{_UNITS[column.kind]}{column.unit}"
    if role == "log" and column.log:
        return column.log.std, "1 in the logarithm"
    return 1.0, _VALUES.get(role, "this value")
