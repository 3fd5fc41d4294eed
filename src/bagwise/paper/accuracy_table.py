"""Tables of accuracies as text, Markdown, LaTeX and CSV, beside the paper's figures."""

from __future__ import annotations

import csv
import io

from bagwise.errors import InputError, Option
from bagwise.paper.accuracy import Block, in_bags
from bagwise.paper.published import MARKS, has_cell, paper_best, published

ENGINE_LETTERS = ("auto", "bethe", "multinomial", "transport")
_LATEX = {letter: f"\\{letter}" for letter in "_%&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_ACCURACY = "Test accuracy in percent, mean ± standard deviation where there are several seeds. "
_GAP = "Mean test accuracy less that of supervised learning, in points. "
KEY = (
    "{best}: the best of a column. "
    "● (○): the best proposed method is significantly better (worse) than this baseline, paired "
    "t-test at 5%. a, b, m, t: with the engine auto, bethe, multinomial or transport, or the name "
    "of another; RC and CC are exact otherwise. Epochs and learning rates are chosen by {chosen}."
)
_CHOSEN = {
    "accuracy": "validation labels",
    "bag_loss": "the likelihood of held-out bags, without labels",
}


def key(
    style: str, paper: bool = False, select: str = "accuracy", raw: bool = False, gap: bool = False
) -> str:
    """What the marks in `text` and `markdown` tables mean, and how epochs were chosen.

    Args:
        raw: whether there are tables of raw pixels.
        gap: whether tables have gaps to supervised learning.
    """
    text = (_GAP if gap else _ACCURACY) + KEY.format(
        best="*" if style == "text" else "Bold", chosen=_CHOSEN[select]
    )
    if not paper:
        return text
    inputs = (
        "here, pixels are raw in data sets named -raw and standardized in the others"
        if raw
        else "here, pixels are standardized"
    )
    of_gap = " to its own supervised learning" if gap else ""
    return (
        f"{text} In brackets: the paper{of_gap}, with its own ● and ○ (NA: it could not compute "
        "the cell; no brackets: its tables have no such cell). The paper trains on raw pixels; "
        f"{inputs}. Last row: the paper's best of a column; ▼ where the accuracy of the best "
        "proposed method is lower by more than its standard deviation."
    )


def grid(block: Block, style: str, paper: bool = False, gap: bool = False) -> list[list[str]]:
    """The cells of a block's table, the header first; `style` says how they are marked."""
    if gap and block.supervised is None:
        raise InputError(
            f"there is no run of supervised learning for {block.dataset}, {block.model}, to which "
            'gaps are measured. Add "supervised" to the methods of the sweep, or leave out ',
            Option("gap"),
            ".",
        )
    columns = block.bag_sizes
    rows = [[f"{block.dataset}, {block.model}", *(f"K = {K}" for K in columns)]]
    for row in block.rows:
        if not in_bags(block.method_of(row)):
            cells = [_shown(block, row, 1, style, paper, gap), *[""] * (len(columns) - 1)]
        else:
            cells = [_shown(block, row, K, style, paper, gap) for K in columns]
        rows.append([block.title(row), *cells])
    if paper and any(paper_best(block.dataset, block.model, K) for K in columns):
        rows.append(["paper's best", *(_paper_best(block, K, style, gap) for K in columns)])
    return rows


def render(block: Block, style: str = "text", paper: bool = False, gap: bool = False) -> str:
    """A block as `text`, `markdown`, `latex` or `csv`.

    The best mean of a column is marked (bold, or * in text); an engine other than exact is named,
    Bagwise's own with the first letter: b for bethe, a for auto. With `gap`, cells have the
    distance to supervised learning; `csv` has it always, in a column of its own.
    """
    if style == "csv":
        return _csv(block, paper)
    header, *rows = grid(block, style, paper, gap)
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


def number_or_gap(mean: float, supervised: float | None) -> str:
    """An accuracy, or its distance to that of supervised learning where this is given.

    >>> number_or_gap(92.04, None), number_or_gap(92.0, 92.5), number_or_gap(92.5, 92.5)
    ('92.0', '-0.5', '0.0')
    """
    if supervised is None:
        return f"{mean:.1f}"
    return f"{mean - supervised:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0")


def _shown(block: Block, row: str, K: int, style: str, paper: bool, gap: bool) -> str:
    cell = block.cells.get((row, K))
    if cell is None:
        return "-"
    pm = r"\pm" if style == "latex" else "±"
    text = number_or_gap(cell.mean, block.supervised if gap else None)
    if len(cell.accuracies) > 1 and not gap:
        text += f" {pm} {cell.std:.1f}"
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
        text += _in_brackets(block, cell.method, K, style, gap)
    return text


def _in_brackets(block: Block, method: str, K: int, style: str, gap: bool) -> str:
    """The paper's figure of a cell; nothing where its tables have no such cell."""
    if not has_cell(block.dataset, block.model, method, K):
        return ""
    known = published(block.dataset, block.model, method, K)
    if known is None:
        return " (NA)"
    mark = known.mark and f" {known.mark}"
    if style == "latex" and mark:
        mark = {"●": r" $\bullet$", "○": r" $\circ$"}[known.mark]
    return f" ({number_or_gap(known.mean, block.paper_supervised if gap else None)}{mark})"


def _paper_best(block: Block, K: int, style: str, gap: bool) -> str:
    known = paper_best(block.dataset, block.model, K)
    if known is None:
        return "-"
    pm, below = (r"\pm", r"\blacktriangledown") if style == "latex" else ("±", " ▼")
    proposed = block.best(K, proposed=True)
    if proposed is None or block.cells[proposed, K].mean >= known.mean - known.std:
        below = ""
    text = number_or_gap(known.mean, block.paper_supervised if gap else None)
    text += below if gap else f" {pm} {known.std:.1f}{below}"
    return f"${text}$" if style == "latex" else text


def _gap(mean: float, supervised: float | None) -> str:
    return "" if supervised is None else f"{mean - supervised:.3f}"


def _csv(block: Block, paper: bool) -> str:
    names = ["dataset", "model", "method", "bag_size", "engine", "lr", "seeds", "mean", "std"]
    names += ["significance", "gap"]
    if paper:
        names += ["paper_mean", "paper_std", "paper_significance", "paper_gap"]
    words = {mark: word for word, mark in MARKS.items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in block.rows:
        for K in sorted(size for name, size in block.cells if name == row):
            cell = block.cells[row, K]
            values = [block.dataset, block.model, row, K, cell.engine, f"{cell.lr:g}"]
            spread = f"{cell.std:.3f}" if len(cell.accuracies) > 1 else ""
            values += [len(cell.accuracies), f"{cell.mean:.3f}", spread]
            values += [words[block.mark(row, K)], _gap(cell.mean, block.supervised)]
            known = published(block.dataset, block.model, cell.method, K)
            if paper and known:
                values += [f"{known.mean}", f"{known.std}", words[known.mark]]
                values += [_gap(known.mean, block.paper_supervised)]
            elif paper:
                values += [""] * 4
            writer.writerow(values)
    return text.getvalue()
