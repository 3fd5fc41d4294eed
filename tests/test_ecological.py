"""Ecological inference: how groups voted, from the counts of units."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.optimize import minimize
from scipy.special import softmax
from scipy.stats import multivariate_normal

from bagwise import Bags, InputError, bag_posterior, ecological_table
from bagwise.ecological.moments import Moments, fit_moments, shares_of
from bagwise.ecological.unit_tables import table_intervals, unit_tables
from bagwise.likelihood.coordinates import contrasts
from oracles import Floats


def election(
    seed: int, B: int = 100, R: int = 3, C: int = 3, size: int = 300, vary: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """(B, R) people of groups, and (B, R, C) votes, with logits that vary from cell to cell."""
    rng = np.random.default_rng(seed)
    P = np.random.default_rng(R * C).dirichlet(np.full(C, 1.5), size=R)
    groups = np.stack([rng.multinomial(size, rng.dirichlet(np.ones(R))) for _ in range(B)])
    p = softmax(np.log(P) + vary * rng.normal(size=(B, R, C)), axis=-1)
    return groups, rng.multinomial(groups, p)


def table_of(cells: np.ndarray) -> Floats:
    return cells.sum(axis=0) / cells.sum(axis=(0, 2))[:, None]


def test_the_table_of_a_large_election_is_found() -> None:
    groups, cells = election(0, B=2000)
    found = ecological_table(groups, cells.sum(axis=1))
    np.testing.assert_allclose(found.table, table_of(cells), atol=0.01)
    assert found.rho < 1e-3
    assert found.tau < 0.02


def test_unit_tables_have_the_counts_of_units_and_sum_to_the_table() -> None:
    groups, cells = election(1, size=20, vary=0.5)  # some parties have no votes in a unit
    votes = cells.sum(axis=1)
    assert (votes == 0).any()
    found = ecological_table(groups, votes)
    np.testing.assert_allclose(found.units.sum(axis=2), groups, atol=1e-3)
    np.testing.assert_allclose(found.units.sum(axis=1), votes, atol=1e-3)
    totals = found.units.sum(axis=0)
    np.testing.assert_allclose(found.table, totals / totals.sum(axis=1, keepdims=True))
    assert (found.units >= 0).all()


def test_units_of_independent_votes_are_those_of_the_bag_posterior() -> None:
    """Against the exact engine, with the shares of the fit as log-probabilities."""
    rng = np.random.default_rng(0)
    groups = rng.integers(10, 50, size=(40, 2))
    P = rng.dirichlet(np.ones(3), size=2)
    votes = rng.multinomial(groups, P).sum(axis=1)
    fit = Moments(np.log(P) @ contrasts(3), np.eye(4), 0.0, 0.0)
    bags = Bags([2] * 40, votes, weights=groups.ravel())
    exact = bag_posterior(np.tile(np.log(P), (40, 1)), bags, "exact").weights.reshape(40, 2, 3)
    found = unit_tables(groups.astype(float), votes.astype(float), fit)
    off = np.abs(found - groups[:, :, None] * exact)
    assert off.mean() < 0.06  # of 60 votes: the likeliest table, not quite the expected one


def test_the_fit_maximizes_the_normal_likelihood_of_its_moments() -> None:
    groups, cells = election(3, B=60, R=2, vary=0.5)
    n, y = groups.astype(float), cells.sum(axis=1).astype(float)
    fit = fit_moments(n, y)

    def value(at: Floats) -> float:
        P = shares_of(at[:4].reshape(2, 2))
        rho, tau2 = np.abs(at[4:])
        total = 0.0
        for people, votes in zip(n, y, strict=True):
            D = [np.diag(p) - np.outer(p, p) for p in P]
            A = sum(m * d for m, d in zip(people, D, strict=True))
            V = A + tau2 * A @ A
            V = V + sum(rho * m * (m - 1) * d for m, d in zip(people, D, strict=True))
            off = (votes - people @ P)[:2]
            total -= multivariate_normal.logpdf(off, cov=V[:2, :2])
        return total

    at = np.append(fit.logits.ravel(), [fit.rho, fit.tau**2])
    free = minimize(value, at, method="Nelder-Mead", options={"maxiter": 1500, "adaptive": True})
    # The prior pulls groups together a little, and V is not differentiated by P.
    assert value(at) < free.fun + 1.0
    np.testing.assert_allclose(shares_of(free.x[:4].reshape(2, 2)), fit.shares, atol=0.02)


@pytest.mark.parametrize("vary", [0.0, 0.5])
def test_intervals_hold_the_table(vary: float) -> None:
    held = []
    for seed in range(40):
        groups, cells = election(100 + seed, vary=vary)
        found = ecological_table(groups, cells.sum(axis=1))
        truth = table_of(cells)
        held.append(((found.low <= truth) & (truth <= found.high)).mean())
    assert 0.90 <= np.mean(held) <= 0.99


def test_intervals_become_narrower_with_more_units_and_a_lower_level() -> None:
    widths = []
    for B in (50, 800):
        groups, cells = election(5, B=B, vary=0.3)
        found = ecological_table(groups, cells.sum(axis=1))
        widths.append((found.high - found.low).mean())
    assert widths[1] < 0.5 * widths[0]
    narrow = ecological_table(groups, cells.sum(axis=1), level=0.5)
    assert (narrow.high - narrow.low).mean() < 0.5 * widths[1]


def test_how_far_units_differ_is_found() -> None:
    rng = np.random.default_rng(0)
    groups = np.stack([rng.multinomial(500, rng.dirichlet(np.ones(2))) for _ in range(600)])
    P = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    dirichlet = np.stack([rng.dirichlet(p * 19, size=600) for p in P], axis=1)  # rho = 1 / 20
    together = softmax(np.log(P) + 0.4 * rng.normal(size=(600, 1, 3)), axis=-1)
    apart = ecological_table(groups, rng.multinomial(groups, dirichlet).sum(axis=1))
    as_one = ecological_table(groups, rng.multinomial(groups, together).sum(axis=1))
    assert apart.rho == pytest.approx(0.05, rel=0.25)
    assert apart.tau < 0.15
    assert as_one.tau == pytest.approx(0.4, rel=0.15)
    assert as_one.rho < 0.01


def frames(kind: str) -> tuple[Any, Any]:
    groups, cells = election(7, B=30, R=2)
    names = [f"p{b}" for b in range(30)]
    n = {"precinct": names, "young": groups[:, 0], "old": groups[:, 1]}
    order = np.random.default_rng(0).permutation(30)
    y = cells.sum(axis=1)[order]
    v = {"precinct": [names[b] for b in order], "red": y[:, 0], "blue": y[:, 1], "none": y[:, 2]}
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind]
    return make(n), make(v)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frames_are_matched_by_unit_and_come_back_as_their_kind(kind: str) -> None:
    groups, votes = frames(kind)
    found = ecological_table(groups, votes, unit="precinct")
    assert type(found.table) is type(found.units) is type(groups)
    columns = {"pyarrow": lambda x: x.column_names}.get(kind, lambda x: list(x.columns))
    assert columns(found.table) == ["group", "red", "blue", "none"]
    assert columns(found.units) == ["unit", "group", "red", "blue", "none"]
    assert len(found.units) == 60
    n, cells = election(7, B=30, R=2)
    array = ecological_table(n, cells.sum(axis=1))
    np.testing.assert_array_equal(np.asarray(found.table["red"]), array.table[:, 0])
    np.testing.assert_array_equal(np.asarray(found.high["none"]), array.high[:, 2])
    np.testing.assert_array_equal(np.asarray(found.units["blue"]), array.units[:, :, 1].ravel())


def test_the_summary_has_every_share_with_its_interval() -> None:
    groups, votes = frames("pandas")
    found = ecological_table(groups, votes, unit="precinct")
    lines = found.summary().splitlines()
    assert lines[0] == "Share of each party within each group, in percent (95% intervals)"
    assert lines[1].split() == ["red", "blue", "none"]
    share = f"{100 * found.table['red'][0]:.1f} ({100 * found.low['red'][0]:.1f}-"
    assert lines[2].startswith("young ")
    assert share in lines[2]
    assert lines[4].startswith("30 units, 9,000 people; rho ")
    assert repr(found) == found.summary()


def test_parties_without_votes_and_units_without_people_are_no_trouble() -> None:
    groups, cells = election(8)
    votes = np.column_stack([cells.sum(axis=1), np.zeros(100, int)])
    groups[3], votes[3] = 0, 0
    found = ecological_table(groups, votes)
    assert found.table[:, 3].max() < 1e-3
    assert not found.units[3].any()
    assert np.isfinite(found.high).all()


def test_a_single_group_has_the_overall_shares() -> None:
    _, cells = election(9)
    votes = cells.sum(axis=1)
    found = ecological_table(votes.sum(axis=1, keepdims=True), votes)
    np.testing.assert_allclose(found.table[0], votes.sum(axis=0) / votes.sum(), rtol=1e-6)
    assert (found.high - found.low).max() < 1e-3  # it was counted


@pytest.mark.parametrize(
    ("groups", "votes", "message"),
    [
        (
            [[3, 2], [1, 1]],
            [[3, 2], [1, 2]],
            "unit 1 has 2 people .* and 3 votes; .* did not",
        ),
        ([[3, 0], [1, 0]], [[3, 0], [1, 0]], "group '1' has no people"),
        ([[3, 2]], [[3, 2]], "there are 1 units, 2 groups"),
        ([[3, 2], [1, 1]], [[3, 2]], "groups has 2 units and votes 1"),
        ([[3, -2], [1, 1]], [[3, 2], [1, 1]], "column '1' of groups has -2 in row 0"),
        ([3, 2], [[3, 2], [1, 1]], r"groups has shape \(2,\)"),
        ([["a", 2], ["b", 1]], [[3, 2], [1, 1]], "column '0' of groups does not hold numbers"),
    ],
)
def test_counts_that_do_not_fit_are_named(groups: Any, votes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ecological_table(groups, votes)


def test_units_that_do_not_fit_are_named() -> None:
    groups, votes = frames("pandas")
    with pytest.raises(InputError, match="unit 'p0' is not in votes"):
        ecological_table(groups, votes[votes["precinct"] != "p0"], unit="precinct")
    with pytest.raises(InputError, match="unit 'p0' is not in groups"):
        ecological_table(groups[1:], votes, unit="precinct")
    with pytest.raises(InputError, match="groups has no column 'ward'"):
        ecological_table(groups, votes, unit="ward")
    with pytest.raises(InputError, match="more than one row for unit 'p0'"):
        ecological_table(pd.concat([groups, groups[:1]]), votes, unit="precinct")
    with pytest.raises(InputError, match="say unit='precinct'"):
        ecological_table(groups, votes)


def test_intervals_do_not_depend_on_the_order_of_units() -> None:
    groups, cells = election(11, vary=0.3)
    n, y = groups.astype(float), cells.sum(axis=1).astype(float)
    fit = fit_moments(n, y)
    order = np.random.default_rng(0).permutation(len(n))
    one = table_intervals(n, fit, fit.shares, 0.95)
    two = table_intervals(n[order], fit, fit.shares, 0.95)
    np.testing.assert_allclose(one, two, atol=1e-8)


def test_the_example_of_the_page_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "ecological.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [shown] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == shown
