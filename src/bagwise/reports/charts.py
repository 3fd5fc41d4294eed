"""The pictures of a model's report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bagwise.tables.model.fit_facts import BinOfBags, CurvePoint, HeldOutBag, Histogram
from bagwise.wording import wrapped

BLUE, _PINK, GREY = "#0b5fa5", "#b5179e", "#7a8591"
MOST_CLASSES = 12


def _panels(n: int) -> tuple[Figure, list[Any]]:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(n, 3)
    lines = -(-n // columns)
    size = (3.3 * columns + 0.2, 3.1 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    flat = list(axes.flat)
    for unused in flat[n:]:
        unused.set_visible(False)
    return figure, flat[:n]


def learning_curves(curve: Sequence[CurvePoint]) -> Figure:
    """Training loss, and loss of held-out bags, by epoch."""
    figure, (left, right) = _panels(2)
    for axes, losses, title, color in (
        (left, [p.train for p in curve], "training loss", BLUE),
        (right, [p.held_out for p in curve], "held-out bags: -log P(S|X) per row", _PINK),
    ):
        points = [(p.epoch, y) for p, y in zip(curve, losses, strict=True) if y is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=color, marker="o", markersize=2.5)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    return figure


def proportions(
    classes: Sequence[str], shown: Sequence[int], bags: Sequence[HeldOutBag], true: str = "true"
) -> Figure:
    """True against predicted proportion of each held-out bag, a panel for each class; `true` is
    what the former are called.
    """
    figure, panels = _panels(len(shown))
    largest = max(bag.size for bag in bags)
    for axes, c in zip(panels, shown, strict=True):
        there = [(bag, share) for bag in bags if (share := bag.true[c]) is not None]
        x, y = [bag.predicted[c] for bag, _ in there], [share for _, share in there]
        area = [6 + 34 * (bag.size / largest) ** 0.5 for bag, _ in there]
        axes.scatter(x, y, s=area, color=BLUE, alpha=0.55, linewidths=0)
        _diagonal(axes, max([*x, *y], default=1.0))
        axes.set_title(wrapped(classes[c], 36), fontsize=9, parse_math=False)
        axes.set(xlabel="predicted proportion", ylabel=f"{true} proportion")
    return figure


def calibration(
    classes: Sequence[str],
    shown: Sequence[int],
    bins: Sequence[Sequence[BinOfBags]],
    true: str = "true",
) -> Figure:
    """Mean true against mean predicted proportion of groups of bags, a panel for each class.

    Bars reach two standard errors to either side.
    """
    figure, panels = _panels(len(shown))
    for axes, c in zip(panels, shown, strict=True):
        x, y = [bag.predicted for bag in bins[c]], [bag.true for bag in bins[c]]
        errors = [0.0 if bag.error is None else 2 * bag.error for bag in bins[c]]
        axes.errorbar(x, y, errors, color=_PINK, fmt="o-", markersize=4, linewidth=1, elinewidth=1)
        _diagonal(axes, max([*x, *y], default=1.0))
        axes.set_title(wrapped(classes[c], 36), fontsize=9, parse_math=False)
        axes.set(xlabel="mean predicted proportion", ylabel=f"mean {true} proportion")
    return figure


def bag_sizes(histogram: Histogram) -> Figure:
    """How many bags there are of which size."""
    figure, (axes,) = _panels(1)
    edges = histogram.edges
    widths = [b - a for a, b in pairwise(edges)]
    axes.bar(edges[:-1], histogram.counts, widths, align="edge", color=BLUE, edgecolor="white")
    if edges[-1] > 20 * edges[0]:
        axes.set_xscale("log")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="rows in a bag", ylabel="bags")
    axes.grid(alpha=0.3, axis="y")
    return figure


def _diagonal(axes: Any, top: float) -> None:
    top = min(1.0, 1.08 * top + 0.02)
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.8, zorder=0)
    axes.set(xlim=(-0.02 * top, top), ylim=(-0.02 * top, top))
    axes.grid(alpha=0.3)
