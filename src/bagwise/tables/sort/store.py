"""A folder on the disk for the rows of a table that is larger than memory, sorted by bag."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bagwise.errors import DamagedError, InputError, Option
from bagwise.memory_size import shown_size
from bagwise.storage.files import remove, remove_leftovers, write_atomically
from bagwise.storage.json_file import read_json
from bagwise.storage.locks import TakenError, hold, only_one
from bagwise.storage.stored_rows import STATE

FORMAT = 1
READING = "reading"  # the name of what a first reading of a table says
_MARK = "bagwise-store.json"


class Store:
    """A folder whose files say what they were made of.

    Args:
        folder: a new or empty one, or a store; anything else is a ValueError.
        keep: whether `done` leaves it.
    """

    def __init__(self, folder: Path, keep: bool = False) -> None:
        self.folder, self._keep = folder, keep
        self._mark()
        for left in folder.glob(f"{STATE}*"):
            left.unlink()

    def _mark(self) -> None:
        """Say that the folder is a store, if it does not say so yet."""
        folder, mark = self.folder, self.folder / _MARK
        if not mark.is_file():
            remove_leftovers(folder)  # of the mark
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise InputError(
                    f"{folder} holds other things than sorted rows; give a new or empty folder."
                )
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(mark, json.dumps({"format": FORMAT}).encode())
            except OSError as error:
                if not self._keep:  # nobody has named it
                    raise
                raise InputError(
                    f"{folder} cannot be written: {error.strerror}; give another folder with ",
                    Option("store"),
                    ".",
                ) from error

    @classmethod
    def beside(cls, out: Path | None, given: Path | None) -> Store:
        """The store at a given place, which is kept; or a hidden one beside a model's folder."""
        place = place_of(out, given)
        if out is not None and Path(os.path.realpath(out)) in (place, *place.parents):
            raise InputError(
                Option("store"),
                f" is {given}, which is within the model's folder {out}; give another one.",
            )
        return cls(place, keep=given is not None)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within, no other process reads a table into it: they would mix their rows.

        If nothing was kept by the end, it is removed, unless it is to be kept.
        """
        taken = f"another fit is sorting rows into {self.folder}; wait for it, or give another."
        try:
            with only_one(self.folder, taken):
                self._mark()  # another process may have removed it by now
                yield
        finally:
            if [path.name for path in self.folder.iterdir()] == [_MARK]:
                self.done()

    def done(self) -> None:
        """Remove it, unless it is to be kept."""
        if not self._keep:
            _remove(self.folder)

    def once(self, name: str, identity: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns, JSON, or returned before for the same identity.

        Before it is made, the former one is removed: files that go with it may then be replaced.
        """
        if (known := self.read(name, identity)) is not None:
            return known
        self.forget(name)
        content = json.loads(json.dumps(make()))  # as it will be read
        self.write(name, identity, content)
        return content

    def read(self, name: str, identity: Any) -> Any:
        """What was written under this name for this identity, or None."""
        path = self.folder / f"{name}.json"
        if path.is_file():
            with suppress(DamagedError):  # it is made again
                found = read_json(path)
                if isinstance(found, dict) and found.get("identity") == digest_of(identity):
                    return found.get("content")
        return None

    def write(self, name: str, identity: Any, content: Any) -> None:
        """Keep JSON, in one step."""
        found = {"identity": digest_of(identity), "content": content}
        write_atomically(self.folder / f"{name}.json", json.dumps(found).encode())

    def forget(self, name: str) -> None:
        """Remove what was written under this name."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def require_room(self, size: int) -> None:
        """Raise a ValueError where the disk has not so many bytes left."""
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise InputError(
                f"the rows, sorted by bag, take {shown_size(size)} on the disk, and "
                f"{shown_size(free)} are free at {self.folder}; make room, or give another folder: "
                "with ",
                Option("store"),
                " for a fit, or in TMPDIR.",
            )


def place_of(out: Path | None, given: Path | None = None) -> Path:
    """The given folder, or the hidden one beside a model's."""
    if given is not None:
        return Path(os.path.realpath(given))
    assert out is not None
    place = Path(os.path.realpath(out))
    return place.with_name(f".{place.name}.store")


def has_read(place: Path) -> bool:
    """Whether a folder keeps at least what a first reading of a table says."""
    return (place / f"{READING}.json").is_file()


def remove_store(out: Path | None) -> None:
    """Remove what a stopped fit has left beside a model's folder."""
    if out is not None:
        _remove(place_of(out))


def _remove(folder: Path) -> None:
    """Remove a store; killed at any moment, it leaves one, or an empty folder.

    What says that work is done goes before the work itself, and the mark of a store last.
    """
    with suppress(OSError, TakenError):  # it is not there, or another fit sorts into it
        handle = hold(folder)
        try:
            if (folder / _MARK).is_file():
                there = [path for path in folder.iterdir() if path.name != _MARK]
                for path in sorted(there, key=lambda path: path.suffix != ".json"):
                    remove(path)
                (folder / _MARK).unlink(missing_ok=True)
            folder.rmdir()
        finally:
            if handle is not None:
                os.close(handle)


def digest_of(identity: Any) -> str:
    """A short digest of JSON."""
    text = json.dumps(identity, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
