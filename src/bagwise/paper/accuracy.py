"""Results in the paper's layout: methods by bag size, with significance tests."""

from __future__ import annotations

import csv
import importlib.resources
import io
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import ttest_rel

from bagwise.methods import METHODS
from bagwise.paper.appearance import is_baseline, look, title
from bagwise.paper.run import RunResult, without_copies
from bagwise.paper.variants import row_names
from bagwise.training import Row
from bagwise.training.best import best_score

LEVEL = 0.05
ENGINE_LETTERS = ("auto", "bethe", "multinomial", "transport")
_LATEX = {letter: f"\\{letter}" for letter in "_%&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class Cell:
    """What runs that differ in learning rate and seed only found with the best learning rate.

    Attributes:
        accuracies: test accuracy in percent, by seed.
        lr: the learning rate that validation chose.
        engine: of RC and CC.
    """

    method: str
    accuracies: dict[int, float]
    lr: float
    engine: str
    histories: tuple[list[Row], ...] = ()
    left_out: str = ""
    """What was not taken, though it has more seeds."""

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
"""(row, bag size); supervised learning has bag size 1.

A row is a method, followed by the settings in which its runs differ from others of the table, if
they do: "cc", "cc, one_cycle", "cc, average 0.998".
"""


@dataclass(frozen=True)
class Block:
    """The table of one data set and model."""

    dataset: str
    model: str
    cells: dict[Key, Cell]

    @property
    def bag_sizes(self) -> list[int]:
        """The columns."""
        return sorted({K for (_, K), cell in self.cells.items() if _in_bags(cell.method)})

    @property
    def rows(self) -> list[str]:
        """All rows: supervised learning, then the methods in the paper's order, then a user's."""
        places = {method: place for place, method in enumerate(METHODS)}
        found = {row: cell.method for (row, _), cell in self.cells.items()}
        return sorted(found, key=lambda row: (places.get(found[row], len(places)), row))

    @property
    def methods(self) -> list[str]:
        """The rows, supervised learning excepted."""
        return [row for row in self.rows if _in_bags(self.method_of(row))]

    def method_of(self, row: str) -> str:
        """The method of a row."""
        return next(cell.method for (name, _), cell in self.cells.items() if name == row)

    def title(self, row: str) -> str:
        """A row's name for people.

        >>> block = Block("mnist", "mlp", {("cc, one_cycle", 8): Cell("cc", {0: 98.0}, 1e-3, "-")})
        >>> block.title("cc, one_cycle")
        'CC, one_cycle'
        """
        method = self.method_of(row)
        return title(method) + row.removeprefix(method)

    def best(self, K: int, proposed: bool = False) -> str | None:
        """The row with the highest mean in a column, supervised learning excepted.

        Args:
            proposed: among the paper's own methods only.
        """
        there = [
            row
            for row in self.methods
            if (row, K) in self.cells and (not proposed or look(self.method_of(row)).proposed)
        ]
        return max(there, key=lambda row: self.cells[row, K].mean) if there else None

    def is_best(self, row: str, K: int) -> bool:
        """Whether no row of a column has a higher mean, supervised learning excepted."""
        best = self.best(K)
        if best is None or row not in self.methods:
            return False
        return self.cells[row, K].mean == self.cells[best, K].mean

    def notes(self) -> list[str]:
        """What a reader should know of cells."""
        return [
            f"{self.dataset}, {self.model}, {self.title(row)}, K = {K}: {cell.left_out}."
            for (row, K), cell in self.cells.items()
            if cell.left_out
        ]

    def mark(self, row: str, K: int) -> str:
        """Whether the best proposed method is significantly better (●) or worse (○) than this one.

        Paired t-test over seeds at 5%.
        """
        proposed = self.best(K, proposed=True)
        if proposed is None or not is_baseline(self.method_of(row)):
            return ""
        ours, theirs = self.cells[proposed, K].accuracies, self.cells[row, K].accuracies
        seeds = sorted(ours.keys() & theirs.keys())
        differences = np.array([ours[seed] - theirs[seed] for seed in seeds])
        if len(seeds) < 2 or not differences.any():
            return ""
        if np.ptp(differences) > 0:
            p = ttest_rel([ours[s] for s in seeds], [theirs[s] for s in seeds]).pvalue
            if p >= LEVEL:
                return ""
        return "●" if differences.mean() > 0 else "○"


def _in_bags(method: str) -> bool:
    """Whether the bags make a difference to it."""
    return not look(method).needs_labels


def collect(results: list[RunResult], select: str = "accuracy") -> list[Block]:
    """Blocks from runs: per cell the longest runs, and of these the best rate by validation.

    Runs of one method whose settings differ in more than rate, seed, epochs and bag size are in
    different rows. Two different results of one run are a ValueError.
    """
    grouped: dict[tuple[str, str], list[RunResult]] = {}
    for result in without_copies((f"result {i + 1}", result) for i, result in enumerate(results)):
        grouped.setdefault((result.settings.dataset, result.settings.model), []).append(result)
    blocks = []
    for (dataset, model), runs in sorted(grouped.items()):
        rows = row_names([run.settings for run in runs])
        cells: dict[Key, list[RunResult]] = {}
        for run in runs:
            cells.setdefault((rows[run.settings], run.settings.bag_size), []).append(run)
        found = {key: _cell(group, select) for key, group in cells.items()}
        blocks.append(Block(dataset, model, found))
    return blocks


def _cell(runs: list[RunResult], select: str) -> Cell:
    """The runs of the best rate.

    Only full runs count, the others are pilots; of these only rates that were run with the most
    seeds, since the others are not finished or have failed; and they are compared on the seeds that
    all of them have.
    """
    longest = max(run.settings.epochs for run in runs)
    by_rate: dict[float, dict[int, RunResult]] = {}
    for run in runs:
        if run.settings.epochs == longest:
            by_rate.setdefault(run.settings.lr, {})[run.settings.seed] = run
    most = max(len(group) for group in by_rate.values())
    complete = {lr: group for lr, group in by_rate.items() if len(group) == most}
    common = set.intersection(*(set(group) for group in complete.values()))

    def validation(lr: float) -> float:
        scores = [
            best_score(run.history, select)
            for seed, run in complete[lr].items()
            if seed in common or not common
        ]
        return float(np.mean(scores))

    lr = max(complete, key=validation)
    chosen = list(complete[lr].values())
    accuracies = {run.settings.seed: 100 * run.best_row(select)["test_accuracy"] for run in chosen}
    settings = chosen[0].settings
    histories = tuple(run.history for run in chosen)
    return Cell(settings.method, accuracies, lr, settings.engine, histories, _left_out(runs, most))


def _left_out(runs: list[RunResult], taken: int) -> str:
    """Shorter runs of more seeds than the longest ones have, in words."""
    lengths = sorted({run.settings.epochs for run in runs})
    seeds = {e: {r.settings.seed for r in runs if r.settings.epochs == e} for e in lengths}
    more = [f"{len(seeds[e])} seeds of {e} epochs" for e in lengths[:-1] if len(seeds[e]) > taken]
    longest = f"there are {taken} of {lengths[-1]}" if taken > 1 else f"one has {lengths[-1]}"
    return f"{' and '.join(more)} are left out, as {longest}" if more else ""


@lru_cache
def paper_results() -> dict[tuple[str, str, str, int], tuple[float, float]]:
    """(dataset, model, method, bag size) -> (mean, std) as printed in the paper."""
    source = importlib.resources.files("bagwise.paper") / "paper.csv"
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
        if (d, m, size) == (dataset, model, K) and _in_bags(method)
    ]
    return max(cells) if cells else None


KEY = (
    "Test accuracy in percent, mean ± standard deviation where there are several seeds. {best}: "
    "the best of a column. "
    "● (○): the best proposed method is significantly better (worse) than this baseline, paired "
    "t-test at 5%. a, b, m, t: with the engine auto, bethe, multinomial or transport, or the name "
    "of another; RC and CC are exact otherwise. Epochs and learning rates are chosen by {chosen}."
)
_CHOSEN = {
    "accuracy": "validation labels",
    "bag_loss": "the likelihood of held-out bags, without labels",
}


def key(style: str, paper: bool = False, select: str = "accuracy") -> str:
    """What the marks in `text` and `markdown` tables mean, and how epochs were chosen."""
    text = KEY.format(best="*" if style == "text" else "Bold", chosen=_CHOSEN[select])
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
    for row in block.rows:
        if not _in_bags(block.method_of(row)):
            cells = [_shown(block, row, 1, style, paper), *[""] * (len(columns) - 1)]
        else:
            cells = [_shown(block, row, K, style, paper) for K in columns]
        rows.append([block.title(row), *cells])
    if paper and any(paper_best(block.dataset, block.model, K) for K in columns):
        rows.append(["paper's best", *(_paper_best(block, K, style) for K in columns)])
    return rows


def render(block: Block, style: str = "text", paper: bool = False) -> str:
    """A block as `text`, `markdown`, `latex` or `csv`.

    The best mean of a column is marked (bold, or * in text); an engine other than exact is named,
    Bagwise's own with the first letter: b for bethe, a for auto.
    """
    if style == "csv":
        return _csv(block, paper)
    header, *rows = grid(block, style, paper)
    if style == "markdown":
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
    if style == "latex":
        body = [" & ".join([_latex(name), *cells]) + r" \\" for name, *cells in [header, *rows]]
        top = r"\begin{tabular}{l" + "c" * (len(header) - 1) + "}\n\\toprule\n"
        rest = "\n".join(body[1:])
        return f"{top}{body[0]}\n\\midrule\n{rest}\n\\bottomrule\n\\end{{tabular}}\n"
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    padded = ([text.ljust(w) for text, w in zip(line, widths, strict=True)] for line in lines)
    return "".join("  ".join(line).rstrip() + "\n" for line in padded)


def _latex(text: str) -> str:
    """Names come from users: letters that LaTeX takes for commands are escaped."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _shown(block: Block, row: str, K: int, style: str, paper: bool) -> str:
    cell = block.cells.get((row, K))
    if cell is None:
        return "-"
    pm = r"\pm" if style == "latex" else "±"
    text = f"{cell.mean:.1f}" + (f" {pm} {cell.std:.1f}" if len(cell.accuracies) > 1 else "")
    if cell.engine not in ("exact", "-"):
        shown = cell.engine[0] if cell.engine in ENGINE_LETTERS else cell.engine
        text += rf"^{{\mathrm{{{_latex(shown)}}}}}" if style == "latex" else f" {shown}"
    mark, best = block.mark(row, K), block.is_best(row, K)
    if style == "latex":
        mark = {"●": r"\bullet", "○": r"\circ", "": ""}[mark]
        text = rf"$\mathbf{{{text}{mark}}}$" if best else f"${text}{mark}$"
    else:
        text += f" {mark}" if mark else ""
        if best:
            text = f"**{text}**" if style == "markdown" else f"*{text}"
    if paper:
        known = paper_results().get((block.dataset, block.model, cell.method, K))
        text += f" ({known[0]:.1f})" if known else " (NA)"
    return text


def _paper_best(block: Block, K: int, style: str) -> str:
    known = paper_best(block.dataset, block.model, K)
    if known is None:
        return "-"
    pm, below = (r"\pm", r"\blacktriangledown") if style == "latex" else ("±", " ▼")
    proposed = block.best(K, proposed=True)
    if proposed is None or block.cells[proposed, K].mean >= known[0] - known[1]:
        below = ""
    text = f"{known[0]:.1f} {pm} {known[1]:.1f}{below}"
    return f"${text}$" if style == "latex" else text


def _csv(block: Block, paper: bool) -> str:
    names = ["dataset", "model", "method", "bag_size", "engine", "lr", "seeds", "mean", "std"]
    names += ["significance"] + (["paper_mean", "paper_std"] if paper else [])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in block.rows:
        for K in sorted(size for name, size in block.cells if name == row):
            cell = block.cells[row, K]
            values = [block.dataset, block.model, row, K, cell.engine, f"{cell.lr:g}"]
            spread = f"{cell.std:.3f}" if len(cell.accuracies) > 1 else ""
            values += [len(cell.accuracies), f"{cell.mean:.3f}", spread]
            values += [{"●": "better", "○": "worse", "": ""}[block.mark(row, K)]]
            if paper:
                known = paper_results().get((block.dataset, block.model, cell.method, K))
                values += [f"{known[0]}", f"{known[1]}"] if known else ["", ""]
            writer.writerow(values)
    return text.getvalue()
