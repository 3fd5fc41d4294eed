"""Which cells of the paper's tables have a run here: writes results/overview.md.

    python benchmarks/paper_overview.py

Runs with standardized pixels and runs with raw ones, as the paper's authors have them, are counted
and shown apart. Where a method was run in several ways (another schedule, averaged weights),
validation accuracy chooses the one that is shown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bagwise.paper.accuracy import Block, Cell, collect
from bagwise.paper.accuracy_table import number_or_gap
from bagwise.paper.appearance import title
from bagwise.paper.datasets import published_name
from bagwise.paper.export import read_runs
from bagwise.paper.published import Published, in_paper, paper_results, published
from bagwise.training.best import best_score
from common import table

RESULTS = Path(__file__).parent.parent / "results"
PAGES = ("linear", "mlp", "cifar10", "replication")
TEXT = """# The paper's tables, cell by cell

The paper has {columns} columns (data set, model, bag size) of seven methods, and supervised
learning for each of the {blocks} pairs of data set and model: {numeric} figures, and {na} cells
that it could not compute (NA).

{counts}

**Preprocessing is not method.** The paper trains on raw pixels from 0 to 255. That costs every
method something, supervised learning too, and the approximations in large bags most. So each
accuracy stands with its gap, the distance to supervised learning of the same protocol.

A cell: test accuracy here in percent, its gap in points, how many seeds; then the paper's
accuracy, its gap, and its mark: ● (○) where the paper's best proposed method is significantly
better (worse). "-": no run. Epochs and learning rates are chosen by validation accuracy, and so is
the way of training where a method was run in several.

Written by `python benchmarks/paper_overview.py` from the runs in
{pages}.
"""
SECTION = """
## {name}

{what}

{supervised}
{cells}"""
PROTOCOLS = {
    False: ("Standardized pixels", "Runs of {pages}, which say how long they trained."),
    True: ("Raw pixels, the authors' protocol", "Runs of {pages}."),
}


def best_cells(blocks: list[Block]) -> dict[tuple[str, str, str, int], Cell]:
    """The cell shown of each (data set, model, method, bag size) of the paper."""
    found: dict[tuple[str, str, str, int], Cell] = {}
    for block in blocks:
        for (_, K), cell in block.cells.items():
            key = (*in_paper(block.dataset, block.model), cell.method, K)
            if key in paper_results() and (
                key not in found or validated(cell) > validated(found[key])
            ):
                found[key] = cell
    return found


def validated(cell: Cell) -> float:
    """The mean validation accuracy of a cell's chosen epochs."""
    return float(np.mean([best_score(history, "accuracy") for history in cell.histories]))


def shown(cell: Cell | None, reference: Cell | None, known: Published | None, paper: float) -> str:
    """A cell of the overview; `reference` and `paper` are supervised learning here and there."""
    here = "-"
    if cell is not None:
        gap = "" if reference is None else f" {number_or_gap(cell.mean, reference.mean)}"
        here = f"{cell.mean:.1f}{gap} x{len(cell.accuracies)}"
    if known is None:
        return f"{here} / NA"
    mark = known.mark and f" {known.mark}"
    return f"{here} / {known.mean:.1f} {number_or_gap(known.mean, paper)}{mark}"


def section(raw: bool, blocks: list[Block], pages: str) -> tuple[str, str]:
    """A sentence that counts, and the tables, of one protocol."""
    cells = best_cells(blocks)
    known = paper_results()
    numeric = [key for key, cell in known.items() if cell is not None]
    there = [key for key in numeric if key in cells]
    three = [key for key in there if len(cells[key].accuracies) >= 3]
    filled = [key for key in cells if known[key] is None]
    name, what = PROTOCOLS[raw]
    counts = (
        f"- **{name}: {len(there)} of the {len(numeric)} figures have a run here**, {len(three)} "
        f"of them with three seeds or more; {len(filled)} of the {len(known) - len(numeric)} NA "
        "cells are computed."
    )
    methods = list(dict.fromkeys(method for _, _, method, _ in known if method != "supervised"))
    columns = list(dict.fromkeys((d, m, K) for d, m, method, K in known if method in methods))
    if raw:  # what was run is a small part
        columns = [c for c in columns if any((*c[:2], m, c[2]) in cells for m in methods)]
    references, lines = [], []
    for d, m in dict.fromkeys((d, m) for d, m, _ in columns):
        own, reference = cells.get((d, m, "supervised", 1)), published(d, m, "supervised", 1)
        assert reference is not None
        here = "-" if own is None else f"{own.mean:.1f} x{len(own.accuracies)}"
        references.append([f"{d}, {m}", here, f"{reference.mean:.1f}"])
        for K in (K for *pair, K in columns if pair == [d, m]):
            row = [(cells.get((d, m, method, K)), known[d, m, method, K]) for method in methods]
            lines.append(
                [f"{d}, {m}, {K}", *(shown(c, own, printed, reference.mean) for c, printed in row)]
            )
    return counts, SECTION.format(
        name=name,
        what=what.format(pages=pages),
        supervised=table(["with true labels", "here", "the paper"], references),
        cells=table(["data set, model, K", *map(title, methods)], lines),
    )


def overview(folders: list[Path]) -> str:
    """The page."""
    blocks = {folder: collect(read_runs(folder)) for folder in folders}
    sections = []
    for raw in PROTOCOLS:
        own = {
            folder: [b for b in found if (published_name(b.dataset) != b.dataset) == raw]
            for folder, found in blocks.items()
        }
        pages = ", ".join(f"[{f.name}]({f.name}/README.md)" for f, found in own.items() if found)
        flat = [block for found in own.values() for block in found]
        sections.append(section(raw, flat, pages))
    known = paper_results()
    numeric = sum(cell is not None for cell in known.values())
    text = TEXT.format(
        columns=len({(d, m, K) for d, m, method, K in known if method != "supervised"}),
        blocks=len({(d, m) for d, m, _, _ in known}),
        numeric=numeric,
        na=len(known) - numeric,
        counts="\n".join(counts for counts, _ in sections),
        pages=", ".join(f"`results/{folder.name}`" for folder in folders),
    )
    return text + "".join(tables for _, tables in sections)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS / "overview.md")
    out = parser.parse_args().out
    out.write_text(overview([RESULTS / page for page in PAGES]))


if __name__ == "__main__":
    main()
