"""Where workers have their files: a folder of each, whose name begins with that of the job."""

from __future__ import annotations

import platform
import shutil
import tempfile
from pathlib import Path

from bagwise.errors import InputError, Option
from bagwise.storage.files import new_beside, remove_leftovers


def new_folder(place: Path | None, job: str) -> Path:
    """A hidden folder for a worker, in a place or, without one, where temporary files are.

    The worker's process locks it: those that others have left, which were killed, are removed.
    """
    place = place or Path(tempfile.gettempdir())
    try:
        place.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place)
        folder, _ = new_beside(place / job, folder=True)
        folder.chmod(0o700)
    except OSError as error:
        raise InputError(
            f"{place} cannot be written on the machine {platform.node()}: {error.strerror}; give "
            "another folder with ",
            Option("store"),
            ".",
        ) from error
    return folder


def remove_folders(place: Path | None, job: str) -> None:
    """Remove those of all workers of a job on this machine, also of workers that have died."""
    for folder in (place or Path(tempfile.gettempdir())).glob(f".{job}.*"):
        shutil.rmtree(folder, ignore_errors=True)
