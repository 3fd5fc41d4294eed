"""Options of a command from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from bagwise.errors import UsageError

_OF_GROUPINGS = ("bag", "labels", "labels_are")  # options that may be repeated


def options_in(path: Path, known: list[str]) -> dict[str, Any]:
    """Options from a TOML file, by the names of parameters."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # it is not UTF-8, or no TOML
        raise UsageError(f"--config is {path}, which cannot be read: {error}.") from error
    names = {"set": "set_", "files": "data"}
    options = {}
    for name, value in found.items():
        plain = name.replace("-", "_")
        plain = names.get(plain, plain)
        if plain not in known or plain in ("config", "help"):
            listed = ", ".join(sorted(x.strip("_").replace("_", "-") for x in known))
            raise UsageError(
                f"{path} has {name!r}, which is not an option of fit; these are: {listed}."
            )
        is_list = isinstance(value, list) and plain not in ("data", "ordered", "set_")
        if plain in _OF_GROUPINGS:
            # A list is of several groupings if there are several label files, else of columns.
            several = is_list and (isinstance(found.get("labels"), list) or plain != "bag")
            value = value if several else [",".join(map(str, value)) if is_list else value]
        elif is_list:
            value = ",".join(map(str, value))
        options[plain] = value
    return options
