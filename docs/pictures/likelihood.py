"""The pictures of docs/understand/likelihood.md: what counts say, and how engines compute it.

python docs/pictures/likelihood.py writes each picture beside it, for light and for dark pages.
"""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bagwise import Bags, DiscreteLaplace, bag_posterior

HERE = Path(__file__).parent
BLUE, ORANGE, GREEN, QUIET, LINE = "#0072b2", "#d55e00", "#009e73", "#6b7680", "#d5dadf"
PEOPLE = (23, 35, 44, 52, 61, 70)
CHANCE = np.array([0.10, 0.15, 0.30, 0.40, 0.60, 0.70])  # of yes, by the model alone


def what_a_count_says() -> Figure:
    """A row's probability by the model alone, and given how many rows of its bag said yes."""
    log_probs = np.log(np.stack([1 - CHANCE, CHANCE], axis=1))
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True)
    for ax, count in zip(axes, (1, 2, 4), strict=True):
        given = bag_posterior(log_probs, Bags([6], [[6 - count, count]])).weights[:, 1]
        places = np.arange(6)
        ax.hlines(places, CHANCE, given, color=LINE, linewidth=3)
        ax.plot(CHANCE, places, "o", color=QUIET, markersize=6)
        ax.plot(given, places, "o", color=BLUE, markersize=8)
        ax.set_yticks(places, [f"age {age}" for age in PEOPLE])
        ax.set_xlim(-0.03, 1.03)
        ax.set_ylim(-0.6, 6.1)
        ax.set_xticks([0, 0.5, 1])
        ax.xaxis.set_major_formatter("{x:.0%}")
        ax.set_title(f"{count} of 6 said yes")
    near = {"textcoords": "offset points", "va": "center"}
    axes[2].annotate("model alone", (CHANCE[5], 5), (-9, 0), color=QUIET, ha="right", **near)
    axes[2].annotate("given the count", (given[0], 0), (9, 0), color=BLUE, **near)
    figure.supxlabel("probability of yes", fontsize=11, color=QUIET)
    return figure


def lattice() -> Figure:
    """The lattice of the exact engine: rows from left to right, yes so far upwards."""
    K, n = 6, 2
    figure, ax = plt.subplots(figsize=(8, 3.4))
    for k in range(K):
        for m in range(k + 1):
            for step in (0, 1):
                alive = m + step <= n and n - (m + step) <= K - k - 1 and m <= n
                ax.plot(
                    [k, k + 1],
                    [m, m + step],
                    color=BLUE if alive and n - m <= K - k else LINE,
                    linewidth=1.8 if alive and n - m <= K - k else 0.8,
                    zorder=2 if alive else 1,
                )
    for k in range(K + 1):
        for m in range(k + 1):
            alive = m <= n and n - m <= K - k
            ax.plot(k, m, "o", color=BLUE if alive else LINE, markersize=7, zorder=3)
    ax.plot(K, n, "o", color=ORANGE, markersize=12, zorder=4)
    near = {"textcoords": "offset points", "va": "center"}
    ax.annotate("2 yes of 6: the count", (K, n), (14, 0), color=ORANGE, **near)
    ax.annotate("begin", (0, 0), (-14, 0), color=QUIET, ha="right", **near)
    paths = len(list(combinations(range(K), n)))
    ax.annotate(f"{paths} paths lead there", (1.45, 3.3), (0, 0), color=BLUE, ha="right", **near)
    ax.set_xlim(-0.9, 8.3)
    ax.set_ylim(-0.5, 6.3)
    ax.set_xticks(range(1, K + 1), [f"row {k}" for k in range(1, K + 1)])
    ax.set_yticks(range(5))
    ax.set_ylabel("yes so far")
    ax.grid(visible=False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_title("Each path is a labeling: a step up is a yes")
    return figure


def distances(C: int = 5, bags: int = 12, s: float = 2.0) -> dict[str, dict[int, float]]:
    """Mean L1 distance of weights from the exact ones, by engine and size of the bag."""
    random = np.random.default_rng(0)
    found: dict[str, dict[int, float]] = {"multinomial": {}, "transport": {}, "bethe": {}}
    for K in (4, 8, 16, 32, 64):
        labels = random.integers(C, size=K * bags)
        logits = s * np.eye(C)[labels] + np.sqrt(s) * random.normal(size=(K * bags, C))
        log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        known = Bags.from_labels(labels, [K] * bags, n_classes=C)
        exact = bag_posterior(log_probs, known, engine="exact").weights
        for engine, of_engine in found.items():
            weights = bag_posterior(log_probs, known, engine=engine).weights
            of_engine[K] = float(np.abs(weights - exact).sum(axis=1).mean())
    return found


def engines() -> Figure:
    """How far approximate engines are from the exact answer."""
    figure, ax = plt.subplots(figsize=(8, 3.8))
    names = {
        "multinomial": (QUIET, "multinomial (the paper's approximation)"),
        "transport": (GREEN, "transport"),
        "bethe": (BLUE, "bethe, which auto uses"),
    }
    for engine, of_engine in distances().items():
        color, name = names[engine]
        sizes, values = list(of_engine), list(of_engine.values())
        ax.plot(sizes, values, "o-", color=color, markersize=5)
        end = (sizes[-1], values[-1])
        ax.annotate(name, end, (10, -4), color=color, textcoords="offset points")
        print(engine, {K: round(value, 4) for K, value in of_engine.items()})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(3.6, 620)
    ax.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
    ax.set_yticks([0.001, 0.01, 0.1], ["0.001", "0.01", "0.1"])
    ax.minorticks_off()
    ax.grid(visible=True, axis="y")
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("rows in a bag")
    ax.set_title("Distance of a row's probabilities from the exact ones")
    return figure


def what_is_known() -> Figure:
    """The potentials of a count: how likely each true count is, given what was published."""
    m = np.arange(11)
    noise = DiscreteLaplace(1.5)
    kinds = (
        ("exactly 3", np.where(m == 3, 1.0, 0.0)),
        ("3, with noise", np.exp(-np.abs(m - 3) / noise.width)),
        ("“<5”", np.where(m < 5, 1.0, 0.0)),
        ("20% of 28, to tens", np.where(np.round(m / 28, 1) == 0.2, 1.0, 0.0)),
        ("hidden", np.ones(11)),
    )
    figure, axes = plt.subplots(1, 5, figsize=(9, 2.3), sharey=True)
    for ax, (title, values) in zip(axes, kinds, strict=True):
        bars(ax, m, values)
        ax.set_title(title, fontsize=10)
    figure.supxlabel("the true count", fontsize=11, color=QUIET)
    return figure


def bars(ax: Axes, m: np.ndarray, values: np.ndarray) -> None:
    """Bars without an axis for their heights, which have no unit."""
    ax.bar(m, values, color=BLUE, width=0.75)
    ax.set_yticks([])
    ax.set_xticks([0, 5, 10])
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)


PICTURES = {
    "what-a-count-says": what_a_count_says,
    "lattice": lattice,
    "engines": engines,
    "what-is-known": what_is_known,
}


def main() -> None:
    """Write all pictures."""
    sys.path.insert(0, str(HERE.parent / "_ext"))
    from gallery_pictures import STYLE, darken

    with mpl.rc_context():
        plt.style.use(STYLE)
        for name, draw in PICTURES.items():
            figure = draw()
            for mode in ("light", "dark"):
                if mode == "dark":
                    darken(figure)
                figure.savefig(
                    HERE / f"{name}-{mode}.png",
                    dpi=140,
                    facecolor=figure.get_facecolor(),
                    metadata={"Software": None},
                )
            plt.close(figure)


if __name__ == "__main__":
    main()
