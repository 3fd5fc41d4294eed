"""The report of a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.reports import charts, overview, whiskers
from bagwise.reports.page import Picture, drawn, render
from bagwise.tables.encode.number_columns import shown
from bagwise.tables.model.fit_facts import FitFacts, SurprisingBag
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use.effects import Effect, effects
from bagwise.tables.use.estimate import GroupShare
from bagwise.tables.use.importance import Importance
from bagwise.wording import fit_words, share_words, table_words

_MOST_ROWS = 200  # of a table
_MOST_CLASSES_OF_BAG = 6


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
    model: FittedTable,
    answers: Answers | None = None,
    word_option: fit_words.WordOption = str,
) -> str:
    """One HTML page about what was fitted, how well, and what to look at.

    Args:
        model: a fitted one.
        answers: what rows say about it.
        word_option: how the reader names an option.
    """
    facts = model.facts
    answers = answers or Answers()
    found = effects(model) if model.intervals is not None else []
    found = [effect for effect in found if effect.unit != "shared"]  # each is of many values
    return render(
        "model.html.jinja",
        facts=facts,
        data=facts.data,
        columns=model.columns,
        as_written=shown,
        as_date=lambda days: np.datetime64(round(days), "D"),
        true_or_given=fit_words.true_or_given(facts.data),
        fit_words=fit_words,
        verdict=fit_words.verdict(facts, word_option),
        table_words=table_words,
        surprising=[(bag, _most_different(bag)) for bag in facts.surprising],
        most_rows=_MOST_ROWS,
        **_fit_pictures(facts),
        **_effects(found),
        **_importances(answers.importances),
        **_shares(answers.shares, answers.by),
    )


def _fit_pictures(facts: FitFacts) -> dict[str, Any]:
    """Pictures of the fit to held-out bags, by class, of the training and of the bag sizes."""
    data, held_out = facts.data, facts.held_out
    true = fit_words.true_or_given(data)
    classes = [1]  # of two, the other one's pictures are the same, mirrored
    if len(data.classes) != 2:
        classes = np.argsort(data.shares)[::-1][: whiskers.MOST_CLASSES].tolist()
    names = [(c, data.classes[c]) for c in classes if facts.has_counts]
    return {
        "drawn_classes": len(classes),
        "proportions": [
            drawn(
                charts.proportions(c, name, held_out.bags, true),
                f"Predicted and {true} share of {name} in held-out bags, a point for each bag",
            )
            for c, name in names
        ],
        "calibration": [
            drawn(
                charts.calibration(name, held_out.calibration[c], true),
                f"Mean predicted and mean {true} share of {name} in groups of bags, with bars",
            )
            for c, name in names
        ],
        "curves": _learning_curves(facts),
        "sizes": drawn(charts.bag_sizes(data.sizes.histogram), "Histogram of the bag sizes"),
    }


def _learning_curves(facts: FitFacts) -> list[Picture]:
    """Those of which points are known; none of a model that has no epochs."""
    train = [(p.epoch, p.train) for p in facts.curve if p.train is not None]
    held_out = [(p.epoch, p.held_out) for p in facts.curve if p.held_out is not None]
    return [
        drawn(charts.learning_curve(title, points, loss), f"{title} by epoch")
        for title, points, loss in (
            ("Training bags", train, "loss"),
            ("Held-out bags", held_out, "-log P(counts) per row"),
        )
        if points
    ]


def _effects(found: Sequence[Effect]) -> dict[str, Any]:
    figures = whiskers.effects_charts(found) if found else {}
    return {
        "effects": found,
        "clear_effects": overview.clear_effects(found),
        "effects_without_zero": sum(map(overview.excludes_zero, found)),
        "effect_pictures": [
            drawn(figure, f"Effects of columns on the log-odds of {label}, with 95% intervals")
            for label, figure in figures.items()
        ],
    }


def _importances(found: Sequence[Importance]) -> dict[str, Any]:
    alt = "Importance of each column, with 95% intervals"
    return {
        "importances": found,
        "needed_columns": overview.needed_columns(found),
        "importance_pictures": [drawn(whiskers.importance_chart(found), alt)] if found else [],
    }


def _shares(shares: Sequence[GroupShare], by: Sequence[str]) -> dict[str, Any]:
    figures = whiskers.shares_charts(shares, by) if shares else {}
    robust = whiskers.robustness_charts(shares) if shares else {}
    return {
        "shares": shares,
        "by": by,
        "groups": len({share.group for share in shares}),
        "drawn_groups": len(whiskers.largest_groups(shares)),
        "share_pictures": [
            drawn(figure, f"{title.capitalize()} in each group")
            for title, figure in figures.items()
        ],
        "share_notes": share_words.notes(shares),
        "robustness": " ".join(share_words.robustness(shares)),
        "robustness_pictures": [
            drawn(figure, f"Robustness of the share of {label} in each group")
            for label, figure in robust.items()
        ],
    }


def _most_different(bag: SurprisingBag) -> list[int]:
    """The classes in which given and expected counts differ most."""
    gaps = [abs(n - e) for n, e in zip(bag.counts, bag.expected, strict=True)]
    return sorted(np.argsort(gaps)[::-1][:_MOST_CLASSES_OF_BAG].tolist())
