"""A table read in shares is the whole table, and what is merged is what was learned of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from bagwise.bags import Bags
from bagwise.errors import InputError
from bagwise.likelihood.in_pieces import LikelihoodInPieces
from bagwise.likelihood.sharded import ShardedLikelihood
from bagwise.limits import Limits
from bagwise.tables.cluster.sharded_bags import shard_begins
from bagwise.tables.cluster.shares import SharedSource
from bagwise.tables.encode.learn_columns import ColumnLearner

N = 90_000  # more rows than a sample has


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Numbers of several kinds and categories, in a Parquet and a CSV file."""
    rng = np.random.default_rng(0)
    heavy = rng.lognormal(sigma=2, size=N)
    heavy[rng.random(N) < 0.01] = 99_999_999
    x = rng.normal(size=N)
    x[rng.random(N) < 0.1] = np.nan
    rows = pa.table(
        {
            "x": pa.array(x, from_pandas=True),
            "heavy": heavy,
            "row": np.arange(N) + 7,
            "shuffled": rng.permutation(N),
            "whole": rng.integers(9, size=N),
            "yes": rng.random(N) < 0.3,
            "town": np.array(["A", "B", "C"])[rng.integers(3, size=N)],
            "street": [f"S{s}" for s in rng.zipf(1.5, size=N) % 500],
            "size": np.array(["S", "M", "L"])[rng.integers(3, size=N)],
        }
    )
    folder = tmp_path_factory.mktemp("table")
    files = [folder / "a.parquet", folder / "b.csv"]
    pq.write_table(rows.slice(0, 60_000), files[0], row_group_size=7_000)
    pcsv.write_csv(rows.slice(60_000), files[1])
    return files


@pytest.mark.parametrize("n", [1, 2, 7])
def test_shares_are_all_rows_in_order(table: list[Path], n: int) -> None:
    source = SharedSource(table, [], 2**40, Limits())
    shares = source.shares(n)
    sizes = [share.rows or 0 for share in shares]
    assert sum(sizes) == N
    assert max(sizes) - min(sizes) <= 1
    found = []
    for share in shares:
        assert share.first_row == sum(len(part) for part in found)
        found.append(np.concatenate([b.column("row").to_numpy() for b in share.batches(["row"])]))
    assert [len(part) for part in found] == sizes
    np.testing.assert_array_equal(np.concatenate(found), np.arange(N) + 7)


def test_more_shares_than_rows_leave_some_empty(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "a.parquet")
    shares = SharedSource(tmp_path / "a.parquet", [], 2**40, Limits()).shares(5)
    assert sorted(len(share.files) for share in shares) == [0, 0, 0, 1, 1]
    assert sum(batch.num_rows for share in shares for batch in share.batches()) == 2


@pytest.mark.filterwarnings("ignore")
def test_columns_learned_in_shares_and_merged_are_those_of_the_whole(table: list[Path]) -> None:
    def learned(source: SharedSource) -> ColumnLearner:
        ordered = {"size": ["S", "M", "L"]}
        learner = ColumnLearner(source.schema, ordered=ordered, first_row=source.first_row)
        for batch in source.batches(learner.names):
            learner.update(batch)
        return learner

    source = SharedSource(table, [], 2**40, Limits())
    whole = learned(source).finish()
    first, *others = map(learned, source.shares(5))
    for other in others:
        first.merge(other)
    merged = first.finish()
    assert merged.left_out == whole.left_out
    assert {name: why.reason for name, why in whole.left_out.items()} == {
        "row": "row_number",
        "shuffled": "row_number",
    }
    for one, other in zip(merged.columns, whole.columns, strict=True):
        assert one.mean == pytest.approx(other.mean, rel=1e-13)
        assert one.std == pytest.approx(other.std, rel=1e-13)
        same: dict[str, Any] = {"mean": 0.0, "std": 1.0}
        assert type(one)(**{**vars(one), **same}) == type(one)(**{**vars(other), **same})
    # Limits, codes and logarithms are of a sample, which is the same.
    assert next(c for c in whole.columns if c.name == "heavy").codes == (99_999_999.0,)


def test_what_is_learned_does_not_depend_on_how_many_rows_are_read_at_a_time(
    table: list[Path],
) -> None:
    def learned(limits: Limits) -> Any:
        source = SharedSource(table, [], 2**40, limits)
        learner = ColumnLearner(source.schema, ["x", "heavy"])
        for batch in source.batches(learner.names):
            learner.update(batch)
        with pytest.warns(UserWarning, match="heavy"):
            return learner.finish().columns

    for one, other in zip(learned(Limits(batch_rows=999)), learned(Limits()), strict=True):
        assert (one.low, one.high, one.codes, one.log) == (
            other.low,
            other.high,
            other.codes,
            other.log,
        )


def test_orders_of_categories_that_differ_between_shares_are_refused() -> None:
    def learned(levels: list[str]) -> ColumnLearner:
        kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), levels, ordered=True)
        batch = pa.record_batch([column], schema=pa.schema([pa.field("size", kind)]))
        learner = ColumnLearner(batch.schema)
        learner.update(batch)
        return learner

    one, other = learned(["S", "M"]), learned(["M", "S"])
    with pytest.raises(InputError, match="'size' is of ordered categories, but not in one order"):
        one.merge(other)


@pytest.mark.parametrize("sizes", [[5, 1, 1, 3], [1] * 20, [100, 1, 1]])
def test_shards_are_whole_bags_one_after_the_other(sizes: list[int]) -> None:
    bags = Bags(sizes, [[size] for size in sizes])
    for n in (1, 2, 3, 8):
        begins = shard_begins(bags, n)
        assert (begins[0], begins[-1], len(begins)) == (0, len(bags), n + 1)
        assert (np.diff(begins) >= 0).all()
        rows = np.diff(bags.offsets[begins])
        assert rows.max() <= sum(sizes) / n + max(sizes)


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("columns", [3, 60])  # fewer and more than bags
def test_sums_over_shards_are_those_of_all_bags(C: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    sizes = [3, 1, 40, 7, 7, 2, 25, 5, 5, 5] * 4
    X = rng.normal(size=(sum(sizes), columns))
    bags = Bags.from_labels(rng.integers(C, size=len(X)), sizes, n_classes=C)
    begins = shard_begins(bags, 3)
    rows = np.split(X, bags.offsets[begins[1:-1]])

    def in_pieces(X: Any, part: Bags) -> LikelihoodInPieces:
        return LikelihoodInPieces(lambda i, j: X[i:j], X.shape[1], part, 30)

    parts = [
        in_pieces(own, bags.select(np.arange(begins[i], begins[i + 1])))
        for i, own in enumerate(rows)
    ]
    sharded = ShardedLikelihood(
        lambda name, *to: [getattr(part, name)(*to) for part in parts], X.shape[1], bags
    )
    whole = in_pieces(X, bags)
    theta = rng.normal(size=(X.shape[1] + 1, C - 1))
    ours, theirs = sharded.evaluate(theta), whole.evaluate(theta)
    assert ours.log_likelihood.shape == (3,)
    assert sharded.total(ours)[0] == pytest.approx(whole.total(theirs)[0], rel=1e-12)
    np.testing.assert_array_equal(sharded.of_bags(theta), theirs.log_likelihood)
    np.testing.assert_allclose(ours.gradient, theirs.gradient, rtol=1e-10, atol=1e-10)
    phi, penalty = rng.normal(size=theta.size), np.ones(theta.size)
    scales = sharded.scale(ours, penalty), whole.scale(theirs, penalty)
    np.testing.assert_allclose(*(scale.apply(phi) for scale in scales), rtol=1e-8, atol=1e-10)
    levels = [x.mean_level(theta @ x.basis.T) for x in (sharded, whole)]
    assert levels[0] == pytest.approx(levels[1])
    information = [x.information(theta) for x in (sharded, whole)]
    np.testing.assert_allclose(*information, rtol=1e-9, atol=1e-9)
    inverse = np.linalg.inv(information[0] + np.eye(theta.size))
    products = [x.score_products(theta, inverse) for x in (sharded, whole)]
    np.testing.assert_allclose(*products, rtol=1e-7, atol=1e-9)
