"""The report of a sweep: its tables and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bagwise.reports.page import picture, render
from bagwise.storage.files import temporary_folder

if TYPE_CHECKING:
    from bagwise.paper.run import RunResult

_FIGURES = {
    "accuracy-by-bag-size": "Test accuracy by bag size",
    "beside-the-paper": "The best proposed method beside the paper's best published accuracy",
    "loss-and-accuracy": "Training loss and accuracy of RC_Approx and LLPFC by epoch",
    "ot-training": "Training accuracy of OT by epoch",
    "weight-gap": "Distance of RC's weights from the approximate ones by epoch",
    "test-accuracy": "Test accuracy of the proposed methods by epoch",
}


def sweep_report(results: list[RunResult], name: str, paper: bool = True) -> str:
    """One HTML page with the tables, by both ways of choosing epochs, and the figures."""
    # Experiments need PyTorch, reports of models do not.
    from bagwise.paper.accuracy import collect
    from bagwise.paper.accuracy_table import grid, key
    from bagwise.paper.datasets import published_name
    from bagwise.paper.figures import DPI, draw_figures

    blocks = {select: collect(results, select) for select in ("accuracy", "bag_loss")}
    raw = any(published_name(run.settings.dataset) != run.settings.dataset for run in results)
    with temporary_folder() as folder:
        paths = draw_figures(blocks["accuracy"], folder)
        figures = [picture(path.read_bytes(), _FIGURES[path.stem], DPI) for path in paths]
    return render(
        "sweep.html.jinja",
        name=name,
        tables={
            select: [_in_parts(grid(block, "markdown", paper)) for block in of_select]
            for select, of_select in blocks.items()
        },
        keys={select: key("markdown", paper, select, raw) for select in blocks},
        figures=figures,
        n_runs=len(results),
        versions=sorted({result.versions["bagwise"] for result in results}),
    )


def _in_parts(rows: list[list[str]]) -> list[list[tuple[str, str]]]:
    """A Markdown table whose cells are a bold and a plain part each.

    >>> _in_parts([["CC", "**92.5 ± 0.1** (81.4)", "90.8 (NA)"]])
    [[('', 'CC'), ('92.5 ± 0.1', ' (81.4)'), ('', '90.8 (NA)')]]
    """
    return [[("", name), *map(_bold_and_plain, cells)] for name, *cells in rows]


def _bold_and_plain(cell: str) -> tuple[str, str]:
    if not cell.startswith("**"):
        return "", cell
    bold, _, plain = cell[2:].rpartition("**")
    return bold, plain
