"""Locks on files and folders, which end with the process that has them, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bagwise.errors import InputError

if sys.platform != "win32":
    import fcntl


class TakenError(Exception):
    """Another process, or another part of this one, has the lock."""


def hold(path: Path) -> int | None:
    """Lock a file or a folder until the handle that is returned is closed.

    None where there are no locks: on Windows, and on some disks. What is no longer at its place by
    the time it is locked is a FileNotFoundError.
    """
    if sys.platform == "win32":
        return None
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.path.samestat(os.fstat(handle), os.lstat(path))
    except BlockingIOError:
        os.close(handle)
        raise TakenError(str(path)) from None
    except FileNotFoundError:
        is_there = False
    except OSError:  # there are disks without locks
        os.close(handle)
        return None
    if not is_there:
        os.close(handle)
        raise FileNotFoundError(path)
    return handle


@contextmanager
def only_one(folder: Path, refusal: str) -> Iterator[None]:
    """Within, no other process is within for the same folder, which is made if it is not there.

    Args:
        refusal: the message of the InputError where another process is within.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = hold(folder)
            break
        except TakenError:
            raise InputError(refusal) from None
        except FileNotFoundError:
            continue  # the other process has ended and removed it
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
