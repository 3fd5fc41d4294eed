"""Which of several epochs, runs or candidates is the best by a measure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

Row = TypeVar("Row", bound=Mapping[str, float])

_SIGN = {"accuracy": 1, "bag_loss": -1}


def score(value: float, measure: str) -> float:
    """A value of `accuracy` or `bag_loss` as a score: the higher, the better. NaN is the worst.

    >>> score(0.9, "accuracy"), score(0.2, "bag_loss")
    (0.9, -0.2)
    """
    return -math.inf if math.isnan(value) else _SIGN[measure] * value


def best_index(values: Sequence[float], measure: str) -> int:
    """Where the best of these values of a measure is; of equal ones it is the first.

    >>> best_index([0.4, 0.2, 0.2], "bag_loss")
    1
    """
    return max(range(len(values)), key=lambda index: score(values[index], measure))


def best_row(history: Sequence[Row], select: str) -> Row:
    """The epoch that validation chooses by a measure, or the last one, `select="last"`.

    >>> best_row([{"val_accuracy": 0.8}, {"val_accuracy": 0.9}, {"val_accuracy": 0.7}], "accuracy")
    {'val_accuracy': 0.9}
    """
    if select == "last":
        return history[-1]
    return history[best_index([row[f"val_{select}"] for row in history], select)]


def best_score(history: Sequence[Row], select: str) -> float:
    """The score of that epoch: the higher, the better.

    >>> best_score([{"val_bag_loss": 0.5}, {"val_bag_loss": 0.3}], "bag_loss")
    -0.3
    """
    return score(best_row(history, select)[f"val_{select}"], select)
