"""Pictures with error bars: effects, importances, and shares of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bagwise.reports.charts import BLUE, GREY, MOST_CLASSES
from bagwise.tables.use.effects import Effect
from bagwise.tables.use.estimate import GroupShare
from bagwise.tables.use.importance import Importance
from bagwise.wording import in_order, one_line, wrapped

MOST_LINES = 60

_BAND, _EDGE = "#f9ecd3", "#e3bd7a"
_LETTERS = 34  # of a label


@dataclass(frozen=True)
class Line:
    """A point with a bar and a band, each where there is one."""

    label: str
    value: float
    bar: tuple[float, float] | None = None
    band: tuple[float, float] | None = None


def effects_chart(effects: Sequence[Effect]) -> Figure:
    """The effect of each column with its interval, a panel for each class but of two classes."""
    labels = sorted({effect.label for effect in effects}, key=in_order)[:MOST_CLASSES]
    columns = list(dict.fromkeys(effect.column for effect in effects))[:MOST_LINES]
    found = {(effect.label, effect.column): effect for effect in effects}
    panels = {}
    for label in labels:
        of_class = [found[label, column] for column in columns]
        panels[label] = [Line(e.column, e.effect, (e.low, e.high)) for e in of_class]
    title = "effect on the log-odds of {}" if len(labels) == 1 else "{}"
    return _whiskers(panels, title, "effect of one standard deviation, or of the value", zero=True)


def importance_chart(importances: Sequence[Importance]) -> Figure:
    """The importance of each column with its interval."""
    lines = [Line(i.column, i.fall, (i.low, i.high)) for i in importances[:MOST_LINES]]
    label = "fall of the log-likelihood per row when the column is shuffled"
    return _whiskers({"": lines}, "{}", label, zero=True)


def shares_chart(shares: Sequence[GroupShare], by: Sequence[str]) -> Figure:
    """The share of each class in each group, with its interval, and the bounds as a light band.

    Of two classes the second alone; of many groups the largest.
    """
    labels = list(dict.fromkeys(share.label for share in shares))
    labels = labels[1:] if len(labels) == 2 else labels[:MOST_CLASSES]
    kept = largest_groups(shares)
    panels = {
        label: [
            Line(", ".join(s.group), s.share, s.interval, s.bounds)
            for s in shares
            if s.label == label and s.group in kept
        ]
        for label in labels
    }
    xlabel = f"share, by {one_line(', '.join(by), 60)}"
    return _whiskers(panels, "share of {}", xlabel, percent=True, bar="95 % interval")


def largest_groups(shares: Sequence[GroupShare]) -> set[tuple[str, ...]]:
    """The groups that are drawn: all, or those with most rows."""
    rows = {share.group: share.rows for share in shares}
    return set(sorted(rows, key=lambda group: -rows[group])[:MOST_LINES])


def _whiskers(
    panels: dict[str, list[Line]],
    title: str,
    xlabel: str,
    zero: bool = False,
    percent: bool = False,
    bar: str = "95 % interval",
) -> Figure:
    """Points with bars, a line for each, below each other; panels beside each other."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    across = min(len(panels), 3)
    down = -(-len(panels) // across)
    lines = max(map(len, panels.values()))
    size = (7.4 if across == 1 else 2.0 + 2.9 * across, (1.2 + 0.21 * lines) * down)
    figure, grid = plt.subplots(
        down, across, figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, of_panel) in zip(grid.flat, panels.items(), strict=False):
        _draw(axes, of_panel)
        if name:
            text = wrapped(title.format(name), 60 if across == 1 else 30)
            axes.set_title(text, fontsize=9, parse_math=False)
        axes.xaxis.set_major_locator(MaxNLocator(6 if across == 1 else 4))
        if zero:
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=0)
        if percent:
            axes.set_xlim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.tick_params(axis="x", labelsize=8, labelbottom=True)
    handles = _legend(panels, bar)
    if handles:
        figure.legend(
            handles=handles, loc="outside upper right", fontsize=8, ncols=2, frameon=False
        )
    figure.supxlabel(xlabel, fontsize=9, parse_math=False)
    return figure


def _legend(panels: dict[str, list[Line]], name: str) -> list[Any]:
    """What bars and bands are, where there are any."""
    lines = [line for of_panel in panels.values() for line in of_panel]
    bar = Line2D([], [], color=BLUE, linewidth=1.6, marker="o", markersize=4, label=name)
    band = Patch(facecolor=_BAND, edgecolor=_EDGE, label="possible by the counts alone")
    shown = ((bar, [line.bar for line in lines]), (band, [line.band for line in lines]))
    return [handle for handle, of_lines in shown if any(of_lines)]


def _draw(axes: Any, lines: Sequence[Line]) -> None:
    for place, line in enumerate(lines):
        if line.band is not None:
            width = line.band[1] - line.band[0]
            axes.barh(
                place, width, 0.7, line.band[0],
                color=_BAND, edgecolor=_EDGE, linewidth=0.8, zorder=1,
            )  # fmt: skip
        if line.bar is not None:
            axes.hlines(place, *line.bar, color=BLUE, linewidth=1.6, zorder=2)
    axes.scatter([line.value for line in lines], range(len(lines)), s=16, color=BLUE, zorder=3)
    names = [one_line(line.label, _LETTERS) for line in lines]
    axes.set_yticks(range(len(lines)), names, fontsize=8, parse_math=False)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(alpha=0.3, axis="x")
