"""Write docs/benchmarks.md, all of it from one run.

A section is a file of this folder with a function `section(pictures, tiny)`, which measures and
returns markdown; pictures go to the folder `pictures`, named after the page and beside it.

python benchmarks/page.py                                     # make bench: a quarter of an hour
python benchmarks/page.py --only others --out others.md       # a page of one section
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common import machine

HERE = Path(__file__).parent
SECTIONS = (
    "training",
    "steps",
    "engines",
    "accuracy",
    "groupings",
    "bounds",
    "others",
    "losses",
    "tables",
    "workers",
)


def measured(name: str, pictures: Path, tiny: bool) -> str:
    """A section's markdown, or why there is none."""
    if not (HERE / f"{name}.py").exists():
        return ""
    try:
        return str(importlib.import_module(name).section(pictures, tiny))
    except ModuleNotFoundError as missing:
        return f"## {name.capitalize()}\n\nNot measured: {missing.name} is not installed.\n"


def page(names: Sequence[str], out: Path, tiny: bool) -> None:
    """Measure sections, and write them with what they were measured on."""
    started, on = time.time(), machine()
    parts: list[str] = []
    for name in names:
        print(f"{time.time() - started:5.0f} s  {name}", file=sys.stderr, flush=True)
        parts.append(measured(name, out.parent / out.stem, tiny))
        head = (  # after each section: a run that is stopped leaves what it has
            "# Benchmarks\n\nWritten by `make bench`; do not edit. Times are of the clock unless "
            "it says CPU, and are only as steady\nas the machine was quiet; ratios are of things "
            f"timed in turn.\n\n{on}\nThe run took {(time.time() - started) / 60:.0f} minutes, on "
            f"{time.strftime('%Y-%m-%d')}.\n"
        )
        out.write_text("\n".join([head, *(part for part in parts if part)]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    docs = HERE.parent / "docs" / "benchmarks.md"
    parser.add_argument("--out", type=Path, default=docs, help="file to write (docs/benchmarks.md)")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to measure (all)"
    )
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds, to test it")
    options = parser.parse_args()
    page(options.only, options.out, options.tiny)
    print(f"{options.out} is written.")


if __name__ == "__main__":
    main()
