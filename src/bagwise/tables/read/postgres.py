"""Tables and queries of a PostgreSQL server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bagwise.errors import InputError
from bagwise.extras import require
from bagwise.storage.uris import masked
from bagwise.tables.read.databases import quoted, tables_there

if TYPE_CHECKING:
    from bagwise.tables.read.databases import Place

_BATCH = "adbc.postgresql.batch_size_hint_bytes"
_BYTES = 4 << 20  # of rows that come at a time
_NO_TABLE, _NO_SCHEMA, _NO_RIGHT = "42P01", "3F000", "42501"
_CONNECTION = (
    " Is the server running? Check host, port, database and user; a password may also be in "
    "PGPASSWORD or ~/.pgpass."
)
_NUMBERS = ("smallint", "integer", "bigint", "real", "double precision")
_DECIMALS = ("numeric", "money")
_AS_THEY_ARE = (
    *("boolean", "text", "character varying", "character", "date", "time without time zone"),
    *("timestamp without time zone", "timestamp with time zone"),
)


@contextmanager
def connect(database: str, budget: int | None) -> Iterator[_Postgres]:
    """Connect to read; rows come batch by batch, so that no budget is needed."""
    del budget
    require("adbc_driver_postgresql", "sql")
    import adbc_driver_manager as adbc
    from adbc_driver_postgresql import dbapi

    try:
        opened = dbapi.connect(database)
    except adbc.Error as error:
        raise _refused(masked(database), error, _CONNECTION) from error
    try:
        with opened.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            # Several readings of a table at the same time, or by several processes of the server,
            # would give its rows in another order.
            cursor.execute("SET LOCAL synchronize_seqscans = off")
            cursor.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            cursor.adbc_statement.set_options(**{_BATCH: str(_BYTES)})
            yield _Postgres(opened, cursor)
    finally:
        opened.close()


class _Postgres:
    def __init__(self, opened: Any, cursor: Any) -> None:
        self._opened, self._cursor = opened, cursor

    def tables(self) -> list[str]:
        """Names of tables and views that this user may see."""
        self._cursor.execute(
            "SELECT table_schema::text, table_name::text FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
        )
        found = self._cursor.fetchall()
        return [name if schema == "public" else f"{schema}.{name}" for schema, name in found]

    def schema(self, place: Place) -> pa.Schema:
        """The columns of a table or a query."""
        self._execute(place, f"SELECT * FROM {place.sql} LIMIT 0")
        found = self._cursor.fetch_record_batch()
        names = found.schema.names
        found.close()
        if len(set(names)) < len(names):
            return pa.schema([pa.field(name, pa.null()) for name in names])  # will be refused
        kinds = self._kinds(place, names)
        columns = [_selected(name, kind) for name, kind in zip(names, kinds, strict=True)]
        self._execute(place, f"SELECT {', '.join(columns)} FROM {place.sql} LIMIT 0")
        found = self._cursor.fetch_record_batch()
        fields = [
            pa.field(field.name, field.type, metadata={"sql": column})
            for field, column in zip(found.schema, columns, strict=True)
        ]
        found.close()
        return pa.schema(fields)

    def _kinds(self, place: Place, names: list[str]) -> list[str]:
        """The types of columns, also where there are no rows."""
        asked = ", ".join(f"pg_typeof(bagwise_none.{quoted(name)})::text" for name in names)
        none = f"(SELECT * FROM {place.sql} LIMIT 0) AS bagwise_none"
        self._execute(place, f"SELECT {asked} FROM (SELECT 1) AS one LEFT JOIN {none} ON TRUE")
        (kinds,) = self._cursor.fetchall()
        return list(kinds)

    def read(self, place: Place, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """All rows, of these columns; how many come at a time is by their size."""
        del rows
        import adbc_driver_manager as adbc

        columns = ", ".join(field.metadata[b"sql"].decode() for field in schema)
        self._execute(place, f"SELECT {columns} FROM {place.sql}")
        try:
            with self._cursor.fetch_record_batch() as found:
                yield from found
        except (adbc.Error, pa.ArrowException, OSError) as error:
            raise _refused(place.shown, error) from error

    def _execute(self, place: Place, query: str) -> None:
        import adbc_driver_manager as adbc

        try:
            self._cursor.execute(query)
        except adbc.Error as error:
            if error.sqlstate in (_NO_TABLE, _NO_SCHEMA) and not place.is_query:
                self._opened.rollback()
                raise InputError(
                    f"{masked(place.database)} has no table {place.what!r}. "
                    f"{tables_there(self.tables())}"
                ) from error
            raise _refused(place.shown, error) from error


def _selected(name: str, kind: str) -> str:
    """A column as it is selected: decimal numbers as others, what Arrow does not know as text."""
    plain = quoted(name)
    if kind in (*_NUMBERS, *_AS_THEY_ARE):
        return plain
    as_kind = "text"
    if kind in _DECIMALS:
        as_kind = "numeric::double precision" if kind == "money" else "double precision"
    return f"{plain}::{as_kind} AS {plain}"


def _refused(place: str, error: Exception, todo: str = "") -> InputError:
    reason = str(error)
    if getattr(error, "sqlstate", None) == _NO_RIGHT:
        return InputError(f"{place} may not be read by this user of the database.")
    found = re.search(r"(?:ERROR|FATAL):\s*(.*)", reason)
    said = found[1] if found else reason.split("\n")[0].partition("] ")[2] or reason.split("\n")[0]
    return InputError(f"{place} cannot be read: {masked(said).rstrip('. ')}.{todo}")
