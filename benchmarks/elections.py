"""Ecological inference on generated elections with known tables: error, CPU time and coverage.

Units have about 300 people. Their shares of groups, and the shares of parties within groups, are
drawn at random. The logits of these shares vary from unit to unit: not at all, those of every group
by themselves, those of all groups of a unit together, or both; or the shares are Dirichlet. Beside
`ecological_table` are two expectation-maximization methods, written here from their formulas:

- multinomial: the votes of the others in a unit are taken to be multinomial with their mean
  probabilities, so that one voter of group g chose party c with q_bgc ~ P_gc votes_bc / r_bgc,
  r_bgc = (sum_h n_bh P_hc - P_gc) / (n_b - 1);
- normal: given that one voter of group g chose party c, the votes of the others are taken to be
  normal with their mean and covariance.

Both repeat P_gc = sum_b n_bg q_bgc / sum_b n_bg until no share moves by more than 0.0001, from the
overall shares. The error is the share of all votes that the table of the election puts into the
wrong cell, in percent; that of units is the same for the tables of units.

    python benchmarks/elections.py [elections]

The last table is about cost: the linear model with one column for each group, of rows with weights
and of the same rows written out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.special import softmax

from bagwise import Bags, ecological_table
from bagwise.likelihood import covariance, fit_linear

CASES = ((100, 2, 2), (100, 4, 4), (300, 3, 5), (100, 6, 8), (1000, 4, 4), (1000, 6, 8))
KINDS = ("none", "by group", "by unit", "both", "Dirichlet")
_VARY = 0.4  # standard deviation of logits


def election(kind: str, B: int, R: int, C: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(B, R) people of groups, and (B, R, C) votes."""
    rng = np.random.default_rng([seed, B, R, C])
    P = rng.dirichlet(np.full(C, 1.5), size=R)
    people = np.maximum(rng.lognormal(np.log(300), 0.5, size=B).astype(int), 20)
    groups = rng.multinomial(people, rng.dirichlet(rng.uniform(1, 6, size=R), size=B))
    if kind == "Dirichlet":
        p = np.stack([rng.dirichlet(19 * own, size=B) for own in P], axis=1)
    else:
        by_group, by_unit = rng.normal(size=(B, R, C)), rng.normal(size=(B, 1, C))
        size = {"none": (0, 0), "by group": (1, 0), "by unit": (0, 1), "both": (0.7, 0.7)}[kind]
        p = softmax(np.log(P) + _VARY * (size[0] * by_group + size[1] * by_unit), axis=-1)
    return groups, rng.multinomial(groups, p)


def repeated(
    groups: np.ndarray, votes: np.ndarray, step: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Shares (R, C), and votes of units (B, R, C), by expectation and maximization."""
    P = np.tile(votes.sum(axis=0) / votes.sum(), (groups.shape[1], 1))
    for _ in range(1000):
        q = step(P)
        new = np.einsum("bg,bgc->gc", groups, q) / groups.sum(axis=0)[:, None]
        moved, P = np.abs(new - P).max(), new
        if moved < 1e-4:
            break
    return P, groups[:, :, None] * q


def multinomial(groups: np.ndarray, votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The others' votes are multinomial."""
    others = (groups.sum(axis=1) - 1)[:, None, None]

    def step(P: np.ndarray) -> np.ndarray:
        q = P * votes[:, None] / np.maximum(((groups @ P)[:, None] - P) / others, 1e-12)
        return q / np.maximum(q.sum(axis=-1, keepdims=True), 1e-300)

    return repeated(groups, votes, step)


def normal(groups: np.ndarray, votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The others' votes are normal."""
    D = votes.shape[1] - 1

    def step(P: np.ndarray) -> np.ndarray:
        own = P[:, :D]
        one = own[:, :, None] * np.eye(D) - own[:, :, None] * own[:, None]
        mean = groups @ own
        spread = (groups @ one.reshape(len(P), -1)).reshape(-1, D, D) + 1e-6 * np.eye(D)
        q = np.empty((*groups.shape, D + 1))
        for g in range(len(P)):
            inverse = np.linalg.inv(spread - one[g])
            off = votes[:, :D] - (mean - own[g])
            turned = (inverse @ off[:, :, None])[:, :, 0]
            # Of party c, (off - e_c)' V^-1 (off - e_c) - off' V^-1 off; of the last one, 0.
            distance = np.diagonal(inverse, axis1=1, axis2=2) - 2 * turned
            distance = np.column_stack([distance, np.zeros(len(off))])
            q[:, g] = softmax(np.log(np.maximum(P[g], 1e-300)) - distance / 2, axis=1)
        return q

    return repeated(groups, votes, step)


def of_bagwise(groups: np.ndarray, votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The table and the units of `ecological_table`."""
    found = ecological_table(groups, votes)
    return found.table, found.units


def error(found: np.ndarray, truth: np.ndarray) -> float:
    """Votes in the wrong cell, in percent."""
    return float(50 * np.abs(found - truth).sum() / truth.sum())


METHODS = {"Bagwise": of_bagwise, "multinomial EM": multinomial, "normal EM": normal}


def row(kind: str, case: tuple[int, int, int], elections: int) -> str:
    """A line of the table: means over elections."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in METHODS}
    held = []
    for seed in range(elections):
        groups, cells = election(kind, *case, seed)
        votes, table = cells.sum(axis=1), cells.sum(axis=0)
        for name, method in METHODS.items():
            start = time.process_time()
            shares, units = method(groups, votes)
            took = time.process_time() - start
            whole = groups.sum(axis=0)[:, None] * shares
            found[name].append((error(whole, table), error(units, cells), took))
        truth = table / table.sum(axis=1, keepdims=True)
        answer = ecological_table(groups, votes)
        held.append(((answer.low <= truth) & (truth <= answer.high)).mean())
    means = [np.mean(own, axis=0) for own in found.values()]
    parts = [" / ".join(f"{mean[i]:.{d}f}" for mean in means) for i, d in ((0, 2), (1, 1), (2, 3))]
    size = ", ".join(f"{n:,}" for n in case)
    return f"| {kind} | {size} | {' | '.join(parts)} | {100 * np.mean(held):.1f}% |"


def cost() -> str:
    """CPU time of the linear model of 43,000 people in 540 cells of unit and group."""
    lines = ["| parties | fit: 540 rows with weights | 43,000 rows written out | share |"]
    lines.append("|---|---|---|---|")
    rng = np.random.default_rng(0)
    B, R = 135, 4
    for C in (2, 3, 8):
        people = rng.multinomial(43_000 - B * R, rng.dirichlet(np.full(B * R, 4.0))) + 1
        groups = people.reshape(B, R)
        votes = rng.multinomial(groups, rng.dirichlet(np.full(C, 1.5), size=R)).sum(axis=1)
        X, bags = np.tile(np.eye(R), (B, 1)), Bags([R] * B, votes, weights=people)
        took = []
        for features, own in ((X, bags), (np.repeat(X, people, axis=0), bags.written_out())):
            covariance(features, own, fit_linear(features, own, tolerance=10.0))  # compiles
            start = time.process_time()
            covariance(features, own, fit_linear(features, own))
            took.append(time.process_time() - start)
        lines.append(f"| {C} | {took[0]:.2f} s | {took[1]:.2f} s | {took[0] / took[1]:.1%} |")
    return "\n".join(lines)


def _times(case: tuple[int, int, int]) -> float:
    """More elections where there are few cells, fewer where there are many units."""
    return 10.0 if case == CASES[0] else 0.25 if case[0] == 1000 else 1.0


def report(elections: int = 40) -> str:
    """The tables of docs/benchmarks/elections.md."""
    names = " / ".join(METHODS)
    lines = [
        f"| units differ | units, groups, parties | error: {names} | of units | CPU s | coverage |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for case in CASES:
            lines.append(row(kind, case, int(elections * _times(case)) or 1))
            print(lines[-1], file=sys.stderr)
    return "\n".join([*lines, "", cost()])


if __name__ == "__main__":
    print(report(*(int(elections) for elections in sys.argv[1:])))
