"""Tables larger than memory: rows are sorted by bag into a file, and the model is the same."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bagwise import (
    BagData,
    TrainingOptions,
    memory_size,
    read_bags,
    stored_bags,
    table_model,
    train,
)
from bagwise.cli import app
from bagwise.data.inputs import full, take
from bagwise.errors import InputError
from bagwise.estimator import network_candidates as tuning
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import bytes_of
from bagwise.storage import stored_rows as stored
from bagwise.storage.files import temporary_folder
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.encode.columns import Columns
from bagwise.tables.encode.number_columns import _Numbering
from bagwise.tables.read.source import FileSource
from bagwise.tables.read.streaming import StreamedSource
from bagwise.tables.search import candidate
from bagwise.tables.sort import sorted_table as large
from bagwise.tables.sort import sorting
from bagwise.tables.sort.sorting import sorted_rows
from bagwise.tables.sort.store import Store
from fitted import fit_table

BUDGET = "100MB"


class KilledError(BaseException):
    """What ends a process."""


def some_rows(n_bags: int, rows: int, seed: int = 0) -> tuple[Any, Any]:
    """(rows,) bags, of which -1 is none and each of the others occurs, and (rows, 3) numbers."""
    rng = np.random.default_rng(seed)
    bags = np.concatenate([np.arange(n_bags), rng.integers(-1, n_bags, rows - n_bags)])
    rng.shuffle(bags)
    return bags, rng.random((rows, 3), dtype=np.float32)


def sort(
    store: Store,
    bags: Any,
    rows: Any,
    part_bytes: int,
    step: int = 7,
    read: Any = None,
    limits: Limits = LIMITS,
) -> Any:
    """What `sorted_rows` makes of rows that come in batches; `read` counts those encoded."""

    def batches() -> Iterator[Any]:
        for start in range(0, len(bags), step):
            some = slice(start, start + step)

            def encode(some: slice = some) -> Any:
                if read is not None:
                    read.append(some.start)
                return rows[some]

            yield bags[some], encode

    sizes = np.bincount(bags[bags >= 0])
    path = sorted_rows(store, "rows", batches, sizes, 3, part_bytes, len(bags), limits=limits)
    return np.fromfile(path, np.float32).reshape(-1, 3)


def in_order(bags: Any, rows: Any) -> Any:
    there = np.flatnonzero(bags >= 0)
    return rows[there[np.argsort(bags[there], kind="stable")]]


@settings(max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(0, 200),
    st.sampled_from([1, 40, 300, 10**6]),
    st.integers(1, 60),
    st.integers(0, 2**16),
)
def test_rows_are_sorted_by_bag_and_those_of_a_bag_stay_in_order(
    n_bags: int, more: int, part_bytes: int, step: int, seed: int
) -> None:
    bags, rows = some_rows(n_bags, n_bags + more, seed)
    with temporary_folder() as folder:
        store = Store(folder)
        assert np.array_equal(sort(store, bags, rows, part_bytes, step), in_order(bags, rows))
        assert not (folder / "parts").exists()
    assert not folder.exists()


def test_a_bag_larger_than_a_part_is_copied_piece_by_piece(tmp_path: Path) -> None:
    limits = Limits(moved_bytes=30)
    bags, rows = some_rows(4, 200)
    bags[bags == 2] = 1
    bags[bags == 3] = 2
    found = sort(Store(tmp_path / "s"), bags, rows, 100, limits=limits)
    assert np.array_equal(found, in_order(bags, rows))


def test_sorting_that_was_stopped_at_any_moment_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(noted_bytes=1)
    bags, rows = some_rows(12, 100)
    real, left = Store.write, [0]

    def write(self: Store, *arguments: Any) -> None:
        if not left[0]:
            raise KilledError
        left[0] -= 1
        real(self, *arguments)

    monkeypatch.setattr(Store, "write", write)
    stopped = 0
    while True:
        store, read = Store(tmp_path / str(stopped)), []
        left[0] = stopped
        try:
            found = sort(store, bags, rows, 300, limits=limits)
        except KilledError:
            assert store.read("sorted", "rows") is None
            left[0] = 1000
            # An unfinished batch is cut off again.
            for file in store.folder.glob("parts/*"):
                with file.open("ab") as more:
                    more.write(b"half a record")
            found = sort(Store(store.folder), bags, rows, 300, read=read, limits=limits)
            assert len(read) == max(15 - stopped, 0)
            stopped += 1
        else:
            break
        assert np.array_equal(found, in_order(bags, rows))
    assert stopped > 18
    assert np.array_equal(found, in_order(bags, rows))


@pytest.mark.parametrize("damage", ["part", "rows", "journal"])
def test_what_is_missing_of_a_stopped_sort_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    limits = Limits(noted_bytes=1)
    bags, rows = some_rows(12, 100)
    store, real = Store(tmp_path / "s"), sorting._Sorting._place

    def place(self: Any, part: int, *rest: Any) -> None:
        if part == 2:
            raise KilledError
        real(self, part, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(sorting._Sorting, "_place", place)
        with pytest.raises(KilledError):
            sort(store, bags, rows, 300, limits=limits)
    if damage == "part":
        (store.folder / "parts" / "000003").write_bytes(b"")
    elif damage == "rows":
        (store.folder / "rows").unlink()
    else:
        (store.folder / "sorting.json").write_text("{")
    found = sort(store, bags, rows, 300, limits=limits)
    assert np.array_equal(found, in_order(bags, rows))


def test_a_cut_file_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    bags, rows = some_rows(5, 40)
    store, read = Store(tmp_path / "s"), []
    sort(store, bags, rows, 300)
    assert np.array_equal(sort(store, bags, rows, 50, read=read), in_order(bags, rows))
    assert not read
    with (store.folder / "rows").open("r+b") as file:
        file.truncate(100)
    assert np.array_equal(sort(store, bags, rows, 300, read=read), in_order(bags, rows))
    assert read


def test_a_full_disk_is_noticed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 500}))
    bags, rows = some_rows(5, 400)
    with pytest.raises(
        ValueError, match=r"take 1\d KB on the disk, and 500 B are free at .*with store"
    ):
        sort(Store(tmp_path / "s"), bags, rows, 10**6)


def test_rows_of_selected_bags_are_those_of_an_array(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([3, 1, 4, 2])
    rows = rng.random((10, 2), dtype=np.float32)
    rows.tofile(tmp_path / "rows")
    whole = StoredRows.of_file(tmp_path / "rows", sizes, 2, 10, "digest")
    kept = whole.select(np.array([3, 0]))
    expected = rows[[8, 9, 0, 1, 2]]
    assert kept.shape == (5, 2)
    assert np.array_equal(kept[:], expected)
    assert np.array_equal(kept.double(), expected.astype(np.float64))
    assert np.array_equal(kept.take(np.array([4, 0])), expected[[4, 0]])
    assert np.array_equal(take(kept, torch.tensor([4, 0])).numpy(), expected[[4, 0]])
    assert np.array_equal(kept.select(np.array([1]))[:], rows[:3])
    assert len({part.fingerprint() for part in (whole, kept, kept.select(np.array([1])))}) == 3
    assert kept.fingerprint() == whole.select(np.array([3, 0])).fingerprint()


def test_free_memory_is_given_back_before_it_exceeds_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used, given_back = [1000], []
    monkeypatch.setattr(stored, "memory_in_use", lambda: used[0])
    monkeypatch.setattr(stored, "give_back", lambda: given_back.append(used[0]))
    rows = StoredRows(np.zeros((4, 1)), np.array([0]), np.array([4]), budget=400)
    for used[0] in (900, 1100, 1101, 1000):
        assert rows.take(np.array([3, 1])).shape == (2, 1)
    assert given_back == [1101]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say")
def test_memory_in_use_is_what_no_file_backs() -> None:
    stored.give_back()  # runs of other tests may have kept what they freed
    before = stored.memory_in_use()
    assert before > 10**7
    block = np.ones(10**7)
    assert 6e7 < stored.memory_in_use() - before < 12e7
    del block
    stored.give_back()
    assert stored.memory_in_use() - before < 2e7


def test_what_is_kept_of_rows_lies_in_a_file_without_a_name(
    tmp_path: Path,
) -> None:
    np.zeros((4, 1), np.float32).tofile(tmp_path / "rows")
    limits = Limits(state_bytes=10)
    rows = StoredRows.of_file(tmp_path / "rows", np.array([4]), 1, 10, "", limits)
    kept = full(rows, (4, 3), -1.0, torch.float64)
    kept[2] = 5
    assert kept.tolist() == [[-1] * 3, [-1] * 3, [5] * 3, [-1] * 3]
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("1.5 gib", 3 * 2**29), ("64000KB", 64 * 10**6), (10**9, 10**9)],
)
def test_sizes_are_read_as_people_write_them(text: str | int, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["2", "GB", "2 G B", "-2GB", "2XB", "", "nan GB", "1e3MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a size such as 500MB, 2GB or 1.5GiB is expected"):
        bytes_of(text)


@pytest.mark.parametrize("text", ["63MB", "0GB", 5])
def test_a_size_that_is_too_small_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="at least 64 MB are needed"):
        bytes_of(text)


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1), min_size=1, max_size=4), st.booleans())
def test_a_column_that_numbers_rows_is_known_without_keeping_it(
    parts: list[list[int]], make: bool
) -> None:
    if make:  # few random lists are gapless
        flat = np.random.default_rng(len(parts)).permutation(sum(map(len, parts))) - 3.0
        arrays = np.split(flat, np.cumsum([len(part) for part in parts])[:-1])
    else:
        arrays = [np.array(part, dtype=np.float64) for part in parts]
    numbering, goes_on = _Numbering(), True
    for array in arrays:
        goes_on = goes_on and numbering.goes_on(array)
    values = np.concatenate(arrays)
    ordered = np.sort(values)
    differ = len(np.unique(values)) == len(values)
    gapless = ordered[-1] - ordered[0] == len(values) - 1
    in_order = any(np.array_equal(x, ordered) for x in (values, values[::-1]))
    if goes_on:
        assert numbering.numbers_rows() == (differ and (gapless or in_order))
    else:
        assert not differ


def text_table() -> dict[str, list[Any]]:
    """Columns of every kind, of which some seem to be another one for a while."""
    rng, n = np.random.default_rng(0), 400
    late = [*(["1"] * 390), *(["old"] * 10)]
    return {
        "bag": [f"{b:03d}" for b in rng.integers(10, size=n)],
        "number": [f"{x:.3f}" if x < 1 else "NA" for x in rng.normal(size=n)],
        "truth": [str(x).lower() for x in rng.random(n) < 0.5],
        "date": [f"2020-01-{d:02d}" for d in rng.integers(1, 29, n)],
        "time": [f"{h:02d}:30:00" for h in rng.integers(24, size=n)],
        "late": late,
        "empty": ["NA"] * n,
        "text": [f"city {c}" for c in rng.integers(5, size=n)],
    }


def test_a_csv_file_has_the_same_types_and_rows_as_when_it_is_read_at_once(
    tmp_path: Path,
) -> None:
    limits = Limits(csv_block_bytes=4000, batch_rows=30)
    table = text_table()
    pcsv.write_csv(pa.table(table), tmp_path / "a.csv")
    other = pa.table(table | {"empty": ["Rome", *["NA"] * 399]})
    pcsv.write_csv(other, tmp_path / "b.csv")
    numbers = other.set_column(1, "number", pa.array(np.arange(400.0)))
    pq.write_table(numbers.drop(["truth", "date", "time"]), tmp_path / "c.parquet")
    pcsv.write_csv(pa.table(table).drop(["truth", "date", "time"]), tmp_path / "d.csv")
    for files in (["a.csv"], ["a.csv", "b.csv"], ["d.csv", "c.parquet"]):
        paths = [tmp_path / name for name in files]
        whole = FileSource(paths, as_text=["bag"], limits=limits)
        streamed = StreamedSource(paths, ["bag"], 10**8, limits)
        assert streamed.schema == whole.schema
        assert streamed.rows == whole.rows
        for columns in (None, ["text", "number"]):
            pairs = zip(whole.batches(columns), streamed.batches(columns), strict=True)
            assert all(one.equals(other) for one, other in pairs)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 700 rows in 21 bags, one of more rows than a batch has, and their counts."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    bag = np.concatenate([np.full(300, 20), np.repeat(np.arange(20), 20)])
    rng.shuffle(bag)
    yes = rng.random(700) < 0.2 + 0.6 * (bag % 4) / 3
    table = {
        "bag": [f"B{b}" for b in bag],
        "x": [None if i % 50 == 7 else float(v) for i, v in enumerate(rng.normal(size=700) + yes)],
        "income": np.exp(rng.normal(size=700) + yes),
        "town": np.array(["Elm", "Oak", "Ash"])[rng.integers(3, size=700)].tolist(),
        "seen": [f"2020-01-{d:02d}" for d in rng.integers(1, 29, 700)],
    }
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=100)
    pcsv.write_csv(pa.table(table), folder / "rows.csv")
    counts = [f"B{b},{(~yes[bag == b]).sum()},{yes[bag == b].sum()}" for b in rng.permutation(21)]
    (folder / "bags.csv").write_text("\n".join(["bag,no,yes", *counts]) + "\n")
    return folder


QUICK = {"model": "linear", "lr": 0.03, "epochs": 3}


def content(model: Path) -> list[Any]:
    """All that a model folder holds, but for the times that were measured."""
    config, facts = (json.loads((model / name).read_text()) for name in ("config.json", "fit.json"))
    for row in config.get("history", []):
        row.pop("seconds", None)
    del facts["seconds"]
    tensors = [path.read_bytes() for path in sorted(model.glob("*.safetensors"))]
    rest = [(model / name).read_bytes() for name in ("columns.json", "held_out_bags.csv")]
    return [sorted(path.name for path in model.iterdir()), config, facts, tensors, rest]


def fit(made: Path, out: Path, kind: str = "parquet", **more: Any) -> list[Any]:
    fit_table(made / f"rows.{kind}", "bag", made / "bags.csv", out=out, **QUICK | more)
    return content(out)


# Parts of few rows, nothing read at once, everything kept in files.
TIGHT = Limits(sorting_part=10**5, selection_part=10**9, state_bytes=10)
ONE_SPLIT = Limits(cross_validated=0, few_bags=0)
TIGHT_ONE_SPLIT = replace(TIGHT, cross_validated=0, few_bags=0)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("cross_validated", [True, False])
def test_the_model_is_the_same_bit_for_bit(
    made: Path, tmp_path: Path, kind: str, cross_validated: bool
) -> None:
    limits, tight = (LIMITS, TIGHT) if cross_validated else (ONE_SPLIT, TIGHT_ONE_SPLIT)
    plain = fit(made, tmp_path / "plain", kind, limits=limits)
    assert fit(made, tmp_path / "stored", kind, memory=BUDGET, limits=tight) == plain
    assert not list(tmp_path.glob(".*"))


def test_bags_may_be_numbers_in_one_file_and_text_in_another(made: Path, tmp_path: Path) -> None:
    rows = pq.read_table(made / "rows.parquet")
    texts = pa.array([name[1:] for name in rows.column("bag").to_pylist()])
    for name, bag, part in (("a", texts.cast(pa.int64()), (0, 300)), ("b", texts, (300, 400))):
        pq.write_table(rows.set_column(0, "bag", bag).slice(*part), tmp_path / f"{name}.parquet")
    counts = (made / "bags.csv").read_text().replace("\nB", "\n")
    (tmp_path / "bags.csv").write_text(counts)
    how = (tmp_path / "*.parquet", "bag", tmp_path / "bags.csv")
    fit_table(*how, out=tmp_path / "plain", **QUICK)
    fit_table(*how, out=tmp_path / "stored", memory=BUDGET, **QUICK)
    assert content(tmp_path / "stored") == content(tmp_path / "plain")


@pytest.mark.parametrize("more", [{"lr": None, "epochs": None}, {"method": "rc"}])
def test_other_ways_to_fit_give_the_same_model_too(
    made: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    stored = fit(made, tmp_path / "stored", memory=BUDGET, limits=TIGHT, **more)
    assert stored == fit(made, tmp_path / "plain", **more)


def test_a_search_among_perceptrons_finds_the_same(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def behind(search: tuning.Search, trial: Any, part: int, rival: Any) -> bool:
        return not tuning.may_be_nonlinear(candidate.scores_of(rival, search.data))

    def scores(X: Any, bags: Any, linear: Any) -> None:
        seen.append(X)

    monkeypatch.setattr(tuning.Search, "_is_behind", behind)
    monkeypatch.setattr(candidate, "nonlinearity_scores", scores)
    more = {"model": "auto", "lr": None, "epochs": None, "limits": TIGHT_ONE_SPLIT}
    found = fit(made, tmp_path / "stored", memory=BUDGET, **more)
    assert found == fit(made, tmp_path / "plain", **more)
    of_file, of_memory = seen
    assert (of_file == of_memory).all()
    assert len(of_file) == 700


def test_a_fit_that_was_stopped_while_sorting_and_training_goes_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = {"memory": BUDGET, "limits": TIGHT}
    plain, out = fit(made, tmp_path / "plain"), tmp_path / "stored"
    real = sorting._Sorting._place

    def place(self: Any, part: int, *rest: Any) -> None:
        if part == 2:
            raise KilledError
        real(self, part, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(sorting._Sorting, "_place", place)
        with pytest.raises(KilledError):
            fit(made, out, **within)
    assert (tmp_path / ".stored.store" / "parts").exists()
    monkeypatch.setattr(Columns, "encode", None)  # all rows are in the parts
    with monkeypatch.context() as patch:
        patch.setattr("bagwise.tables.fitting.assess", None)
        with pytest.raises(TypeError):
            fit(made, out, **within)
    assert (tmp_path / ".stored.store" / "rows").exists()
    assert fit(made, out, **within) == plain
    assert not list(tmp_path.glob(".*"))


def test_a_store_that_is_kept_serves_again_until_the_table_changes(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "data")
    data, store = tmp_path / "data", tmp_path / "store"
    plain = fit(data, tmp_path / "plain")
    assert fit(data, tmp_path / "first", memory=BUDGET, store=store) == plain
    with monkeypatch.context() as patch:
        patch.setattr(StreamedSource, "batches", None)
        assert fit(data, tmp_path / "second", memory=BUDGET, store=store) == plain
    table = pq.read_table(data / "rows.parquet")
    doubled = pa.array(np.asarray(table["income"]) ** 2)
    pq.write_table(table.set_column(2, "income", doubled), data / "rows.parquet")
    changed = fit(data, tmp_path / "plain")
    assert changed != plain
    assert fit(data, tmp_path / "first", memory=BUDGET, store=store) == changed
    assert sorted(path.name for path in store.iterdir()) == [
        "bagwise-store.json", "codes", "columns.json", "reading.json", "rows", "sorted.json",
    ]  # fmt: skip


def test_notes_about_columns_are_given_again(made: Path, tmp_path: Path) -> None:
    table = pq.read_table(made / "rows.parquet")
    codes = pa.array([99999.0 if i % 9 == 0 else float(i % 50) for i in range(700)])
    pq.write_table(table.append_column("age", codes), tmp_path / "rows.parquet")
    shutil.copy(made / "bags.csv", tmp_path)
    for out in ("one", "two"):
        with pytest.warns(UserWarning, match="99999, far from all other values"):
            fit(tmp_path, tmp_path / out, memory=BUDGET, store=tmp_path / "store")


def test_ctrl_c_says_where_the_sorted_rows_are(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(*rest: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(table_model, "fit", partial(table_model.fit, limits=TIGHT))
    monkeypatch.setattr(sorting._Sorting, "_place", place)
    command = ["fit", str(made / "rows.csv"), "--bag", "bag", "--labels", str(made / "bags.csv")]
    command += ["--memory", BUDGET, "--out", str(tmp_path / "model")]
    for more, folder in ([], ".model.store"), (["--store", str(tmp_path / "rows")], "rows"):
        result = CliRunner().invoke(app, [*command, *more])
        assert result.exit_code == 130
        assert f"kept in {tmp_path / folder}; rerun the command to resume" in result.output
        assert f"sorted by bag into {tmp_path / folder}, which will take" in result.output


def test_ctrl_c_in_the_first_reading_says_that_nothing_is_kept(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bag_codes(*rest: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(large, "bag_codes", bag_codes)
    command = ["fit", str(made / "rows.csv"), "--bag", "bag", "--labels", str(made / "bags.csv")]
    result = CliRunner().invoke(app, [*command, "--memory", BUDGET, "--out", str(tmp_path / "m")])
    assert result.exit_code == 130
    assert "Nothing was finished yet" in result.output


def test_a_fit_says_that_rows_are_sorted_already(made: Path, tmp_path: Path) -> None:
    command = ["fit", str(made / "rows.csv"), "--bag", "bag", "--labels", str(made / "bags.csv")]
    command += ["--memory", BUDGET, "--store", str(tmp_path / "s"), "--model", "linear"]
    command += ["--epochs", "1", "--lr", ".1", "--out", str(tmp_path / "model")]
    for said in ("which will take", f"Rows are in {tmp_path / 's'} already, sorted by bag"):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert said in result.output


def test_two_fits_do_not_sort_into_one_store(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with (
        Store(tmp_path / "s", keep=True).alone(),
        pytest.raises(ValueError, match="another fit is sorting rows into"),
    ):
        fit(made, tmp_path / "model", memory=BUDGET, store=tmp_path / "s")


def refused(*arguments: Any) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in (2, 3), result.output
    return result.output


def test_a_model_of_ones_own_is_trained_on_sorted_rows_as_on_rows_in_memory(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = (made / "rows.parquet", "bag", made / "bags.csv")
    table = stored_bags(*files, tmp_path / "s", BUDGET, limits=TIGHT)
    assert isinstance(table.data.inputs, StoredRows)
    rows = take(table.data.inputs, torch.arange(700))

    X, names, counts, columns = read_bags(*files)
    place = {name: i for i, name in enumerate(table.ids.tolist())}
    X = X[np.argsort([place[name] for name in names.tolist()], kind="stable")]
    assert X.shape == (700, len(columns.encoded_names))
    # `fit` takes the logarithm of incomes, which `read_bags` does not.
    stored = list(table.columns.encoded_names)
    for i, name in enumerate(columns.encoded_names):
        if "income" not in name:
            assert np.array_equal(rows[:, stored.index(name)], X[:, i])
    for name, own in zip(table.ids, table.data.bags.counts.tolist(), strict=True):
        assert counts[name] == dict(zip(table.classes.tolist(), own, strict=True))

    def history(data: BagData) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Linear(rows.shape[1], 2)
        options, held_out = TrainingOptions(epochs=2, seed=0), data.select(range(15, 21))
        found = train(model, data.select(range(15)), "rc", options, validation=held_out)
        return [{k: v for k, v in row.items() if k != "seconds"} for row in found.history]

    assert history(table.data) == history(BagData(rows, table.data.bags))

    def sorted_again(*_: Any, **__: Any) -> None:
        raise AssertionError("the rows are sorted already")

    monkeypatch.setattr(sorting._Sorting, "deal", sorted_again)
    again = stored_bags(*files, tmp_path / "s", BUDGET, limits=TIGHT)
    assert again.data.fingerprint() == table.data.fingerprint()
    fit_table(*files, memory=BUDGET, store=tmp_path / "s", limits=TIGHT, **QUICK)
    with pytest.raises(ValueError, match="other things than sorted rows"):
        stored_bags(*files, made, BUDGET)


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_container_is_known(tmp_path: Path, version: int) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    line, top, names = {
        1: ("7:cpu:/a/b\n4:memory:/a/b\n0::/\n", groups / "memory", V1),
        2: ("0::/a/b\n", groups, V2),
    }[version]
    (proc / "self" / "cgroup").write_text(line)

    def group(path: str, limit: str) -> None:
        (top / path).mkdir(parents=True, exist_ok=True)
        for name, text in zip(names, (limit, "600", f"other 1\n{names[3]} 100"), strict=False):
            (top / path / name).write_text(text + "\n")

    found = partial(memory_size._left_in_groups, proc, groups)
    assert list(found()) == []
    group("a/b", "max")
    assert list(found()) == []
    group("a/b", "1000")
    group("a", "900")
    assert sorted(found()) == [400, 500]
    group("a", "0")
    assert min(found()) == 0
    assert list(memory_size._left_in_groups(tmp_path, groups)) == []


V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file")
V2 = ("memory.max", "memory.current", "memory.stat", "inactive_file")


def test_mistakes_are_named(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("fit", made / "rows.csv", "--bag", "bag", "--labels", made / "bags.csv")
    command = (*command, "--out", tmp_path / "model")
    assert "--memory, too" in refused(*command, "--store", tmp_path / "s")
    within = (*command, "--memory", "100MB")
    assert "memory is '2'" in refused(*command, "--memory", "2")
    assert "leave --row-labels or --memory out" in refused(*within, "--row-labels", "town")
    assert "choose one of cc," in refused(*within, "--method", "llpfc")
    assert "other things than sorted rows" in refused(*within, "--store", made)
    for inside in ("model", "model/rows"):
        assert "within the model's folder" in refused(*within, "--store", tmp_path / inside)
    below_a_file = made / "rows.csv" / "s"
    assert f"{below_a_file} cannot be written: " in refused(*within, "--store", below_a_file)
    assert "no file" in refused("fit", tmp_path / "none.csv", *within[2:])
    assert not list(tmp_path.iterdir())  # no store without rows
    for limits, message in (
        (
            Limits(probability_bytes=50_000),
            "2 classes and up to 300 rows in a bag, at least 134 MB",
        ),
        (Limits(column_bytes=30_000_000), "with 5 columns, at least 182 MB are needed"),
    ):
        with pytest.raises(InputError, match=message):
            fit(made, tmp_path / "model", "csv", memory="100MB", limits=limits)
    monkeypatch.setattr(memory_size, "free_memory", lambda: 2_000)
    assert "2 KB are free; say how much may be used, for instance --memory 64MB" in refused(
        *command
    )
    parquet = (*command[:1], made / "rows.parquet", *command[2:])
    assert "the table, encoded, takes" in refused(*parquet)
    assert not (tmp_path / "model").exists()
