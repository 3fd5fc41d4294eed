"""Tables and queries of a DuckDB file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bagwise.errors import InputError
from bagwise.extras import require
from bagwise.storage.files import temporary_folder
from bagwise.tables.read.databases import quoted, tables_there

if TYPE_CHECKING:
    from bagwise.tables.read.databases import Place

_PART = 4  # of a budget that sorting and joining may take
_LEAST = 32_000_000  # bytes, below which DuckDB does little


@contextmanager
def connect(database: str, budget: int | None) -> Iterator[_DuckDB]:
    """Open a file to read; what it sorts beyond its part of the budget goes to temporary files."""
    require("duckdb", "sql")
    import duckdb

    if not Path(database).is_file():
        raise InputError(f"there is no file {database}.")
    with temporary_folder() as folder:
        config: dict[str, Any] = {"temp_directory": str(folder)}
        if budget is not None:
            config["memory_limit"] = f"{max(budget // _PART, _LEAST)}B"
        try:
            opened = duckdb.connect(database, read_only=True, config=config)
        except duckdb.Error as error:
            raise _refused(database, error) from error
        try:
            yield _DuckDB(opened)
        finally:
            opened.close()


class _DuckDB:
    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def tables(self) -> list[str]:
        """Names of tables and views."""
        found = self._opened.execute(
            "SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2"
        ).fetchall()
        return [name if schema == "main" else f"{schema}.{name}" for schema, name in found]

    def schema(self, place: Place) -> pa.Schema:
        """The columns of a table or a query."""
        return self._reader(place, f"SELECT * FROM {place.sql} LIMIT 0", 1).schema

    def read(self, place: Place, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """All rows, of these columns, about so many at a time."""
        import duckdb

        columns = ", ".join(map(quoted, schema.names))
        try:
            yield from self._reader(place, f"SELECT {columns} FROM {place.sql}", rows)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise _refused(place.shown, error) from error

    def _reader(self, place: Place, query: str, rows: int) -> Any:
        import duckdb

        try:
            found = self._opened.sql(query)
            if hasattr(found, "to_arrow_reader"):
                return found.to_arrow_reader(rows)
            return found.fetch_record_batch(rows)  # before DuckDB 1.5
        except duckdb.CatalogException as error:
            if place.is_query:
                raise _refused(place.shown, error) from error
            raise InputError(
                f"{place.database} has no table {place.what!r}. {tables_there(self.tables())}"
            ) from error
        except duckdb.Error as error:
            raise _refused(place.shown, error) from error


def _refused(place: str, error: Exception) -> InputError:
    reason = str(error).strip()
    if "lock" in reason.lower() and "IO Error" in reason:
        return InputError(f"{place} is open in another program that may write to it; close it.")
    return InputError(f"{place} cannot be read: {_first_line(reason)}")


def _first_line(reason: str) -> str:
    """What DuckDB says, without the kind of error before it and the query behind it."""
    line = reason.split("\n")[0]
    kind, colon, rest = line.partition(": ")
    return rest if colon and kind.endswith("Error") else line
