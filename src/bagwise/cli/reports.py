"""The command report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.app import TABLES, Force, app, user_errors


@app.command(rich_help_panel=TABLES)
def report(
    folder: Annotated[
        Path, typer.Argument(help="A model that `bagwise fit` wrote, or the runs of a sweep.")
    ],
    out: Annotated[Path, typer.Option(help="File for the page.")] = Path("report.html"),
    force: Force = False,
) -> None:
    """Write one HTML page about a model, or about the runs of a sweep.

    Of a model: learning curves, predicted and true proportions of held-out bags, calibration, the
    most surprising bags, and the command to do it again. Of runs: their tables and figures. An
    earlier report is replaced, another file only with --force.
    """
    from bagwise.cli.experiments import read_some
    from bagwise.reports import model_report, sweep_report
    from bagwise.storage.files import begins, refuse_foreign, write_atomically
    from bagwise.storage.model_folder import CONFIG, FIT
    from bagwise.tabular.model import TableModel

    with user_errors():
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}; give a model or the runs of a sweep.")
        if out.is_dir():
            raise ValueError(f"{out} is a folder; name a file for the page.")
        if out.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{out} is inside {folder}; choose another place for the page.")
        if (folder / CONFIG).exists():
            content = model_report(TableModel.load(folder), str(folder / FIT))
        else:
            content = sweep_report(read_some(folder), str(folder))
        opening = content.partition("<title>")[0].encode()  # the same in every report
        refuse_foreign(out, lambda path: begins(path).startswith(opening), force)
        write_atomically(out, content.encode())
    typer.echo(out)
