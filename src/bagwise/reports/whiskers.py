"""Pictures with error bars: effects, importances, and shares of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bagwise.reports.charts import BLUE, GREY, LABEL, PERCENT, STEPS, TICK, TITLE
from bagwise.tables.use.effects import Effect
from bagwise.tables.use.estimate import GroupShare
from bagwise.tables.use.importance import Importance
from bagwise.wording import in_order, one_line, wrapped

MOST_CLASSES = 12
MOST_LINES = 60

_BAND, _EDGE = "#f9ecd3", "#e3bd7a"
_MARK = "#c46a00"
_LETTERS = 34  # of a label


@dataclass(frozen=True)
class Line:
    """A point with a bar and a band, each where there is one."""

    label: str
    value: float
    bar: tuple[float, float] | None = None
    band: tuple[float, float] | None = None


def effects_charts(effects: Sequence[Effect]) -> dict[str, Figure]:
    """The effect of each column with its interval, a figure for each class, all on one scale."""
    labels = sorted({effect.label for effect in effects}, key=in_order)[:MOST_CLASSES]
    columns = list(dict.fromkeys(effect.column for effect in effects))[:MOST_LINES]
    found = {(effect.label, effect.column): effect for effect in effects}
    drawn = [found[label, column] for label in labels for column in columns]
    ends = [end for e in drawn for end in (e.low, e.high) if isfinite(end)]
    low, high = min(0, *ends), max(0, *ends)
    space = 0.04 * (high - low)
    figures = {}
    for label in labels:
        of_class = [found[label, column] for column in columns]
        panel = {
            f"effect on the log-odds of {label}": [
                Line(e.column, e.effect, (e.low, e.high)) for e in of_class
            ]
        }
        xlabel = "effect of one standard deviation, or of the value"
        figures[label] = _whiskers(panel, xlabel, limits=(low - space, high + space))
    return figures


def importance_chart(importances: Sequence[Importance]) -> Figure:
    """The importance of each column with its interval."""
    lines = [Line(i.column, i.fall, (i.low, i.high)) for i in importances[:MOST_LINES]]
    return _whiskers({"": lines}, "drop in log-likelihood per row when the column is shuffled")


def shares_charts(shares: Sequence[GroupShare], by: Sequence[str]) -> dict[str, Figure]:
    """The share of a class in each group, as in `shares_chart`, a figure for each class."""
    panels = _share_panels(shares)
    return {name: _shares_figure({name: lines}, by) for name, lines in panels.items()}


def shares_chart(shares: Sequence[GroupShare], by: Sequence[str]) -> Figure:
    """The share of each class in each group, with its interval, and the bounds as a light band.

    Of two classes the second alone; of many groups the largest.
    """
    return _shares_figure(_share_panels(shares), by)


def largest_groups(shares: Sequence[GroupShare]) -> set[tuple[str, ...]]:
    """The groups that are drawn: all, or those with most rows."""
    rows = {share.group: share.rows for share in shares}
    return set(sorted(rows, key=lambda group: -rows[group])[:MOST_LINES])


def _share_panels(shares: Sequence[GroupShare]) -> dict[str, list[Line]]:
    labels = list(dict.fromkeys(share.label for share in shares))
    labels = labels[1:] if len(labels) == 2 else labels[:MOST_CLASSES]
    kept = largest_groups(shares)
    return {
        f"share of {label}": [
            Line(", ".join(s.group), s.share, s.interval, s.bounds)
            for s in shares
            if s.label == label and s.group in kept
        ]
        for label in labels
    }


def robustness_charts(shares: Sequence[GroupShare]) -> dict[str, Figure]:
    """The robustness of each group's share, and how strong the strongest column would be if it
    were hidden; a figure for each class, none without robustness.
    """
    if shares[0].robustness is None:
        return {}
    kept = largest_groups(shares)
    labels = list(dict.fromkeys(share.label for share in shares))
    labels = labels[1:] if len(labels) == 2 else labels[:MOST_CLASSES]
    return {
        label: _robustness_figure([s for s in shares if s.label == label and s.group in kept])
        for label in labels
    }


def _robustness_figure(shares: Sequence[GroupShare]) -> Figure:
    figure = Figure(figsize=(4.85, 1.3 + 0.21 * len(shares)), layout="constrained")
    axes = figure.subplots()
    places = range(len(shares))
    axes.barh(places, [s.robustness or 0.0 for s in shares], 0.6, color=BLUE, alpha=0.8)
    marks = [(s.strongest[1], place) for place, s in enumerate(shares) if s.strongest]
    if marks:
        axes.plot(*zip(*marks, strict=True), "|", color=_MARK, markersize=9, markeredgewidth=2.2)
    names = [one_line(", ".join(s.group), _LETTERS) for s in shares]
    axes.set_yticks(places, names, fontsize=TICK, parse_math=False)
    axes.set_ylim(len(shares) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PERCENT)
    axes.tick_params(axis="x", labelsize=TICK)
    axes.grid(alpha=0.3, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    handles: list[Any] = [Patch(color=BLUE, alpha=0.8, label="robustness")]
    if marks:
        label = "strongest column, if hidden"
        mark = Line2D([], [], color=_MARK, marker="|", linestyle="", markersize=9)
        mark.set(markeredgewidth=2.2, label=label)
        handles.append(mark)
    figure.legend(handles=handles, loc="outside upper right", fontsize=TICK, ncols=2, frameon=False)
    figure.supxlabel("strength of a hidden difference between bags", fontsize=LABEL)
    return figure


def _shares_figure(panels: dict[str, list[Line]], by: Sequence[str]) -> Figure:
    xlabel = f"share of the rows, by {one_line(', '.join(by), 60)}"
    return _whiskers(panels, xlabel, limits=(-0.02, 1.02), percent=True)


def _whiskers(
    panels: dict[str, list[Line]],
    xlabel: str,
    limits: tuple[float, float] | None = None,
    percent: bool = False,
) -> Figure:
    """Points with bars, a line for each, below each other; panels, by title, beside each other."""
    across = min(len(panels), 3)
    down = -(-len(panels) // across)
    lines = max(map(len, panels.values()))
    size = (4.85 if across == 1 else 2.0 + 2.9 * across, (1.2 + 0.21 * lines) * down)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, of_panel) in zip(grid.flat, panels.items(), strict=False):
        draw_lines(axes, of_panel, wrapped(title, 32 if across == 1 else 30), percent)
        if across == 1:
            axes.title.set(x=1, ha="right")  # there is room above the names of the lines
        axes.xaxis.set_major_locator(MaxNLocator(5 if across == 1 else 4, steps=STEPS))
        if limits:
            axes.set_xlim(*limits)
        if percent:
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    if handles := _legend(panels):
        figure.legend(
            handles=handles, loc="outside upper right", fontsize=TICK, ncols=2, frameon=False
        )
    figure.supxlabel(xlabel, fontsize=LABEL, parse_math=False)
    return figure


def _legend(panels: dict[str, list[Line]]) -> list[Any]:
    """What bars and bands are, where there are any."""
    lines = [line for of_panel in panels.values() for line in of_panel]
    bar = Line2D([], [], color=BLUE, linewidth=1.6, marker="o", markersize=4, label="95% interval")
    band = Patch(facecolor=_BAND, edgecolor=_EDGE, label="possible by the counts alone")
    shown = ((bar, [line.bar for line in lines]), (band, [line.band for line in lines]))
    return [handle for handle, of_lines in shown if any(of_lines)]


def draw_lines(axes: Any, lines: Sequence[Line], title: str, percent: bool = False) -> None:
    """Points with bars and bands, below each other."""
    axes.set_title(title, fontsize=TITLE, parse_math=False)
    if percent:
        axes.xaxis.set_major_formatter(PERCENT)
    else:
        axes.axvline(0, color=GREY, linewidth=0.8, zorder=0)
    axes.tick_params(axis="x", labelsize=TICK, labelbottom=True)
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
    axes.set_yticks(range(len(lines)), names, fontsize=TICK, parse_math=False)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(alpha=0.3, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
