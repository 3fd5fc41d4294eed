"""Columns that stand in the names of folders, as Hive, Spark and pandas write them: year=2020/."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from bagwise.errors import InputError
from bagwise.tables.read.table_files import TableFile
from bagwise.tables.read.type_inference import inferred
from bagwise.tables.read.values import category_texts

MISSING = "__HIVE_DEFAULT_PARTITION__"
"""What stands for a missing value in the name of a folder."""


@dataclass(frozen=True)
class Partitions:
    """The columns that the folders of files add, with one value for each file.

    Attributes:
        fields: names and types of the columns.
        texts: of each file, each column's value as text, None where it is missing.
        values: of each file, each column's value in the column's type.
    """

    fields: tuple[pa.Field, ...]
    texts: dict[TableFile, dict[str, str | None]]
    values: dict[TableFile, dict[str, pa.Scalar]]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [field.name for field in self.fields]

    def added_to(
        self, batch: pa.RecordBatch, file: TableFile, names: Sequence[str]
    ) -> pa.RecordBatch:
        """The batch with these columns, those of the folders among them."""
        own = self.values[file]
        columns = [
            pa.repeat(own[name], batch.num_rows) if name in own else batch.column(name)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def refuse_other_values(self, column: pa.Array, name: str, file: TableFile) -> None:
        """A file's own column of the same name must say what the folder says."""
        expected = self.texts[file][name]
        for text in category_texts(column).unique().to_pylist():
            if not _same(text, expected):
                raise InputError(
                    f"{file} has {text!r} in its column {name!r}, and its folder says "
                    f"{expected!r}. Rename the column or the folder."
                )


def partitions_of(files: Sequence[TableFile], typed: bool, as_text: Collection[str]) -> Partitions:
    """What the folders directly above the files say.

    Args:
        typed: find out the types of the columns, as in CSV files; otherwise they are text.
        as_text: columns that are text in any case.
    """
    texts = {file: folder_values(file) for file in files}
    first = texts[files[0]]
    for file, own in texts.items():
        if own.keys() != first.keys():
            raise InputError(
                f"{file} and {files[0]} are in folders of different columns: "
                f"{_listed(own)} and {_listed(first)}. Give files whose folders name the same "
                "columns."
            )
    columns = {}
    for name in first:
        column = pa.chunked_array([pa.array([own[name] for own in texts.values()], pa.string())])
        if typed and name not in as_text:
            column = inferred(column)
        columns[name] = column
    values = {
        file: {name: column[place] for name, column in columns.items()}
        for place, file in enumerate(texts)
    }
    fields = tuple(pa.field(name, column.type) for name, column in columns.items())
    return Partitions(fields, texts, values)


def folder_values(file: TableFile) -> dict[str, str | None]:
    """Names and values in the folders directly above a file; None where a value is missing.

    >>> from pathlib import Path
    >>> folder_values(Path("data/year=2020/city=S%C3%A3o%20Paulo/part.parquet"))
    {'year': '2020', 'city': 'São Paulo'}
    """
    found: list[tuple[str, str | None]] = []
    for folder in file.parents:
        name, equals, text = folder.name.partition("=")
        if not (name and equals):
            break
        value = unquote(text)
        found.append((unquote(name), None if text == MISSING or not value.strip() else value))
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{file} is in several folders that name the column {name!r}. Rename one of them."
            )
    return dict(reversed(found))


def _same(text: str | None, expected: str | None) -> bool:
    """Whether two texts are the same, or the same number: 5 and 05."""
    if text is None or expected is None:
        return text is expected
    try:
        return text.strip() == expected.strip() or float(text) == float(expected)
    except ValueError:
        return False


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
