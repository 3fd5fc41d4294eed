"""Pictures of how well a model fits: proportions, calibration, learning curves, bag sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, StrMethodFormatter

from bagwise.tables.model.fit_facts import BinOfBags, HeldOutBag
from bagwise.tables.model.table_facts import Histogram
from bagwise.wording import wrapped

BLUE, GREY = "#0b5fa5", "#7a8591"  # what the model says of data; lines to compare with
TITLE, LABEL, TICK = 10, 9, 8.5  # font sizes, in points
STEPS = [1, 2, 5, 10]  # between ticks
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:g}%")


def proportions(c: int, name: str, bags: Sequence[HeldOutBag], true: str = "true") -> Figure:
    """Predicted against true proportion of class `c` in each held-out bag; `true` is what the
    latter is called.
    """
    figure, axes = _panel()
    draw_proportions(axes, name, c, bags, true)
    return figure


def draw_proportions(axes: Any, name: str, c: int, bags: Sequence[HeldOutBag], true: str) -> None:
    """The same on axes."""
    known = [(bag, share) for bag in bags if (share := bag.true[c]) is not None]
    largest = max((bag.size for bag, _ in known), default=1)
    x, y = [bag.predicted[c] for bag, _ in known], [share for _, share in known]
    area = [6 + 34 * (bag.size / largest) ** 0.5 for bag, _ in known]
    _set_up(axes, name, "predicted share of the bag", f"{true} share of the bag")
    axes.scatter(x, y, s=area, color=BLUE, alpha=0.55, linewidths=0)
    _diagonal(axes, max([*x, *y], default=1.0), true)


def calibration(name: str, bins: Sequence[BinOfBags], true: str = "true") -> Figure:
    """Mean predicted against mean true proportion of a class in groups of bags.

    Bars reach two standard errors to either side.
    """
    figure, axes = _panel()
    draw_bins(axes, name, bins, true)
    return figure


def draw_bins(axes: Any, name: str, bins: Sequence[BinOfBags], true: str) -> None:
    """The same on axes."""
    x, y = [group.predicted for group in bins], [group.true for group in bins]
    errors = [0.0 if group.error is None else 2 * group.error for group in bins]
    _set_up(axes, name, "predicted share, group mean", f"{true} share, group mean")
    axes.errorbar(x, y, errors, color=BLUE, fmt="o", markersize=4, elinewidth=1.2)
    tops = [middle + error for middle, error in zip(y, errors, strict=True)]
    _diagonal(axes, max([*x, *tops], default=1.0), true)


def learning_curve(title: str, points: Sequence[tuple[float, float]], ylabel: str) -> Figure:
    """A loss by epoch."""
    figure, axes = _panel()
    _set_up(axes, title, "epoch", ylabel)
    axes.plot(*zip(*points, strict=True), color=BLUE, marker="o", markersize=2.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def bag_sizes(histogram: Histogram) -> Figure:
    """How many bags there are of which size."""
    figure, axes = _panel()
    _set_up(axes, "", "rows in a bag", "bags")
    edges = histogram.edges
    widths = [b - a for a, b in pairwise(edges)]
    axes.bar(edges[:-1], histogram.counts, widths, align="edge", color=BLUE, edgecolor="white")
    if edges[-1] > 20 * edges[0]:
        axes.set(xscale="log", xlabel="rows in a bag, log scale")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False, axis="x")
    return figure


def _panel() -> tuple[Figure, Any]:
    figure = Figure(figsize=(3.2, 3.1), layout="constrained")
    return figure, figure.subplots()


def _set_up(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    axes.set_title(wrapped(title, 34), fontsize=TITLE, parse_math=False)
    axes.set_xlabel(xlabel, fontsize=LABEL)
    axes.set_ylabel(ylabel, fontsize=LABEL)
    axes.tick_params(labelsize=TICK)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _diagonal(axes: Any, top: float, true: str) -> None:
    """The line on which predicted and true shares are the same, and equal axes that hold it."""
    top = min(1.02, 1.05 * top + 0.02)
    axes.plot([0, min(top, 1)], [0, min(top, 1)], color=GREY, linewidth=0.8, zorder=0)
    axes.text(
        *(0.98, 0.03, f"on the line, predicted = {true}"),
        transform=axes.transAxes, color="#5b6570", fontsize=TICK, ha="right",
    )  # fmt: skip
    axes.set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=STEPS))
        axis.set_major_formatter(PERCENT)
