"""The paper's four figures, and accuracy by bag size, drawn from runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags import FloatArray
from bagwise.extras import require
from bagwise.paper.accuracy import Block, Cell
from bagwise.paper.appearance import color, look
from bagwise.paper.published import paper_best
from bagwise.storage.files import begins, refuse_foreign, write_atomically

require("matplotlib", "plots")

import matplotlib as mpl  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Panel = tuple[Block, str, str]
"""(block, row, column of the history)"""

FILES = (
    "loss-and-accuracy",
    "ot-training",
    "weight-gap",
    "test-accuracy",
    "accuracy-by-bag-size",
    "beside-the-paper",
)
DPI = 120
_WIDEST = 4  # panels beside each other
_TITLE_WIDTH = 44  # letters above a panel
_SOFTWARE = {"Software": "Bagwise"}  # which PNG files have in them
_MARKERS = "os^Dv"  # of a method's rows, where it has several
_LABELS = {
    "train_loss": "training loss",
    "train_accuracy": "training accuracy, %",
    "test_accuracy": "test accuracy, %",
    "weight_distance": "mean over instances of Σ |w - w approx.|",
}


def draw_figures(blocks: list[Block], folder: Path, force: bool = False) -> list[Path]:
    """Draw what the runs have data for; returns the files.

    loss-and-accuracy.png: training loss and accuracy of RC_Approx and LLPFC, a row for each data
    set and model. ot-training.png: training accuracy of OT with the linear model. weight-gap.png:
    how far RC's weights are from the approximate ones. test-accuracy.png: test accuracy
    by epoch of the proposed methods, and of those that the paper does not have.
    accuracy-by-bag-size.png, which the paper does not have: test accuracy of all methods beside the
    paper's best. beside-the-paper.png: of each model the best proposed method alone. A curve by
    epoch is the mean over seeds at the chosen learning rate; its color is the bag size, the same
    everywhere.
    Files of these names that were not drawn by it are replaced only with `force`.
    """
    for name in FILES:
        refuse_foreign(folder / f"{name}.png", _is_own, force)
    drawn = []
    losses = ("train_loss", "train_accuracy")
    transport = [_panels(b, ("train_accuracy",), ("ot",)) for b in blocks if b.model == "linear"]
    gaps = [_panels(block, ("weight_distance",)) for block in blocks]
    # The paper's own methods, and those that it does not know: a user's among them.
    proposed = {block.method_of(row) for block in blocks for row in block.methods}
    proposed -= {"dllp", "llpfc", "ot", "pll"}
    for name, panels in (
        ("loss-and-accuracy", [_panels(block, losses, ("rc_approx", "llpfc")) for block in blocks]),
        ("ot-training", [list(chain(*transport))]),
        ("weight-gap", [list(chain(*gaps))]),
        ("test-accuracy", [_panels(block, ("test_accuracy",), proposed) for block in blocks]),
    ):
        if rows := [row for row in panels if row]:
            drawn.append(_figure(rows, folder / f"{name}.png"))
    several = [block for block in blocks if len(block.bag_sizes) > 1]
    if several:
        drawn.append(_by_bag_size(several, folder / "accuracy-by-bag-size.png"))
    if any(_of_paper(block) for block in several):
        drawn.append(_beside_the_paper(several, folder / "beside-the-paper.png"))
    return drawn


def _is_own(path: Path) -> bool:
    return b"Software\0Bagwise" in begins(path)


def _by_bag_size(blocks: list[Block], path: Path) -> Path:
    """Test accuracy of every method by bag size, a panel for each data set and model."""
    figure, panels = _grid(len(blocks), 3)
    handles: dict[str, Any] = {}
    for axes, block in zip(panels.flat, blocks, strict=False):
        sizes = block.bag_sizes
        known = _of_paper(block)
        if known:
            (handles["the paper's best"],) = axes.plot(
                [*known], [*known.values()], color="black", linewidth=5, alpha=0.15
            )
        for row in block.rows:
            method, name = block.method_of(row), _plain(block.title(row))
            style = {"color": color(method), "linestyle": look(method).line}
            if row not in block.methods:
                handles[name] = axes.axhline(block.cells[row, 1].mean, **style)
                continue
            variants = [other for other in block.methods if block.method_of(other) == method]
            there = [K for K in sizes if (row, K) in block.cells]
            (handles[name],) = axes.plot(
                there,
                [block.cells[row, K].mean for K in there],
                marker=_MARKERS[variants.index(row) % len(_MARKERS)],
                markersize=3,
                **style,
            )
        means = [cell.mean for cell in block.cells.values()] + [*known.values()]
        axes.set_ylim(10 * math.floor(min(means) / 10), 10 * math.ceil(max(means) / 10 + 1e-9))
        _label(axes, f"{block.dataset}, {block.model}", sizes)
    return _saved(figure, handles, path)


def _beside_the_paper(blocks: list[Block], path: Path) -> Path:
    """The best proposed method of each model by bag size, a panel for each data set."""
    datasets = list(dict.fromkeys(block.dataset for block in blocks))
    models = list(dict.fromkeys(block.model for block in blocks))
    figure, panels = _grid(len(datasets), 2 if len(datasets) == 4 else 3)
    handles: dict[str, Any] = {}
    for axes, dataset in zip(panels.flat, datasets, strict=False):
        own = [block for block in blocks if block.dataset == dataset]
        for block in own:
            style: dict[str, Any] = {"color": f"C{models.index(block.model)}"}
            best = {K: row for K in block.bag_sizes if (row := block.best(K, proposed=True))}
            if known := _of_paper(block):
                (handles[_plain(f"{block.model}, the paper's best")],) = axes.plot(
                    [*known], [*known.values()], linewidth=6, alpha=0.3, **style
                )
            means = [block.cells[row, K].mean for K, row in best.items()]
            (handles[_plain(f"{block.model}, the best proposed method")],) = axes.plot(
                [*best], means, marker="o", markersize=4, **style
            )
        _label(axes, dataset, sorted({K for block in own for K in block.bag_sizes}))
    return _saved(figure, handles, path)


def _of_paper(block: Block) -> dict[int, float]:
    """The paper's best figure by bag size."""
    found = {K: paper_best(block.dataset, block.model, K) for K in block.bag_sizes}
    return {K: best[0] for K, best in found.items() if best}


def _grid(count: int, width: int) -> tuple[Figure, Any]:
    """A figure with so many panels, at most `width` beside each other."""
    width = min(count, width)
    lines = -(-count // width)
    figure = Figure(figsize=(3.6 * width + 1.6, 3.4 * lines), layout="constrained")
    panels = figure.subplots(lines, width, squeeze=False)
    for unused in panels.flat[count:]:
        unused.set_visible(False)
    return figure, panels


def _label(axes: Axes, name: str, sizes: list[int]) -> None:
    axes.set(xscale="log", xlabel="bag size", ylabel="test accuracy, %")
    axes.set_xticks(sizes, [str(K) for K in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.set_title(_plain(name), fontsize=10)


def _saved(figure: Figure, handles: dict[str, Any], path: Path) -> Path:
    """The figure with its legend, for which it is made tall enough, in a file."""
    figure.set_figheight(max(figure.get_figheight(), 0.22 * len(handles) + 0.2))
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=DPI, metadata=_SOFTWARE)
    write_atomically(path, content.getvalue())
    return path


def _panels(
    block: Block, columns: tuple[str, ...], methods: Iterable[str] | None = None
) -> list[Panel]:
    """A panel for each row of these methods, or of all, and each column of its histories."""
    return [
        (block, row, column)
        for row in block.methods
        if methods is None or block.method_of(row) in methods
        for column in columns
        if any(name == row and _has(cell, column) for (name, _), cell in block.cells.items())
    ]


def _has(cell: Cell, column: str) -> bool:
    return all(column in row for history in cell.histories for row in history)


def _plain(text: str) -> str:
    """Text of which matplotlib makes no formula: names come from files."""
    return text.replace("$", r"\$")


def _figure(rows: list[list[Panel]], path: Path) -> Path:
    width = max(len(row) for row in rows)
    if width > _WIDEST or min(len(row) for row in rows) < width:
        # Rows that cannot stand below each other flow like text, so that no column stays empty.
        panels = list(chain(*rows))
        width = min(len(panels), _WIDEST)
        rows = [panels[start : start + width] for start in range(0, len(panels), width)]
    figure = Figure(figsize=(3.6 * width + 1.2, 2.9 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), width, squeeze=False)
    handles: dict[int, Any] = {}
    for row, panels in enumerate(rows):
        for column in range(width):
            if column < len(panels):
                handles |= _draw(axes[row, column], panels[column])
            else:
                axes[row, column].set_visible(False)
    return _saved(figure, {f"K = {K}": handles[K] for K in sorted(handles)}, path)


def _draw(axes: Axes, panel: Panel) -> dict[int, Any]:
    block, row, column = panel
    handles = {}
    for (name, K), cell in sorted(block.cells.items(), key=lambda item: item[0]):
        if name == row and _has(cell, column):
            values = _mean_curve(cell, column) * (100 if column.endswith("accuracy") else 1)
            epochs = np.arange(1, len(values) + 1)
            (handles[K],) = axes.plot(epochs, values, color=_color(K), linewidth=1.4)
    title = f"{block.dataset}, {block.model}: {block.title(row)}"
    axes.set_title(_plain(fill(title, _TITLE_WIDTH)), fontsize=10)
    axes.set(xlabel="epoch", ylabel=_LABELS[column])
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0, 100 if column.endswith("accuracy") else None)
    return handles


def _mean_curve(cell: Cell, column: str) -> FloatArray:
    shortest = min(len(history) for history in cell.histories)
    curves = [[row[column] for row in history[:shortest]] for history in cell.histories]
    mean: FloatArray = np.mean(curves, axis=0)
    return mean


def _color(K: int) -> Any:
    """A color for a bag size, from dark (small bags) to light (large ones)."""
    colors: Callable[[float], Any] = mpl.colormaps["viridis"]
    return colors(min(np.log2(max(K, 2)) - 1, 6) / 6.6)
