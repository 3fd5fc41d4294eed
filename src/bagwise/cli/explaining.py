"""Commands that say what a model says: explain, estimate."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bagwise.cli.app import TABLES, Force, app, console, user_errors
from bagwise.cli.tables import Files, LabelsAre, Model, Numbers, Skip

if TYPE_CHECKING:
    from bagwise.tabular.explaining import Effect, GroupShare

MOST_SHOWN = 40

Out = Annotated[Path | None, typer.Option(help="CSV file for all of them.")]


@app.command(rich_help_panel=TABLES)
def explain(model: Model, out: Out = None, force: Force = False) -> None:
    """Show the effect of each column on the log-odds of a class, with its 95 % interval.

    Of a linear model. An effect is that of one standard deviation of the column, or of a category,
    and of one unit; of two classes it is on the log-odds of the second, of more on each against the
    mean of all. Intervals allow for the bags being a sample.
    """
    from rich.table import Table

    from bagwise.tabular.explaining import effects
    from bagwise.tabular.model import TableModel

    with user_errors():
        fitted = TableModel.load(model)
        found = effects(fitted)
        if out is not None:
            _write(out, _EFFECT, [_effect(effect) for effect in found], force)
    several = len(fitted.classes) > 2
    of = "each class" if several else f"{fitted.classes[1]!r} against {fitted.classes[0]!r}"
    table = Table(title=f"Effects on the log-odds of {of}, the surest first")
    table.add_column("column")
    if several:
        table.add_column("class")
    for name in ("effect", "95 % interval", "per unit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("unit")
    for e in found[:MOST_SHOWN]:
        numbers = [f"{e.effect:+.2f}", f"{e.low:+.2f} to {e.high:+.2f}", f"{e.per_unit[0]:+.3g}"]
        names = [e.column, e.label] if several else [e.column]
        table.add_row(*names, *numbers, e.unit)
    console.print(table)
    console.print(
        "An effect is that of one standard deviation of the column, or of the value. An interval "
        "that holds 0 leaves open whether there is one."
    )
    bags = fitted.intervals.n_bags if fitted.intervals else 0
    coefficients = (len(fitted.columns.encoded_names) + 1) * (len(fitted.classes) - 1)
    if bags < 2 * coefficients:
        console.print(
            f"There are {bags:,} bags for {coefficients:,} coefficients: the intervals say little."
        )
    if len(found) > MOST_SHOWN:
        console.print(f"{MOST_SHOWN} of {len(found)}; --out writes all of them to a file.")


@app.command(rich_help_panel=TABLES)
def estimate(
    model: Model,
    data: Files,
    by: Annotated[str, typer.Option(help="Columns that make the groups, with commas between.")],
    bag: Annotated[
        str | None, typer.Option(help="The bag's columns; with --labels, bounds are shown too.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="File with the counts of the bags of these rows.")
    ] = None,
    labels_are: Numbers = LabelsAre.auto,
    skip_unmatched: Skip = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Estimate the share of each class in groups of rows, with 95 % intervals.

    Of a linear model. Where the rows' bags and their counts are given, the bounds that follow from
    these alone are shown beside: no model can be right outside them.
    """
    from rich.table import Table

    from bagwise.tabular.explaining import estimate_shares
    from bagwise.tabular.model import TableModel
    from bagwise.tabular.source import columns_of, spooled

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        if (bag is None) != (labels is None):
            raise ValueError("--bag and --labels are given together, or neither of them is.")
        names = columns_of(by)
        found = estimate_shares(
            TableModel.load(model),
            files,
            names,
            key=columns_of(bag),
            labels=labels,
            labels_are=labels_are.value,
            skip_unmatched=skip_unmatched,
            progress=True,
        )
        bounded = labels is not None
        if out is not None:
            header = [*names, "class", "rows", "share", "low", "high"]
            header += ["least", "most"] if bounded else []
            _write(out, header, [_share(share) for share in found], force)
    table = Table(title="Estimated shares")
    for name in (*names, "class"):
        table.add_column(name)
    for name in ("rows", "share", "95 % interval", *(["bounds by counts"] if bounded else [])):
        table.add_column(name, justify="right")
    for s in found[:MOST_SHOWN]:
        cells = [*s.group, s.label, f"{s.rows:,}", f"{s.share:.1%}", f"{s.low:.1%} to {s.high:.1%}"]
        if s.bounds is not None:
            cells.append(f"{s.bounds[0]:.1%} to {s.bounds[1]:.1%}")
        table.add_row(*cells)
    console.print(table)
    if len(found) > MOST_SHOWN:
        console.print(f"{MOST_SHOWN} of {len(found)}; --out writes all of them to a file.")


_EFFECT = [
    *("column", "class", "effect", "standard_error", "low", "high"),
    *("per_unit", "per_unit_low", "per_unit_high", "unit"),
]


def _effect(e: Effect) -> list[object]:
    return [e.column, e.label, e.effect, e.error, e.low, e.high, *e.per_unit, e.unit]


def _share(s: GroupShare) -> list[object]:
    return [*s.group, s.label, s.rows, s.share, s.low, s.high, *(s.bounds or ())]


def _write(out: Path, header: list[str], rows: list[list[object]], force: bool) -> None:
    from bagwise.storage.files import begins, refuse_foreign, write_atomically

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    first = text.getvalue().encode()
    refuse_foreign(out, lambda path: begins(path).startswith(first), force)
    for row in rows:
        writer.writerow([f"{x:.8g}" if isinstance(x, float) else x for x in row])
    write_atomically(out, text.getvalue().encode())
