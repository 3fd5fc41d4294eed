"""The digests of a folder's files, by which a missing, added or changed one is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from bagwise.checks import anything, record, text
from bagwise.errors import InputError
from bagwise.storage.files import write_atomically
from bagwise.storage.json_file import read_json

MANIFEST = "manifest.json"
_CONTENT = record({"format": anything, "files": record({}, others=text)})


def write_manifest(folder: Path, apart: Collection[str] = ()) -> None:
    """Write the SHA-256 of every file of a folder, but for those apart, as its last file."""
    digests = {name: _digest(folder / name) for name in _names(folder, apart)}
    content = {"format": 1, "files": digests}
    write_atomically(folder / MANIFEST, json.dumps(content, indent=1).encode())


def check_manifest(folder: Path, apart: Collection[str] = ()) -> None:
    """Refuse a folder that has lost, gained or changed a file since it was written.

    Args:
        folder: that `write_manifest` has seen.
        apart: files that may be anything.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{folder} has no {MANIFEST}, it is incomplete; restore it from a copy, or make the "
            "model again."
        )
    content = read_json(path)
    try:
        _CONTENT(content, "")
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    wanted = {name: value for name, value in content["files"].items() if name not in apart}
    found = _names(folder, apart)
    for name in sorted({*wanted, *found}):
        if name not in found:
            what = "is missing"
        elif name not in wanted:
            what = "was not there when the model was saved"
        elif _digest(folder / name) != wanted[name]:
            what = "is not as it was when the model was saved"
        else:
            continue
        raise InputError(
            f"{folder / name} {what}; restore the folder from a copy, or make the model again."
        )


def is_as_written(folder: Path, name: str) -> bool:
    """Whether a file is the one that the manifest has; also where there is no manifest."""
    if not (folder / MANIFEST).is_file():
        return True
    content = read_json(folder / MANIFEST)
    wanted = content.get("files", {}) if isinstance(content, dict) else {}
    return isinstance(wanted, dict) and wanted.get(name) == _digest(folder / name)


def _names(folder: Path, apart: Collection[str]) -> list[str]:
    """Hidden files are those of the system, not of the model."""
    names = (entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted(name for name in names if name != MANIFEST and name not in apart)


def _digest(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
