"""Tables wherever they live: folders, Arrow files, URIs, DuckDB files and queries."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

import bagwise
from bagwise.cli import app
from bagwise.errors import InputError
from bagwise.extras import MissingExtraError
from bagwise.limits import Limits
from bagwise.storage.uris import masked
from bagwise.tables.read.databases import DatabaseSource, place_of
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import FileSource, open_rows
from bagwise.tables.read.streaming import streamed_rows
from bagwise.tables.sort.store import Store

WARDS = 16


def rows(n: int = 480, seed: int = 0) -> pa.Table:
    """Rows of 16 wards, with numbers, names and missing values."""
    rng = np.random.default_rng(seed)
    ward, age = np.arange(n) % WARDS, rng.integers(18, 90, n)
    town = rng.choice(["north", "south", "west"], n)
    income = np.where(rng.random(n) < 0.1, np.nan, rng.normal(30, 8, n).round(2))
    votes = age + 15 * (town == "north") + rng.normal(0, 8, n) > 55
    return pa.table(
        {
            "id": np.arange(n),
            "ward": [f"W{w:02d}" for w in ward],
            "age": age,
            "town": town.tolist(),
            "income": pa.array(income, from_pandas=True),
            "votes": np.where(votes, "yes", "no").tolist(),
        }
    )


def counts_of(table: pa.Table) -> pa.Table:
    found = table.group_by(["ward", "votes"]).aggregate([([], "count_all")])
    return found.rename_columns(["ward", "votes", "number"])


def content(source: RowSource, columns: list[str] | None = None) -> dict[str, list[Any]]:
    return pa.Table.from_batches(source.batches(columns)).to_pydict()


def command(line: str) -> Result:
    """A command as a README would have it."""
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert done.exit_code == 0, done.output
    return done


def guide(place: str) -> list[str]:
    """The commands of docs/how_to/files.md that read from a place, as they stand there."""
    text = (Path(__file__).parent.parent / "docs" / "how_to" / "files.md").read_text()
    (found,) = (
        block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if place in block
    )
    return list(found.splitlines())


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows()


@pytest.fixture
def here(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the counts, in which commands run."""
    pcsv.write_csv(counts_of(table), tmp_path / "results.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_duckdb(path: Path, **tables: pa.Table) -> None:
    with duckdb.connect(path) as connection:
        for name, content in tables.items():  # noqa: B007
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM content')


def fitted(data: Any, labels: Any, **options: Any) -> bagwise.TableModel:
    how = {"bag": "ward", "exclude": ["id", "votes"], "model": "linear", "progress": False}
    return bagwise.fit(data, labels=labels, **(how | options))


# --- Arrow files


WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    "feather": lambda table, path: feather.write_feather(table, path),
    "feather not compressed": lambda table, path: feather.write_feather(
        table, path, compression="uncompressed"
    ),
    "polars": lambda table, path: pl.DataFrame(table).write_ipc(path),
    "stream": lambda table, path: _stream(table, path),
    "categories": lambda table, path: feather.write_feather(
        table.set_column(3, "town", table["town"].dictionary_encode()), path
    ),
}


def _stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("ending", ["feather", "arrow"])
def test_arrow_files_are_read_as_parquet_files_are(
    write: Callable[[pa.Table, Path], object], ending: str, table: pa.Table, tmp_path: Path
) -> None:
    path, other = tmp_path / f"rows.{ending}", tmp_path / "rows.parquet"
    write(table, path)
    pq.write_table(table, other)
    limits = Limits(batch_rows=70)
    for source in (FileSource(path, limits=limits), streamed_rows(path, [], 10**9, limits)):
        assert source.rows == 480
        assert max(len(batch) for batch in source.batches()) <= 70
        assert content(source) == table.to_pydict()
        assert content(source, ["town", "id"]) == table.select(["town", "id"]).to_pydict()
    labels = counts_of(table)
    assert str(fitted(path, labels).effects()) == str(fitted(other, labels).effects())


def test_memory_is_the_same_for_an_arrow_file(table: pa.Table, tmp_path: Path) -> None:
    feather.write_feather(table, tmp_path / "rows.feather")
    labels = counts_of(table)
    one = fitted(tmp_path / "rows.feather", labels)
    other = fitted(tmp_path / "rows.feather", labels, memory="200MB")
    np.testing.assert_allclose(
        one.effects()["effect"].to_numpy(), other.effects()["effect"].to_numpy(), rtol=1e-9
    )


def test_an_arrow_file_whose_batches_are_too_large_is_named(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=3_000_000)
    feather.write_feather(pa.table({"x": x}), tmp_path / "x.feather", chunksize=10**9)
    with pytest.raises(
        InputError, match=r"memory is 64 MB; with 1 columns, at least \d+ MB are needed"
    ):
        streamed_rows(tmp_path / "x.feather", [], 64_000_000)
    feather.write_feather(pa.table({"x": x}), tmp_path / "x.feather", chunksize=100_000)
    assert streamed_rows(tmp_path / "x.feather", [], 64_000_000).rows == 3_000_000


# --- folders and URIs


def test_a_folder_of_hive_partitions_by_its_uri(here: Path, table: pa.Table) -> None:
    pq.write_to_dataset(table, here / "voters", partition_cols=["ward"])
    feather.write_feather(table.select(["age", "town", "income"]), here / "new.feather")
    uri = f"{here.as_uri()}/voters"
    command(
        f"bagwise fit {uri} --bag ward --labels {here.as_uri()}/results.csv --exclude id,votes "
        "--model linear --out model"
    )
    command("bagwise predict model new.feather --out predictions.csv")
    assert pcsv.read_csv(here / "predictions.csv").num_rows == 480
    command("bagwise estimate model 'voters/*/*.parquet' --by town")


def test_a_file_uri_may_be_escaped_and_names_this_machine(tmp_path: Path) -> None:
    (tmp_path / "my rows.csv").write_text("x\n1\n")
    assert content(open_rows(f"file://{tmp_path}/my%20rows.csv")) == {"x": ["1"]}
    with pytest.raises(InputError, match="names the machine 'server'"):
        open_rows("file://server/rows.csv")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hdfs://node/rows.csv", r"hdfs://, which is not known; s3://, gs://, file://"),
        ("mysql://ann:secret@host/db", r"^mysql://\*\*\*@host/db begins with mysql://"),
        ("s3://", "names no bucket; s3://BUCKET/PATH is expected"),
        (Path("s3://bucket/rows"), "was a URI before it became a path"),
        ("rows.xlsx", "there is no file rows.xlsx"),
    ],
)
def test_places_that_cannot_be_read_are_named(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_rows(given)


def test_a_folder_with_files_of_several_formats_is_named(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "notes.txt").write_text("from the registry\n")
    with pytest.raises(InputError, match=r"several formats: Parquet \(a.parquet\) and CSV .*\*\*/"):
        open_rows(tmp_path)
    assert open_rows(tmp_path / "**" / "*.parquet").rows == 480
    (tmp_path / "notes.txt").rename(tmp_path / "_notes.txt")
    assert open_rows(tmp_path).rows == 480


def test_outputs_stay_on_this_machine(here: Path, table: pa.Table) -> None:
    pq.write_table(table, here / "voters.parquet")
    model = fitted(here / "voters.parquet", counts_of(table))
    for write in (
        lambda: model.predict(table, out="s3://bucket/p.csv"),
        lambda: model.save("s3://bucket/model"),
        lambda: model.report("gs://bucket/report.html"),
        lambda: fitted(table, counts_of(table), out="s3://bucket/model"),
    ):
        with pytest.raises(InputError, match=r"output begins with (s3|gs):, as a URI does"):
            write()
    assert not list(here.glob("[sg]*:*"))


# --- DuckDB


@pytest.fixture(scope="module")
def warehouse(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("duckdb") / "warehouse.duckdb"
    write_duckdb(path, voters=table, results=counts_of(table))
    return path


def test_the_commands_of_the_guide_for_duckdb(here: Path, warehouse: Path, table: pa.Table) -> None:
    (here / "warehouse.duckdb").write_bytes(warehouse.read_bytes())
    pq.write_table(table, here / "voters.parquet")
    for line in guide("warehouse.duckdb::voters"):
        command(line)
    fit = "--bag ward --exclude id,votes --out other"
    command(f"bagwise fit voters.parquet --labels results.csv {fit}")
    one, other = (bagwise.load(here / name) for name in ("model", "other"))
    assert one.effects().equals(other.effects())
    assert one.facts.data.files == ["warehouse.duckdb::voters"]
    assert pcsv.read_csv(here / "predictions.csv").num_rows == sum(
        age > 50 for age in table["age"].to_pylist()
    )
    command("bagwise evaluate model warehouse.duckdb::voters --target votes")
    command("bagwise estimate model warehouse.duckdb::voters --by town")
    labels = "--bag ward --labels warehouse.duckdb::results"
    command(f"bagwise explain model warehouse.duckdb::voters {labels}")
    command(f"bagwise label model warehouse.duckdb::voters {labels} --out labels.csv")


def test_a_database_has_the_rows_types_and_batches_of_a_file(
    warehouse: Path, table: pa.Table
) -> None:
    limits = Limits(batch_rows=70)
    for source in (
        open_rows(f"{warehouse}::voters", limits=limits),
        open_rows([f"{warehouse}::main.voters"], limits=limits),
        open_rows(f"{warehouse}::select * from voters order by id;", limits=limits),
        streamed_rows(f"{warehouse}::voters", [], 10**9, limits),
    ):
        assert content(source) == table.to_pydict()
        assert content(source, ["town", "id"]) == table.select(["town", "id"]).to_pydict()
        assert [len(batch) for batch in source.batches([])] == [70] * 6 + [60]
        assert source.files == ()


def test_numbers_dates_and_names_of_a_database_mean_what_they_do_in_files(tmp_path: Path) -> None:
    path = tmp_path / "types.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, (i / 4)::DECIMAL(9, 2) AS price, i::HUGEINT AS huge, "
            "i % 2 = 0 AS even, DATE '2020-01-01' + i::INT AS day, "
            "CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b' END::ENUM ('a', 'b') AS kind, "
            "CASE WHEN i < 60 THEN 'n' ELSE 'y' END AS label, i // 4 AS bag FROM range(120) r(i)"
        )
        connection.execute("COPY t TO 'types.parquet'".replace("types", str(tmp_path / "types")))
        labels = connection.sql(
            "SELECT bag, count(*) FILTER (label = 'n') AS n, count(*) FILTER (label = 'y') AS y "
            "FROM t GROUP BY bag"
        ).to_arrow_table()
    how = {"bag": "bag", "exclude": ["i", "label"]}
    one = fitted(f"{path}::t", labels, **how)
    other = fitted(tmp_path / "types.parquet", labels, **how)
    kinds = [(c.name, c.kind) for c in one.fitted.columns.columns]
    assert kinds == [(c.name, c.kind) for c in other.fitted.columns.columns]
    assert {"price": "numeric", "kind": "category", "day": "date"}.items() <= dict(kinds).items()
    assert one.effects().equals(other.effects())


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is asked of databases."""
    from bagwise.tables.read import duckdb_file

    asked: list[str] = []
    reader = duckdb_file._DuckDB._reader

    def noted(self: Any, place: Any, query: str, rows: int) -> Any:
        asked.append(query)
        return reader(self, place, query, rows)

    monkeypatch.setattr(duckdb_file._DuckDB, "_reader", noted)
    return asked  # type: ignore[return-value]


def test_only_columns_that_are_needed_leave_the_database(
    warehouse: Path, connected: list[str], table: pa.Table
) -> None:
    model = fitted(table, counts_of(table), features=["age", "town"])
    model.predict(f"{warehouse}::voters")
    assert connected[-1] == 'SELECT "age", "town" FROM "voters"'


def test_a_fit_with_memory_resumes_with_the_rows_of_a_database(
    warehouse: Path, table: pa.Table, tmp_path: Path, connected: list[str]
) -> None:
    place, labels = f"{warehouse}::voters", counts_of(table)
    one = fitted(place, labels, memory="200MB", store=tmp_path / "store")
    readings = len(connected)
    other = fitted(place, labels, memory="200MB", store=tmp_path / "store")
    assert len(connected) - readings == 2  # its columns, and whether its rows are the same
    assert one.effects().equals(other.effects())
    assert one.effects().equals(fitted(place, labels).effects())
    copy = tmp_path / "copy.duckdb"
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    write_duckdb(copy, voters=shuffled)
    fitted(f"{copy}::voters", labels, memory="200MB", store=tmp_path / "store")
    assert len(connected) - readings > 4
    assert Store(tmp_path / "store", keep=True)


def test_rows_that_change_between_two_readings_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    write_duckdb(path, voters=rows())
    source = open_rows(f"{path}::voters")
    content(source, ["age", "town"])
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE voters SET income = 1 WHERE id = 7")
    content(source, ["age"])
    content(source, ["income"])
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE voters SET age = 1 WHERE id = 7")
    with pytest.raises(InputError, match=r"gave other rows, or another order.*ORDER BY"):
        content(source, ["age"])
    with duckdb.connect(path) as connection:
        connection.execute("DELETE FROM voters WHERE id = 7")
    with pytest.raises(InputError, match="gave other rows"):
        content(source, ["votes"])


def test_a_query_without_an_order_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    write_duckdb(path, voters=rows())
    for query in ("SELECT * FROM voters ORDER BY random()", "SELECT *, random() AS r FROM voters"):
        with pytest.raises(InputError, match="a query needs an ORDER BY"):
            fitted(f"{path}::{query}", counts_of(rows()))
    ordered = fitted(f"{path}::SELECT * FROM voters ORDER BY id DESC", counts_of(rows()))
    assert ordered.facts.data.rows == 480


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "{w}",
            r"name a table or a query behind two colons: .*::TABLE. It has 'results', 'voters'",
        ),
        ("{w}::voter", r"has no table 'voter'. It has 'results', 'voters'"),
        ("{w}::select nothing from voters", r"::select nothing from voters cannot be read: .*not"),
        ("{w}::select from from", "cannot be read: syntax error"),
        ("none.duckdb::voters", "there is no file none.duckdb"),
        (["{w}::voters", "rows.csv"], "is given together with other tables; give it alone"),
        ("{text}::voters", "cannot be read: .*not a valid DuckDB"),
    ],
)
def test_mistakes_about_databases_are_named(
    given: Any, message: str, warehouse: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.duckdb"
    text.write_text("ward,age\n" * 9999)
    names = {"w": warehouse, "text": text}
    place = [x.format(**names) for x in given] if isinstance(given, list) else given.format(**names)
    with pytest.raises(InputError, match=message):
        open_rows(place)


def test_a_budget_that_is_too_small_for_the_columns_is_named(warehouse: Path) -> None:
    with pytest.raises(InputError, match="with 6 columns, at least 35 MB are needed"):
        DatabaseSource(f"{warehouse}::voters", budget=34_000_000)


@pytest.mark.parametrize(
    ("module", "place"),
    [
        ("duckdb", "warehouse.duckdb::voters"),
        ("adbc_driver_postgresql", "postgresql://db/polls::v"),
    ],
)
def test_what_a_database_needs_is_named(
    module: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtraError, match=rf'{module} is not.*pip install "bagwise\[sql\]"'):
        open_rows(place)


# --- names and secrets


@pytest.mark.parametrize(
    ("given", "database", "what"),
    [
        ("a/b.duckdb", "a/b.duckdb", ""),
        ("C:\\x.DDB::my.table", "C:\\x.DDB", "my.table"),
        ("x.duckdb::select a::int from t", "x.duckdb", "select a::int from t"),
        ("postgresql://a:b@h:5/d::t", "postgresql://a:b@h:5/d", "t"),
        ("postgres://[::1]:5/d?host=/x::with a as (select 1) select * from a",) * 1
        + ("postgres://[::1]:5/d?host=/x", "with a as (select 1) select * from a"),
        ("postgresql://db/polls", "postgresql://db/polls", ""),
    ],
)
def test_a_place_is_a_database_and_what_is_in_it(given: str, database: str, what: str) -> None:
    assert place_of(given) == (database, what)


def test_a_name_of_a_table_may_need_quotation_marks(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    write_duckdb(path, **{"select votes": pa.table({"a b": [1]})})
    assert content(open_rows(f'{path}::"select votes"')) == {"a b": [1]}
    assert content(open_rows(f'{path}::main."select votes"')) == {"a b": [1]}


SECRETS = {
    "postgresql://ann:pa:ss@host/db": "postgresql://ann:***@host/db",
    "postgresql://ann@host/db?password=pass&sslmode=on": (
        "postgresql://ann@host/db?password=***&sslmode=on"
    ),
    "s3://AKIA:se/cret@bucket/rows": "s3://***@bucket/rows",
    "gs://me@bucket/x?access_token=1;y=2": "gs://***@bucket/x?access_token=***;y=2",
    "rows.csv?key=1": "rows.csv?key=1",
}


@pytest.mark.parametrize(("uri", "shown"), SECRETS.items())
def test_secrets_are_hidden(uri: str, shown: str) -> None:
    assert masked(f"it is '{uri}' here") == f"it is '{shown}' here"


def test_a_refused_password_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "postgresql://ann:topsecret@127.0.0.1:1/polls?connect_timeout=2::voters"
    with pytest.raises(InputError, match=r"ann:\*\*\*@127.0.0.1.*Connection refused") as found:
        open_rows(uri)
    assert "topsecret" not in str(found.value)


def test_the_command_that_a_model_keeps_has_no_password(
    here: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_duckdb(here / "w.duckdb", voters=table)
    line = "bagwise fit w.duckdb::voters --bag ward --labels results.csv --model linear --out model"
    monkeypatch.setattr("sys.argv", [*shlex.split(line), "s3://AKIA:topsecret@bucket/rows"])
    command(line)
    kept = json.loads((here / "model" / "fit.json").read_text())
    assert "s3://***@bucket/rows" in json.dumps(kept)
    assert not any(b"topsecret" in file.read_bytes() for file in (here / "model").iterdir())
