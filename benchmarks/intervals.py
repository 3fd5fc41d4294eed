"""How often 95% intervals hold the truth, on generated bags with known coefficients.

Four features, standard normal; in natural bags a quarter of their variance is between bags. Labels
follow a linear model. Intervals are those of `fit_for_intervals`: of the weights, and of the shares
of the classes in three groups of 300 new rows, which the true model knows. For bags up to 20 the
ridge is chosen by `choose_ridge`, and there are also intervals by the bootstrap, and those that the
fit with the chosen ridge itself would have; larger bags, which take longer, begin at a ridge of 1,
as do bags with an effect of their own, of standard deviation tau.

python benchmarks/intervals.py                    # 100 sets a row: half an hour
python benchmarks/intervals.py --sets 14          # 238 sets in all: five minutes
python benchmarks/intervals.py --rows 1,7,15      # some of the rows

`--effects` is about models with bag effects instead, as `bagwise estimate` uses them: intervals of
the shares of the classes among the very rows. Groups are made by a feature, or are bags; their rows
are new ones of the bags that were fitted to, ten of each, or of as many new bags, or those of the
fit itself.

python benchmarks/intervals.py --effects          # 100 sets a row: ten minutes
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from scipy.special import softmax

from bagwise import Bags
from bagwise.likelihood import (
    LinearFit,
    bootstrap_bags,
    choose_ridge,
    covariance,
    effects_of_fit,
    fit_for_intervals,
    fit_linear,
    fit_with_variance,
    group_shares_with_effects,
)

Floats = npt.NDArray[np.float64]
Groups = npt.NDArray[np.int64]
FEATURES = 4
SMALL = 20  # bags for which everything is tried


@dataclass(frozen=True)
class Setting:
    """C classes, B bags of K instances; strength of the coefficients, spread of bag effects."""

    C: int
    K: int
    B: int
    natural: bool = True
    strength: float = 0.7
    tau: float = 0.0


SETTINGS = (
    Setting(2, 5, 100),
    Setting(2, 5, 40),
    Setting(2, 20, 100),
    Setting(2, 20, 40),
    Setting(2, 20, 100, natural=False),
    Setting(2, 20, 40, strength=0.2),
    Setting(2, 100, 40),
    Setting(2, 500, 40),
    Setting(3, 5, 100),
    Setting(3, 20, 60),
    Setting(3, 20, 60, natural=False),
    Setting(3, 100, 40),
    Setting(2, 20, 100, tau=0.7),
    Setting(3, 20, 60, tau=0.7),
    Setting(3, 500, 40),
    Setting(2, 200, 100, natural=False),
    Setting(3, 100, 100, natural=False),
)


WITH_EFFECTS = (
    Setting(2, 20, 100, tau=0.7),
    Setting(2, 20, 40, tau=0.7),
    Setting(2, 100, 40, tau=0.7),
    Setting(3, 20, 60, tau=0.7),
    Setting(3, 100, 40, tau=0.7),
)
NEW = 10  # new rows of each bag


def truth(setting: Setting) -> LinearFit:
    """The true model, the same for all sets."""
    rng = np.random.default_rng(setting.C)
    W = setting.strength * rng.normal(size=(FEATURES, setting.C))
    return LinearFit(
        weights=W - W.mean(axis=1, keepdims=True),
        intercept=np.linspace(-0.5, 0.5, setting.C),
        ridge=0.0,
        bag_effects=setting.tau,
        effects=None,
        log_likelihood=np.nan,
        evaluations=0,
        converged=True,
        message="true",
    )


def generated(setting: Setting, seed: int) -> tuple[Floats, Bags]:
    X, labels = Drawn(setting, seed).rows(np.arange(setting.B), setting.K)
    return X, Bags.from_labels(labels, [setting.K] * setting.B, n_classes=setting.C)


class Drawn:
    """Twice as many bags as are fitted to, and rows of them."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.rng = setting, np.random.default_rng(seed)
        self.between = 0.5 if setting.natural else 0.0
        self.centres = self.between * self.rng.normal(size=(2 * setting.B, FEATURES))
        self.effects = setting.tau * self.rng.normal(size=(2 * setting.B, setting.C))

    def rows(self, bags: Groups, n: int) -> tuple[Floats, Groups]:
        """Features and labels of n rows of each of these bags."""
        bag = np.repeat(bags, n)
        within = self.rng.normal(size=(len(bag), FEATURES))
        X = self.centres[bag] + np.sqrt(1 - self.between**2) * within
        p = softmax(truth(self.setting).logits(X) + self.effects[bag], axis=1)
        labels = (p.cumsum(axis=1) < self.rng.random((len(X), 1))).sum(axis=1)
        return X, labels


def shares_of(fit: LinearFit, X: Floats, groups: Groups) -> Floats:
    p = fit.probabilities(X)
    return np.stack([p[groups == g].mean(axis=0) for g in range(3)])


def bootstrap_errors(
    fit: LinearFit, X: Floats, bags: Bags, new: Floats, groups: Groups, draws: int
) -> tuple[Floats, Floats]:
    drawn = list(bootstrap_bags(X, bags, fit, draws))
    weights = np.std([d.weights for d in drawn], axis=0, ddof=1)
    shares = [shares_of(d, new, groups) for d in drawn]
    return weights, np.std(shares, axis=0, ddof=1)


def one_set(setting: Setting, seed: int, draws: int) -> list[float]:
    """Shares of intervals that hold the truth: weights and group shares, by each way."""
    X, bags = generated(setting, seed)
    true = truth(setting)
    new = np.random.default_rng(1).normal(size=(300, FEATURES))
    groups = np.digitize(new[:, 0], [-0.5, 0.5])
    true_shares = shares_of(true, new, groups)

    def held(fit: LinearFit, weights: Floats, shares: Floats, quantile: float) -> list[float]:
        found = shares_of(fit, new, groups)
        return [
            float((np.abs(fit.weights - true.weights) <= quantile * weights).mean()),
            float((np.abs(found - true_shares) <= quantile * shares).mean()),
        ]

    def sandwich(fit: LinearFit) -> list[float]:
        found = covariance(X, bags, fit)
        errors = found.group_shares(new, groups)[1]
        return held(fit, found.standard_errors()[0], errors, found.quantile())

    if setting.K > SMALL or setting.tau > 0:
        first = fit_with_variance(X, bags) if setting.tau > 0 else fit_linear(X, bags)
        fit = fit_for_intervals(X, bags, first)
        return sandwich(fit) + [np.nan] * 4
    chosen = choose_ridge(X, bags).fit
    fit = fit_for_intervals(X, bags, chosen)
    if draws < 2:
        return sandwich(fit) + [np.nan] * 2 + sandwich(chosen)
    errors = bootstrap_errors(fit, X, bags, new, groups, draws)
    quantile = covariance(X, bags, fit).quantile()
    return sandwich(fit) + held(fit, *errors, quantile) + sandwich(chosen)


def one_set_with_effects(setting: Setting, seed: int) -> list[float]:
    """Shares of intervals that hold the shares of the very rows, by each kind of rows."""
    drawn, B = Drawn(setting, seed), setting.B
    X, labels = drawn.rows(np.arange(B), setting.K)
    bags = Bags.from_labels(labels, [setting.K] * B, n_classes=setting.C)
    fit = fit_for_intervals(X, bags, fit_with_variance(X, bags))
    sure, effects = covariance(X, bags, fit), effects_of_fit(X, bags, fit)
    held = []
    kinds = [(np.arange(B), *drawn.rows(np.arange(first, first + B), NEW)) for first in (0, B)]
    for place, (bag, x, y) in enumerate([*kinds, (np.arange(B), X, labels)]):
        of_row = np.repeat(bag + (B if place == 1 else 0), len(x) // B)
        for groups in (np.digitize(x[:, 0], [-0.5, 0.5]), of_row - of_row.min()):
            G = int(groups.max()) + 1
            found, errors, _ = group_shares_with_effects(sure, effects, x, of_row, groups, G)
            true = np.zeros((G, setting.C))
            np.add.at(true, (groups, y), 1 / np.bincount(groups)[groups])
            inside = np.abs(found - true) <= sure.quantile() * errors + 1e-9
            held.append(float(inside.mean()))
    return held


def main_with_effects(sets: int) -> None:
    print("95% intervals that hold the shares of the very rows, in %: groups by feature / bags\n")
    names = ["C", "K", "B", "tau", "new rows", "rows of new bags", "rows of the fit"]
    _print(names)
    _print(["---"] * len(names))
    every: list[list[float]] = []
    for setting in WITH_EFFECTS:
        seeds = track(range(sets), description="sets", transient=True, console=Console(stderr=True))
        own = [one_set_with_effects(setting, seed) for seed in seeds]
        facts = (setting.C, setting.K, setting.B, setting.tau)
        _print([*map(str, facts), *_shown(np.array(own))])
        every += own
    _print([f"all {len(every):,} sets", *[""] * 3, *_shown(np.array(every))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100, help="generated data sets a row")
    parser.add_argument("--draws", type=int, default=50, help="draws of the bootstrap; 0 for none")
    parser.add_argument("--rows", help="numbers of the rows, with commas between; all if not given")
    parser.add_argument("--effects", action="store_true", help="of models with bag effects")
    options = parser.parse_args()
    if options.effects:
        main_with_effects(options.sets)
        return
    rows = [int(number) for number in (options.rows or "").split(",") if number]
    settings = [SETTINGS[number - 1] for number in rows] if rows else list(SETTINGS)

    print("95% intervals that hold the truth, in %: weights / shares\n")
    names = ["C", "K", "B", "bags", "size", "tau", "sandwich", "bootstrap", "chosen ridge"]
    _print(names)
    _print(["---"] * len(names))
    held: list[list[float]] = []
    bar = Console(stderr=True)
    for setting in settings:
        facts = [setting.C, setting.K, setting.B, "natural" if setting.natural else "random"]
        facts += [f"{setting.strength:g}", f"{setting.tau:g}"]
        seeds = track(range(options.sets), description="sets", transient=True, console=bar)
        own = [one_set(setting, seed, options.draws) for seed in seeds]
        _print([*map(str, facts), *_shown(np.array(own))])
        held += own
    _print([f"all {len(held):,} sets", *[""] * 5, *_shown(np.array(held))])


def _print(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def _shown(held: Floats) -> list[str]:
    """The mean over sets of each pair, of those sets that have it."""
    pairs = held.reshape(len(held), 3, 2)
    return [
        "-" if np.isnan(pair).all() else "{:.1f} / {:.1f}".format(*100 * np.nanmean(pair, axis=0))
        for pair in pairs.transpose(1, 0, 2)
    ]


if __name__ == "__main__":
    main()
