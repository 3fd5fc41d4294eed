"""Results in the paper's layout: methods by bag size, with significance tests."""

from __future__ import annotations

import csv
import importlib.resources
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import ttest_rel

from bagwise.experiments.run import RunResult
from bagwise.experiments.settings import PROPOSED
from bagwise.plotting import METHOD_NAMES
from bagwise.training import Row

LEVEL = 0.05


@dataclass(frozen=True)
class Cell:
    """What the runs of one method, bag size, data set and model found with the best learning rate.

    Attributes:
        accuracies: test accuracy in percent, by seed.
        lr: the learning rate that validation chose.
        engine: of RC and CC.
        histories: of its runs, for figures.
    """

    accuracies: dict[int, float]
    lr: float
    engine: str
    histories: tuple[list[Row], ...] = ()

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(list(self.accuracies.values())))

    @property
    def std(self) -> float:
        """Standard deviation over seeds; 0 for one."""
        values = list(self.accuracies.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


Key = tuple[str, int]
"""(method, bag size); supervised learning has bag size 1."""


@dataclass(frozen=True)
class Block:
    """The table of one data set and model."""

    dataset: str
    model: str
    cells: dict[Key, Cell]

    @property
    def bag_sizes(self) -> list[int]:
        """The columns."""
        return sorted({K for method, K in self.cells if method != "supervised"})

    @property
    def methods(self) -> list[str]:
        """The rows, supervised excepted, in the paper's order; a user's own come last."""
        found = {method for method, _ in self.cells} - {"supervised"}
        return [m for m in METHOD_NAMES if m in found] + sorted(found - METHOD_NAMES.keys())

    def best(self, K: int, methods: tuple[str, ...] | None = None) -> str | None:
        """The method with the highest mean in a column."""
        there = [m for m in methods or self.methods if (m, K) in self.cells]
        return max(there, key=lambda m: self.cells[m, K].mean) if there else None

    def mark(self, method: str, K: int) -> str:
        """Whether the best proposed method is significantly better (●) or worse (○) than this one.

        Paired t-test over seeds at 5 %.
        """
        proposed = self.best(K, PROPOSED)
        if method in PROPOSED or method not in METHOD_NAMES or proposed is None:
            return ""
        ours, theirs = self.cells[proposed, K].accuracies, self.cells[method, K].accuracies
        seeds = sorted(ours.keys() & theirs.keys())
        differences = np.array([ours[seed] - theirs[seed] for seed in seeds])
        if len(seeds) < 2 or not differences.any():
            return ""
        if np.ptp(differences) > 0:
            p = ttest_rel([ours[s] for s in seeds], [theirs[s] for s in seeds]).pvalue
            if p >= LEVEL:
                return ""
        return "●" if differences.mean() > 0 else "○"


def collect(results: list[RunResult], select: str = "accuracy") -> list[Block]:
    """Blocks from runs: per cell the longest runs, and of these the best rate by validation."""
    grouped: dict[tuple[str, str], dict[Key, list[RunResult]]] = {}
    for result in results:
        s = result.settings
        cells = grouped.setdefault((s.dataset, s.model), {})
        cells.setdefault((s.method, s.bag_size), []).append(result)
    return [
        Block(dataset, model, {key: _cell(runs, select) for key, runs in cells.items()})
        for (dataset, model), cells in sorted(grouped.items())
    ]


def _cell(runs: list[RunResult], select: str) -> Cell:
    longest = max(run.settings.epochs for run in runs)
    by_rate: dict[tuple[float, str], list[RunResult]] = {}
    for run in runs:
        if run.settings.epochs == longest:  # the others are pilots
            by_rate.setdefault((run.settings.lr, run.settings.engine), []).append(run)
    sign = 1 if select == "accuracy" else -1

    def validation(group: list[RunResult]) -> float:
        scores = [sign * run.best_row(select)[f"val_{select}"] for run in group]
        return float(np.mean(scores))

    (lr, engine), chosen = max(by_rate.items(), key=lambda item: validation(item[1]))
    accuracies = {run.settings.seed: 100 * run.best_row(select)["test_accuracy"] for run in chosen}
    return Cell(accuracies, lr, engine, tuple(run.history for run in chosen))


@lru_cache
def paper_results() -> dict[tuple[str, str, str, int], tuple[float, float]]:
    """(dataset, model, method, bag size) -> (mean, std) as printed in the paper."""
    source = importlib.resources.files("bagwise.experiments") / "paper.csv"
    found = {}
    with source.open() as file:
        for row in csv.DictReader(file):
            if row["mean"]:
                key = (row["dataset"], row["model"], row["method"], int(row["bag_size"] or 1))
                found[key] = (float(row["mean"]), float(row["std"]))
    return found


def paper_best(dataset: str, model: str, K: int) -> tuple[float, float] | None:
    """The best cell of a column of the paper: (mean, std)."""
    cells = [
        value
        for (d, m, method, size), value in paper_results().items()
        if (d, m, size) == (dataset, model, K) and method != "supervised"
    ]
    return max(cells) if cells else None


def below_paper(block: Block, K: int) -> bool:
    """Whether the best proposed method is below the paper's best cell minus its deviation."""
    known, proposed = paper_best(block.dataset, block.model, K), block.best(K, PROPOSED)
    if known is None or proposed is None:
        return False
    return block.cells[proposed, K].mean < known[0] - known[1]


KEY = (
    "Test accuracy in percent, mean ± standard deviation over seeds. {best}: the best of a column. "
    "● (○): the best proposed method is significantly better (worse) than this baseline, paired "
    "t-test at 5 %. b, a: with the bethe engine, or the auto engine; RC and CC are exact otherwise."
)


def key(style: str, paper: bool = False) -> str:
    """What the marks in `text` and `markdown` tables mean."""
    text = KEY.format(best="*" if style == "text" else "Bold")
    if not paper:
        return text
    return (
        f"{text} In brackets: the paper (NA: not computed there). Last row: the paper's best of "
        "a column; ▼ where the best proposed method is lower by more than its standard deviation."
    )


def grid(block: Block, style: str, paper: bool = False) -> list[list[str]]:
    """The cells of a block's table, the header first; `style` says how they are marked."""
    columns = block.bag_sizes
    rows = [[f"{block.dataset}, {block.model}", *(f"K = {K}" for K in columns)]]
    if ("supervised", 1) in block.cells:
        cells = [_shown(block, "supervised", 1, style, paper), *[""] * (len(columns) - 1)]
        rows.append([METHOD_NAMES["supervised"], *cells])
    for method in block.methods:
        shown = [_shown(block, method, K, style, paper) for K in columns]
        rows.append([METHOD_NAMES.get(method, method), *shown])
    if paper and any(paper_best(block.dataset, block.model, K) for K in columns):
        rows.append(["paper's best", *(_paper_best(block, K, style) for K in columns)])
    return rows


def render(block: Block, style: str = "text", paper: bool = False) -> str:
    """A block as `text`, `markdown`, `latex` or `csv`.

    The best mean of a column is marked (bold, or * in text); an engine other than exact is named
    with its first letter: b for bethe, a for auto.
    """
    if style == "csv":
        return _csv(block, paper)
    header, *rows = grid(block, style, paper)
    if style == "markdown":
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
    if style == "latex":
        body = [" & ".join(line).replace("_", r"\_") + r" \\" for line in [header, *rows]]
        top = r"\begin{tabular}{l" + "c" * (len(header) - 1) + "}\n\\toprule\n"
        return (
            top
            + "\n\\midrule\n".join([body[0], "\n".join(body[1:])])
            + ("\n\\bottomrule\n\\end{tabular}\n")
        )
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return (
        "\n".join(
            "  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )
        + "\n"
    )


def _shown(block: Block, method: str, K: int, style: str, paper: bool) -> str:
    cell = block.cells.get((method, K))
    if cell is None:
        return "-"
    pm = r"\pm" if style == "latex" else "±"
    text = f"{cell.mean:.1f} {pm} {cell.std:.1f}"
    if cell.engine in ("bethe", "auto"):
        text += {"latex": "^{%s}"}.get(style, " %s") % cell.engine[0]
    mark = block.mark(method, K) if method != "supervised" else ""
    if style == "latex":
        mark = {"●": r"\bullet", "○": r"\circ", "": ""}[mark]
        text = f"${text}{mark}$" if method != block.best(K) else rf"$\mathbf{{{text}{mark}}}$"
    else:
        text += f" {mark}" if mark else ""
        if method != "supervised" and method == block.best(K):
            text = {"markdown": f"**{text}**", "html": f"<b>{text}</b>"}.get(style, f"*{text}")
    if paper:
        known = paper_results().get((block.dataset, block.model, method, K))
        text += f" ({known[0]:.1f})" if known else " (NA)"
    return text


def _paper_best(block: Block, K: int, style: str) -> str:
    known = paper_best(block.dataset, block.model, K)
    if known is None:
        return "-"
    pm, below = (r"\pm", r"\blacktriangledown") if style == "latex" else ("±", " ▼")
    text = f"{known[0]:.1f} {pm} {known[1]:.1f}{below if below_paper(block, K) else ''}"
    return f"${text}$" if style == "latex" else text


def _csv(block: Block, paper: bool) -> str:
    names = ["dataset", "model", "method", "bag_size", "engine", "lr", "seeds", "mean", "std"]
    names += ["significance"] + (["paper_mean", "paper_std"] if paper else [])
    lines = [",".join(names)]
    for method in ["supervised", *block.methods]:
        for K in [1] if method == "supervised" else block.bag_sizes:
            cell = block.cells.get((method, K))
            if cell is None:
                continue
            mark = block.mark(method, K) if method != "supervised" else ""
            values = [block.dataset, block.model, method, str(K), cell.engine, f"{cell.lr:g}"]
            values += [str(len(cell.accuracies)), f"{cell.mean:.3f}", f"{cell.std:.3f}"]
            values += [{"●": "better", "○": "worse", "": ""}[mark]]
            if paper:
                known = paper_results().get((block.dataset, block.model, method, K))
                values += [f"{known[0]}", f"{known[1]}"] if known else ["", ""]
            lines.append(",".join(values))
    return "\n".join(lines) + "\n"
