"""Rows of a table or a query in a database: `warehouse.duckdb::voters`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from bagwise.errors import InputError
from bagwise.limits import LIMITS, Limits
from bagwise.storage.uris import masked
from bagwise.tables.read.repeated_readings import Readings
from bagwise.tables.read.row_source import RowSource, rows_within
from bagwise.wording import listed

_FILES = (".duckdb", ".ddb")
_POSTGRES = re.compile(r"postgres(ql)?://", re.IGNORECASE)
_QUERY = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_LONGEST = 60  # letters of a query in messages
_REMEDY = (
    "Nothing may write to the table meanwhile, and a query needs an ORDER BY whose columns tell "
    "all rows apart."
)


class Place(NamedTuple):
    """Where rows are in a database.

    Attributes:
        database: a file, or a URI.
        what: a table, or a query.
    """

    database: str
    what: str

    @property
    def is_query(self) -> bool:
        """Whether it is SQL, not the name of a table."""
        return _QUERY.match(self.what) is not None

    @property
    def shown(self) -> str:
        """The same for people, without a password."""
        what = " ".join(self.what.split())
        what = what if len(what) <= _LONGEST else f"{what[: _LONGEST - 3]}..."
        return f"{masked(self.database)}::{what}"

    @property
    def sql(self) -> str:
        """What stands behind FROM."""
        if self.is_query:
            return f"({self.what.strip().rstrip(';')}) AS bagwise_rows"
        parts = re.findall(r'"((?:[^"]|"")+)"|([^.]+)', self.what)
        return ".".join(quoted(given.replace('""', '"') or plain) for given, plain in parts)


class Connection(Protocol):
    """An open database."""

    def schema(self, place: Place) -> pa.Schema:
        """The columns of a table or a query."""

    def read(self, place: Place, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """All rows, of these columns, about so many at a time."""


class Database(Protocol):
    """A kind of database."""

    def connect(self, database: str, budget: int | None) -> AbstractContextManager[Connection]:
        """Open one, to read, within so many bytes of memory."""


def quoted(name: str) -> str:
    """A name as SQL takes any.

    >>> quoted('the "old" ward')
    '"the ""old"" ward"'
    """
    return '"' + name.replace('"', '""') + '"'


def place_of(data: object) -> Place | None:
    """The place in a database that a text or path names; None if it names none.

    >>> place_of("warehouse.duckdb::voters")
    Place(database='warehouse.duckdb', what='voters')
    >>> place_of("postgresql://ann@[::1]/polls::select x::int from voters").what
    'select x::int from voters'
    >>> place_of("rows.csv") is None
    True
    """
    if not isinstance(data, str | Path):
        return None
    text = str(data)
    if _POSTGRES.match(text):
        host = re.match(r"[^/]*//[^/\[]*\[[^]]*\]", text)  # of version 6 of the internet protocol
        start = host.end() if host else 0
        at = text.find("::", start)
        database, what = (text, "") if at < 0 else (text[:at], text[at + 2 :])
    else:
        found = re.match(rf"(.*?({'|'.join(map(re.escape, _FILES))}))(::(.*))?$", text, re.I | re.S)
        if found is None:
            return None
        database, what = found[1], found[4] or ""
    return Place(database, what.strip())


def is_database(data: object) -> bool:
    """Whether rows are in a database; one beside other places is an InputError."""
    if isinstance(data, str | Path):
        return place_of(data) is not None
    if not isinstance(data, list | tuple):
        return False
    there = [place for item in data if (place := place_of(item)) is not None]
    if there and len(data) > 1:
        raise InputError(
            f"{there[0].shown} is given together with other tables; give it alone, or join them in "
            "a query."
        )
    return bool(there)


class DatabaseSource(RowSource):
    """The rows of a table or a query, read anew from the database each time.

    Only the columns that are asked for leave the database. Rows must come in the same order each
    time, which is checked: see `Readings`.

    Args:
        data: a place, see `place_of`.
        budget: bytes of memory that may be used; None if all rows may be in memory.
    """

    def __init__(self, data: Any, limits: Limits = LIMITS, budget: int | None = None) -> None:
        place = place_of(data if isinstance(data, str | Path) else data[0])
        assert place is not None
        self._place, self._budget = place, budget
        self._database = _kind_of(place.database)
        with self._database.connect(place.database, budget) as connection:
            if not place.what:
                _refuse_no_table(connection, place)
            schema = connection.schema(place)
        self._columns = schema  # with what the database selects them by
        schema = pa.schema([field.remove_metadata() for field in schema])
        super().__init__(place.shown, schema, None, limits)
        if not schema.names:
            raise InputError(f"{self.name} has no columns.")
        self.refuse_repeated_names(schema.names)
        if budget is not None:
            self.batch_rows = rows_within(budget, len(schema.names), 0, limits)
        self._readings = Readings(self.name, _REMEDY)

    @property
    def places(self) -> list[str]:
        """The place, without a password."""
        return [self.name]

    def fingerprint(self) -> Any:
        """Digests of the columns, which take a reading of their own."""
        if set(self._readings.digests) < set(self.schema.names):
            for _ in self.batches():
                pass
        return [self._place.what, sorted(self._readings.digests.items())]

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, of these columns (all if not given), in batches."""
        names = self.schema.names if columns is None else columns
        read = list(dict.fromkeys(names)) or self.schema.names[:1]  # one tells how many rows
        schema = pa.schema([self._columns.field(name) for name in read])
        with self._database.connect(self._place.database, self._budget) as connection:
            found = connection.read(self._place, schema, self.batch_rows)
            for batch in self._readings.watched(_even(found, self.batch_rows)):
                yield batch.select(names)
        self.rows = self._readings.rows


def _even(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of so many, whatever the database sends at a time."""
    waiting: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        waiting.append(pa.RecordBatch.from_arrays(batch.columns, batch.schema.names))
        n += len(batch)
        while n >= rows:
            table = pa.Table.from_batches(waiting)
            yield _one(table.slice(0, rows))
            waiting, n = table.slice(rows).to_batches(), n - rows
    if n:
        yield _one(pa.Table.from_batches(waiting))


def _one(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


def _kind_of(database: str) -> Database:
    if _POSTGRES.match(database):
        from bagwise.tables.read import postgres

        return postgres
    from bagwise.tables.read import duckdb_file

    return duckdb_file


def _refuse_no_table(connection: Any, place: Place) -> None:
    name = masked(place.database)
    raise InputError(
        f"{name} is a database; name a table or a query behind two colons: {name}::TABLE. "
        f"{tables_there(connection.tables())}"
    )


def tables_there(names: Iterable[str]) -> str:
    """What tables a database has, for messages."""
    names = list(names)
    return f"It has {listed(names)}." if names else "It has no tables."
