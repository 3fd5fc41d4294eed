"""What Bagwise does, in one picture: digits in bags, their counts, and the labels that follow.

python docs/pictures/first_look.py writes first-look-light.png and first-look-dark.png beside it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import BagLogisticRegression, Bags, most_probable_labeling

K, N_TEST, SHOWN = 10, 357, 3  # instances a bag, digits kept for the test, bags in the picture


class Colors(NamedTuple):
    """Of one version of the picture."""

    page: str
    box: str
    text: str
    quiet: str
    label: str
    wrong: str


LIGHT = Colors("#ffffff", "#f0f3f7", "#1b1f24", "#667085", "#0b5fa5", "#c1121f")
DARK = Colors("#0d1117", "#1c222b", "#e6edf3", "#9aa4b2", "#6cb6ff", "#ff7b72")
NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Learned(NamedTuple):
    """What the picture shows: bags of the training set, and how well new digits are recognized."""

    images: np.ndarray  # (bags, K, 8, 8)
    truth: np.ndarray  # (bags, K)
    labels: np.ndarray  # (bags, K), by the model and the counts
    counted: float  # share of all counted digits that are labeled right
    new: float  # share of new digits that are classified right
    supervised: float  # the same by a model that has seen every label
    n_labels: int  # how many it has seen


def learn() -> Learned:
    """Fit the digits' counts, in bags of K at random, and label them."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = order[:N_TEST], order[N_TEST:]
    n_bags = len(train) // K
    bag_of_row = np.repeat(np.arange(n_bags), K)
    counts = np.stack([np.bincount(y[rows], minlength=10) for rows in train.reshape(n_bags, K)])

    model = BagLogisticRegression(random_state=0).fit(X[train], bag_of_row, counts)
    bags = Bags(np.full(n_bags, K), counts)
    labels = most_probable_labeling(model.predict_log_proba(X[train]), bags)
    supervised = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    supervised.fit(X[train], y[train])
    return Learned(
        X[train].reshape(n_bags, K, 8, 8)[:SHOWN],
        y[train].reshape(n_bags, K)[:SHOWN],
        labels.reshape(n_bags, K)[:SHOWN],
        float((labels == y[train]).mean()),
        float((model.predict(X[test]) == y[test]).mean()),
        float(supervised.score(X[test], y[test])),
        len(train),
    )


def draw(found: Learned, colors: Colors) -> Figure:
    """Bags and counts on the left, the same bags with labels on the right."""
    with mpl.rc_context({"font.family": "DejaVu Sans", "text.color": colors.text}):
        figure = Figure(figsize=(11, 4.1), facecolor=colors.page)
        ax = figure.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, 110), ylim=(0, 41))
        ax.axis("off")
        ax.text(2, 38, "What you have", fontsize=13, weight="bold")
        ax.text(2, 35.3, "bags of rows, and how many carry each label", color=colors.quiet)
        ax.text(63, 38, "What you get", fontsize=13, weight="bold")
        ax.text(63, 35.3, "a label for each row, and a model for new ones", color=colors.quiet)
        for bag in range(SHOWN):
            bottom = 25 - 9.6 * bag
            for left, labels in ((2, None), (63, found.labels[bag])):
                draw_bag(ax, colors, left, bottom, found.images[bag], labels, found.truth[bag])
            ax.text(48.5, bottom + 3.7, in_words(found.truth[bag]), fontsize=8.5, va="center")
        arrow = FancyArrowPatch(
            (58.4, 19), (62.4, 19), arrowstyle="-|>", mutation_scale=18, color=colors.label, lw=2
        )
        ax.add_patch(arrow)
        summary = (
            f"New digits recognized: {found.new:.0%}; with all {found.n_labels:,} labels known: "
            f"{found.supervised:.0%}. Digits in bags labeled right: {found.counted:.1%}."
        )
        ax.text(55, 1.9, summary, ha="center", fontsize=10.5)
    return figure


def draw_bag(
    ax: Axes,
    colors: Colors,
    left: float,
    bottom: float,
    images: np.ndarray,
    labels: np.ndarray | None,
    truth: np.ndarray,
) -> None:
    """A bag's digits in a box, each with its label where there are labels."""
    box = FancyBboxPatch(
        (left, bottom), 44.5, 7.6, boxstyle="round,pad=0,rounding_size=1", fc=colors.box, ec="none"
    )
    ax.add_patch(box)
    for k, image in enumerate(images):
        x = left + 1 + 4.3 * k
        y = bottom + (3.4 if labels is not None else 1.9)
        ax.imshow(
            image,
            cmap=LinearSegmentedColormap.from_list("ink", [colors.box, colors.text]),
            extent=(x, x + 3.8, y, y + 3.8),
            aspect="auto",
            interpolation="bilinear",
            zorder=3,
        )
        if labels is not None:
            right = labels[k] == truth[k]
            ax.text(
                x + 1.9,
                bottom + 1.7,
                str(labels[k]),
                ha="center",
                va="center",
                weight="bold",
                color=colors.label if right else colors.wrong,
            )


def in_words(labels: np.ndarray) -> str:
    """The counts of a bag, two to a line."""
    counts = sorted(Counter(labels.tolist()).items())
    words = [f"{NUMBERS[n]} {label}{'s' if n > 1 else ''}" for label, n in counts]
    return ",\n".join(", ".join(words[i : i + 2]) for i in range(0, len(words), 2))


def main() -> None:
    """Write both versions."""
    found = learn()
    print(f"new {found.new:.4f}, supervised {found.supervised:.4f}, counted {found.counted:.4f}")
    for name, colors in (("light", LIGHT), ("dark", DARK)):
        path = Path(__file__).with_name(f"first-look-{name}.png")
        draw(found, colors).savefig(path, dpi=160, metadata={"Software": None})


if __name__ == "__main__":
    main()
