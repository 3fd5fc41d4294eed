"""Files of rows, on this machine or in an object store: their kinds, sizes and content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from bagwise.errors import InputError
from bagwise.storage.files import begins

_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
KNOWN = "files that end in .csv, .tsv, .csv.gz, .parquet, .arrow or .feather can be read"
SPOOLED = "standard-input"
_EDGE = 1 << 16  # bytes at both ends of a file that are looked at


@dataclass(frozen=True)
class RemoteFile:
    """A file in an object store.

    Attributes:
        uri: as it is shown, without credentials and options.
        path: in its file system.
        filesystem: of `pyarrow.fs`.
        size: bytes.
        changed: when it was written, in nanoseconds.
    """

    uri: str
    path: str = field(compare=False)
    filesystem: Any = field(compare=False, repr=False)
    size: int = field(compare=False, default=0)
    changed: int = field(compare=False, default=0)

    def __str__(self) -> str:
        return self.uri

    @cached_property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.path)

    @property
    def name(self) -> str:
        """Its last part."""
        return self._pure.name

    @property
    def suffix(self) -> str:
        """How its name ends."""
        return self._pure.suffix

    @property
    def parents(self) -> Any:
        """The folders above it."""
        return self._pure.parents

    def absolute(self) -> RemoteFile:
        """Itself: it is where its URI says, for every process."""
        return self


TableFile = Path | RemoteFile


def is_parquet(file: TableFile) -> bool:
    """Whether a file is named as Parquet files are."""
    return file.suffix.lower() in _PARQUET


def is_text_file(file: TableFile) -> bool:
    """Whether a file is named as CSV files are; its columns have no types."""
    return file.name.lower().endswith(_TEXT)


def is_table(file: TableFile) -> bool:
    """Whether a file is named as one that can be read."""
    return format_of(file) != ""


def format_of(file: TableFile) -> str:
    """What a file's name says: CSV, Parquet, Arrow, or nothing."""
    if is_text_file(file):
        return "CSV"
    if is_parquet(file):
        return "Parquet"
    return "Arrow" if file.suffix.lower() in _ARROW else ""


def opened(file: TableFile) -> pa.NativeFile:
    """A file whose content is read here and there; to be closed."""
    if isinstance(file, RemoteFile):
        return file.filesystem.open_input_file(file.path)
    return pa.memory_map(str(file)) if file.suffix.lower() in _ARROW else pa.OSFile(str(file))


def text_stream(file: TableFile) -> pa.NativeFile:
    """The text of a file from its beginning, unpacked if it is compressed; to be closed."""
    if isinstance(file, RemoteFile):
        return file.filesystem.open_input_stream(file.path)
    return pa.input_stream(str(file))


def size_of(file: TableFile) -> int:
    """Bytes of a file."""
    return file.size if isinstance(file, RemoteFile) else file.stat().st_size


def local(files: Any) -> list[Path]:
    """Those of the files that are on this machine."""
    return [file for file in files if isinstance(file, Path)]


def as_it_is(file: TableFile) -> list[Any]:
    """What tells that a file has changed: its size, when it was written, and both ends."""
    size = size_of(file)
    changed = file.changed if isinstance(file, RemoteFile) else file.stat().st_mtime_ns
    with opened(file) as stream:
        ends = stream.read(min(_EDGE, size))
        stream.seek(max(size - _EDGE, 0))
        ends += stream.read(_EDGE)
    return [size, changed, hashlib.blake2b(ends, digest_size=16).hexdigest()]


def shown(file: TableFile) -> str:
    """A file as the user knows it."""
    spooled = isinstance(file, Path) and file.stem.startswith(SPOOLED)
    return "standard input" if spooled else str(file)


_CONTENT = {  # how files begin, and what they should be called
    b"\x1f\x8b": ("gzip", (".gz",)),
    b"PAR1": ("Parquet", _PARQUET),
    b"ARROW1": ("Arrow", _ARROW),
    b"PK\x03\x04": ("a spreadsheet or zip archive", ()),
    b"\xd0\xcf\x11\xe0": ("an old spreadsheet", ()),
    b"SQLite format 3": ("an SQLite database", ()),
}


def refuse_other_content(file: TableFile) -> None:
    """A file that is empty, or whose content is of another kind than its name says, is named."""
    if size_of(file) == 0:
        rows = "a header line and rows are" if is_text_file(file) else "rows are"
        raise InputError(f"{shown(file)} is empty; {rows} expected.")
    if isinstance(file, RemoteFile):
        return  # looking into each of many would take long; reading them says it, too
    first = begins(file)
    for magic, (kind, endings) in _CONTENT.items():
        if first.startswith(magic) and not file.name.lower().endswith(tuple(endings)):
            todo = f"name it with {endings[0]} at the end" if endings else "save it as CSV"
            raise InputError(
                f"{shown(file)} is {kind} by its content, not what its name says; {todo}."
            )
