"""JSON from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bagwise.errors import DamagedError


def read_json(path: Path) -> Any:
    """The content of a JSON file; what cannot be read as such is a ValueError that names it."""
    try:
        return json.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged or was not written by Bagwise ({error}).") from error
