"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bagwise.errors import InputError, Option
from bagwise.storage.locks import TakenError, hold
from bagwise.storage.uris import refuse_uri

_UNFINISHED = ".unfinished"  # how names of what is being written end
_own: set[str] = set()  # such names of this process


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` in one step: it is there whole, or as it was before."""
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """The same, of content that comes in pieces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(path) as temporary:
        fill(temporary, pieces)
        temporary.replace(path)


def fill(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write content to a file, and wait until it is on the disk."""
    with path.open("wb", buffering=0) as file:
        for piece in pieces:
            write_to(file, piece)
        with naming_path(path):
            os.fsync(file.fileno())


def write_to(file: IO[bytes], content: bytes | memoryview) -> None:
    """Write all of it to a file without a buffer; what fails is an error that names the file."""
    view = memoryview(content)
    left = view.cast("B") if view.nbytes else b""
    with naming_path(Path(file.name)):
        while left:
            left = left[file.write(left) :]


@contextmanager
def naming_path(path: Path) -> Iterator[None]:
    """Have errors of the system that arise here name a path: those of open files name none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder cannot be opened on Windows
        return
    try:
        with naming_path(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def refuse_foreign(path: Path, is_own: Callable[[Path], bool], force: bool = False) -> None:
    """Raise a ValueError where an output would replace a file that its command did not write.

    Args:
        is_own: whether a file is of the kind that the command writes.
    """
    refuse_uri(path)
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{path} is not a file that can be replaced; choose another name.")
    if force or path.stat().st_size == 0 or is_own(path):
        return
    raise InputError(
        f"{path} is there already, and was not written by this command; choose another name, or "
        "replace it with ",
        Option("force", True),
        ".",
    )


def begins(path: Path) -> bytes:
    """The first 64 KiB of a file."""
    with path.open("rb") as file:
        return file.read(1 << 16)


@contextmanager
def unfinished(path: Path, folder: bool = False, shared: bool = False) -> Iterator[Path]:
    """A new hidden file beside `path`, or a folder, to be filled and moved to its place within.

    All that Bagwise writes is written this way. What is still there in the end is removed. Whoever
    fills it has locked it; what nobody has locked was left by a process that was killed, and is
    removed by the next one that writes anything in the same folder.

    Args:
        shared: whether other processes may write the same at the same time; if not, that is an
            InputError. Threads of this one may, and the last one wins.
    """
    taken = remove_leftovers(path.parent)
    others = {name.rsplit(".", 2)[0] for name in {left.name for left in taken} - _own}
    if not shared and f".{path.name}" in others:
        raise InputError(
            f"another process is writing {path}; wait until it has ended, or choose another name."
        )
    handle = None
    try:
        temporary, handle = new_beside(path, folder)
        try:
            yield temporary
        finally:
            remove(temporary)
            _own.discard(temporary.name)
    except OSError as error:
        if _UNFINISHED in str(error.filename):  # which means nothing to a user
            error.filename = str(path)
            del error.filename2  # with None, a message would end in "-> None"
        raise
    finally:
        if handle is not None:
            os.close(handle)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder of this user alone, where the system has temporary files, gone in the end.

    What a killed process has left there is removed by the next one that needs such a folder.
    """
    place = Path(tempfile.gettempdir()) / "bagwise"
    with unfinished(place, folder=True, shared=True) as folder:
        folder.chmod(0o700)
        yield folder


def new_beside(path: Path, folder: bool = False) -> tuple[Path, int | None]:
    """A new, empty, hidden file or folder beside `path`, and the handle that locks it.

    The system gives it the permissions of any new file: asking for the umask would mean to change
    it for a moment, for all threads.
    """
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_UNFINISHED}")
        _own.add(temporary.name)
        if folder:
            temporary.mkdir()
        else:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        with suppress(TakenError, FileNotFoundError):  # it was taken for a leftover just now
            return temporary, hold(temporary)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove what killed processes have left unfinished in a folder.

    Returns:
        what somebody is filling.
    """
    taken: list[Path] = []
    if not folder.is_dir():
        return taken
    for left in folder.glob(f".*.{'[0-9a-f]' * 8}{_UNFINISHED}"):
        try:
            handle = hold(left)
            if handle is not None:
                try:
                    remove(left)
                finally:
                    os.close(handle)
        except TakenError:
            taken.append(left)
        except OSError:  # it is gone, or belongs to another user
            continue
    return taken


def remove(path: Path) -> None:
    """A file, or a folder with all it holds; nothing if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
