"""The sections of a model's report that say what it has learnt."""

from __future__ import annotations

from collections.abc import Sequence

from bagwise.reports.page import paragraph, picture, section, table
from bagwise.reports.whiskers import (
    MOST_LINES,
    effects_chart,
    importance_chart,
    largest_groups,
    shares_chart,
)
from bagwise.tables.model.fit_facts import FitFacts
from bagwise.tables.use.effects import Effect
from bagwise.tables.use.estimate import GroupShare
from bagwise.tables.use.importance import Importance

MOST_ROWS = 200  # of a table


def answer_sections(
    facts: FitFacts,
    effects: Sequence[Effect],
    importances: Sequence[Importance],
    shares: Sequence[GroupShare],
    by: Sequence[str],
) -> list[str]:
    """Shares of groups, effects and importances, as far as they are known."""
    parts = []
    if shares:
        parts.append(section(f"Shares by {', '.join(by)}", *_shares(shares, by)))
    if effects:
        parts.append(section("The effect of each column", *_effects(facts, effects)))
    if importances:
        parts.append(section("How much each column matters", *_importances(importances)))
    return parts


def _effects(facts: FitFacts, effects: Sequence[Effect]) -> list[str]:
    classes = facts.data.classes
    of = (
        f"on the log-odds of {classes[1]} against {classes[0]}"
        if len(classes) == 2
        else "on the log-odds of each class against the mean of all"
    )
    text = (
        f"Effects {of}, of one standard deviation of a column or of a value, with 95 % intervals; "
        "the surest come first. Where an interval holds 0, there may be no effect."
    )
    parts = [paragraph(text), picture(effects_chart(effects), f"effects {of}, with intervals")]
    rows = [
        [
            *(effect.column, effect.label, f"{effect.effect:+.3f}"),
            *(f"{effect.low:+.3f} to {effect.high:+.3f}", f"{effect.per_unit[0]:+.3g}"),
            effect.unit,
        ]
        for effect in effects[:MOST_ROWS]
    ]
    header = ["column", "class", "effect", "95 % interval", "per unit", "unit"]
    return [*parts, _folded(header, rows, len(effects), texts=2)]


def _importances(importances: Sequence[Importance]) -> list[str]:
    text = (
        "By how much the log-likelihood of the bags, per row, falls when the values of a column "
        "are shuffled among all rows: what the model needs, it misses. Bars are 95 % intervals "
        "over bags. A column that says the same as another one loses little alone; on rows that "
        "the model was fitted to, one that says nothing loses a little too."
    )
    rows = [
        [i.column, f"{i.fall:+.4f}", f"{i.low:+.4f} to {i.high:+.4f}"]
        for i in importances[:MOST_ROWS]
    ]
    return [
        paragraph(text),
        picture(importance_chart(importances), "importance of each column, with intervals"),
        _folded(["column", "fall", "95 % interval"], rows, len(importances)),
    ]


def _shares(shares: Sequence[GroupShare], by: Sequence[str]) -> list[str]:
    first = shares[0]
    text = "The share of each class among the rows of each group."
    if first.interval is not None:
        text += (
            " Bars are 95 % intervals; they allow for the bags being a sample, and for the labels "
            "of the very rows."
        )
    else:
        text += " How sure they are is not known of a model that is not linear."
    if first.bounds is not None:
        text += (
            " The light band is what the counts of the bags alone allow: no model can be right "
            "outside it."
        )
    parts = [paragraph(text)]
    groups = len({share.group for share in shares})
    if groups > MOST_LINES:
        drawn = len(largest_groups(shares))
        parts.append(paragraph(f"The {drawn} largest of {groups:,} groups are drawn.", "note"))
    parts.append(picture(shares_chart(shares, by), "shares of classes in groups, with intervals"))
    ranges = [
        (name, field)
        for name, field in (
            ("95 % interval", "interval"),
            ("bounds by counts", "bounds"),
        )
        if getattr(first, field) is not None
    ]
    rows = []
    for share in shares[:MOST_ROWS]:
        ends = (getattr(share, field) for _, field in ranges)
        cells = [*share.group, share.label, f"{share.rows:,}", f"{share.share:.1%}"]
        rows.append([*cells, *(f"{low:.1%} to {high:.1%}" for low, high in ends)])
    header = [*by, "class", "rows", "share", *(name for name, _ in ranges)]
    return [*parts, _folded(header, rows, len(shares), texts=len(by) + 1)]


def _folded(
    header: Sequence[str], rows: Sequence[Sequence[str]], found: int, texts: int = 1
) -> str:
    """A table that opens when one asks for it."""
    which = f"{len(rows):,} of {found:,}" if len(rows) < found else f"all {found:,}"
    inner = table(header, rows, texts)
    return f"<details><summary>The numbers ({which})</summary>{inner}</details>"
