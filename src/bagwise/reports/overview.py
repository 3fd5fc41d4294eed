"""The top of a model's report: what was learnt and how far to trust it, in plain language."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import binom, norm

from bagwise.reports.page import paragraph, table
from bagwise.tables.encode.columns import Columns
from bagwise.tables.model.fit_facts import FitFacts
from bagwise.tables.use.effects import Effect
from bagwise.tables.use.importance import Importance

FEW_BAGS = 30
MOST_NAMED = 4


def summary(
    facts: FitFacts,
    columns: Columns,
    effects: Sequence[Effect] = (),
    importances: Sequence[Importance] = (),
) -> list[str]:
    """Sentences, and a table of facts."""
    verdict = paragraph(facts.verdict(), "bad" if facts.is_doubtful() else "good")
    parts = [paragraph(_what_there_is(facts)), verdict]
    if learnt := _what_was_learnt(effects, importances):
        parts.append(paragraph(learnt))
    if facts.calibration():
        parts.append(paragraph(facts.calibration()))
    obstacles = _obstacles(facts, effects)
    if obstacles:
        parts.append(paragraph("What stands in the way: " + " ".join(obstacles)))
    return [*parts, table([], _facts(facts, columns), texts=2)]


def _what_there_is(facts: FitFacts) -> str:
    data, sizes = facts.data, facts.data.sizes
    many = sizes.smallest != sizes.largest
    of = f"{sizes.smallest:,} to {sizes.largest:,}" if many else f"{sizes.largest:,}"
    return (
        f"A {_MODELS.get(facts.settings.model, facts.settings.model)} was fitted to "
        f"{data.rows_used:,} rows in {data.n_bags:,} bags of {of} rows. {_what_was_known(facts)}"
    )


def _what_was_known(facts: FitFacts) -> str:
    data = facts.data
    if known := data.knowledge():
        return f"There are {len(data.classes)} classes. {known}"
    return (
        f"Of each bag it was known how many rows have each of {len(data.classes)} classes, and of "
        "no row which."
    )


_MODELS = {"linear": "linear model", "mlp": "perceptron"}


def _what_was_learnt(effects: Sequence[Effect], importances: Sequence[Importance]) -> str:
    """The columns that matter most, or that it is not known which."""
    if importances:
        most = max(i.fall for i in importances)
        needed = [i.column for i in importances if i.low > 0 and i.fall > most / 10]
        if not needed:
            return "There is no column that it clearly needs."
        return f"Columns that it needs most: {_listed(needed)}."
    if not effects:
        return ""
    sure = [e.column for e in effects if e.low > 0 or e.high < 0]
    without = len(sure)
    if len(sure) <= binom.ppf(0.975, len(effects), 0.05):  # so many may be without an effect
        sure = [e.column for e in effects if _is_sure(e, of=len(effects))]
    if not sure:
        return (
            f"Of {len(effects):,} effects {without:,} have an interval without 0, which may be "
            "chance: no column's effect is sure, taken alone."
        )
    return f"Columns with the surest effects: {_listed(list(dict.fromkeys(sure)))}."


def _is_sure(effect: Effect, of: int) -> bool:
    """Whether chance makes one of so many so sure in less than 5 % of reports (Bonferroni)."""
    half = (effect.high - effect.low) / 2
    needed = norm.isf(0.025 / of) / norm.isf(0.025)  # in halves of the 95 % interval
    return bool(abs(effect.effect) > needed * half)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {more:,} more" if more > 0 else shown


def _obstacles(facts: FitFacts, effects: Sequence[Effect]) -> list[str]:
    """What keeps one from knowing more; none where there is nothing of note."""
    data, found = facts.data, []
    coefficients = (data.n_features + 1) * (len(data.classes) - 1)
    if data.n_bags < FEW_BAGS:
        found.append(f"{data.n_bags:,} bags are few.")
    if effects and data.n_bags < 2 * coefficients:
        found.append(
            f"There are {coefficients:,} coefficients for {data.n_bags:,} bags, so that effects, "
            "shares of groups and their intervals say little."
        )
    if data.sizes.median > 200:
        found.append("The bags are large, and the shares of large bags say little about rows.")
    rare = [
        name
        for name, share in zip(data.classes, data.shares, strict=True)
        if 0 < share * data.rows_used < 10
    ]
    if rare:
        found.append(f"Fewer than ten rows are {_listed(rare)}.")
    if data.bags_left_out:
        found.append(f"{data.bags_left_out:,} bags were left out, which only one file has.")
    if data.rounding > 0.005:
        found.append(f"Proportions became counts by rounding, by up to {data.rounding:.1%}.")
    return found


def _facts(facts: FitFacts, columns: Columns) -> list[list[str]]:
    data, sizes = facts.data, facts.data.sizes
    rows = [
        ["instances", f"{data.rows_used:,} of {data.rows:,} rows"],
        ["bags", f"{data.n_bags:,}, given by {', '.join(data.bag_columns)}"],
        ["bag sizes", f"{sizes.smallest:,} to {sizes.largest:,}, median {sizes.median:,.0f}"],
        ["classes", ", ".join(data.classes)],
        ["features", f"{data.n_features} from {len(columns.columns)} columns"],
        ["model", facts.settings.in_words()],
        ["time", f"{facts.seconds:.0f} seconds"],
    ]
    if data.rounding > 0:
        rows.append(
            ["rounding", f"proportions became counts; the largest change is {data.rounding:.2%}"]
        )
    if data.bags_left_out:
        listed = ", ".join(data.bags_left_out_names)
        rows.append(["bags left out", f"{data.bags_left_out:,} that one file lacks: {listed}"])
    return rows
