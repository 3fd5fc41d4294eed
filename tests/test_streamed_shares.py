"""Shares of groups and importances are the same whether rows come in one piece or in many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import bagwise
from bagwise import Bags
from bagwise.errors import InputError
from bagwise.likelihood import (
    EffectsOfFit,
    covariance,
    effects_of_fit,
    fit_for_intervals,
    fit_linear,
)
from bagwise.likelihood import counted_shares as counted
from bagwise.likelihood import share_intervals as new
from bagwise.likelihood.coefficient_covariance import Covariance, SlopeSums
from bagwise.likelihood.effect_shares import EffectSums, group_shares_with_effects
from bagwise.likelihood.share_intervals import share_intervals_in_parts
from bagwise.limits import Limits
from bagwise.tables.labels.counts import Counts
from bagwise.tables.use import estimated_rows
from bagwise.tables.use.estimate import GroupShare, estimate_shares
from bagwise.tables.use.importance import importances

G, SMALL = 4, Limits(batch_rows=37, csv_block_bytes=600)


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three classes"])
def generated(request: pytest.FixtureRequest) -> tuple[np.ndarray, Bags, Covariance, np.ndarray]:
    rng, C = np.random.default_rng(3), request.param
    X = rng.normal(size=(300, 2)) + np.repeat(rng.normal(size=(50, 2)), 6, axis=0)
    y = (X @ rng.normal(size=(2, C)) + rng.gumbel(size=(300, C))).argmax(axis=1)
    bags = Bags.from_labels(y, [6] * 50, n_classes=C)
    known = covariance(X, bags, fit_for_intervals(X, bags, fit_linear(X, bags)))
    return X, bags, known, rng.integers(G, size=300)


def test_intervals_of_rows_in_parts_and_groups_in_turns_are_those_of_one_piece(
    generated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, known, group = generated
    copies = np.arange(300) % 3 + 1
    whole = new.share_intervals(known, X, group, G + 1, copies)
    monkeypatch.setattr(new, "_SLOPES", 1)  # a group at a time
    cuts = [slice(first, first + 41) for first in range(0, 300, 41)]
    parts = share_intervals_in_parts(
        known, lambda: ((X[cut], group[cut], copies[cut]) for cut in cuts), G + 1
    )
    assert np.isnan(whole.shares[G]).all()
    for one, other in zip(whole[:4], parts[:4], strict=True):
        close(one, other)


def test_slopes_are_differences_of_shares(generated: Any) -> None:
    X, _, known, group = generated
    sums = SlopeSums(known, G)
    for first in (0, 100, 200):
        part = slice(first, first + 100)
        sums.add(X[part], group[part], np.ones(100))
    step = np.random.default_rng(0).normal(size=known.fit.weights.shape)

    def shares(size: float) -> np.ndarray:
        z = X @ (known.fit.weights + size * step) + known.fit.intercept
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        return np.stack([p[group == g].mean(axis=0) for g in range(G)])

    close(sums.shares, shares(0.0))
    slope = np.einsum("gcda,da->gc", sums.gradient[:, :, :-1], step)
    np.testing.assert_allclose(slope, (shares(1e-5) - shares(-1e-5)) / 2e-5, atol=1e-8)


@pytest.mark.parametrize("kind", ["exact", "inexact"])
def test_counted_intervals_of_some_bags_at_a_time_are_those_of_all(
    kind: str, generated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, bags, known, group = generated
    if kind == "inexact":
        low = np.maximum(bags.counts - (np.arange(50) % 3 == 0)[:, None], 0)
        bags = Bags.from_ranges(low, np.minimum(bags.counts + 1, 6), bags.sizes)
    whole = counted.counted_share_intervals(known, X, bags, group, G)
    monkeypatch.setattr(counted, "_CELLS", 40)  # two bags at a time
    parts = counted.counted_share_intervals(known, X, bags, group, G)
    for one, other in zip(whole, parts, strict=True):
        close(one, other)


def test_bags_that_are_proved_late_change_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 2))
    y = (X @ rng.normal(size=(2, 3)) + rng.gumbel(size=(700, 3))).argmax(axis=1)
    sizes = [150, 5, 160, 5, 5, 170, 200, 5]
    bags = Bags.from_labels(y, sizes, n_classes=3)
    known = covariance(X, bags, fit_for_intervals(X, bags, fit_linear(X, bags)))
    group = rng.integers(2, size=700)
    found = counted.counted_share_intervals(known, X, bags, group, 2)
    assert found.approximate is not None
    assert found.approximate.sum() == 0
    # All is exact from the beginning where the first posterior may be.
    exact = bagwise.bag_posterior

    def sure(log_probs: Any, some: Any) -> Any:
        return exact(log_probs, some, "exact")

    monkeypatch.setattr(counted, "bag_posterior", sure)
    other = counted.counted_share_intervals(known, X, bags, group, 2)
    np.testing.assert_allclose(found.shares, other.shares, atol=2e-4)
    np.testing.assert_allclose(found.misfits, other.misfits, atol=2e-3)


def test_misfits_are_residuals_of_bags_scores(generated: Any) -> None:
    """By least squares over bags, with arrays of all of them."""
    X, bags, known, group = generated
    found = counted.counted_share_intervals(known, X, bags, group, G).misfits
    z = X @ known.fit.weights + known.fit.intercept
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    scores = bagwise.bag_posterior(log_p, bags).weights - np.exp(log_p)
    X1 = np.column_stack([X, np.ones(300)])
    if 4 * X1.shape[1] * bags.n_classes > len(bags):
        X1 = X1[:, -1:]
    assert found is not None
    for c in range(bags.n_classes):
        of_bags = np.array(
            [(X1 * scores[:, [c]])[6 * b : 6 * b + 6].sum(axis=0) for b in range(50)]
        )
        for g in range(G):
            own = np.where(group == g, scores[:, c], 0.0).reshape(50, 6).sum(axis=1)
            coefficients, *_ = np.linalg.lstsq(of_bags, own, rcond=None)
            rest = own - of_bags @ coefficients
            error = np.sqrt((rest**2).sum() * 50 / (50 - of_bags.shape[1]))
            assert found[g, c] == pytest.approx(rest.sum() / error, rel=1e-6)


def test_shares_with_bag_effects_are_the_same_in_parts() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = (X[:, 0] + np.repeat(rng.normal(size=20), 6) + rng.logistic(size=120) > 0).astype(int)
    bags = Bags.from_labels(y, [6] * 20, n_classes=2)
    fit = fit_linear(X, bags, bag_effects=0.7)
    known, effects = covariance(X, bags, fit), effects_of_fit(X, bags, fit)
    assert isinstance(effects, EffectsOfFit)
    bag = rng.integers(-1, 30, 120)  # known ones, new ones, and rows that are alone
    numbered = np.where(bag < 0, 1000 + np.arange(120), bag)
    group, copies = rng.integers(G, size=120), rng.integers(1, 4, 120)
    whole = group_shares_with_effects(known, effects, X, numbered, group, G, copies)
    sums = EffectSums(known, effects, G)
    for first in range(0, 120, 17):
        part = slice(first, first + 17)
        sums.add(X[part], bag[part], group[part], copies[part])
    for one, other in zip(whole, sums.shares(), strict=True):
        close(one, other)


# --- tables


def write(folder: Path, C: int = 2) -> pa.Table:
    """A table of 600 rows in 30 bags and its counts."""
    rng = np.random.default_rng(C)
    bag = np.arange(600) % 30
    town = rng.choice(["north", "south", "west"], 600)
    x = rng.normal(size=600) + rng.normal(size=30)[bag]
    z = np.outer(x, np.arange(C)) + np.outer(town == "north", np.arange(C))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    table = pa.table({"bag": [f"{b:03d}" for b in bag], "x": x, "town": town.tolist()})
    counts = np.zeros((30, C), dtype=int)
    np.add.at(counts, (bag, y), 1)
    named = {f"c{c}": counts[:, c] for c in range(C)}
    pcsv.write_csv(pa.table({"bag": [f"{b:03d}" for b in range(30)], **named}), folder / "bags.csv")
    pcsv.write_csv(table, folder / "rows.csv")
    pq.write_table(table, folder / "rows.parquet", row_group_size=200)
    return table


def fitted(folder: Path, **options: Any) -> bagwise.TableModel:
    how = {"model": "linear", "progress": False} | options
    return bagwise.fit(folder / "rows.parquet", "bag", folder / "bags.csv", **how)


KINDS: dict[str, dict[str, Any]] = {
    "averaged": {},
    "bag effects": {"bag_effects": True},
    "network": {"model": "mlp", "epochs": 1, "lr": 0.01},
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS.keys())
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("made")
    write(folder)
    return folder, fitted(folder, **request.param).fitted


def same(found: list[GroupShare], other: list[GroupShare]) -> None:
    assert len(found) == len(other) > 0
    for one, two in zip(found, other, strict=True):
        assert (one.group, one.label, one.rows) == (two.group, two.label, two.rows)
        assert (one.of_known_bags, one.approximate) == (two.of_known_bags, two.approximate)
        assert one.is_contradicted == two.is_contradicted
        for name in ("share", "interval", "bounds", "robustness", "misfit"):
            a, b = getattr(one, name), getattr(two, name)
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
        assert (one.strongest is None) == (two.strongest is None)
        if one.strongest is not None and two.strongest is not None:
            assert one.strongest[0] == two.strongest[0]


def test_estimates_are_the_same_in_small_batches_and_within_a_budget(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model = made
    counts = Counts(["bag"], folder / "bags.csv")
    by = ["town"]
    whole = [estimate_shares(model, folder / "rows.parquet", by, c) for c in (None, counts)]
    monkeypatch.setattr(estimated_rows, "_ROWS", 50)
    monkeypatch.setattr(counted, "_CELLS", 200)
    for name in ("rows.parquet", "rows.csv"):
        for known, expected in zip((None, counts), whole, strict=True):
            for budget in (None, 100_000_000):
                found = estimate_shares(
                    model, folder / name, by, known, memory=budget, limits=SMALL
                )
                same(found, expected)


def test_importances_are_the_same_within_a_budget(made: Any) -> None:
    folder, model = made
    counts = Counts(["bag"], folder / "bags.csv")
    for limits in (Limits(), Limits(importance_rows=300, batch_rows=37)):
        one, other = (
            importances(model, folder / "rows.parquet", counts, memory=memory, limits=limits)
            for memory in (None, 100_000_000)
        )
        assert [x.column for x in one] == [x.column for x in other]
        close([x.fall for x in one], [x.fall for x in other])
        close([x.low for x in one], [x.low for x in other])


def test_bags_without_counts_and_rows_without_bags_are_left_out_within_a_budget(
    made: Any, tmp_path: Path
) -> None:
    folder, model = made
    table = pq.read_table(folder / "rows.parquet")
    bags = [None if i % 50 == 0 else name for i, name in enumerate(table["bag"].to_pylist())]
    bags[7] = "999"
    pq.write_table(table.set_column(0, "bag", pa.array(bags)), tmp_path / "rows.parquet")
    lines = (folder / "bags.csv").read_text().splitlines()
    counts = [bags.count(f"{b:03d}") for b in range(30)]
    kept = [f'"{b:03d}",{n // 2},{n - n // 2}' for b, n in enumerate(counts) if b != 3]
    (tmp_path / "bags.csv").write_text("\n".join([lines[0], *kept]) + "\n")
    known = Counts(["bag"], tmp_path / "bags.csv", skip_unmatched=True)
    with pytest.warns(UserWarning, match="no bag"):
        one, other = (
            estimate_shares(model, tmp_path / "rows.parquet", ["town"], known, memory=memory)
            for memory in (None, 100_000_000)
        )
    assert sum(s.rows for s in one[::2]) == sum(counts) - counts[3]
    same(one, other)


def test_a_table_fitted_with_memory_is_estimated_with_it(tmp_path: Path) -> None:
    write(tmp_path, 3)
    model = fitted(tmp_path, memory="200MB")
    whole = model.estimate(
        tmp_path / "rows.parquet", "town", labels=tmp_path / "bags.csv", bag="bag"
    )
    part = model.estimate(
        tmp_path / "rows.parquet",
        "town",
        labels=tmp_path / "bags.csv",
        bag="bag",
        memory="200MB",
    )
    for name in ("share", "low", "high", "least", "most"):
        close(whole[name].to_numpy(), part[name].to_numpy())


def test_groups_by_several_columns_and_missing_values(tmp_path: Path) -> None:
    table = write(tmp_path)
    town = [None if i % 9 == 0 else name for i, name in enumerate(table["town"].to_pylist())]
    rows = table.set_column(2, "town", pa.array(town)).append_column(
        "half", pa.array([i % 2 for i in range(600)])
    )
    found = fitted(tmp_path).fitted
    shares = estimate_shares(found, rows, ["town", "half"], limits=SMALL)[::2]
    expected: dict[tuple[str, str], int] = {}
    for name, half in zip(town, rows["half"].to_pylist(), strict=True):
        key = (name or "(missing)", str(half))
        expected[key] = expected.get(key, 0) + 1
    assert {share.group: share.rows for share in shares} == expected
    assert [share.group for share in shares] == sorted(expected)


def test_what_does_not_go_with_a_budget_is_named(tmp_path: Path) -> None:
    table = write(tmp_path)
    model = fitted(tmp_path)
    labels, rows = tmp_path / "bags.csv", tmp_path / "rows.parquet"
    with pytest.raises(InputError, match="memory is for files, and the rows are a Table"):
        model.estimate(table, "town", memory="100MB")
    with pytest.raises(InputError, match="memory is for files, and the rows are a Table"):
        model.importance(table, labels, bag="bag", memory="100MB")
    weighted = table.append_column("n", pa.array([1] * 600))
    pq.write_table(weighted, rows)
    for use in (
        lambda: model.estimate(rows, "town", labels=labels, bag="bag", weights="n", memory="1GB"),
        lambda: model.importance(rows, labels, bag="bag", weights="n", memory="1GB"),
    ):
        with pytest.raises(InputError, match="rows with weights are all kept in memory; leave"):
            use()
    by_town = pa.table({"town": ["north", "south", "west"], "c0": [1] * 3, "c1": [1] * 3})
    with pytest.raises(InputError, match="several groupings are all kept in memory; leave memory"):
        model.estimate(rows, "x", labels={"bag": labels, "town": by_town}, memory="1GB")
