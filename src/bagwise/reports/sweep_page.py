"""The report of a sweep: its tables and figures."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bagwise.paper.accuracy import Block, collect, grid, key
from bagwise.paper.figures import draw_figures
from bagwise.paper.run import RunResult
from bagwise.reports.page import data_uri, render


def sweep_report(results: list[RunResult], name: str, paper: bool = True) -> str:
    """One HTML page with the tables, by both ways of choosing epochs, and the figures."""
    blocks = {select: collect(results, select) for select in ("accuracy", "bag_loss")}
    with tempfile.TemporaryDirectory() as folder:
        paths = draw_figures(blocks["accuracy"], Path(folder))
        figures = [(path.stem, data_uri(path.read_bytes())) for path in paths]
    return render(
        "sweep.html.jinja",
        name=name,
        tables={
            select: ([_cells(block, paper) for block in of_select], key("markdown", paper, select))
            for select, of_select in blocks.items()
        },
        figures=figures,
        n_runs=len(results),
        versions=sorted({result.versions["bagwise"] for result in results}),
    )


def _cells(block: Block, paper: bool) -> list[list[tuple[str, str]]]:
    """The table of a block, the header first; each cell in a bold and a plain part."""
    rows = grid(block, "markdown", paper)
    return [[("", name), *map(_bold_and_plain, cells)] for name, *cells in rows]


def _bold_and_plain(cell: str) -> tuple[str, str]:
    """The two parts of a cell in Markdown.

    >>> _bold_and_plain("**92.5 ± 0.1** (81.4)"), _bold_and_plain("90.8 (NA)")
    (('92.5 ± 0.1', ' (81.4)'), ('', '90.8 (NA)'))
    """
    if not cell.startswith("**"):
        return "", cell
    bold, _, plain = cell[2:].rpartition("**")
    return bold, plain
