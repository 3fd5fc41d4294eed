"""How columns of a table become numbers: many values, order, extremes, tails, ways of writing."""

from __future__ import annotations

import binascii
import csv
import datetime
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

from bagwise import Bags, read_bags
from bagwise.cli import app
from bagwise.limits import Limits
from bagwise.tables.encode.columns import Column, Columns, Log, Surprises
from bagwise.tables.encode.learn_columns import ColumnLearner, ordered_of
from bagwise.tables.encode.number_columns import _percentiles, _Sample, far_values, is_heavy
from bagwise.tables.match.heavy_tails import log_gain
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.notation import Written
from bagwise.tables.read.source import FileSource
from bagwise.tables.read.values import numbers_of
from bagwise.tables.use.effects import effects
from bagwise.tables.use.evaluate import evaluate_table
from bagwise.wording import table_words
from fitted import fit_table


def batch_of(table: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(table)


def learn(table: dict[str, Any], parts: int = 3, **options: Any) -> Columns:
    batch = batch_of(table)
    learner = ColumnLearner(batch.schema, **options)
    step = -(-batch.num_rows // parts)
    for row in range(0, batch.num_rows, step):
        learner.update(batch.slice(row, step))
    return learner.finish()


def quietly(table: dict[str, Any], **options: Any) -> tuple[Columns, list[str]]:
    """The columns and what was noted."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        columns = learn(table, **options)
    return columns, [str(warning.message) for warning in noted]


def only(table: dict[str, Any], **options: Any) -> tuple[Column, list[str]]:
    columns, notes = quietly(table, **options)
    (column,) = columns.columns
    assert Columns.from_json(json.loads(json.dumps(columns.to_json()))) == columns
    return column, notes


def encoded(column: Column, values: Any) -> Any:
    return Columns((column,)).encode(batch_of({column.name: values}))


# Many values


def many(distinct: int, n: int) -> list[str]:
    """Fifty frequent values of fifty rows each, and others."""
    return [f"f{i % 50}" for i in range(2500)] + [f"v{i % distinct}" for i in range(n)]


def test_many_values_are_hashed_by_their_crc_also_those_never_seen() -> None:
    column, notes = only({"zip": many(3000, 6000)})
    assert notes == [
        "zip: it has 3,050 different values; the 50 most frequent get a column each, and the "
        "others are hashed into 64 columns."
    ]
    assert (len(column.categories), column.shared, column.other) == (50, 64, False)
    assert column.encoded_names[-1] == "zip=(shared 64 of 64)"
    new = ["v17", "never seen", "Köln", "f7", None, "v17"]
    X = encoded(column, new)
    assert X.shape == (6, 114)
    assert X.sum(axis=1).tolist() == [1, 1, 1, 1, 0, 1]
    for row, text in enumerate(new[:3]):
        assert X[row, 50 + binascii.crc32(str(text).encode()) % 64] == 1
    assert X[3, column.categories.index("f7")] == 1
    np.testing.assert_array_equal(X[0], X[5])
    dictionary = pa.array(new).dictionary_encode()
    np.testing.assert_array_equal(encoded(column, dictionary), X)


def test_a_shared_column_has_twenty_rows_on_average() -> None:
    column, _ = only({"zip": many(100, 200)})
    assert column.shared == 10
    column, notes = only({"zip": many(30, 39)})
    assert (column.shared, column.other, notes) == (0, True, [])


def test_up_to_114_values_have_a_column_each_if_they_are_frequent() -> None:
    column, notes = only({"zip": [f"v{i % 114}" for i in range(114 * 20)]})
    assert (len(column.categories), column.other, notes) == (114, False, [])
    column, _ = only({"zip": [f"v{i % 114}" for i in range(114 * 19)]})
    assert (len(column.categories), column.other) == (50, True)


def test_the_hash_spreads_numbered_names_evenly() -> None:
    column = Column("id", "category", shared=64)
    per_column = encoded(column, [f"campaign {i}" for i in range(20_000)]).sum(axis=0)
    assert stats.chisquare(per_column).pvalue > 1e-4


def test_counting_does_not_depend_on_batches_and_forgets_only_the_rarest() -> None:
    values = np.random.default_rng(0).permutation(many(3000, 6000)).tolist()
    one, other = (only({"zip": values}, parts=parts)[0] for parts in (1, 50))
    assert one == other
    limits = Limits(tracked_texts=1000)
    few, notes = only({"zip": values}, limits=limits)
    assert few.categories == one.categories
    assert "more than 500 different values" in notes[0]
    _, notes = quietly(
        {"id": [f"p{i}" for i in range(5000)], "x": np.arange(5000) % 7}, limits=limits
    )
    assert not notes


# Order


def test_ordered_categories_are_thermometers() -> None:
    table = {"size": ["S", " L ", "M", None, "NA", "XL"] * 5}
    column, notes = only(table, ordered={"size": ["S", "M", "L", "XL"]})
    assert not notes
    assert column.encoded_names == ["size>=M", "size>=L", "size>=XL", "size=(missing)"]
    assert encoded(column, ["S", "M", "L", "XL", None, "NA"]).tolist() == [
        [0, 0, 0, 0],
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 0, 1],  # as the mean, which is 1.5 and even is the rounding of halves
        [1, 1, 0, 1],
    ]


def test_a_level_may_be_a_word_for_missing_or_a_number() -> None:
    column, _ = only({"x": ["NA", "low", "NA"] * 9}, ordered={"x": ["NA", "low"]})
    assert not column.missing
    column, _ = only({"x": [1, 3, 2] * 9}, ordered={"x": ["1", "2", "3"]})
    assert (
        encoded(column, ["3", "1"]).tolist() == encoded(column, [3, 1]).tolist() == [[1, 1], [0, 0]]
    )


def test_a_value_that_is_not_declared_is_named_in_fit_and_predict() -> None:
    with pytest.raises(
        ValueError, match=r"'size' has 'XL' in 2 rows; one of S < M < L is expected"
    ):
        learn({"size": ["S", "XL", "M", "XL"]}, ordered={"size": ["S", "M", "L"]})
    column, _ = only({"size": ["S", "M"]}, ordered={"size": ["S", "M", "L"]})
    with pytest.raises(ValueError, match=r"'XXL' in row 12; one of S < M < L"):
        Columns((column,)).encode(batch_of({"size": ["S", "XXL"]}), first_row=10)


def test_parquet_says_the_order_of_its_categories(tmp_path: Path) -> None:
    def write(name: str, levels: list[str]) -> None:
        codes = pa.array([2, 0, 1, None] * 10, pa.int8())
        values = pa.DictionaryArray.from_arrays(codes, pa.array(levels), ordered=True)
        pq.write_table(pa.table({"size": values}), tmp_path / name, row_group_size=15)

    write("0.parquet", ["S", "M", "L"])
    source = FileSource(tmp_path / "0.parquet")
    learner = ColumnLearner(source.schema)
    for batch in source.batches():
        learner.update(batch)
    (column,) = learner.finish().columns
    assert column.encoded_names == ["size>=M", "size>=L", "size=(missing)"]
    assert encoded(column, ["L", "S"]).tolist() == [[1, 1, 0], [0, 0, 0]]
    write("1.parquet", ["L", "M", "S"])
    source = FileSource(tmp_path / "*.parquet")
    learner = ColumnLearner(source.schema)
    batches = [*source.batches()]
    learner.update(batches[0])
    with pytest.raises(ValueError, match=r"'size' is of ordered categories, but not in one order"):
        learner.update(batches[-1])


@pytest.mark.parametrize("text", ["size", "size=", "size=S", "=S<M", "size=S<<M", "size=S<M<S"])
def test_an_order_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="size=S<M<L for one"):
        ordered_of(text)


def test_orders_are_texts_or_a_mapping() -> None:
    expected = {"size": ["S", "M"], "grade": ["1", "2"]}
    assert ordered_of(["size = S < M", "grade=1<2"]) == expected
    assert ordered_of({"size": ["S", "M"], "grade": [1, 2]}) == expected  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'size' twice"):
        ordered_of(["size=S<M", "size=M<S"])
    with pytest.raises(ValueError, match="no column 'sise'"):
        learn({"size": ["S", "M"]}, ordered={"sise": ["S", "M"]})
    with pytest.raises(ValueError, match="both categorical and ordered"):
        learn({"size": ["S", "M"]}, categorical=["size"], ordered={"size": ["S", "M"]})


# Extreme values


AGES = [20 + i * 37 % 61 for i in range(400)]


@pytest.mark.parametrize("codes", [[99999], [-999], [997, 998, 999], [-9, 9999]])
def test_codes_are_missing_and_named(codes: list[int]) -> None:
    ages = [*AGES, *codes * 4]
    if codes == [-9, 9999]:  # -9 is not far from 20
        codes = [9999]
    column, notes = only({"age": ages})
    assert column.codes == tuple(codes)
    (note,) = notes
    assert note.startswith(f"age: {4 * len(codes)} rows have {' or '.join(map(str, codes))}, far")
    known = np.array([age for age in ages if age not in codes], dtype=float)
    np.testing.assert_allclose([column.mean, column.std], [known.mean(), known.std()])
    X = encoded(column, [codes[0], 40, None])
    assert X[:, 1].tolist() == [1, 0, 1]
    assert X[0, 0] == 0
    np.testing.assert_allclose(X[1, 0], (40 - known.mean()) / known.std(), rtol=1e-5)


def test_codes_beyond_a_long_tail_are_missing_and_the_tail_is_cut() -> None:
    incomes = np.random.default_rng(0).lognormal(10, 1, 2000).round()
    column, (note,) = only({"income": [*incomes, *[99999999.0] * 40]})
    assert column.codes == (99999999,)
    assert column.high is not None
    assert column.high < incomes.max()
    assert note.startswith("income: 40 rows have 99999999, far from all other values")
    near = np.minimum(incomes, column.high)
    np.testing.assert_allclose([column.mean, column.std], [near.mean(), near.std()])
    donations = [20, 30, 50, 70, 100] * 80 + [1000, 2000, 5000, 10000] * 3  # no codes: a tail
    column, _ = only({"donation": donations})
    assert column.codes == ()


def test_a_date_that_stands_for_none_is_a_code() -> None:
    days = [datetime.date(2015, 1, 1) + datetime.timedelta(days=7 * i) for i in range(200)]
    column, notes = only({"d": [*days, *[datetime.date(9999, 12, 31)] * 3]})
    assert len(column.codes) == 1
    assert "3 rows have 9999-12-31" in notes[0]


def test_other_far_values_are_read_as_the_last_ordinary_one() -> None:
    column, notes = only({"age": [*AGES, 5000, 70000, 80000, 12345]})
    assert (column.high, column.codes, column.missing) == (80, (), False)
    assert notes == [
        "age: 4 rows have values far from all others, such as 80000, which are read as 80, where "
        "the others end; correct these cells if they are mistakes, or empty them."
    ]
    surprises = Surprises()
    X = Columns((column,)).encode(batch_of({"age": [1e9, 80, 40]}), 0, surprises)
    assert X[0] == X[1] != X[2]
    assert table_words.surprises(surprises) == [
        "age: 1 row has an extreme value, which is read as the nearest ordinary one."
    ]


def test_new_values_beyond_those_of_fit_keep_their_order_until_they_are_far() -> None:
    column, notes = only({"age": AGES})
    assert not notes
    X = encoded(column, [80, 90, 100, 99999])[:, 0]
    assert (np.diff(X) > 0).all()
    assert X[-1] < 20


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 80 + [1000.0 + i % 50 for i in range(20)],  # two groups: nothing is lost
        [0.0] * 390 + [float(i) for i in range(10)],
        [0.0, 1.0] * 50,
        np.random.default_rng(0).normal(size=5000).tolist(),
        np.random.default_rng(0).lognormal(size=5000).tolist(),
    ],
)
def test_ordinary_columns_are_not_noted_and_keep_their_order(values: list[float]) -> None:
    column, notes = only({"x": values})
    assert not notes
    some = np.sort(np.array(values))
    near = encoded(column, some)[:, 0].astype(float)
    assert (np.diff(near) >= 0).all()
    untouched = some <= np.quantile(some, 0.99)
    expected = (some - column.mean) / column.std
    np.testing.assert_allclose(near[untouched], expected[untouched], rtol=1e-5, atol=1e-6)


@given(
    st.lists(st.integers(-50, 50), min_size=40, max_size=80),
    st.sampled_from([0.5, 4.0, -2.0]),
    st.integers(-1000, 1000),
)
def test_what_is_far_does_not_depend_on_the_unit(
    values: list[int], scale: float, shift: int
) -> None:
    x = np.array([*values, 10**6, 10**6, 10**6], dtype=float)
    one, other = far_values(x), far_values(scale * x + shift)
    ends = sorted(scale * np.array([one.low, one.high]) + shift)
    np.testing.assert_allclose([other.low, other.high], ends, rtol=1e-9)
    assert sorted(other.codes) == sorted(scale * code + shift for code in one.codes)
    assert len(other.cut) == len(one.cut)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_percentiles_are_those_of_numpy(values: list[float]) -> None:
    expected = np.percentile(values, [0, 1, 25, 50, 90, 100])
    found = _percentiles(np.sort(np.array(values)), [0, 1, 25, 50, 90, 100])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-6)


def test_a_sample_is_all_values_while_they_are_few_and_fair_after() -> None:
    sample = _Sample()
    values = np.arange(40_000.0)
    for part in np.split(values, 8):
        sample.add(part, part.astype(int))
    np.testing.assert_array_equal(sample.values(), values)
    for part in np.split(np.arange(40_000.0, 400_000.0), 60):
        sample.add(part, part.astype(int))
    found = sample.values()
    assert 15_000 < len(found) <= 40_000
    assert stats.kstest(found / 400_000, "uniform").pvalue > 1e-3


def table_of(folder: Path, X: Any, y: Any, seed: int = 0) -> Path:
    """rows.csv and bags.csv in bags of about 20, of three quarters of the rows; test.csv."""
    n = len(y) * 3 // 4
    ward = np.random.default_rng(seed).integers(n // 20, size=n)
    names = [f"x{c}" for c in range(X.shape[1])]
    counts = [[b, *np.bincount(y[:n][ward == b], minlength=2)] for b in np.unique(ward)]
    files: dict[str, list[Sequence[object]]] = {
        "rows": [["ward", *names], *([b, *x] for b, x in zip(ward, X[:n].tolist(), strict=True))],
        "bags": [["ward", "0", "1"], *counts],
        "test": [[*names, "y"], *([*x, t] for x, t in zip(X[n:].tolist(), y[n:], strict=True))],
    }
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


def fitted(folder: Path, **options: Any) -> FittedTable:
    return fit_table(folder / "rows.csv", "ward", folder / "bags.csv", model="linear", **options)


def test_99999_in_one_percent_of_the_useful_column_costs_less_than_three_points(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(50, 10, size=(2400, 4)).round(1)
    y = (X[:, 0] + 4 * rng.logistic(size=2400) > 50).astype(int)
    dirty = X.copy()
    bad = rng.permutation(2400)[:24]
    dirty[bad, 0] = 99999
    clean = fitted(table_of(tmp_path, X, y))
    best = evaluate_table(clean, tmp_path / "test.csv", "y").accuracy
    assert best > 0.8
    with pytest.warns(UserWarning, match=r"x0: \d+ rows have 99999, far from all other values"):
        model = fitted(table_of(tmp_path, dirty, y))
    assert evaluate_table(model, tmp_path / "test.csv", "y").accuracy > best - 0.03
    dirty[bad, 0] = rng.integers(10**4, 10**6, size=24)  # mistakes, no code
    with pytest.warns(UserWarning, match="x0: .* far from all others"):
        model = fitted(table_of(tmp_path, dirty, y))
    assert evaluate_table(model, tmp_path / "test.csv", "y").accuracy > best - 0.03


# Heavy tails


def test_heavy_tails_are_those_of_an_exponential_distribution_and_heavier() -> None:
    rng = np.random.default_rng(0)
    light = [
        rng.normal(size=5000),
        rng.random(5000),
        rng.gamma(4, size=5000),
        rng.random(5000) < 0.01,
    ]
    heavy = [rng.lognormal(size=5000), -rng.lognormal(size=5000), rng.standard_t(3, size=5000)]
    assert [is_heavy(x.astype(float)) for x in light + heavy] == [False] * 4 + [True] * 3


def test_a_log_is_odd_about_its_centre_and_standardized() -> None:
    x = np.random.default_rng(0).lognormal(sigma=1.5, size=3000)
    column, _ = only({"x": x})
    assert column.encoded_names == ["x", "log x"]
    X = encoded(column, x)
    centre, scale = np.median(x), stats.iqr(x)
    s = np.array([math.copysign(math.log1p(abs(v - centre) / scale), v - centre) for v in x])
    np.testing.assert_allclose(X[:, 1], (s - s.mean()) / s.std(), atol=1e-5)
    log = Log(3.0, 2.0)
    np.testing.assert_allclose(log(np.array([3 - 1.5])), -log(np.array([3 + 1.5])))
    assert np.isfinite(encoded(column, [1e308, -1e308])).all()


def test_a_log_is_kept_where_held_out_bags_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.lognormal(sigma=2, size=(2400, 2))
    y = (np.log(x[:, 0]) + 0.3 * rng.logistic(size=2400) > 0).astype(int)
    model = fitted(table_of(tmp_path, x, y))
    assert model.columns.encoded_names == ["x0", "log x0", "x1", "log x1"]
    assert evaluate_table(model, tmp_path / "test.csv", "y").accuracy > 0.85
    assert next(e for e in effects(model)).column == "log x0"
    noise = rng.integers(2, size=2400)
    assert fitted(table_of(tmp_path, x, noise)).columns.encoded_names == ["x0", "x1"]
    table = read_bags(tmp_path / "rows.csv", "ward", tmp_path / "bags.csv")
    assert table.columns.encoded_names == ["x0", "x1"]


def test_the_gain_is_that_of_two_fits_held_out_by_hand() -> None:
    from bagwise.likelihood import fit_linear
    from bagwise.likelihood.ridge import bag_folds, bag_log_likelihoods

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    bags = Bags.from_labels((3 * X[:, 1] + rng.logistic(size=300) > 0).astype(int), [5] * 60)
    is_log = np.array([False, True, False])
    folds, total = bag_folds(bags, seed=3), 0.0
    for fold in range(5):
        kept, out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        for sign, keep in ((1, [0, 1, 2]), (-1, [0, 2])):
            fit = fit_linear(X[bags.rows(kept)][:, keep], bags.select(kept), 1.0)
            unseen = X[bags.rows(out)][:, keep]
            total += sign * bag_log_likelihoods(fit, unseen, bags.select(out)).sum()
    mean, error = log_gain(X, is_log, bags, seed=3)
    assert mean == pytest.approx(total / 300, abs=2e-3)
    assert 0 < 2 * error < mean


# Ways of writing


@given(
    st.lists(
        st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
        min_size=3,
        max_size=20,
        unique_by=lambda t: t.date(),
    ),
    st.sampled_from(
        ["%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d/%m/%Y %H:%M", "%m-%d-%Y %H:%M:%S"]
    ),
)
def test_dates_are_read_as_python_reads_them_where_a_day_is_after_the_12th(
    times: list[datetime.datetime], form: str
) -> None:
    times[0] = times[0].replace(day=13 + times[0].day % 15, year=1899)  # the only one of its year
    texts = [time.strftime(form).replace("1899", "1899") for time in times]
    column, notes = only({"d": [*texts, None]})
    assert column.kind == "date"
    assert len(notes) == 1
    epoch = datetime.datetime(1970, 1, 1)
    expected = [
        (datetime.datetime.strptime(t, form) - epoch).total_seconds() / 86400 for t in texts
    ]
    written = Written(column.style, column.unit)
    np.testing.assert_allclose(numbers_of(pa.array(texts), "date", "d", written=written), expected)
    np.testing.assert_allclose(column.mean, np.mean(expected))
    days = [datetime.datetime.fromisoformat(f"{t:%Y-%m-%d %H:%M:%S}") for t in times]
    if "%H" not in form:
        days = [day.replace(hour=0, minute=0, second=0) for day in days]
    if "%S" in form:
        np.testing.assert_allclose(encoded(column, texts), encoded(column, days), atol=1e-3)


def test_single_digits_and_times_of_dates_may_vary() -> None:
    column, _ = only({"d": ["1/2/2021", "31/12/2020 9:05", "NA", " 03/04/2021 "] * 3})
    assert (column.kind, column.style, column.missing) == ("date", "31/12/2020", True)
    with pytest.raises(ValueError, match=r"'12/31/2020' in row 1; a date such as 31/12/2020"):
        encoded(column, ["12/31/2020"])


NUMBERS = [0.5 + 137.25 * i for i in range(30)]


@pytest.mark.parametrize(
    ("texts", "style", "unit"),
    [
        ([f"{x:,.2f}" for x in NUMBERS], "1,234.5", ""),
        ([f"{x:,.2f}".translate(str.maketrans(",.", ".,")) for x in NUMBERS], "1.234,5", ""),
        ([f"{x:.2f}".replace(".", ",") for x in NUMBERS], "1.234,5", ""),
        ([f"{x:,.2f}".replace(",", "\u00a0").replace(".", ",") for x in NUMBERS], "1.234,5", ""),
        ([f"{x:,.2f}".replace(",", "'") for x in NUMBERS], "1,234.5", ""),
        ([f"{x}%" for x in NUMBERS], "1,234.5", "%"),
        ([f" {x} %" for x in NUMBERS], "1,234.5", "%"),
        ([f"${x:,.2f}" for x in NUMBERS], "1,234.5", "$"),
        ([f"{x} €".replace(".", ",") for x in NUMBERS], "1.234,5", "€"),
    ],
    ids=lambda value: value[20] if isinstance(value, list) else None,
)
def test_numbers_are_read_however_they_are_written(texts: list[str], style: str, unit: str) -> None:
    column, notes = only({"x": [*texts, "NA"]})
    assert (column.kind, column.style, column.unit, column.missing) == (
        "numeric",
        style,
        unit,
        True,
    )
    assert len(notes) == 1
    assert "it is read as numbers; " in notes[0]
    np.testing.assert_allclose(column.mean, np.mean(NUMBERS), rtol=1e-9)
    np.testing.assert_array_equal(encoded(column, texts), encoded(column, NUMBERS))
    bad = "5" if unit else "5x"
    with pytest.raises(ValueError, match=rf"'x' has '{bad}' in row 1; a number such as"):
        encoded(column, [bad])


def test_commas_before_three_digits_are_those_of_thousands_and_a_note_says_so() -> None:
    column, (note,) = only({"x": [f"{i},234" for i in range(1, 20)]})
    assert column.style == "1,234.5"
    assert note == "x: it is read as numbers; '10,234' is 10234."
    column, _ = only({"x": [f"{i},234" for i in range(20)]})  # 0,234 has no thousands
    assert column.style == "1.234,5"


def test_numbers_in_different_units_are_an_error_that_names_them() -> None:
    texts = [f"{i}%" for i in range(30)]
    with pytest.raises(ValueError, match=r"holds numbers such as '0%', but in 1 row text .'7'"):
        learn({"x": [*texts, "7"]})


def test_text_of_plain_numbers_in_parquet_stays_text() -> None:
    column, notes = only({"zip": [f"{i % 30:05d}" for i in range(300)]})
    assert (column.kind, notes) == ("category", [])


def test_truth_values_in_mixed_spellings_are_read() -> None:
    column, (note,) = only({"x": ["Yes", "no", "YES ", "n", "true", None] * 4})
    assert (column.kind, column.missing, column.mean) == ("boolean", True, 0.6)
    assert "read as true and false" in note
    column, notes = only({"x": ["yes", "no"] * 9})
    assert (column.kind, notes) == ("category", [])


def test_names_that_differ_only_in_capitals_or_blanks_are_noted() -> None:
    column, (note,) = only({"x": ["red", "blue", "Red", " red", "red"] * 4})
    assert len(column.categories) == 4
    assert note == (
        "x: 'red', ' red', 'Red' are different categories; write them alike if they are not."
    )


# Models


def test_every_kind_of_column_goes_from_the_command_line_to_predictions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 3000
    size = rng.integers(3, size=n)
    y = (size + rng.logistic(size=n) > 1).astype(int)
    ward = rng.integers(60, size=n)
    day = datetime.date(2020, 1, 1)
    rows = [
        [
            ward[i],
            "SML"[size[i]],
            f"Z{rng.integers(700)}",
            f"{rng.lognormal(8):,.2f}",
            f"{day + datetime.timedelta(days=int(rng.integers(700))):%d/%m/%Y}",
        ]
        for i in range(n)
    ]
    data, labels, model, out = (tmp_path / f for f in ("r.csv", "l.csv", "m", "p.csv"))
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([["ward", "size", "zip", "pay", "day"], *rows])
    counts = [[b, *np.bincount(y[ward == b], minlength=2)] for b in range(60)]
    with labels.open("w", newline="") as file:
        csv.writer(file).writerows([["ward", "no", "yes"], *counts])

    def run(*arguments: object) -> Any:
        texts = [str(argument) for argument in arguments]
        result = CliRunner().invoke(app, texts, env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        return result

    files = ("fit", data, "--bag", "ward", "--labels", labels, "--out", model)
    shown = run(*files, "--ordered", "size=S<M<L", "--model", "linear")
    for note in ("zip: it has 690", "pay: it is read as numbers", "day: it is read as dates"):
        assert f"Note: {note}" in shown.stderr
    shown = run("explain", model, "--out", tmp_path / "e.csv").output
    assert "size>=M" in shown
    assert "(shared" not in shown
    assert "zip: the effects of 64 columns" in shown
    assert "zip=(shared 64 of 64)" in (tmp_path / "e.csv").read_text()
    run("predict", model, data, "--out", out)
    with out.open() as file:
        predicted = [float(row["p_yes"]) for row in csv.DictReader(file)]
    assert stats.spearmanr(predicted, size).statistic > 0.7
    page = run("report", model, "--out", tmp_path / "r.html")
    assert page.exit_code == 0
    text = (tmp_path / "r.html").read_text()
    for part in ("S &lt; M &lt; L", "hashed into 64 columns", "written as 1,234.5"):
        assert part in text
    result = CliRunner().invoke(app, [*map(str, files), "--ordered", "size=S<M"])
    assert result.exit_code in (2, 3)
    assert "'L'" in result.stderr


OLD = {
    "format": 1,
    "left_out": {"id": "almost every row has another text"},
    "columns": [
        {"name": "x", "kind": "numeric", "mean": 2.0, "std": 0.5, "missing": True,
         "categories": [], "other": False},
        {"name": "c", "kind": "category", "mean": 0.0, "std": 1.0, "missing": False,
         "categories": ["a", "b"], "other": True},
    ],
}  # fmt: skip


def test_columns_of_earlier_versions_are_read() -> None:
    columns = Columns.from_json(OLD)
    assert columns.encoded_names == ["x", "x=(missing)", "c=a", "c=b", "c=(other)"]
    X = columns.encode(batch_of({"x": [3.0, None], "c": ["b", "z"]}))
    assert X.tolist() == [[2, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
    assert Columns.from_json(json.loads(json.dumps(columns.to_json()))) == columns


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, {"low": 5.0, "high": 1.0}, r"columns\[0\] has parts that do not go together"),
        (0, {"low": 5.0}, "do not go together"),
        (0, {"codes": [1.0], "missing": False}, "do not go together"),
        (0, {"codes": ["x"]}, r"columns\[0\].codes\[0\] is 'x'"),
        (0, {"codes": [float("nan")]}, r"codes\[0\] is nan"),
        (0, {"log": {"centre": 0.0, "scale": 0.0, "mean": 0.0, "std": 1.0}}, "log.scale is 0.0"),
        (0, {"log": {"centre": 0.0}}, "log.scale is missing"),
        (0, {"log": 3}, "log is 3"),
        (0, {"categories": ["a"]}, "do not go together"),
        (0, {"style": "31/12/2020"}, "do not go together"),
        (0, {"style": "roman"}, "style is 'roman'"),
        (0, {"unit": "%"}, "do not go together"),
        (0, {"std": -1.0}, "std is -1.0"),
        (0, {"mean": float("inf")}, "mean is inf"),
        (1, {"shared": 64}, "do not go together"),
        (1, {"shared": 1, "other": False}, "do not go together"),
        (1, {"shared": -2}, "shared is -2"),
        (1, {"shared": 10**9, "other": False}, "shared is 1000000000"),
        (1, {"categories": ["a", "a"]}, "do not go together"),
        (1, {"kind": "ordered", "mean": 7.0, "other": False}, "do not go together"),
        (1, {"name": "x"}, "a name more than once"),
        (1, {"evil": 1}, "'evil' is unknown"),
    ],
)
def test_damaged_columns_are_named(place: int, change: dict[str, Any], message: str) -> None:
    content = json.loads(json.dumps(Columns.from_json(OLD).to_json()))
    content["columns"][place].update(change)
    with pytest.raises(ValueError, match=message):
        Columns.from_json(content)
    with pytest.raises(ValueError, match="shared is missing"):
        Columns.from_json({**OLD, "format": 2})
