"""What the commands for tables print."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from bagwise.cli.app import console, output
from bagwise.cli.messages import word_option
from bagwise.errors import InputError
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.model.fit_facts import IDLE, log_odds
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use.prediction_file import Written
from bagwise.wording import counted, fit_words, table_words

if TYPE_CHECKING:
    from bagwise.tables.use.evaluate import Scores

MOST_SHOWN = 15  # classes in a square table of confusions


def show_fit(fitted: FittedTable) -> None:
    """What was learned from, what was chosen, and how well held-out bags are fitted."""
    facts, columns = fitted.facts, fitted.columns
    data = facts.data
    shown = Table(show_header=False)
    shown.add_column(style="bold")
    shown.add_column(overflow="fold")
    shown.add_row("rows", fit_words.rows(data))
    shown.add_row(
        "bags",
        f"{data.n_bags:,} of {data.sizes.smallest:,} to {data.sizes.largest:,} rows "
        f"(median {data.sizes.median:,.0f})"
        if data.sizes.smallest < data.sizes.largest
        else f"{data.n_bags:,} of {counted(data.sizes.largest, 'row', 'rows')} each",
    )
    if data.groupings:
        shown.add_row("groupings", fit_words.groupings(data))
    if data.bags_left_out:
        names = ", ".join(data.bags_left_out_names[:8])
        shown.add_row("bags left out", f"{data.bags_left_out:,}: {names}")
    if data.inexact_bags:
        shown.add_row(
            "counts",
            f"{fit_words.given_numbers(data)} "
            f"({counted(data.inexact_bags, 'bag is', 'bags are')} not exact)",
        )
    if data.labeled_rows:
        shown.add_row("labeled rows", f"{data.labeled_rows:,}")
    if data.rounding > 0:
        shown.add_row("rounding", f"changes proportions by up to {data.rounding:.2%}")
    shown.add_row(
        "features", f"{data.n_features} from {counted(len(columns.columns), 'column', 'columns')}"
    )
    if facts.context is not None and facts.context.columns:
        shown.add_row("context", ", ".join(facts.context.columns))
    for name, why in columns.left_out.items():
        shown.add_row("", f"{name} is left out: {table_words.left_out(why)}")
    shown.add_row("model", f"{fit_words.settings(facts.settings)} ({facts.seconds:.0f} s in all)")
    console.print(shown)
    true = fit_words.true_or_given(data)
    table = Table(title=f"Held-out bags: predicted and {true} shares")
    table.add_column(fit_words.BY_CLASS[0])
    for name in fit_words.BY_CLASS[1:]:
        table.add_column(name, justify="right")
    for row in fit_words.by_class(facts):
        table.add_row(*row)
    console.print(table)
    for text in fit_words.paragraphs(facts, word_option):
        console.print(text, highlight=False)


def show_written(written: Written, out: Path) -> None:
    """How many rows are where, and what is not there."""
    if written.rows_left_out or written.bags_left_out:
        names, most = written.bags_left_out, 8
        listed = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
        output.note(
            f"{counted(written.rows_left_out, 'row is', 'rows are')} left out, and "
            f"{counted(len(names), 'bag', 'bags')} found in only one of the "
            f"files{': ' * bool(names)}{listed}"
        )
    place = "on standard output" if str(out) == "-" else f"in {out}"
    console.print(f"{counted(written.rows, 'row is', 'rows are')} {place}", soft_wrap=True)


def show_bags_used(written: Written) -> None:
    """What the bags of the rows were good for."""
    if written.tau is not None:
        vary = log_odds(written.tau)
        console.print(
            "The shares of these bags are as expected from their rows, so they change almost "
            "nothing."
            if vary < IDLE
            else "The known shares of the bags were used: beyond what rows explain, log-odds vary "
            f"by {vary:.2f} between bags.",
            soft_wrap=True,
            highlight=False,
        )
    if written.of_known_bags is not None:
        show_known_bags(written.of_known_bags, written.rows)


def show_known_bags(known: int, rows: int) -> None:
    """How many of the rows have the effect of their bag."""
    ours = counted(known, "row is in a bag", "rows are in bags")
    have = "its" if known == 1 else "their"
    others = counted(rows - known, "other row gets", "other rows get")
    hint = " Name the bag's columns with --bag if the table has them under other names."
    console.print(
        f"{ours} that the model knows, and {have} effect is used"
        f"{f'; {others} the mean over bags' * (known < rows)}.{hint * (not known)}",
        soft_wrap=True,
        highlight=False,
    )


def show_label_columns(written: Written, relative: bool = False) -> None:
    """Which of the columns of `label` is for what."""
    known = table_words.label_numbers(written.labels or {})
    totals = (
        f"it has the counts of {written.groupings[0]}, as far as they are exact, and nearly those "
        "of the other groupings."
        if written.groupings
        else f"it is the most probable labeling of whole bags, given {known}, and need not match "
        "them exactly."
        if written.labels
        else "it has the shares of the label file, as nearly as these rows can."
        if relative
        else "it has exactly the counts of the bags."
    )
    name = "n_..." if written.weighted else "label"
    console.print(
        f"Use `{name}` for totals: {totals} Use `most_probable` for single rows: it is each row's "
        "most likely class.",
        soft_wrap=True,
        highlight=False,
    )
    if written.proved is not None:
        console.print(table_words.proved(written.proved, written.bags), soft_wrap=True)


def show_unused_labels(model: FittedTable) -> None:
    """That `fit` knew labels of rows which `label` was not told."""
    with suppress(InputError):  # of a damaged fit.json
        if model.facts.data.labeled_rows:
            output.note("the model was fitted with labels of rows. Keep them with --row-labels.")


def show_doubts(model: FittedTable, of_intervals: bool = False) -> None:
    """A line: that the model has too many coefficients, and that it may be no good.

    Args:
        model: a fitted one.
        of_intervals: whether intervals were shown, not probabilities.
    """
    try:
        facts = model.facts
    except InputError:  # a damaged fit.json is no reason not to predict
        return
    many, doubt = fit_words.coefficients_note(facts, of_intervals), fit_words.doubt(facts)
    if doubt:
        doubt = f"{doubt[0].upper() if many else doubt[0]}{doubt[1:]} `bagwise report` says more."
    if many or doubt:
        output.note(" ".join(filter(None, (many, doubt))))


def show_surprises(surprises: Surprises) -> None:
    """What rows have that the training rows did not."""
    for line in table_words.surprises(surprises):
        output.note(line)


def show_scores(scores: Scores) -> None:
    """Accuracy, classes and confusions."""
    for line in table_words.scores(scores):
        console.print(line, soft_wrap=True)
    table = Table(title="Classes")
    table.add_column("class")
    for name in ("rows", "precision", "recall", "F1", "AUC"):
        table.add_column(name, justify="right")
    numbers = (scores.support, scores.precision, scores.recall, scores.f1)
    for name, auc, support, *shares in zip(scores.classes, scores.auc, *numbers, strict=True):
        table.add_row(name, f"{support:,}", *(f"{share:.1%}" for share in shares), _number(auc))
    console.print(table)
    if len(scores.classes) > MOST_SHOWN:
        _show_confusions(scores)
        return
    names = list(scores.classes)
    width = max(map(len, names)) + sum(len(name) + 3 for name in names) + 4
    if numbered := width > console.width:  # long names would be broken into many lines
        names = [f"{place} {name}" for place, name in enumerate(names, 1)]
    confusion = Table(title="Rows by true (down) and predicted class (across)")
    confusion.add_column("")
    for name in names:
        confusion.add_column(name.split()[0] if numbered else name, justify="right")
    for name, row in zip(names, scores.confusion.tolist(), strict=True):
        confusion.add_row(name, *(f"{n:,}" for n in row))
    console.print(confusion)


def _number(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.4f}"


def _show_confusions(scores: Scores) -> None:
    """The most frequent mistakes, where there are too many classes for a square table."""
    mistakes = scores.confusion - np.diag(np.diag(scores.confusion))
    table = Table(title="Most frequent confusions")
    for name in ("true", "predicted", "rows"):
        table.add_column(name, justify="right" if name == "rows" else "left")
    for place in np.argsort(-mistakes, axis=None, kind="stable")[:MOST_SHOWN]:
        true, predicted = np.unravel_index(place, mistakes.shape)
        if n := mistakes[true, predicted]:
            names = (scores.classes[c] for c in (true, predicted))
            table.add_row(*names, f"{n:,}")
    console.print(table)
