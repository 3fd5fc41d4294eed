"""One privacy budget for all counts: is it best spent on one grouping, two or four.

    python benchmarks/privacy.py FOLDER

Digits, 1,408 rows in bags of K, in G random groupings whose noisy counts share the budget. A linear
model is fitted to the composite likelihood, and once more to the joint likelihood; accuracy is that
on the other 389 rows. Each line of FOLDER/runs.csv is one run; runs that are there already are not
done again. At the end the table and the picture are made of what there is.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import warnings
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from sklearn.datasets import load_digits

from bagwise import Bags, Groupings, PrivacyBudget
from bagwise.bags import Noise
from bagwise.likelihood import LinearFit, fit_joint, fit_linear
from common import COLORS, MARKERS

KEY = ("noise", "epsilon", "bag_size", "groupings", "seed")
FIELDS = (*KEY, "composite", "joint")
NOISES = {"laplace": "discrete Laplace", "gaussian": "Gaussian"}
EPSILONS = ("1", "2", "4", "8")
SIZES, GROUPINGS, SEEDS = ("16", "64", "128"), ("1", "2", "4"), ("0", "1", "2")
DELTA = 1e-5
TRAINED = 1408
RIDGE = 5.0  # the same belief about coefficients, whatever was published
FIRST_RIDGES = (30.0, 10.0)  # with few bags, a fit from zero often ends in a poor local maximum
PANELS = (*(("laplace", K) for K in SIZES), ("gaussian", "64"))


def runs() -> list[tuple[str, ...]]:
    """Discrete Laplace noise, Gaussian noise in bags of 64, and counts without noise."""
    laplace = [
        ("laplace", epsilon, K, G, seed)
        for seed, K, epsilon, G in itertools.product(SEEDS, SIZES, EPSILONS, GROUPINGS)
    ]
    exact = [("none", "", K, G, seed) for seed, K, G in itertools.product(SEEDS, SIZES, GROUPINGS)]
    gaussian = [
        ("gaussian", epsilon, K, G, seed) for _, epsilon, K, G, seed in laplace if K == "64"
    ]
    return laplace + gaussian + exact


def published(
    labels: np.ndarray, K: int, G: int, noise: Noise | None, rng: np.random.Generator
) -> Groupings:
    """Random groupings with the counts of labels, as they are published."""
    found = {}
    for g in range(G):
        of_row = rng.permutation(len(labels)) // K
        sizes, counts = np.bincount(of_row), np.zeros((len(labels) // K, 10))
        np.add.at(counts, (of_row, labels), 1)
        if noise is None:
            bags = Bags(sizes, counts.astype(np.int64))
        else:
            bags = Bags.from_noisy_counts(counts + drawn(noise, counts.shape, rng), sizes, noise)
        found[f"grouping {g}"] = (of_row, bags)
    return Groupings(found)


def drawn(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if not noise.whole:
        return rng.normal(scale=noise.width, size=shape)
    stop = 1 - np.exp(-1 / noise.width)
    return rng.geometric(stop, shape) - rng.geometric(stop, shape)


def measured(noise: str, epsilon: str, bag_size: str, groupings: str, seed: str) -> list[str]:
    """The accuracies of both fits in percent."""
    rng = np.random.default_rng(int(seed))
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(X))
    X, y = X[order], y[order]
    spread = X[:TRAINED].std(axis=0)
    X = (X - X[:TRAINED].mean(axis=0)) / np.where(spread > 0, spread, 1)
    of_budget = None
    if noise != "none":
        budget = PrivacyBudget(float(epsilon), DELTA, groupings=int(groupings))
        of_budget = budget.discrete_laplace() if noise == "laplace" else budget.gaussian()
    known = published(y[:TRAINED], int(bag_size), int(groupings), of_budget, rng)
    rows, bags = known.stacked()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of fits that are hard to end
        start = None
        for ridge in FIRST_RIDGES:
            start = fit_linear(X[rows], bags, ridge, start=start, tolerance=0.03)
        composite = fit_linear(X[rows], bags, RIDGE, start=start, tolerance=0.03)
        joint = composite
        if len(known) > 1:
            joint = fit_joint(X[:TRAINED], known, RIDGE, start=composite, tolerance=0.03)

    def accuracy(fit: LinearFit) -> str:
        right = (X[TRAINED:] @ fit.weights + fit.intercept).argmax(axis=1) == y[TRAINED:]
        return f"{100 * right.mean():.2f}"

    return [accuracy(composite), accuracy(joint)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.csv"
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open() as file:
        done = {tuple(row[field] for field in KEY) for row in csv.DictReader(file)}
    for run in runs():
        if run not in done:
            found = measured(*run)
            with path.open("a") as file:
                csv.writer(file, lineterminator="\n").writerow([*run, *found])
            print(*run, *found, flush=True)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    write_table(rows, folder / "table.md")
    draw(rows, folder / "split.png")


def accuracies(rows: list[dict[str, str]], fit: str) -> dict[tuple[str, ...], list[float]]:
    """Of the seeds, by the fields of KEY but the seed."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        found[tuple(row[field] for field in KEY[:-1])].append(float(row[fit]))
    return found


def write_table(rows: list[dict[str, str]], path: Path) -> None:
    """Composite / joint accuracy, and the standard deviation of the better over seeds."""
    composite, joint = accuracies(rows, "composite"), accuracies(rows, "joint")
    header = ["noise", "epsilon", "bags of", *(f"G = {G}" for G in GROUPINGS)]
    lines = [f"| {' | '.join(header)} |", "|---" * 3 + "|---:" * len(GROUPINGS) + "|"]
    for key in dict.fromkeys(key[:3] for key in composite):
        means = {G: mean(joint[*key, G]) for G in GROUPINGS if (*key, G) in joint}
        cells = []
        for G in means:
            c, j = composite[*key, G], joint[*key, G]
            text = f"{mean(c):.1f}" + f" / {mean(j):.1f}" * (G != "1")
            text += f" ± {stdev(j):.1f}" if len(j) > 1 else ""
            cells.append(f"**{text}**" if means[G] == max(means.values()) else text)
        name = NOISES.get(key[0], "no noise")
        lines.append(f"| {name} | {key[1] or '-'} | {key[2]} | {' | '.join(cells)} |")
    path.write_text("\n".join(lines) + "\n")


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """A panel for each noise and bag size, a line for each number of groupings."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = accuracies(rows, "joint")
    shown = [panel for panel in PANELS if any((key[0], key[2]) == panel for key in found)]
    figure, panels = plt.subplots(
        2, 2, figsize=(9, 7), layout="constrained", sharex=True, sharey=True
    )
    for (noise, K), axes in zip(shown, panels.flat, strict=False):
        for g, G in enumerate(GROUPINGS):
            points = [
                (float(e), found[noise, e, K, G]) for e in EPSILONS if (noise, e, K, G) in found
            ]
            axes.errorbar(
                [x for x, _ in points],
                [mean(values) for _, values in points],
                [stdev(values) if len(values) > 1 else 0 for _, values in points],
                color=COLORS[g],
                marker=MARKERS[g],
                capsize=3,
                label=f"{G} grouping{'s' * (G != '1')}",
            )
            if exact := found.get(("none", "", K, G)):
                axes.axhline(mean(exact), color=COLORS[g], linestyle=":", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_xticks([float(e) for e in EPSILONS], EPSILONS)
        axes.set_title(f"{NOISES[noise]} noise, bags of {K}", fontsize="medium")
        axes.grid(color="#dddddd")
    panels[0, 0].legend(fontsize="small", loc="lower right")
    figure.supxlabel("epsilon of all groupings together (dotted: without noise)")
    figure.supylabel("test accuracy (%)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
