"""Where workers have their files: a folder of each, whose name begins with that of the job."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


def new_folder(place: Path | None, job: str) -> Path:
    """A folder for a worker, in a place or, without one, where temporary files are."""
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{job}-", dir=place))


def remove_folders(place: Path | None, job: str) -> None:
    """Remove those of all workers of a job on this machine, also of workers that have died."""
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{job}-*"):
        shutil.rmtree(folder, ignore_errors=True)
