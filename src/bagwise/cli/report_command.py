"""The command report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bagwise.cli.app import TABLES, Force, app, output, user_errors
from bagwise.cli.explain_commands import SomeBag, SomeFiles, SomeLabels, some_counts
from bagwise.cli.fit_command import Clipped, NoiseOf, Numbers, RowCounts, Skip
from bagwise.errors import UsageError

if TYPE_CHECKING:
    from bagwise.reports import Answers
    from bagwise.tables.labels.counts import Counts
    from bagwise.tables.model.fitted_table import FittedTable


@app.command(rich_help_panel=TABLES)
def report(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of a model from `bagwise fit`, or of the runs of a sweep."),
    ],
    data: SomeFiles = None,
    by: Annotated[
        str | None, typer.Option(help="Columns that define groups; their shares are shown.")
    ] = None,
    bag: SomeBag = None,
    labels: SomeLabels = None,
    labels_are: Numbers = None,
    noise: NoiseOf = None,
    clipped: Clipped = False,
    row_counts: RowCounts = None,
    skip_unmatched: Skip = False,
    out: Annotated[Path, typer.Option(help="File for the page, or - for standard output.")] = Path(
        "report.html"
    ),
    force: Force = False,
) -> None:
    """Write one HTML page about a model, or about the runs of a sweep.

    For a model, the page shows the verdict and its limitations, the effects of columns, predicted
    and true proportions of held-out bags, calibration, the most surprising bags, and the command
    that fitted it. With rows, it also shows shares of groups (--by) and the importance of each
    column (--bag and --labels). For runs, it shows their tables and figures. An earlier report is
    replaced; other files only with --force.
    """
    from bagwise.cli.messages import word_option
    from bagwise.cli.paper_commands import read_some
    from bagwise.reports import model_report
    from bagwise.reports.page import write_page
    from bagwise.storage.model_folder import CONFIG
    from bagwise.tables.model.fitted_table import FittedTable
    from bagwise.tables.read.paths import columns_of, spooled

    with user_errors(), spooled(data or [], sys.stdin.buffer) as files:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}; give a model or the runs of a sweep.")
        if str(out) != "-" and out.is_dir():
            raise UsageError(f"{out} is a folder; name a file for the page.")
        if out.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{out} is inside {folder}; choose another place for the page.")
        if (folder / CONFIG).exists():
            model = FittedTable.load(folder)
            counts = some_counts(
                bag, labels, labels_are, noise, clipped, skip_unmatched, row_counts
            )
            answers = _answers(model, files, columns_of(by), counts, row_counts)
            content = model_report(model, answers, word_option)
        elif data or by or bag or labels:
            raise UsageError(f"{folder} is not a model; rows and their options are for models.")
        else:
            from bagwise.paper.sweep_page import sweep_report

            content = sweep_report(read_some([folder]), str(folder))
        place = output.place(out)
        if not isinstance(place, Path):
            place.write(content.encode())
            return
        write_page(place, content, force)
    typer.echo(out)


def _answers(
    model: FittedTable,
    files: list[str],
    by: list[str],
    counts: Counts | None,
    weights: str | None,
) -> Answers:
    from bagwise.reports import Answers
    from bagwise.tables.use.estimate import estimate_shares
    from bagwise.tables.use.importance import importances

    if not files and (by or counts):
        raise UsageError("--by, --bag and --labels are about rows; name their files too.")
    if files and not (by or counts):
        raise UsageError("rows are given, but neither --by nor --bag and --labels.")
    falls = importances(model, files, counts, progress=output.for_people) if counts else []
    shares = []
    if by:
        shares = estimate_shares(
            model, files, by, counts, weights=weights, progress=output.for_people
        )
    return Answers(falls, shares, by)
