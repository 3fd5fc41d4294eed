"""Whether a table that is read several times gives the same rows in the same order each time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import InputError
from bagwise.tables.read.values import is_text


class Readings:
    """Compares each reading of a table with those before, column by column.

    A query need not say in which order rows come, and a table may change in between. Rows that are
    read again are paired with what was found before by their place, so that they must be the same.

    Args:
        name: of the table, for messages.
        remedy: what to do where rows have changed.

    >>> readings = Readings("votes", "Give the query an ORDER BY.")
    >>> first = [pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})]
    >>> sum(len(batch) for batch in readings.watched(iter(first)))
    3
    >>> list(readings.watched(iter([pa.record_batch({"x": [3, 2, 1]})])))
    Traceback (most recent call last):
    bagwise.errors.InputError: votes gave other rows, or another order, when it was read again. \
Give the query an ORDER BY.
    """

    def __init__(self, name: str, remedy: str) -> None:
        self._name, self._remedy = name, remedy
        self.digests: dict[str, str] = {}
        self.rows: int | None = None

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; what differs from former readings is an InputError at the end."""
        found: dict[str, _Digest] = {}
        rows = 0
        for batch in batches:
            rows += len(batch)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                found.setdefault(name, _Digest()).add(column)
            yield batch
        new = {name: digest.text for name, digest in found.items()}
        same = all(self.digests.get(name, digest) == digest for name, digest in new.items())
        if not same or self.rows not in (None, rows):
            raise InputError(
                f"{self._name} gave other rows, or another order, when it was read again. "
                f"{self._remedy}"
            )
        self.digests |= new
        self.rows = rows


class _Digest:
    """Of the values of a column, however they are cut into batches."""

    def __init__(self) -> None:
        self._known, self._lengths, self._values = (
            hashlib.blake2b(digest_size=16) for _ in range(3)
        )

    def add(self, column: pa.Array) -> None:
        """Take more values."""
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        self._known.update(column.is_valid().to_numpy(zero_copy_only=False).tobytes())
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            self._values.update(np.ascontiguousarray(pc.fill_null(column, 0).to_numpy()).data)
            return
        if not is_text(column.type):
            column = _written(column)
        texts = pc.fill_null(column.cast(pa.large_string()), "")
        _, offsets, letters = texts.buffers()
        if not len(texts) or letters is None:
            return
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        self._lengths.update(np.diff(ends).tobytes())
        self._values.update(letters[ends[0] : ends[-1]])

    @property
    def text(self) -> str:
        """The digest."""
        parts = (self._known, self._lengths, self._values)
        return "".join(part.hexdigest() for part in parts)


def _written(column: pa.Array) -> pa.Array:
    """Values of any type as text."""
    try:
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return pa.array([None if x is None else repr(x) for x in column.to_pylist()], pa.string())
