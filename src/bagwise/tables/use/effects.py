"""What a linear model says: the effect of each column, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

from bagwise.errors import InputError, Option
from bagwise.tables.encode.columns import Column, Kind, Role
from bagwise.tables.model.fitted_table import FittedTable


@dataclass(frozen=True)
class Effect:
    """What an encoded column does to the log-odds of a class.

    Attributes:
        column: encoded.
        label: the class. Of two classes it is the second, against the first; of more, each against
            the mean of all.
        effect: of one standard deviation, or of a category.
        error: its standard error over bags.
        low: of the 95% interval.
        high: of the same.
        per_unit: effect, low and high of one unit of the column.
        unit: what that is: the kind of a column of numbers ("numeric": 1), "log" (1 in the
            logarithm), or the role of an encoded column: "category", "other", "level", "missing",
            or "shared", which stands for many values.
        sign: of a numeric column's unit, "%" for one.
    """

    column: str
    label: str
    effect: float
    error: float
    low: float
    high: float
    per_unit: tuple[float, float, float]
    unit: Kind | Role
    sign: str = ""


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
        sign = column.unit if unit == "numeric" else ""
        for c, label in labels:
            w, e = float(weights[row, c]), float(errors[row, c])
            ends = (w, w - t * e, w + t * e)
            per_unit = (ends[0] / scale, ends[1] / scale, ends[2] / scale)
            listed.append(Effect(name, label, w, e, ends[1], ends[2], per_unit, unit, sign))
    return sorted(listed, key=lambda effect: -abs(effect.effect) / max(effect.error, 1e-300))


def _encoded(model: FittedTable) -> list[tuple[Column, str, Role]]:
    columns = model.columns.columns
    return [(column, name, role) for column in columns for name, role in column.encoded]


def _unit(column: Column, role: Role) -> tuple[float, Kind | Role]:
    """By what an effect is divided to be that of a unit, and what that is."""
    if role == "value":
        return column.std, column.kind
    return column.log.std if role == "log" and column.log else 1.0, role
