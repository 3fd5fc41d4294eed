"""The pictures of a model on axes of matplotlib, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from bagwise.errors import InputError, Option
from bagwise.reports.charts import draw_bins, draw_proportions
from bagwise.reports.whiskers import MOST_LINES, Line, draw_lines, largest_groups
from bagwise.tables.model.fit_facts import FitFacts
from bagwise.tables.use.effects import Effect
from bagwise.tables.use.estimate import GroupShare
from bagwise.wording.fit_words import true_or_given


def draw_effects(effects: Sequence[Effect], label: str, axes: Axes | None = None) -> Axes:
    """The effect of each column on the log-odds of a class, with its interval."""
    of_class = [e for e in effects if e.label == _known(label, [e.label for e in effects])]
    lines = [Line(e.column, e.effect, (e.low, e.high)) for e in of_class[:MOST_LINES]]
    found = _axes(axes, len(lines))
    draw_lines(found, lines, f"effect on the log-odds of {label}")
    found.set_xlabel("effect of one standard deviation, or of the value")
    return found


def draw_shares(
    shares: Sequence[GroupShare], label: str, by: Sequence[str], axes: Axes | None = None
) -> Axes:
    """The share of a class in each group, with its interval, and the bounds as a light band."""
    kept, own = largest_groups(shares), _known(label, [share.label for share in shares])
    lines = [
        Line(", ".join(s.group), s.share, s.interval, s.bounds)
        for s in shares
        if s.label == own and s.group in kept
    ]
    found = _axes(axes, len(lines))
    draw_lines(found, lines, f"share of {label}", percent=True)
    found.set_xlabel(f"share of the rows, by {', '.join(by)}")
    return found


def draw_calibration(facts: FitFacts, label: str, axes: Axes | None = None) -> Axes:
    """Mean true against mean predicted share of a class in groups of held-out bags."""
    _need_counts(facts)
    found = _axes(axes)
    draw_bins(
        found, label, facts.held_out.calibration[_place(facts, label)], true_or_given(facts.data)
    )
    return found


def draw_held_out(facts: FitFacts, label: str, axes: Axes | None = None) -> Axes:
    """True against predicted share of a class, a point for each held-out bag."""
    _need_counts(facts)
    found = _axes(axes)
    draw_proportions(
        found, label, _place(facts, label), facts.held_out.bags, true_or_given(facts.data)
    )
    return found


def _need_counts(facts: FitFacts) -> None:
    if not facts.has_counts:
        raise InputError(
            "the model was saved without the counts of its bags, which this picture shows. Fit it "
            "with ",
            Option("keep_counts", True),
            ".",
        )


def _axes(axes: Axes | None, lines: int | None = None) -> Axes:
    """The axes that were given, or new ones of pyplot, which notebooks show."""
    if axes is not None:
        return axes
    from matplotlib import pyplot

    size = (4.2, 4.0) if lines is None else (5.0, 1.2 + 0.24 * lines)
    made: Axes = pyplot.subplots(figsize=size, layout="constrained")[1]
    return made


def _place(facts: FitFacts, label: str) -> int:
    classes = list(facts.data.classes)
    return classes.index(_known(label, classes))


def _known(label: str, classes: Sequence[str]) -> str:
    if label not in classes:
        names = ", ".join(dict.fromkeys(classes))
        raise InputError(f"label is {label!r}; one of {names} is expected.")
    return label
