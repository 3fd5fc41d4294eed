"""Noise from a privacy budget: the inequality of privacy, by enumeration and integrals."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest

from bagwise import Bags, DiscreteLaplace, Gaussian, Laplace, PrivacyBudget
from bagwise.bags import Noise
from bagwise.cli.label_options import label_spec_of
from bagwise.errors import InputError, UsageError

# The bags of six rows in three groupings, and their labels.
BAGS_OF_ROWS = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2]])
LABELS = np.array([0, 1, 2, 0, 0, 1])
Change = Literal["label", "person"]


def counts_of(bags_of_rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """All counts of all groupings, flat."""
    counts = np.zeros((len(bags_of_rows), 3, 3))
    for g, of_row in enumerate(bags_of_rows):
        np.add.at(counts[g], (of_row, labels), 1)
    return counts.ravel()


def differences(groupings: int, change: Change) -> list[np.ndarray]:
    """How the counts change from the table to each of its neighbors."""
    of_rows = BAGS_OF_ROWS[:groupings]
    here = counts_of(of_rows, LABELS)
    found = []
    for k in range(len(LABELS)):
        if change == "person":
            found.append(counts_of(np.delete(of_rows, k, axis=1), np.delete(LABELS, k)) - here)
            continue
        for label in range(3):
            other = LABELS.copy()
            other[k] = label
            found.append(counts_of(of_rows, other) - here)
    return found


def largest_log_ratio(noise: Noise, moved: np.ndarray, values: np.ndarray) -> float:
    """sup over publications of log P(publication | here) - log P(publication | neighbor)."""
    width = np.asarray(noise.width, dtype=np.float64)
    ratios = [
        (noise.log_prob(values, width) - noise.log_prob(values - d, width)).max() for d in moved
    ]
    return float(np.sum(ratios))


@pytest.mark.parametrize("change", ["label", "person"])
@pytest.mark.parametrize("groupings", [1, 3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_probability_of_counts_changes_by_exp_epsilon_at_most_and_indeed(
    epsilon: float, groupings: int, change: Change
) -> None:
    budget = PrivacyBudget(epsilon, change=change, groupings=groupings)
    for noise, values in (
        (budget.discrete_laplace(), np.arange(-300.0, 301.0)),
        (budget.laplace(), np.linspace(-40, 40, 8001)),
    ):
        worst = [
            largest_log_ratio(noise, moved, values) for moved in differences(groupings, change)
        ]
        assert max(worst) == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("change", ["label", "person"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1.0, 1e-5), (1.0, 0.2), (8.0, 1e-6)])
def test_gaussian_noise_spends_exactly_delta(epsilon: float, delta: float, change: Change) -> None:
    """delta = integral of max(p - exp(epsilon) q, 0), over the two counts that change."""
    groupings = 2 if change == "person" else 1
    budget = PrivacyBudget(epsilon, delta, change, groupings)
    noise = budget.gaussian()
    moved = max(differences(groupings, change), key=lambda d: float(np.abs(d).sum()))
    (one, two), width = moved[moved != 0], np.asarray(noise.width)
    reach = 9 * float(width)
    x = np.linspace(-reach, reach, 1501)
    p, q_one, q_two = (np.exp(noise.log_prob(x - d, width)) for d in (0, one, two))
    excess = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q_one, q_two), 0)
    assert excess.sum() * (x[1] - x[0]) ** 2 == pytest.approx(delta, rel=2e-3)


def test_four_groupings_double_gaussian_noise_and_quadruple_laplace_noise() -> None:
    one, four = (PrivacyBudget(1.0, 1e-6, groupings=g) for g in (1, 4))
    assert float(four.gaussian().width) == pytest.approx(2 * float(one.gaussian().width))
    assert four.laplace().width == 4 * float(one.laplace().width)


def test_a_person_with_three_rows_needs_three_times_the_noise() -> None:
    one, three = (PrivacyBudget(1.0, 1e-6, rows_per_person=r) for r in (1, 3))
    assert float(three.gaussian().width) == pytest.approx(3 * float(one.gaussian().width))
    assert three.discrete_laplace().width == 3 * float(one.discrete_laplace().width)


def test_gaussian_noise_is_found_for_any_budget() -> None:
    for epsilon in (1e-6, 1e-3, 1.0, 30.0, 1e4):
        widths = [PrivacyBudget(epsilon, d).gaussian().width for d in (1e-15, 1e-9, 1e-3, 0.999)]
        assert all(np.isfinite(widths))
        assert widths == sorted(widths, reverse=True)


def test_a_budget_makes_bags_of_noisy_counts() -> None:
    budget = PrivacyBudget(2.0)
    bags = Bags.from_noisy_counts([[3.0, 0.0]], [3], budget.discrete_laplace(clipped=True))
    by_hand = Bags.from_noisy_counts([[3.0, 0.0]], [3], DiscreteLaplace(1.0, clipped=True))
    assert bags.fingerprint() == by_hand.fingerprint()
    assert isinstance(budget.laplace(), Laplace)
    assert isinstance(PrivacyBudget(2.0, 1e-6).gaussian(), Gaussian)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0}, "epsilon is 0"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"epsilon": 1, "delta": 1}, "delta is 1; a number"),
        ({"epsilon": 1, "change": "row"}, "change is 'row'"),
        ({"epsilon": 1, "groupings": 0}, "groupings is 0"),
        ({"epsilon": 1, "rows_per_person": 1.5}, "rows_per_person is 1.5"),
    ],
)
def test_what_is_no_budget_is_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PrivacyBudget(**wrong)  # type: ignore[arg-type]


def test_gaussian_noise_without_delta_is_refused() -> None:
    with pytest.raises(InputError, match="delta is 0; Gaussian noise needs one from 1e-15"):
        PrivacyBudget(1.0).gaussian()


@pytest.mark.parametrize(
    ("text", "noise"),
    [
        ("discrete-laplace:epsilon=0.5", DiscreteLaplace(4.0)),
        ("laplace:epsilon=1, groupings=2, change=person", Laplace(2.0)),
        ("gaussian:epsilon=1,delta=1e-6", PrivacyBudget(1.0, 1e-6).gaussian()),
        ("laplace:epsilon=1,rows-per-person=3", Laplace(6.0)),
    ],
)
def test_the_command_line_takes_budgets(text: str, noise: Noise) -> None:
    found = label_spec_of("auto", text, clipped=True).noise
    assert (type(found), found.width, found.clipped) == (type(noise), noise.width, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poisson:epsilon=1", "laplace, discrete-laplace, gaussian and a privacy budget"),
        ("laplace:delta=1e-6", "Its fields are epsilon, delta"),
        ("laplace:epsilon=1,people=3", "rows-per-person"),
        ("laplace:epsilon=one", "its fields are numbers"),
        ("laplace:epsilon=-1", "epsilon is -1.0; a number"),
        ("gaussian:epsilon=1", "delta is 0; Gaussian noise needs one"),
    ],
)
def test_the_command_line_names_what_is_no_budget(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        label_spec_of("auto", text)
