"""Which files are meant, and which columns: paths, patterns, folders, standard input."""

from __future__ import annotations

import csv
import glob
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bagwise.errors import InputError
from bagwise.storage.files import naming, temporary_folder
from bagwise.storage.uris import masked, scheme_of
from bagwise.tables.read.object_stores import (
    is_pattern,
    is_remote_folder,
    local_path,
    remote_files,
)
from bagwise.tables.read.table_files import (
    KNOWN,
    SPOOLED,
    RemoteFile,
    TableFile,
    format_of,
    is_table,
    refuse_other_content,
)

Paths = str | TableFile | Iterable[str | TableFile]


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
    with temporary_folder() as folder:
        first = stream.read(4)
        kinds = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"ARRO": ".arrow"}
        kind = next((kind for magic, kind in kinds.items() if first.startswith(magic)), ".csv")
        file = folder / f"{SPOOLED}{kind}"
        with naming(file), file.open("wb") as copy:
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


def paths_of(paths: Paths) -> list[TableFile]:
    """The files that are meant, those in folders too; what is not a table's is a ValueError."""
    given = [paths] if isinstance(paths, str | TableFile) else list(paths)
    files: list[TableFile] = []
    for item in given:
        if isinstance(item, RemoteFile):
            files.append(item)
            continue
        scheme = scheme_of(item)
        if scheme == "file":
            found = _local_files(local_path(str(item)))
        elif scheme and not Path(item).exists():
            found = _remote_files(str(item))
        else:
            found = _local_files(item)
        for file in found:
            if not is_table(file):
                raise InputError(f"{file} is of an unknown kind; {KNOWN}.")
            refuse_other_content(file)
        files += found
    if not files:
        raise InputError("no file was given.")
    return files


def _local_files(item: str | Path) -> list[TableFile]:
    path = Path(item)
    if path.exists():
        found = [path]
    else:
        names = sorted(glob.glob(str(item), recursive=True))
        found = [
            path
            for path in map(Path, names)
            if is_table(path) or not path.name.startswith(("_", "."))
        ]
    if not found:
        raise InputError(f"there is no file {item}.")
    inside = [file for one in found for file in (_within(one) if one.is_dir() else [one])]
    return list(dict.fromkeys(inside))  # ** finds folders and what is in them


def _remote_files(uri: str) -> list[TableFile]:
    found: list[TableFile] = [*remote_files(uri)]
    if not found and not is_pattern(uri) and is_remote_folder(uri):
        raise InputError(f"{masked(uri)} is a folder without tables; {KNOWN}.")
    if not found:
        raise InputError(f"there is no file {masked(uri)}.")
    if not is_pattern(uri):
        _refuse_mixed(masked(uri), found)
    return found


def _within(folder: Path) -> list[TableFile]:
    """The tables in a folder and below it, without hidden files and notes such as _SUCCESS."""
    found: list[TableFile] = [
        file
        for file in sorted(folder.rglob("*"))
        if is_table(file)
        and file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    ]
    if not found:
        raise InputError(f"{folder} is a folder without tables; {KNOWN}.")
    _refuse_mixed(str(folder), found)
    return found


def _refuse_mixed(folder: str, files: Sequence[TableFile]) -> None:
    """Raise an InputError where a folder has tables of several formats: some are leftovers."""
    formats: dict[str, TableFile] = {}
    for file in files:
        formats.setdefault(format_of(file), file)
    if len(formats) > 1:
        named = " and ".join(f"{kind} ({file.name})" for kind, file in formats.items())
        ending = "".join(next(iter(formats.values())).suffix)
        raise InputError(
            f"{folder} has files of several formats: {named}. Say which are meant with a pattern "
            f"such as {folder.rstrip('/')}/**/*{ending}."
        )
