"""Coverage of the 95% intervals of `bagwise.fit`, for counts of every kind, on generated tables.

Four columns, standard normal, a quarter of their variance between bags; labels follow a linear
model. Counts are exact, noisy, rounded, in ranges, partly hidden, or those of larger groups. Then
`effects()` should hold the true coefficients, and `estimate` the shares of labels in three groups
of rows: of new rows, and of the counted rows themselves, given their counts.

python benchmarks/table_intervals.py              # 40 tables a line: a quarter of an hour
python benchmarks/table_intervals.py --sets 5
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from scipy.special import softmax

import bagwise
from common import table

COLUMNS = ["a", "b", "c", "d"]
SLOPES = np.array([0.9, -0.6, 0.4, 0.0])
KINDS = ("exact", "laplace", "gaussian", "ranges", "rounded", "hidden", "sample")


class Setting(NamedTuple):
    """C classes, B bags of K rows, and what is known of their counts."""

    kind: str
    C: int = 2
    K: int = 20
    B: int = 60


def drawn(setting: Setting, rng: np.random.Generator, size: int) -> pd.DataFrame:
    """Rows of new bags of a size, with labels."""
    bag = np.repeat(np.arange(setting.B), size)
    X = 0.5 * rng.normal(size=(setting.B, 4))[bag] + np.sqrt(0.75) * rng.normal(size=(len(bag), 4))
    logits = np.outer(X @ SLOPES, np.linspace(0, 1.5, setting.C)) - np.linspace(0, 0.3, setting.C)
    p = softmax(logits, axis=1)
    y = (p.cumsum(axis=1) < rng.random((len(bag), 1))).sum(axis=1)
    third = np.digitize(X[:, 0], [-0.4, 0.4]).astype(str)
    return pd.DataFrame(X, columns=COLUMNS).assign(bag=bag, group="g" + pd.Series(third), y=y)


def labels_of(rows: pd.DataFrame, setting: Setting, rng: np.random.Generator) -> tuple[Any, Any]:
    """The label file, and what its numbers are."""
    names = [f"class {c}" for c in range(setting.C)]
    counts = pd.crosstab(rows.bag, rows.y).reindex(columns=range(setting.C), fill_value=0)
    counts.columns = names
    if setting.kind == "laplace":
        return (counts + rng.laplace(scale=2, size=counts.shape)).reset_index(), bagwise.Laplace(2)
    if setting.kind == "gaussian":
        noisy = counts + rng.normal(scale=2, size=counts.shape)
        return noisy.reset_index(), bagwise.Gaussian(2)
    if setting.kind == "ranges":
        low = counts // 4 * 4
        given = pd.concat([low.add_suffix("_low"), (low + 3).add_suffix("_high")], axis=1)
        return given.reset_index(), "ranges"
    if setting.kind == "rounded":
        return (counts.div(counts.sum(axis=1), axis=0)).round(1).reset_index(), bagwise.Rounded(1)
    if setting.kind == "hidden":
        hidden = rng.random((len(counts), 1)) < 0.4 * (
            np.arange(setting.C) > 0
        )  # all but the first
        return counts.mask(hidden).reset_index(), "counts"
    return counts.reset_index(), "sample" if setting.kind == "sample" else "counts"


def held(setting: Setting, seed: int) -> list[list[float]]:
    """Coverage and mean width of intervals: effects, shares of new rows, shares of counted rows."""
    rng = np.random.default_rng([seed, setting.C, setting.K])
    size = 5 * setting.K if setting.kind == "sample" else setting.K
    everyone = drawn(setting, rng, size)
    labels, are = labels_of(everyone, setting, rng)
    rows = everyone.groupby("bag").sample(setting.K, random_state=seed).reset_index(drop=True)
    new = drawn(setting, rng, 5)
    model = bagwise.fit(
        rows.drop(columns=["y", "group"]), bag="bag", labels=labels, labels_are=are, model="linear"
    )
    effects = model.effects()
    step = np.linspace(0, 1.5, setting.C)
    slopes = dict(zip(model.classes, step if setting.C == 2 else step - step.mean(), strict=True))
    spread = dict(zip(COLUMNS, rows[COLUMNS].std(ddof=0), strict=True))
    true = [
        SLOPES[COLUMNS.index(e.column)] * spread[e.column] * slopes.get(e._asdict()["class_"], 1.5)
        for e in effects.rename(columns={"class": "class_"}).itertuples()
    ]
    found = [(effects.low.to_numpy(), np.array(true), effects.high.to_numpy())]
    for table_, more in ((new, {}), (rows, {"labels": labels, "labels_are": are})):
        answer = model.estimate(table_.drop(columns="y"), by="group", **more)
        place = {label: c for c, label in enumerate(model.classes)}
        of = table_.groupby("group").y
        truth = [
            (of.get_group(g) == place[c]).mean()
            for g, c in zip(answer.group, answer["class"], strict=True)
        ]
        found.append((answer.low.to_numpy(), np.array(truth), answer.high.to_numpy()))
    inside = [float(((lo - 1e-9 <= t) & (t <= hi + 1e-9)).mean()) for lo, t, hi in found]
    return [inside, [float((hi - lo).mean()) for lo, _, hi in found]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=40, help="generated tables a line")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    settings = [Setting(kind, 3 if kind == "hidden" else 2) for kind in KINDS] + [
        Setting("exact", 3),
        Setting("laplace", 3),
        Setting("exact", K=100, B=30),
        Setting("exact", K=50, B=8),
    ]
    lines, every = [], []
    for setting in settings:
        seeds = track(range(options.sets), setting.kind, console=Console(stderr=True))
        means = np.mean([held(setting, seed) for seed in seeds], axis=0)
        every.append(means)
        lines.append((*setting, *_shown(means)))
    lines.append(
        (f"all {options.sets * len(settings)} tables", "", "", "", *_shown(np.mean(every, axis=0)))
    )
    columns = ("counts", "C", "K", "B", "effects", "new rows", "counted rows")
    print(table(columns, lines))


def _shown(means: np.ndarray) -> list[str]:
    return [f"{100 * inside:.1f} ({width:.3f})" for inside, width in means.T]


if __name__ == "__main__":
    main()
