"""Results in the paper's layout: methods by bag size, with significance tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_rel

from bagwise.methods import METHODS
from bagwise.paper.appearance import is_baseline, look, title
from bagwise.paper.published import published
from bagwise.paper.run import RunResult, without_copies
from bagwise.paper.variants import row_names
from bagwise.training import Row
from bagwise.training.best import best_score

LEVEL = 0.05


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
        return sorted({K for (_, K), cell in self.cells.items() if in_bags(cell.method)})

    @property
    def rows(self) -> list[str]:
        """All rows: supervised learning, then the methods in the paper's order, then a user's."""
        places = {method: place for place, method in enumerate(METHODS)}
        found = {row: cell.method for (row, _), cell in self.cells.items()}
        return sorted(found, key=lambda row: (places.get(found[row], len(places)), row))

    @property
    def methods(self) -> list[str]:
        """The rows, supervised learning excepted."""
        return [row for row in self.rows if in_bags(self.method_of(row))]

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

    @property
    def supervised(self) -> float | None:
        """The mean with true labels, to which gaps are measured; the best row if there are some."""
        found = [cell.mean for cell in self.cells.values() if not in_bags(cell.method)]
        return max(found) if found else None

    @property
    def paper_supervised(self) -> float | None:
        """The paper's mean with true labels."""
        known = published(self.dataset, self.model, "supervised", 1)
        return known.mean if known else None

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


def in_bags(method: str) -> bool:
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
