"""Logs of what was tried to break Bagwise: results/reliability/NAME.json.

`reliability_page.py` makes docs/reliability.md of all of them.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

LOGS = Path(__file__).parent.parent / "results" / "reliability"

Cell = str | int | float


def write_log(
    name: str,
    title: str,
    command: str,
    text: Sequence[str],
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    found: Iterable[tuple[str, str]] = (),
    packages: Iterable[str] = ("bagwise", "numpy", "torch"),
    folder: Path = LOGS,
) -> Path:
    """Write a log; what was found is kept from the log that is there, and added to.

    Args:
        name: of the file; pages have logs in the order of their names.
        title: a heading.
        command: what repeats it.
        text: sentences: what was tried, how much of it, and what it means to pass.
        columns: of the table.
        rows: of the table.
        found: what failed on the way, and its fix.
        packages: whose versions are noted.
        folder: where logs are.
    """
    path = folder / f"{name}.json"
    known = json.loads(path.read_text())["found"] if path.exists() else []
    new = [{"what": what, "fix": fix} for what, fix in found]
    log = {
        "title": title,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in packages},
        "text": list(text),
        "columns": list(columns),
        "rows": [list(row) for row in rows],
        "found": [*known, *(one for one in new if one not in known)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(log, indent=1) + "\n")
    return path
