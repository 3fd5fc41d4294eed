from __future__ import annotations

import math

import pytest

from bagwise.training.best import best_index, best_row, best_score


def history(select: str, *values: float) -> list[dict[str, float]]:
    return [{"epoch": i + 1, f"val_{select}": value} for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("select", "values", "epoch"),
    [
        ("accuracy", (0.1, 0.9, 0.5), 2),
        ("bag_loss", (0.5, 0.9, 0.1), 3),
        ("accuracy", (0.9, 0.9, 0.1), 1),
        ("bag_loss", (0.5, 0.1, 0.1), 2),
        ("bag_loss", (math.inf, 0.7), 2),
        ("bag_loss", (math.inf, math.inf), 1),
        ("bag_loss", (math.nan, 0.7), 2),
        ("accuracy", (0.7, math.nan), 1),
    ],
)
def test_the_best_epoch_is_the_first_of_the_best(
    select: str, values: tuple[float, ...], epoch: int
) -> None:
    rows = history(select, *values)
    assert best_row(rows, select)["epoch"] == epoch
    assert best_index(values, select) == epoch - 1
    assert abs(best_score(rows, select)) == values[epoch - 1]


def test_the_last_epoch_needs_no_measure() -> None:
    assert best_row([{"epoch": 1}, {"epoch": 2}], "last")["epoch"] == 2


def test_higher_scores_are_better_whatever_the_measure() -> None:
    assert best_score(history("accuracy", 0.8), "accuracy") > best_score(
        history("accuracy", 0.7), "accuracy"
    )
    assert best_score(history("bag_loss", 0.7), "bag_loss") > best_score(
        history("bag_loss", 0.8), "bag_loss"
    )
