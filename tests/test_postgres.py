"""Tables in PostgreSQL, against a server of Debian's package."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from adbc_driver_postgresql import dbapi

import bagwise
from bagwise.errors import InputError
from bagwise.limits import Limits
from bagwise.tables.read.source import open_rows
from bagwise.tables.read.streaming import streamed_rows
from test_table_places import command, content, counts_of, fitted, guide, rows


def _programs() -> Path | None:
    """Where the server's programs are."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "postgres").exists()), None)


PROGRAMS = _programs()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAMS is None, reason="PostgreSQL's server is not installed (Debian's postgresql)"
    ),
]
Sql = Callable[[str], None]
TYPES = """
CREATE TABLE types AS SELECT
  i::smallint AS small, i AS whole, i::bigint AS big, i / 7.0::real AS single, i / 7.0 AS decimal,
  (i / 4.0)::numeric(9, 2)::money AS price, i % 2 = 0 AS even, 'n' || i AS name,
  CASE WHEN i = 3 THEN NULL ELSE 'b' END::varchar(5) AS few, DATE '2020-01-01' + i AS day,
  TIMESTAMP '2020-01-01 10:00' + i * INTERVAL '1 hour' AS moment,
  TIMESTAMPTZ '2020-01-01 10:00+00' AS zoned, TIME '10:00' AS clock, ARRAY[i] AS list,
  '{"a": 1}'::jsonb AS json, md5(i::text)::uuid AS uuid, INTERVAL '1 day' AS span
FROM generate_series(1, 5) AS r(i)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URI of a server, which runs as a user without rights."""
    assert PROGRAMS is not None
    with TemporaryDirectory(prefix="bagwise-pg-") as name, socket.socket() as free:
        data = Path(name) / "data"
        as_nobody: dict[str, int] = {}
        if os.getuid() == 0:
            as_nobody = {"user": 65534, "group": 65534}
            os.chown(name, 65534, 65534)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        options = ["-U", "ann", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        subprocess.run(
            [PROGRAMS / "initdb", "-D", data, *options], check=True, **quiet, **as_nobody
        )
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        running = subprocess.Popen(
            [PROGRAMS / "postgres", "-D", data, "-k", name, "-h", "localhost", "-p", port],
            **quiet,
            **as_nobody,
        )
        try:
            ready = [PROGRAMS / "pg_isready", "-q", "-h", "localhost", "-p", port]
            for _ in range(600):
                if subprocess.run(ready, check=False).returncode == 0:
                    break
                time.sleep(0.1)
            yield f"postgresql://ann@localhost:{port}"
        finally:
            running.terminate()
            running.wait()


@pytest.fixture(scope="module")
def database(server: str) -> str:
    """The URI of a database with voters and results."""
    with dbapi.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE polls").close()
    uri, table = f"{server}/polls", rows()
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("voters", table)
        cursor.adbc_ingest("results", counts_of(table))
        connection.commit()
    return uri


@pytest.fixture(scope="module")
def sql(database: str) -> Sql:
    """Runs statements."""

    def run(statements: str) -> None:
        with dbapi.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements.split(";"):
                cursor.execute(statement)
            connection.commit()

    run("CREATE SCHEMA old; CREATE TABLE old.polls AS SELECT 1 AS x")
    run("CREATE ROLE bob LOGIN PASSWORD 'topsecret'; CREATE TABLE secret AS SELECT 1 AS x")
    return run


def test_the_commands_of_the_guide_for_postgresql(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGPORT", database.rpartition(":")[2].partition("/")[0])
    pcsv.write_csv(counts_of(rows()), tmp_path / "results.csv")
    for line in guide("postgresql://"):
        command(line)
    assert pcsv.read_csv(tmp_path / "labels.csv").num_rows == 480
    fit = "--bag ward --exclude id,votes"
    pq.write_table(rows(), tmp_path / "voters.parquet")
    command(f"bagwise fit voters.parquet --labels results.csv {fit} --out other")
    one, other = (bagwise.load(tmp_path / name) for name in ("model", "other"))
    assert one.effects().equals(other.effects())
    assert one.facts.data.files == ["postgresql://ann@localhost/polls::voters"]
    place, labels = "postgresql://ann@localhost/polls", "postgresql://ann@localhost/polls::results"
    command(
        f"bagwise fit {place}::voters --labels {labels} {fit} --model linear --memory 200MB "
        "--out large"
    )
    assert bagwise.load(tmp_path / "large").facts.data.rows == 480


def test_rows_come_in_order_and_in_even_batches(database: str) -> None:
    table, limits = rows(), Limits(batch_rows=70)
    for what in ("voters", "public.voters", "SELECT * FROM voters ORDER BY id"):
        for source in (
            open_rows(f"{database}::{what}", limits=limits),
            streamed_rows(f"{database}::{what}", [], 10**9, limits),
        ):
            assert content(source) == table.to_pydict()
            assert content(source, ["town", "id"]) == table.select(["town", "id"]).to_pydict()
            assert [len(batch) for batch in source.batches([])] == [70] * 6 + [60]


def test_types_are_those_of_other_tables(database: str, sql: Sql) -> None:
    sql(TYPES)
    source = open_rows(f"{database}::types")
    kinds = {field.name: str(field.type) for field in source.schema}
    whole = {"small": "int16", "whole": "int32", "big": "int64"}
    real = dict.fromkeys(["single", "decimal", "price"], "double")
    text = dict.fromkeys(["name", "few", "list", "json", "uuid", "span"], "string")
    other = {"even": "bool", "day": "date32[day]", "clock": "time64[us]"}
    times = {"moment": "timestamp[us]", "zoned": "timestamp[us, tz=UTC]"}
    assert kinds == whole | real | text | other | times
    found = content(source)
    assert found["decimal"] == [i / 7 for i in range(1, 6)]
    assert found["price"] == [0.25, 0.5, 0.75, 1.0, 1.25]
    assert found["few"] == ["b", "b", None, "b", "b"]
    assert found["list"][0] == "{1}"
    sql("DELETE FROM types")
    assert {f.name: str(f.type) for f in open_rows(f"{database}::types").schema} == kinds


def test_a_table_that_changes_between_two_readings_is_an_error(database: str, sql: Sql) -> None:
    sql("CREATE TABLE changing AS SELECT i AS x, i AS y FROM generate_series(1, 9) AS r(i)")
    source = open_rows(f"{database}::changing")
    content(source, ["x"])
    sql("UPDATE changing SET y = 0 WHERE x = 4")  # moves the row to the end, too
    with pytest.raises(InputError, match=r"gave other rows, or another order.*ORDER BY"):
        content(source)
    ordered = open_rows(f"{database}::SELECT * FROM changing ORDER BY x")
    content(ordered, ["x"])
    sql("UPDATE changing SET y = 1 WHERE x = 2")
    content(ordered, ["x"])


def test_a_large_table_streams(database: str, sql: Sql) -> None:
    sql("CREATE TABLE large AS SELECT i, i / 2.0::real AS x FROM generate_series(1, 400000) r(i)")
    before = pa.total_allocated_bytes()
    source, n = streamed_rows(f"{database}::large", [], 64_000_000), 0
    for batch in source.batches():
        assert batch["i"][0].as_py() == n + 1
        n += len(batch)
        assert pa.total_allocated_bytes() - before < 16_000_000
    assert n == 400_000


def test_a_fit_reads_only(database: str, sql: Sql) -> None:
    sql("CREATE SEQUENCE numbers")
    with pytest.raises(InputError, match="read-only transaction"):
        content(open_rows(f"{database}::SELECT nextval('numbers') AS n"))
    with pytest.raises(InputError, match="more than one column 'a'"):
        open_rows(f"{database}::SELECT 1 AS a, 2 AS a")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("", r"two colons: .*::TABLE. It has .*'results'"),
        ("::voter", r"has no table 'voter'. It has .*'old.polls'.*'voters'"),
        ("::none.voters", r"has no table 'none.voters'"),
        ("::SELECT nothing FROM voters", 'cannot be read: column "nothing" does not exist'),
        ("::SELECT FROM FROM", "cannot be read: syntax error"),
    ],
)
def test_mistakes_are_named(what: str, message: str, database: str, sql: Sql) -> None:
    with pytest.raises(InputError, match=message):
        open_rows(database + what)


def test_what_the_server_refuses_is_named_without_the_password(database: str, sql: Sql) -> None:
    host = database.partition("@")[2].partition("/")[0]
    for place, message in (
        (f"postgresql://bob:topsecret@{host}/polls::secret", "may not be read by this user"),
        (f"postgresql://eve:topsecret@{host}/polls::voters", 'role "eve" does not exist'),
        (f"postgresql://ann:topsecret@{host}/absent::voters", 'database "absent" does not exist'),
        ("postgresql://ann:topsecret@127.0.0.1:1/x::voters", "Connection refused"),
    ):
        with pytest.raises(InputError, match=re.escape(message)) as found:
            open_rows(place)
        assert "topsecret" not in str(found.value)
        assert ":***@" in str(found.value)


def test_memory_and_postgresql_give_the_model_of_a_file(database: str, tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "voters.parquet")
    labels = counts_of(rows())
    one = fitted(f"{database}::voters", labels, memory="200MB")
    other = fitted(tmp_path / "voters.parquet", labels, memory="200MB")
    assert one.effects().equals(other.effects())
