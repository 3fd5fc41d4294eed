"""Which files are meant, and which columns: paths, patterns, folders, standard input."""

from __future__ import annotations

import csv
import glob
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bagwise.errors import InputError
from bagwise.storage.files import begins

Paths = str | Path | Iterable[str | Path]

_PARQUET = (".parquet", ".pq")
_SPOOLED = "standard-input"
_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


@contextmanager
def spooled(paths: Iterable[str], stream: IO[bytes]) -> Iterator[list[str]]:
    """The same paths, but a temporary file with the content of the stream where one is `-`.

    Tables are read more than once, a stream cannot be. The file is gone when the block ends.
    """
    names = list(paths)
    if "-" not in names:
        yield names
        return
    if names.count("-") > 1:
        raise InputError("- is given twice; standard input can be read only once.")
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        first = stream.read(4)
        kinds = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz"}
        kind = next((kind for magic, kind in kinds.items() if first.startswith(magic)), ".csv")
        file = Path(folder) / f"{_SPOOLED}{kind}"
        with file.open("wb") as copy:
            copy.write(first)
            shutil.copyfileobj(stream, copy)
        yield [str(file) if name == "-" else name for name in names]


def columns_of(value: str | Iterable[str] | None) -> list[str]:
    """Column names from a list, or from text with commas between, quoted where they have commas.

    A name that is given twice counts once.

    >>> columns_of("state, county")
    ['state', 'county']
    >>> columns_of('"height, cm",weight')
    ['height, cm', 'weight']
    """
    if value is None:
        return []
    if not isinstance(value, str):
        return list(dict.fromkeys(value))
    (parts,) = csv.reader([value], skipinitialspace=True) if value.strip() else ([],)
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def paths_of(paths: Paths) -> list[Path]:
    """The files that are meant, those in folders too; what is not a table's is a ValueError."""
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    files: list[Path] = []
    for item in given:
        path = Path(item)
        if path.exists():
            found = [path]
        else:
            names = sorted(glob.glob(str(item), recursive=True))
            found = [
                path
                for path in map(Path, names)
                if _is_table(path) or not path.name.startswith(("_", "."))
            ]
        if not found:
            raise InputError(f"there is no file {item}.")
        inside = [file for one in found for file in (_within(one) if one.is_dir() else [one])]
        found = list(dict.fromkeys(inside))  # ** finds folders and what is in them
        for file in found:
            if not _is_table(file):
                raise InputError(
                    f"{file} is of an unknown kind; files that end in .csv, .tsv, .csv.gz or "
                    ".parquet can be read."
                )
            if file.stat().st_size == 0:
                rows = "rows are" if is_parquet(file) else "a header line and rows are"
                raise InputError(f"{_shown(file)} is empty; {rows} expected.")
            _refuse_other_content(file)
        files += found
    if not files:
        raise InputError("no file was given.")
    return files


def _within(folder: Path) -> list[Path]:
    """The tables in a folder and below it, without hidden files and notes such as _SUCCESS."""
    found = [
        file
        for file in sorted(folder.rglob("*"))
        if _is_table(file)
        and file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    ]
    if not found:
        raise InputError(
            f"{folder} is a folder without tables. Files that end in .csv, .tsv, .csv.gz or "
            ".parquet can be read."
        )
    return found


_CONTENT = {  # how files begin, and what they should be called
    b"\x1f\x8b": ("gzip", (".gz",)),
    b"PAR1": ("Parquet", _PARQUET),
    b"PK\x03\x04": ("a spreadsheet or zip archive", ()),
    b"\xd0\xcf\x11\xe0": ("an old spreadsheet", ()),
    b"SQLite format 3": ("an SQLite database", ()),
}


def _refuse_other_content(file: Path) -> None:
    """A file whose content is of another kind than its name says is named, not read as text."""
    first = begins(file)
    for magic, (kind, endings) in _CONTENT.items():
        if first.startswith(magic) and not file.name.lower().endswith(tuple(endings)):
            todo = f"name it with {endings[0]} at the end" if endings else "save it as CSV"
            raise InputError(
                f"{_shown(file)} is {kind} by its content, not what its name says; {todo}."
            )


def _shown(file: Path) -> str:
    """A file as the user knows it."""
    return "standard input" if file.stem.startswith(_SPOOLED) else str(file)


def is_parquet(file: Path) -> bool:
    """Whether a file is named as Parquet files are."""
    return file.suffix.lower() in _PARQUET


def _is_table(file: Path) -> bool:
    """Whether a file is named as one that can be read."""
    return is_parquet(file) or file.name.lower().endswith(_TEXT)
