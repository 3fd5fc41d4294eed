"""Write docs/benchmarks.md, all of it from one run.

A section is a file of this folder with a function `section(pictures, tiny)`, which measures and
returns markdown; pictures go to the folder `pictures`, named after the page and beside it.

python benchmarks/page.py                                     # make bench: a quarter of an hour
python benchmarks/page.py --only others --out others.md       # a page of one section
python benchmarks/page.py --only growth --keep                # the others stay as they are
"""

from __future__ import annotations

import argparse
import importlib
import inspect
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
    "device",
    "groupings",
    "bounds",
    "others",
    "losses",
    "tables",
    "growth",
    "workers",
)


def measured(name: str, pictures: Path, tiny: bool, against: Path | None = None) -> str:
    """A section's markdown, or why there is none; some compare with another version's source."""
    if not (HERE / f"{name}.py").exists():
        return ""
    try:
        section = importlib.import_module(name).section
        compares = against is not None and "against" in inspect.signature(section).parameters
        return str(section(pictures, tiny, *([against] if compares else [])))
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


def renewed(names: Sequence[str], out: Path, tiny: bool, against: Path | None = None) -> None:
    """Measure sections, and put them where the page has those of the same headings."""
    on = f"Measured on {time.strftime('%Y-%m-%d')}: {machine()}"
    for name in names:
        heading, _, text = measured(name, out.parent / out.stem, tiny, against).partition("\n")
        section = f"{heading}\n\n{on}\n{text}"
        before, found, rest = out.read_text().partition(f"\n{heading}\n")
        _, following, after = rest.partition("\n## ")
        if not found:
            before = before.rstrip("\n") + "\n"
        parts = (before, "\n", section.rstrip("\n"), "\n", following, after)
        out.write_text("".join(parts))


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
    parser.add_argument(
        "--keep", action="store_true", help="keep the other sections of the page as they are"
    )
    parser.add_argument("--against", type=Path, help="with --keep: src of a version before this")
    options = parser.parse_args()
    if options.keep:
        renewed(options.only, options.out, options.tiny, options.against)
    else:
        page(options.only, options.out, options.tiny)
    print(f"{options.out} is written.")


if __name__ == "__main__":
    main()
