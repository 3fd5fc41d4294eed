"""The report of a sweep: its tables and figures."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bagwise.paper.accuracy import collect, grid, key
from bagwise.paper.figures import draw_figures
from bagwise.paper.run import RunResult
from bagwise.reports.page import html_table, image, page, paragraph, section

_FIGURES = {
    "accuracy-by-bag-size": "Test accuracy by bag size",
    "beside-the-paper": "The best proposed method beside the paper's best",
    "loss-and-accuracy": "Training loss and accuracy of RC_Approx and LLPFC by epoch",
    "ot-training": "Training accuracy of OT by epoch",
    "weight-gap": "Distance of RC's weights from the approximate ones by epoch",
    "test-accuracy": "Test accuracy of the proposed methods by epoch",
}


def sweep_report(results: list[RunResult], name: str, paper: bool = True) -> str:
    """One HTML page with the tables, by both ways of choosing epochs, and the figures."""
    blocks = {select: collect(results, select) for select in ("accuracy", "bag_loss")}
    titles = {
        "accuracy": "Test accuracy, epochs and learning rates chosen by validation accuracy",
        "bag_loss": "The same, chosen by the likelihood of validation bags, without labels",
    }
    sections = []
    for select, title in titles.items():
        tables = []
        for block in blocks[select]:
            header, *rows = grid(block, "html", paper)
            tables.append(html_table(header, rows))
        sections.append(section(title, *tables, paragraph(key("html", paper), "note")))
    with tempfile.TemporaryDirectory() as folder:
        for path in draw_figures(blocks["accuracy"], Path(folder)):
            title = _FIGURES[path.stem]
            sections.append(section(title, image(path.read_bytes(), "image/png", title)))
    versions = sorted({f"Bagwise {result.versions['bagwise']}" for result in results})
    footer = f"{len(results)} runs. {', '.join(versions)}."
    return page(f"Bagwise sweep: {name}", sections, footer, wide=True)
