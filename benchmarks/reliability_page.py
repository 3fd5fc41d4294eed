"""docs/reliability.md, from the logs in results/reliability.

python benchmarks/reliability_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common import table
from reliability_log import LOGS

PAGE = LOGS.parent.parent / "docs" / "reliability.md"
HEAD = """# Reliability

What was tried to break Bagwise, how much of it, what failed on the way, and how to repeat it. The
figures are those of committed logs ([results/reliability](../results/reliability)), made by
committed scripts. `python benchmarks/reliability_page.py` writes this page; do not edit it.
"""


def shown(cell: object) -> str:
    """A cell of a table: numbers with commas, and no bar that would end the cell."""
    return f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|")


def section(log: dict[str, Any]) -> Iterator[str]:
    """A heading, sentences, a table, what failed, and how to repeat it."""
    yield f"## {log['title']}\n"
    yield from (f"{sentence}\n" for sentence in log["text"])
    yield table(log["columns"], (map(shown, row) for row in log["rows"]))
    if log["found"]:
        yield "What failed on the way, and its fix:\n"
        yield "\n".join(f"- {one['what']} {one['fix']}" for one in log["found"]) + "\n"
    versions = ", ".join(f"{name} {version}" for name, version in log["versions"].items())
    yield f"Run on {log['date']} with {versions}. To repeat it:\n"
    yield f"```sh\n{log['command']}\n```\n"


def page(logs: Iterable[dict[str, Any]]) -> str:
    """The page in Markdown."""
    return "\n".join([HEAD, *(part for log in logs for part in section(log))])


def main() -> None:
    """Write the page."""
    logs: list[Path] = sorted(LOGS.glob("*.json"))
    PAGE.write_text(page(json.loads(path.read_text()) for path in logs))


if __name__ == "__main__":
    main()
