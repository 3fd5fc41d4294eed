"""The report of a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from bagwise.errors import DamagedError, InputError
from bagwise.reports import charts
from bagwise.reports.answers import answer_sections
from bagwise.reports.overview import summary
from bagwise.reports.page import page, paragraph, picture, section, table
from bagwise.tables.encode.columns import Column, Columns
from bagwise.tables.encode.number_columns import shown
from bagwise.tables.model.fit_facts import FitFacts, SurprisingBag
from bagwise.tables.model.table_model import TableModel
from bagwise.tables.use.effects import SHARED, Effect, effects
from bagwise.tables.use.estimate import GroupShare
from bagwise.tables.use.importance import Importance


@dataclass(frozen=True)
class Answers:
    """What rows say about a model, for its report.

    Attributes:
        importances: of the columns, if the counts of the rows' bags are known.
        shares: of classes in groups, if there are any.
        by: columns that make the groups.
    """

    importances: Sequence[Importance] = ()
    shares: Sequence[GroupShare] = ()
    by: Sequence[str] = ()


def model_report(
    model: TableModel, source: str = "fit.json of the model folder", answers: Answers | None = None
) -> str:
    """One HTML page about what was fitted, how well, and what to look at.

    Args:
        model: a fitted one.
        source: what its facts were read from, for messages.
        answers: what rows say about it.
    """
    try:
        facts = model.facts
    except InputError as error:
        raise DamagedError(f"{source} is damaged: {error} Fit the model again.") from error
    found = effects(model) if model.intervals is not None else []
    found = [effect for effect in found if effect.unit != SHARED]  # each is of many values
    return _report(facts, model.columns, found, answers or Answers())


def _report(facts: FitFacts, columns: Columns, found: Sequence[Effect], answers: Answers) -> str:
    data, held_out = facts.data, facts.held_out
    classes = data.classes
    shown = [int(c) for c in np.argsort(data.shares)[::-1][: charts.MOST_CLASSES]]
    fewer = (
        [paragraph(f"The {len(shown)} most frequent of {len(classes)} classes.", "note")]
        if len(shown) < len(classes)
        else []
    )
    true = _true(facts)
    names = ", ".join(data.files[:3]) + (" and more" if len(data.files) > 3 else "")
    sections = [
        section("In short", *summary(facts, columns, found, answers.importances)),
        *answer_sections(facts, found, answers.importances, answers.shares, answers.by),
        section(
            f"Predicted and {true} proportions of held-out bags",
            paragraph(
                "Each point is a bag that the model had not seen, larger for larger bags. On the "
                f"line, the predicted proportion is the {true} one."
            ),
            *_about_given(facts),
            *fewer,
            picture(
                charts.proportions(classes, shown, held_out.bags, true),
                f"{true} against predicted proportions, a panel for each class",
            ),
            table(["class", "overall share", "mean difference", "correlation"], facts.by_class()),
        ),
        section("Calibration on held-out bags", *_calibration(facts, shown)),
        *_learning_curves(facts),
        section(
            "Bag sizes",
            picture(charts.bag_sizes(data.sizes.histogram), "histogram of bag sizes"),
        ),
        section("The most surprising bags", *_surprising(classes, facts.surprising)),
        section("Columns", *_columns(columns)),
        section("What was tried", *_tried(facts)),
        section(
            "Do it again",
            f"<pre>{escape(facts.command or 'The model was fitted from Python.')}</pre>",
        ),
    ]
    return page(f"Bagwise report: {names}", sections, f"Written by Bagwise {facts.bagwise}.")


def _true(facts: FitFacts) -> str:
    """What proportions of bags are called."""
    return "given" if facts.data.counts_are else "true"


def _about_given(facts: FitFacts) -> list[str]:
    """What stands for the true proportions, where nobody knows them."""
    if not facts.data.counts_are:
        return []
    text = (
        f"The true ones are not known, only {facts.data.counts_are}: given are the proportions to "
        "be expected by the label file alone. They are off themselves, so that points lie "
        "beside the line also with a perfect model."
    )
    return [paragraph(text, "note")]


def _learning_curves(facts: FitFacts) -> list[str]:
    """Of a model that has epochs."""
    if not facts.curve:
        return []
    text = "The lower, the better. The held-out bags decide how long the model is trained."
    curves = charts.learning_curves(facts.curve)
    shown = picture(curves, "training loss and loss of held-out bags by epoch")
    return [section("Learning curves", paragraph(text), shown)]


def _calibration(facts: FitFacts, shown: list[int]) -> list[str]:
    held_out = facts.held_out
    parts = [
        paragraph(
            "Bags are put into ten groups by their predicted proportion of a class; a calibrated "
            "model is on the line, but for chance: of 20 bars, which reach two standard errors to "
            "either side, 19 should meet it."
        ),
        picture(
            charts.calibration(facts.data.classes, shown, held_out.calibration, _true(facts)),
            f"mean {_true(facts)} against mean predicted proportion in groups of bags",
        ),
        *_about_given(facts),
    ]
    if held_out.coverage:
        parts.append(
            paragraph(
                "The table says how many of the bags' counts lie within the model's intervals: if "
                "they are far fewer than the name of the interval says, the model is surer than it "
                "should be. Only exact counts are looked at."
            )
        )
        rows = [[f"central {name}", f"{share:.1%}"] for name, share in held_out.coverage.items()]
        parts.append(table(["interval", "counts within it"], rows))
    if words := facts.settings.temperature_in_words():
        parts.append(paragraph(words))
    return parts


def _surprising(classes: Sequence[str], bags: Sequence[SurprisingBag]) -> list[str]:
    if not bags:
        return [paragraph("No bag's counts are less probable than those the model expects.")]
    rows = [
        [
            bag.bag,
            f"{bag.size:,}",
            ", ".join(f"{classes[c]} {bag.counts[c]:,}" for c in _most_different(bag)),
            ", ".join(f"{classes[c]} {bag.expected[c]:,.0f}" for c in _most_different(bag)),
            f"{bag.surprise:.1f}",
        ]
        for bag in bags
    ]
    return [
        paragraph(
            "Bags whose counts are least probable given the model, compared with the counts it "
            "expects (difference of log-probabilities; from about 5 on a bag deserves a look). "
            "Wrong counts show up here, and so do rows that are in the wrong bag."
        ),
        table(["bag", "rows", "counts given", "counts expected", "surprise"], rows),
    ]


def _most_different(bag: SurprisingBag) -> list[int]:
    """The classes in which given and expected counts differ most, six at most."""
    gaps = [abs(n - e) for n, e in zip(bag.counts, bag.expected, strict=True)]
    return sorted(np.argsort(gaps)[::-1][:6].tolist())


def _columns(columns: Columns) -> list[str]:
    rows = [[column.name, column.kind, _described(column)] for column in columns.columns]
    parts = [table(["column", "kind", "what was learnt"], rows, texts=3)]
    if columns.left_out:
        rows = [[name, why] for name, why in columns.left_out.items()]
        parts.append(table(["column left out", "because"], rows, texts=2))
    return parts


def _described(column: Column) -> str:
    if column.kind == "ordered":
        text = " < ".join(column.categories)
    elif column.kind == "category":
        text = f"{len(column.categories)} categories: {', '.join(column.categories[:6])}"
        text += ", ..." if len(column.categories) > 6 else ""
        text += "; rare ones together" if column.other else ""
        text += f"; all others hashed into {column.shared} columns" if column.shared else ""
    elif column.kind == "date":
        days = np.datetime64(round(column.mean), "D")
        text = f"mean {days}, standard deviation {column.std:,.1f} days"
    else:
        text = f"mean {column.mean:.4g}, standard deviation {column.std:.4g}"
        text += "; with a column of its logarithm" if column.log else ""
    if column.codes:
        text += f"; {', '.join(shown(column, code) for code in column.codes)} taken for missing"
    text += f"; written as {column.style}" if column.style else ""
    return text + ("; some values are missing" if column.missing else "")


def _tried(facts: FitFacts) -> list[str]:
    how = (
        f"Each bag was held out once, in {facts.folds} parts; the model was then fitted to all "
        "bags."
        if facts.folds > 1
        else "A part of the bags was held out throughout; rates were tried on a part of the rest."
    )
    rows = [[t.model, t.setting, f"{t.bag_loss:.4f}"] for t in facts.tried]
    header = ["model", "setting", "held-out loss per row"]
    again = (
        "The same held-out bags also give the figures above, which are a little too good for it; "
        "the fewer the bags, the more."
    )
    return [paragraph(how), paragraph(again, "note"), table(header, rows, texts=2)]
