"""Commands that say what a model says: explain, estimate."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bagwise.cli.app import TABLES, Force, Formulas, app, console, output, user_errors
from bagwise.cli.fit_command import (
    Clipped,
    Files,
    LabelWord,
    Model,
    NoiseOf,
    Numbers,
    RowCounts,
    Skip,
)
from bagwise.cli.quick_start import without_pandas
from bagwise.errors import UsageError

if TYPE_CHECKING:
    from bagwise.table_model.answers import Answer
    from bagwise.tables.labels.counts import Counts
    from bagwise.tables.model.fitted_table import FittedTable
    from bagwise.tables.use.effects import Effect
    from bagwise.tables.use.estimate import GroupShare
    from bagwise.tables.use.importance import Importance

MOST_SHOWN = 40
LONGEST = 80  # letters of a group's value

Out = Annotated[
    Path | None, typer.Option(help="CSV file for the full result, or - for standard output.")
]
SomeFiles = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILES]...", help="Rows, as for `bagwise fit`.", show_default=False),
]
SomeBag = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns that name the bag, separated by commas. With several groupings, repeat --bag "
        "and --labels."
    ),
]
SomeLabels = Annotated[
    list[str] | None, typer.Option(help="File with the counts of these rows' bags.")
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="For a table larger than memory: the memory that rows may use, such as 2GB. With "
        "--labels, the rows are sorted by bag into a temporary file.",
    ),
]


@app.command(rich_help_panel=TABLES, has_json=True)
def explain(
    model: Model,
    data: SomeFiles = None,
    bag: SomeBag = None,
    labels: SomeLabels = None,
    labels_are: Numbers = None,
    noise: NoiseOf = None,
    clipped: Clipped = False,
    row_counts: RowCounts = None,
    skip_unmatched: Skip = False,
    memory: Memory = None,
    out: Out = None,
    force: Force = False,
    escape_formulas: Formulas = False,
) -> None:
    """Show the effect or the importance of each column, with 95% intervals.

    Without rows, for a linear model: the effect of each column on the log-odds of a class, per
    standard deviation (or for a category) and per unit. With two classes, it is the effect on the
    log-odds of the second class. With more, each class is compared with the mean of all.

    With rows, --bag and --labels, for any model: how much less likely the counts of the bags become
    when the column is shuffled.

    Intervals allow for the sampling of bags.
    """
    from bagwise.memory_size import bytes_of
    from bagwise.table_model.answers import effect_columns, importance_columns, records
    from bagwise.tables.model.fitted_table import FittedTable
    from bagwise.tables.read.paths import spooled
    from bagwise.tables.use.effects import effects
    from bagwise.tables.use.importance import importances

    with user_errors(), spooled(data or [], sys.stdin.buffer) as files:
        without_pandas()
        counts = some_counts(bag, labels, labels_are, noise, clipped, skip_unmatched, row_counts)
        if bool(data) != (counts is not None):
            raise UsageError("rows are given together with --bag and --labels, or none of them is.")
        fitted = FittedTable.load(model)
        if counts is None:
            found = effects(fitted)
            if out is not None:
                _write(out, effect_columns(found), force, escape_formulas)
            output.result(records(effect_columns(found)))
            _show_effects(fitted, found)
        else:
            budget = None if memory is None else bytes_of(memory)
            falls = importances(fitted, files, counts, memory=budget, progress=output.for_people)
            if out is not None:
                _write(out, importance_columns(falls), force, escape_formulas)
            output.result(records(importance_columns(falls)))
            _show_importances(falls)


def some_counts(
    bag: list[str] | None,
    labels: list[str] | None,
    labels_are: list[LabelWord] | None,
    noise: str | None,
    clipped: bool,
    skip_unmatched: bool,
    row_counts: str | None,
) -> Counts | None:
    """The options that say where the counts of rows' bags are, if they are given."""
    from bagwise.cli.label_options import counts_given

    found = counts_given(bag, labels, labels_are, noise, clipped, skip_unmatched)
    return None if found is None else replace(found, weights=row_counts)


def _show_effects(fitted: FittedTable, found: list[Effect]) -> None:
    """A table for each class, but one of two classes."""
    from bagwise.cli.terminal import show_doubts
    from bagwise.wording.table_words import unit

    readable = [e for e in found if e.unit != "shared"]
    labels = fitted.classes if len(fitted.classes) > 2 else fitted.classes[1:]
    most = max(MOST_SHOWN // len(labels), 3)
    for label in labels[:MOST_SHOWN]:
        against = "the mean of all classes" if len(labels) > 1 else repr(fitted.classes[0])
        table = Table(title=f"Effects on the log-odds of {label!r} against {against}")
        table.add_column("column", overflow="fold")
        for name in ("effect", "95% interval", "per unit"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("unit")
        for e in [effect for effect in readable if effect.label == label][:most]:
            interval = f"{e.low:+.2f} to {e.high:+.2f}"
            table.add_row(e.column, f"{e.effect:+.2f}", interval, f"{e.per_unit[0]:+.3g}", unit(e))
        console.print(table)
    _say_fewer(min(len(readable), most * len(labels[:MOST_SHOWN])), len(readable))
    console.print(
        "Effects are for one standard deviation of the column, or for the value. The clearest come "
        "first. Where an interval contains 0, there may be no effect."
    )
    show_doubts(fitted, of_intervals=True)
    for column in fitted.columns.columns:
        if column.shared:
            console.print(
                f"{column.name}: the effects of {column.shared} columns of hashed rare values are "
                "not shown. Write them with --out."
            )


def _show_importances(found: list[Importance]) -> None:
    table = Table(title="Drop in log-likelihood per row when a column is shuffled")
    table.add_column("column", overflow="fold")
    for name in ("drop", "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for i in found[:MOST_SHOWN]:
        table.add_row(i.column, f"{i.fall:+.4f}", f"{i.low:+.4f} to {i.high:+.4f}")
    console.print(table)
    _say_fewer(len(found[:MOST_SHOWN]), len(found))
    console.print(
        "How much less likely the counts of the bags become when the column's values are shuffled "
        "among all rows. A column that repeats another one drops little by itself. On the rows "
        "that the model was fitted to, a column without information drops a little, too. Where an "
        "interval contains 0, the model may not need the column."
    )


def _say_fewer(shown: int, found: int) -> None:
    if shown < found:
        console.print(f"{shown:,} of {found:,} lines are shown. Write all of them with --out.")


@app.command(rich_help_panel=TABLES, has_json=True)
def estimate(
    model: Model,
    data: Files,
    by: Annotated[str, typer.Option(help="Columns that define the groups, separated by commas.")],
    bag: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns that name the bag. With --labels, bounds are shown, too. Default for a "
            "model with bag effects: the columns used in fit."
        ),
    ] = None,
    labels: SomeLabels = None,
    labels_are: Numbers = None,
    noise: NoiseOf = None,
    clipped: Clipped = False,
    row_counts: RowCounts = None,
    skip_unmatched: Skip = False,
    memory: Memory = None,
    figure: Annotated[Path | None, typer.Option(help="PNG file for a picture.")] = None,
    out: Out = None,
    force: Force = False,
    escape_formulas: Formulas = False,
) -> None:
    """Estimate the share of each class in groups of rows, with 95% intervals.

    Linear models have intervals; perceptrons do not. With bag effects, rows of known bags use their
    bag's effect, and rows of other bags an average over effects. With --bag and --labels, bounds
    that follow from the counts alone are shown, too: the true share is always within them.

    `robustness` says how strong a hidden difference between bags must be to explain the difference
    between a group and all rows: 0 if any can, 1 if none can.
    """
    from bagwise.cli.terminal import show_doubts, show_surprises
    from bagwise.memory_size import bytes_of
    from bagwise.table_model.answers import records, share_columns
    from bagwise.tables.encode.columns import Surprises
    from bagwise.tables.model.fitted_table import FittedTable
    from bagwise.tables.read.paths import columns_of, spooled
    from bagwise.tables.use.estimate import estimate_shares
    from bagwise.wording import share_words

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        without_pandas()
        if figure is not None:
            refuse_picture(figure, force)
        names = columns_of(by)
        fitted = FittedTable.load(model)
        counts, surprises = None, Surprises()
        if labels is not None or fitted.known_bags is None:
            counts = some_counts(
                bag, labels, labels_are, noise, clipped, skip_unmatched, row_counts
            )
        found = estimate_shares(
            fitted,
            files,
            names,
            counts,
            bag=columns_of(bag[0]) if bag and counts is None else (),
            weights=row_counts,
            memory=None if memory is None else bytes_of(memory),
            progress=output.for_people,
            surprises=surprises,
        )
        if out is not None:
            _write(out, share_columns(found, names), force, escape_formulas)
        if figure is not None:
            from bagwise.reports.page import png
            from bagwise.reports.whiskers import shares_chart
            from bagwise.storage.files import write_atomically

            write_atomically(figure, png(shares_chart(found, names)))
    show_surprises(surprises)
    for line in share_words.notes(found):
        output.note(line)
    output.result(records(share_columns(found, names)))
    _show_shares(names, found, LabelWord.relative in (labels_are or []))
    show_doubts(fitted, of_intervals=True)


def refuse_picture(path: Path, force: bool) -> None:
    """A picture replaces only a picture that Bagwise has drawn."""
    from bagwise.storage.files import begins, refuse_foreign

    if path.suffix.lower() != ".png":
        raise UsageError(f"--figure is {path}; a name that ends in .png is expected.")
    refuse_foreign(path, lambda there: b"Software\0Bagwise" in begins(there), force)


def _show_shares(names: list[str], found: list[GroupShare], is_relative: bool) -> None:
    from bagwise.cli.terminal import show_known_bags
    from bagwise.wording import one_line, share_words

    first = found[0]
    ranges = {name: there for name, there in _RANGES.items() if getattr(first, there) is not None}
    labels = list(dict.fromkeys(share.label for share in found))
    groups = found[:: len(labels)]
    title = "Estimated shares, in %"
    if len(labels) == 2:
        title = f"Estimated share of {labels[1]!r}, in %; {labels[0]!r} has the rest"
        labels, found = labels[1:], [share for share in found if share.label == labels[1]]
    several, has_robustness = len(labels) > 1, first.robustness is not None
    table = Table(title=title)
    for name in (*names, "class") if several else names:
        table.add_column(name, overflow="fold")
    for name in ("rows", "share", *ranges, *["robustness"] * has_robustness):
        table.add_column(name, justify="right", no_wrap=True)
    # What the numbers leave of the terminal; names of groups, which stand there once, are folded.
    numbers = 18 + 17 * len(ranges) + 13 * has_robustness
    room = max((console.width - numbers) // (len(names) + several) - 3, 8)
    shown = found[: max(MOST_SHOWN // len(labels), 1) * len(labels)]
    for place, s in enumerate(shown):
        first_of_group = place % len(labels) == 0
        own = [one_line(value, LONGEST) if first_of_group else "" for value in s.group]
        cells = [*own, one_line(s.label, room)] if several else own
        cells += [f"{s.rows:,}" if first_of_group else "", f"{100 * s.share:.1f}"]
        pairs = (getattr(s, there) for there in ranges.values())
        cells += [f"{100 * low:.1f} to {100 * high:.1f}" for low, high in pairs]
        cells += [f"{100 * s.robustness:.0f}"] if s.robustness is not None else []
        table.add_row(*cells, end_section=several and (place + 1) % len(labels) == 0)
    console.print(table)
    _say_fewer(len(shown), len(found))
    for line in share_words.robustness(found):
        console.print(line)
    if "bounds" in ranges.values():
        _say_bounds(is_relative)
    if first.of_known_bags is not None:
        known = sum(group.of_known_bags or 0 for group in groups)
        show_known_bags(known, sum(group.rows for group in groups))
    if first.interval is None:
        console.print(
            "There are no intervals: only linear models that were fitted by maximum likelihood "
            "(--model linear) and have up to 2,000 coefficients have them, in "
            "intervals.safetensors."
        )


def _say_bounds(is_relative: bool) -> None:
    """What the bounds mean."""
    if is_relative:
        console.print(
            "The label file has other totals, so the bounds hold only if its shares are those of "
            "these rows."
        )
    else:
        console.print("Given the counts of the bags, a share cannot lie outside its bounds.")


_RANGES = {"95% interval": "interval", "bounds": "bounds"}


def _write(out: Path, columns: Answer, force: bool, escape_formulas: bool) -> None:
    from bagwise.storage.files import begins, refuse_foreign, write_atomically
    from bagwise.tables.use.formulas import escaped

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    safe = escaped if escape_formulas else str
    writer.writerow(map(safe, columns))
    first = text.getvalue().encode()
    for row in zip(*columns.values(), strict=True):
        cells = (safe(x) if isinstance(x, str) else x for x in row)
        writer.writerow([f"{x:.8g}" if isinstance(x, float) else x for x in cells])
    place = output.place(out)
    if not isinstance(place, Path):
        place.write(text.getvalue().encode())
        return
    refuse_foreign(place, lambda path: begins(path).startswith(first), force)
    write_atomically(place, text.getvalue().encode())
