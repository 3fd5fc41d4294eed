"""Columns in the names of folders, such as year=2020."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from bagwise import read_bags, stored_bags
from bagwise.cli import app
from bagwise.tables.labels.counts import Counts
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.read.source import FileSource
from bagwise.tables.read.streaming import StreamedSource
from bagwise.tables.use.label import label_table
from bagwise.tables.use.predict import predict_table
from bagwise.tables.use.prediction_file import Destination, is_prediction
from fitted import fit_table

TOWNS = ["São Paulo", "a/b c", "x=y", None]


def table(rng: np.random.Generator, n: int) -> dict[str, Any]:
    return {"x": rng.normal(size=n).round(4).tolist(), "kind": rng.choice(["a", "b"], n).tolist()}


def write(file: Path, columns: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    writes = pq.write_table if file.suffix == ".parquet" else pcsv.write_csv
    writes(pa.table(columns), file)


@pytest.fixture(scope="module", params=["parquet", "csv"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve years of two files each, notes of Spark beside them, and the counts of each year."""
    place, rng = tmp_path_factory.mktemp("hive"), np.random.default_rng(0)
    for year in range(2010, 2022):
        for part in range(2):
            write(place / "data" / f"year={year}" / f"{part}.{request.param}", table(rng, 10))
    (place / "data" / "_SUCCESS").touch()
    (place / "data" / "year=2010" / ".part.crc").write_text("no table")
    counts = rng.integers(3, 17, 12)
    lines = [f"{year},{n},{20 - n}" for year, n in zip(range(2010, 2022), counts, strict=True)]
    (place / "bags.csv").write_text("\n".join(["year,no,yes", *lines]) + "\n")
    return place


def rows(source: FileSource, columns: list[str] | None = None) -> dict[str, list[Any]]:
    return pa.Table.from_batches(source.batches(columns)).to_pydict()


@pytest.mark.parametrize("given", ["data", "data/*", "data/*/*", "data/**/*.*", "data/**"])
def test_folders_and_patterns_have_the_columns_of_their_folders(folder: Path, given: str) -> None:
    ending = next(folder.rglob("1.*")).suffix
    pattern = given.replace("*/*", f"*/*{ending}").replace(f"{ending}.*", f"{ending}")
    found = FileSource(folder / pattern, typed=False)
    assert len(found.files) == 24
    assert found.schema.names == ["x", "kind", "year"]
    years = [str(year) for year in range(2010, 2022) for _ in range(20)]
    assert rows(found)["year"] == years
    assert rows(found, ["year"]) == {"year": years}
    assert list(rows(found, ["year", "x"])) == ["year", "x"]


def test_rows_are_those_of_pyarrow_datasets(folder: Path) -> None:
    form = "csv" if next(folder.rglob("1.*")).suffix == ".csv" else "parquet"
    files = sorted(map(str, (folder / "data").rglob(f"*.{form}")))
    other = ds.dataset(
        files, format=form, partitioning="hive", partition_base_dir=str(folder / "data")
    ).to_table()
    own = rows(FileSource(folder / "data"))
    assert own["year"] == other["year"].to_pylist()
    assert own["x"] == other["x"].to_pylist()


def test_a_streamed_table_is_the_same(folder: Path) -> None:
    for as_text in ([], ["year"]):
        one = FileSource(folder / "data", as_text=as_text)
        other = StreamedSource(folder / "data", as_text, 100_000_000)
        assert one.schema == other.schema
        assert rows(one) == rows(other)


def test_values_are_unescaped_and_may_be_missing(tmp_path: Path) -> None:
    columns = {"x": [1.0] * 4, "town": TOWNS, "no": [1, 2, 3, 4]}
    pq.write_to_dataset(pa.table(columns), tmp_path / "data", partition_cols=["town", "no"])
    assert any("__HIVE_DEFAULT_PARTITION__" in str(file) for file in tmp_path.rglob("*"))
    found = rows(FileSource(tmp_path / "data"))
    assert dict(zip(found["no"], found["town"], strict=True)) == dict(enumerate(TOWNS, 1))
    assert dict(zip(found["x"], found["no"], strict=True)).keys() == {1.0}


def test_a_column_in_the_file_must_say_what_its_folder_says(tmp_path: Path) -> None:
    write(tmp_path / "month=05" / "a.parquet", {"x": [1.0], "month": [5]})
    write(tmp_path / "month=06" / "a.parquet", {"x": [2.0]})
    assert rows(FileSource(tmp_path, typed=False)) == {"x": [1.0, 2.0], "month": ["05", "06"]}
    for ending in ("parquet", "csv"):
        write(tmp_path / "month=07" / f"a.{ending}", {"x": [2.0, 3.0], "month": [7, 8]})
        for source in (
            lambda: FileSource(tmp_path / "*" / "*.*"),
            lambda: FileSource(tmp_path / "*" / "*.*", typed=False),
            lambda: StreamedSource(tmp_path / "*" / "*.*", [], 100_000_000),
        ):
            with pytest.raises(ValueError, match="has '8' in its column 'month', and its folder"):
                source()
        (tmp_path / "month=07" / f"a.{ending}").unlink()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.csv", "year=2020/b.csv"], "different columns: 'year' and none"),
        (["year=2020/a.csv", "month=5/b.csv"], "different columns: 'year' and 'month'"),
        (["year=2020/year=2021/a.csv"], "several folders that name the column 'year'"),
    ],
)
def test_folders_that_do_not_go_together_are_named(
    tmp_path: Path, names: list[str], message: str
) -> None:
    for name in names:
        write(tmp_path / name, {"x": [1.0]})
    with pytest.raises(ValueError, match=message):
        FileSource(tmp_path)


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(ValueError, match="is a folder without tables"):
        FileSource(tmp_path)


def test_bags_are_those_of_folders_in_memory_and_in_a_store(folder: Path, tmp_path: Path) -> None:
    X, bags, counts, columns = read_bags(folder / "data", "year", folder / "bags.csv")
    assert X.shape[0] == 240
    assert bags.tolist() == [str(year) for year in range(2010, 2022) for _ in range(20)]
    assert list(counts) == sorted(set(bags))
    found = stored_bags(folder / "data", "year", folder / "bags.csv", tmp_path / "s", "100MB")
    assert found.ids.tolist() == list(counts)
    assert torch.equal(
        torch.as_tensor(np.asarray(found.data.inputs[torch.arange(240)])), torch.from_numpy(X)
    )
    assert columns.names == ["x", "kind"]


def test_a_file_that_moves_to_another_folder_is_sorted_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for year in (1, 2):
        write(tmp_path / "data" / f"year={year}" / "a.csv", table(rng, 4))
    (tmp_path / "bags.csv").write_text("year,no,yes\n1,2,2\n2,1,3\n")
    paths = tmp_path / "data", "year", tmp_path / "bags.csv", tmp_path / "s", "100MB"
    one = np.asarray(stored_bags(*paths).data.inputs[torch.arange(8)])
    (tmp_path / "data" / "year=1").rename(tmp_path / "data" / "year=3")
    (tmp_path / "data" / "year=2").rename(tmp_path / "data" / "year=1")
    (tmp_path / "data" / "year=3").rename(tmp_path / "data" / "year=2")
    other = np.asarray(stored_bags(*paths).data.inputs[torch.arange(8)])
    assert not (one == other).all()


def test_fit_predict_and_label_take_bags_from_folders(folder: Path, tmp_path: Path) -> None:
    model = fit_table(folder / "data", "year", folder / "bags.csv", model="linear")
    predict_table(model, folder / "data", Destination(tmp_path / "p.csv"))
    predicted = pcsv.read_csv(tmp_path / "p.csv").to_pydict()
    assert predicted["year"][:21] == [2010] * 20 + [2011]
    counts = Counts(["year"], folder / "bags.csv")
    label_table(model, folder / "data", counts, Destination(tmp_path / "l.csv"))
    labels = pcsv.read_csv(tmp_path / "l.csv").to_pandas()
    given = pcsv.read_csv(folder / "bags.csv").to_pandas().set_index("year")["yes"]
    assert (labels["label"] == "yes").groupby(labels["year"]).sum().eq(given).all()


def test_a_label_file_in_such_a_folder_has_no_class_of_it(tmp_path: Path) -> None:
    write(tmp_path / "year=2020" / "bags.csv", {"ward": ["a"], "no": [1], "yes": [2]})
    assert read_labels(tmp_path / "year=2020" / "bags.csv", ["ward"]).classes == ["no", "yes"]
    both = read_labels(tmp_path / "year=2020" / "bags.csv", ["year", "ward"])
    assert both.ids == ["2020 / a"]


def test_predictions_in_such_a_folder_are_known_as_such(tmp_path: Path) -> None:
    columns = {"label": ["a"], "p_a": [0.9], "p_b": [0.1]}
    write(tmp_path / "year=2020" / "p.csv", columns)
    assert is_prediction(tmp_path / "year=2020" / "p.csv", ["a", "b"])


def test_the_command_line_takes_a_folder(folder: Path, tmp_path: Path) -> None:
    arguments = [str(folder / "data"), "--bag", "year", "--labels", str(folder / "bags.csv")]
    quick = ["--model", "linear", "--lr", "0.1", "--epochs", "1", "--out", str(tmp_path / "m")]
    result = CliRunner().invoke(app, ["fit", *arguments, *quick])
    assert result.exit_code == 0, result.output
