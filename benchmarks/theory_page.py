"""Tables and picture of results/theory, from runs.csv and switching.csv."""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from bagwise import Bags, bag_posterior
from bagwise.paper.appearance import color, look, title
from common import table

D = 5
DELTA = 0.05
BAGS = 100  # of each line of what is proved
GAP = 0.145  # between names in the picture, in logs
SAME = (("rc", "cc"), ("cc_approx_then_rc_approx", "rc_approx"))  # in what they find
TITLES = {
    "cc_squared": "CC, squared error",
    "squared_of_true_counts": "squared error of the true counts alone",
    "cc_approx_then_rc_approx": "CC_Approx, then RC_Approx",
}
DRAWN = {
    "supervised": "Supervised",
    "cc": "CC, RC",
    "cc_squared": "CC, squared",
    "dllp": "DLLP",
    "cc_approx": "CC_Approx",
    "rc_approx": "RC_Approx",
    "llpfc": "LLPFC",
    "ot": "OT",
    "pll_cc": "PLL_CC",
    "squared_of_true_counts": "$(1-q_S)^2$",
}
COLORS = {"cc_squared": "#3a0ca3", "squared_of_true_counts": "#000000"}
LINES = {"cc_squared": ":", "squared_of_true_counts": "--"}
SHOWN = 3  # classes of the picture and of the bounds

Row = dict[str, str]
Cell = tuple[int, int, int]  # C, K, bags
Found = dict[str, dict[Cell, list[float]]]


def by_method(rows: Iterable[Row], field: str) -> Found:
    """The values of a field over the seeds."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cell = (int(row["C"]), int(row["K"]), int(row["bags"]))
        found[row["method"]][cell].append(float(row[field]))
    return found


def name(method: str) -> str:
    return TITLES.get(method) or title(method)


def slope(cells: dict[Cell, list[float]], C: int, K: int) -> float:
    """Of the mean log L1 distance by the log of the number of bags."""
    points = [(math.log(n), np.log(v).mean()) for (c, k, n), v in cells.items() if (c, k) == (C, K)]
    return float(np.polyfit(*zip(*points, strict=True), 1)[0])


def of_cases(found: Found, cell: Callable[[str, int, int], str]) -> str:
    """A table of methods by C and K."""
    cases = sorted({(C, K) for cells in found.values() for C, K, _ in cells})
    heads = ["", *(f"C = {C}, K = {K}" for C, K in cases)]
    methods = [method for method in found if method != "cc_approx_then_rc_approx"]
    largest = max(n for _, _, n in found["supervised"])
    return table(
        heads,
        (
            [name(m), *(cell(m, C, K) if (C, K, largest) in found[m] else "-" for C, K in cases)]
            for m in methods
        ),
    )


def efficiency_and_floor(rows: Sequence[Row]) -> Iterator[str]:
    """Slopes, distances and efficiency."""

    def efficiency(method: str, C: int, K: int) -> str:
        cell = (C, K, largest)
        percent = 100 * mean(squared["supervised"][cell]) / mean(squared[method][cell])
        return f"{percent:.{1 if percent < 10 else 0}f}"

    l1, squared = by_method(rows, "l1"), by_method(rows, "squared")
    largest = max(n for _, _, n in l1["supervised"])
    yield "## Slope of the log mean L1 distance by the log of the number of bags\n"
    yield of_cases(l1, lambda m, C, K: f"{slope(l1[m], C, K):.2f}")
    yield f"## Mean L1 distance at {largest:,} bags\n"
    yield of_cases(l1, lambda m, C, K: f"{mean(l1[m][C, K, largest]):.3f}")
    yield (
        f"## Efficiency at {largest:,} bags: mean squared distance of supervised learning over "
        "that of the method, percent\n"
    )
    yield of_cases(squared, efficiency)
    failed = [(name(r["method"]), *(r[f] for f in ("C", "K", "bags", "seed"))) for r in rows
              if r["settled"] != "True"]  # fmt: skip
    for one, other in SAME:
        most = max(
            abs(v - w) for c in l1[one] for v, w in zip(l1[one][c], l1[other][c], strict=True)
        )
        yield f"L1 distances of {name(one)} and of {name(other)} differ by up to {most:.1e}.\n"
    yield f"{len(rows) - len(failed)} of {len(rows)} fits settled.\n"
    if failed:
        yield table(("did not settle", "C", "K", "bags", "seed"), failed)


def bounds(rows: Sequence[Row], norms: dict[tuple[int, int], float]) -> Iterator[str]:
    """What the theorems allow, beside what happens, for the class of twice the truth's norm.

    With |w_y| <= B and |x| <= R, the Rademacher complexity of a class's logits is at most
    B sqrt(E|x|^2 / n). Cross-entropy is sqrt(2)-Lipschitz in the logits of an instance and at most
    M = log(1 + (C - 1) exp(2 B R)); -log P(S|X) at most K M. The risks are the largest of the
    seeds.
    """
    yield f"## The theorems' bounds and the excess risk, C = {SHOWN}, delta = {DELTA:g}\n"
    of_rc, of_cc = by_method(rows, "excess")["rc"], by_method(rows, "bag_excess")["cc"]
    B = 2 * max(norm for (C, _), norm in norms.items() if C == SHOWN)
    M = math.log(1 + (SHOWN - 1) * math.exp(2 * B * (3 * D + 1) ** 0.5))
    lines = []
    for K, n in sorted((K, n) for C, K, n in of_rc if C == SHOWN):
        complexity = 8 * SHOWN * B * ((D + 1) / n) ** 0.5
        chance = 2 * M * (math.log(2 / DELTA) / (2 * n)) ** 0.5
        cell = (SHOWN, K, n)
        lines.append(
            (
                *(K, f"{n:,}"),
                *(f"{complexity + chance:.1f}", f"{max(of_rc[cell]):.5f}"),
                *(f"{complexity + K * chance:.1f}", f"{max(of_cc[cell]):.5f}"),
            )
        )
    heads = ("K", "bags", "bound, RC", "excess risk, RC", "bound, CC", "excess risk of a bag, CC")
    yield table(heads, lines)


def proved() -> Iterator[str]:
    """Of how many bags `auto` proves its answer, by K and how sure the classifier is."""
    yield f"## Proved bags, of {BAGS} with ten classes, by `Posterior.bound`\n"
    lines = []
    for spread, K in itertools.product((5.0, 10.0, 20.0, 40.0), (16, 32, 64, 128)):
        rng = np.random.default_rng(K)
        logits = spread * rng.normal(size=(BAGS * K, 10))
        log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        labels = (log_p + rng.gumbel(size=log_p.shape)).argmax(axis=1)
        counts = np.stack([np.bincount(of, minlength=10) for of in labels.reshape(BAGS, K)])
        cells = []
        for most in (2**16, 2**20):
            bound = bag_posterior(log_p, Bags([K] * BAGS, counts), max_states=most).bound
            some = bound[np.isfinite(bound)]
            cells += [f"{100 * len(some) / BAGS:.0f}", f"{some.max():.0e}" if len(some) else "-"]
        lines.append((f"{np.exp(log_p).max(axis=1).mean():.2f}", K, *cells))
    heads = ("mean largest probability", "K", "proved, %", "largest bound")
    yield table((*heads, "proved with 2^20 states, %", "largest bound"), lines)


def switching(rows: Sequence[Row]) -> Iterator[str]:
    """Test accuracy of the methods that switch, beside those that they are made of."""
    yield "## Methods that switch, test accuracy in percent\n"
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        case = (row["dataset"], row["model"])
        found[case][f"{row['K']} {row['method']}"].append(100 * float(row["test_accuracy"]))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for (dataset, model), cells in found.items():
        for K in dict.fromkeys(key.split()[0] for key in cells):
            values = [cells[f"{K} {m}"] for m in methods]
            lines.append(
                [dataset, model, K]
                + [
                    f"{mean(v):.1f}" + (f" ± {stdev(v):.1f}" if len(v) > 1 else "") if v else "-"
                    for v in values
                ]
            )
    yield table(("data", "model", "K", *map(title, methods)), lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel for each bag size, each line with its name."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = by_method(rows, "l1")
    sizes = sorted({K for C, K, _ in found["cc"] if C == SHOWN})
    figure, panels = plt.subplots(
        1, len(sizes), figsize=(13, 4.6), sharey=True, layout="constrained"
    )
    for K, axes in zip(sizes, panels, strict=True):
        ends = {}
        for method in DRAWN:
            points = sorted(
                (n, mean(v)) for (C, k, n), v in found[method].items() if (C, k) == (SHOWN, K)
            )
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, **style(method))
            ends[method] = points[-1]
        beside(axes, ends)
        ticks = [n for n, _ in points]
        axes.set(xscale="log", yscale="log", title=f"bags of {K}, {SHOWN} classes")
        axes.set_xlim(ticks[0] / 1.3, ticks[-1] * 9)
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axes.minorticks_off()
        axes.set_yticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
        axes.grid(color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("mean L1 distance from the true P(y|x)")
    figure.supxlabel("bags", fontsize="medium")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def style(method: str) -> dict[str, Any]:
    line = LINES.get(method) or look(method).line
    return {"color": COLORS.get(method) or color(method), "linestyle": line}


def beside(axes: Any, ends: dict[str, tuple[int, float]]) -> None:
    """Names at the ends of lines, moved apart."""
    order = sorted(ends, key=lambda method: ends[method][1])
    places = np.log([ends[method][1] for method in order])
    for _ in range(200):
        short = (GAP - np.diff(places)).clip(min=0) / 2
        places[:-1] -= short
        places[1:] += short
    for method, place in zip(order, places, strict=True):
        n, y = ends[method]
        axes.annotate(
            DRAWN[method],
            (n, y),
            (n * 1.35, math.exp(place)),
            fontsize=8,
            va="center",
            color=style(method)["color"],
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": "#aaaaaa"},
        )


def write_page(folder: Path, norms: dict[tuple[int, int], float]) -> None:
    """table.md and theory.png."""
    with (folder / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    parts = [*efficiency_and_floor(rows), *bounds(rows, norms), *proved()]
    if (folder / "switching.csv").exists():
        with (folder / "switching.csv").open() as file:
            parts += switching(list(csv.DictReader(file)))
    (folder / "table.md").write_text("\n".join(parts))
    draw(rows, folder / "theory.png")
