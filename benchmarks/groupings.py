"""Several groupings and weighted rows: how far from exact, how often settled, at what cost.

First, small tables whose labelings can all be listed: mean L1 distance of a row's joint posterior
from the exact one, by structure of the groupings, classes C, bag size R and sharpness s of the
classifier, and in how many of the cases messages did not settle. Then CPU times: of a training
step's loss with kept messages beside the composite's, and of rows with weights beside the same rows
written out.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp

from bagwise import Bags, DiscreteLaplace, Groupings, bag_posterior
from common import table

CASES = (
    ("crossed", 2, 3),
    ("crossed", 2, 4),
    ("crossed", 2, 5),
    ("crossed", 3, 3),
    ("crossed", 3, 4),
    ("three", 2, 4),
    ("three", 2, 5),
    ("three", 3, 4),
    ("nested", 2, 4),
    ("nested", 3, 4),
    ("partial", 2, 4),
    ("partial", 3, 4),
    ("noisy", 2, 4),
    ("noisy", 3, 4),
    ("weighted", 2, 3),
    ("weighted", 3, 3),
)
SHARPNESS = (0.3, 1.0, 2.0, 4.0)
REPEATS = 100


def bags_of_rows(structure: str, R: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The bag of each of R x R rows in each grouping; the first one has them all."""
    line, column = np.divmod(np.arange(R * R), R)
    found = {"line": line, "column": column}
    if structure == "three":
        found["diagonal"] = (line + column) % R
    if structure == "nested":  # half lines within lines, and columns across
        found = {"half": 2 * line + (column >= R // 2), **found}
    if structure == "partial":
        found["column"] = np.where(rng.permutation(R * R) % 3 == 0, -1, column)
        found["column"][column == line] = line[column == line]  # no column is empty
    return found


def made(
    structure: str, C: int, R: int, s: float, rng: np.random.Generator
) -> tuple[np.ndarray, Groupings]:
    """Log-probabilities s onehot(y) + sqrt(s) N(0, 1), and groupings with the counts of y.

    "noisy" has discrete Laplace noise of scale 1 in the counts of columns, "weighted" one to three
    instances a row.
    """
    N = R * R
    weights = rng.integers(1, 4, size=N) if structure == "weighted" else np.ones(N, np.int64)
    labels = rng.integers(C, size=N)
    log_p = log_softmax(s * np.eye(C)[labels] + s**0.5 * rng.normal(size=(N, C)), axis=1)
    of_instance = np.repeat(np.arange(N), weights)
    if structure == "weighted":  # labels of the other instances of a row
        first = np.append(True, np.diff(of_instance) > 0)
        drawn = (np.exp(log_p)[of_instance].cumsum(1) < rng.random((len(first), 1))).sum(1)
        labels = np.where(first, labels[of_instance], np.minimum(drawn, C - 1))
    found = {}
    for name, of_row in bags_of_rows(structure, R, rng).items():
        there = of_row[of_instance] >= 0
        counts = np.zeros((of_row.max() + 1, C), np.int64)
        np.add.at(counts, (of_row[of_instance][there], labels[there]), 1)
        order = np.argsort(of_row, kind="stable")[np.count_nonzero(of_row < 0) :]
        sizes = np.bincount(of_row[of_row >= 0])
        if structure == "noisy" and name == "column":
            stop = 1 - np.exp(-1.0)
            noise = rng.geometric(stop, counts.shape) - rng.geometric(stop, counts.shape)
            bags = Bags.from_noisy_counts(counts + noise, sizes, DiscreteLaplace(1.0))
        else:
            bags = Bags(sizes, counts, weights=weights[order])
        found[name] = (of_row, bags)
    return log_p, Groupings(found)


def labelings(groupings: Groupings) -> np.ndarray:
    """(L, M) all labels of the rows written out that have the counts of the first grouping."""
    first = next(iter(groupings))
    of_instance = np.repeat(first.bag_of_row, groupings.copies)
    found = np.zeros((1, len(of_instance)), np.int8)
    for b, counts in enumerate(first.bags.counts):
        inside = np.array(orders(counts.tolist()), np.int8)
        found = np.repeat(found, len(inside), axis=0)
        found[:, of_instance == b] = np.tile(inside, (len(found) // len(inside), 1))
    return found


def orders(counts: list[int]) -> list[list[int]]:
    """All orders of labels with these counts."""
    if not any(counts):
        return [[]]
    found = []
    for c, n in enumerate(counts):
        if n:
            rest = [*counts[:c], n - 1, *counts[c + 1 :]]
            found += [[c, *others] for others in orders(rest)]
    return found


def enumerated(log_p: np.ndarray, groupings: Groupings) -> np.ndarray:
    """The exact joint posterior, by a sum over all labelings."""
    labels = labelings(groupings)
    of_instance = np.repeat(np.arange(len(log_p)), groupings.copies)
    for g in groupings:  # those that exact counts rule out first
        for b, c in itertools.product(np.flatnonzero(g.bags.is_sharp), range(log_p.shape[1])):
            inside = labels[:, g.bag_of_row[of_instance] == b]
            labels = labels[(inside == c).sum(axis=1) == g.bags.min_counts[b, c]]
    scores = log_p[of_instance, labels].sum(axis=1)
    for g in groupings:
        for b, c in itertools.product(np.flatnonzero(~g.bags.is_sharp), range(log_p.shape[1])):
            m = (labels[:, g.bag_of_row[of_instance] == b] == c).sum(axis=1)
            assert g.bags.potentials is not None
            begin, end = g.bags.potentials.begins[b * log_p.shape[1] + c :][:2]
            log_f = np.full(m.max() + 1 + end, -np.inf)
            low = g.bags.min_counts[b, c]
            log_f[low : low + end - begin] = g.bags.potentials.log_f[begin:end]
            scores = scores + log_f[m]
    share = np.exp(scores - logsumexp(scores))
    weights = np.zeros_like(log_p)
    for c in range(log_p.shape[1]):
        np.add.at(weights[:, c], of_instance, share @ (labels == c))
    return weights / groupings.copies[:, None]


def distances(repeats: int) -> Iterator[tuple[str, ...]]:
    """Structure, C, R, for each s the mean L1 distance, rounds and share not settled; and one
    grouping's distance.
    """
    for structure, C, R in CASES:
        cells, alone = [], ""
        for s in SHARPNESS:
            rng = np.random.default_rng(0)
            joint, single, rounds, unsettled = [], [], [], 0
            for _ in range(repeats):
                log_p, groupings = made(structure, C, R, s, rng)
                exact = enumerated(log_p, groupings)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    found = bag_posterior(log_p, groupings)
                joint.append(np.abs(found.weights - exact).sum(axis=1).mean())
                rounds.append(found.rounds)
                unsettled += not found.converged
                one = next(iter(groupings))
                of_one = bag_posterior(log_p[one.rows], one.bags).weights
                single.append(np.abs(of_one - exact[one.rows]).sum(axis=1).mean())
            cells.append(
                f"{np.mean(joint):.4f} ({np.median(rounds):.0f} rounds, {unsettled / repeats:.0%})"
            )
            if s == 1.0:
                alone = f"{np.mean(single):.3f}"
        yield (structure, str(C), str(R), *cells, alone)


def grouped(labels: np.ndarray, C: int, bags_of_rows: dict[str, np.ndarray]) -> Groupings:
    """Groupings with the counts of labels."""
    found = {}
    for name, of_row in bags_of_rows.items():
        counts = np.zeros((of_row.max() + 1, C), np.int64)
        np.add.at(counts, (of_row, labels), 1)
        found[name] = (of_row, Bags(np.bincount(of_row), counts))
    return Groupings(found)


def cpu_ms(calls: int, *given: Any, **options: Any) -> float:
    """CPU milliseconds of a call of `bag_posterior`, the first one left out."""
    bag_posterior(*given, **options)
    start = time.process_time()
    for _ in range(calls):
        bag_posterior(*given, **options)
    return 1e3 * (time.process_time() - start) / calls


def steps(calls: int) -> Iterator[tuple[str, ...]]:
    """CPU ms of the posterior in a step: composite, joint with kept messages, and their ratio."""
    rng = np.random.default_rng(0)
    for K, G in itertools.product((64, 128), (2, 4)):
        N, C = 1408 // K * K, 10
        labels = rng.integers(C, size=N)
        log_p = log_softmax(2 * np.eye(C)[labels] + 2**0.5 * rng.normal(size=(N, C)), axis=1)
        groupings = grouped(labels, C, {str(g): rng.permutation(N) // K for g in range(G)})
        messages = bag_posterior(log_p, groupings, max_rounds=50, messages=np.zeros((G, N, C)))
        kept = messages.messages
        composite = cpu_ms(calls, log_p, groupings, joint=False)
        joint = cpu_ms(calls, log_p, groupings, max_rounds=1, messages=kept)
        yield str(K), str(G), f"{composite:.1f}", f"{joint:.1f}", f"{joint / composite:.2f}"


def weighted(calls: int) -> Iterator[tuple[str, ...]]:
    """CPU ms with 43,000 rows, with the 540 distinct ones of them, and their ratio."""
    rng = np.random.default_rng(0)
    units, groups = 90, 6
    weights = rng.multinomial(43_000 - units * groups, np.ones(540) / 540) + 1
    for C, engine in itertools.product((2, 4, 8), ("auto", "bethe", "multinomial", "transport")):
        shares = rng.dirichlet(np.ones(C), size=groups)
        log_p = np.tile(np.log(shares), (units, 1)) + 0.1 * rng.normal(size=(540, C))
        of_rows = np.repeat(np.arange(540), weights)
        p = np.exp(log_softmax(log_p, axis=1))
        labels = np.array([rng.choice(C, p=p[k]) for k in of_rows])
        totals = np.add.reduceat(weights, np.arange(0, 540, groups))
        written = Bags.from_labels(labels, totals, n_classes=C)
        bags = Bags([groups] * units, written.counts, weights=weights)
        rows = log_p[of_rows]
        slow = cpu_ms(max(calls // 10, 1), rows, written, engine)
        fast = cpu_ms(calls, log_p, bags, engine)
        off = np.abs(
            bag_posterior(log_p, bags, engine).weights[of_rows]
            - bag_posterior(rows, written, engine).weights
        ).max()
        yield str(C), engine, f"{slow:.1f}", f"{fast:.2f}", f"{fast / slow:.1%}", f"{off:.0e}"


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    columns = [
        "groupings",
        "C",
        "R",
        *(f"s = {s:g}" for s in SHARPNESS),
        "one grouping alone, s = 1",
    ]
    calls = 2 if tiny else 30
    return (
        "## Several groupings, weighted rows\n\nMean L1 distance of a row's joint posterior from "
        "enumeration: R x R rows by line and by column\n(crossed), also by diagonal (three), also "
        "by half line (nested), a quarter of the rows in no column\n(partial), discrete Laplace "
        "noise of scale 1 in the counts of columns (noisy), one to three instances\na row "
        f"(weighted). In brackets: median rounds, and how many of {REPEATS} did not settle.\n\n"
        + table(columns, distances(2 if tiny else REPEATS))
        + "\nCPU ms of the posterior in a step of 1,400 rows and 10 classes, bags of K in G random "
        "groupings: the\ncomposite, the joint one with kept messages and one round.\n\n"
        + table(("K", "G", "composite", "joint", "ratio"), steps(calls))
        + "\n43,000 rows of which 540 are distinct, in 90 bags: CPU ms written out and with "
        "weights, and the largest\ndifference of a weight.\n\n"
        + table(("C", "engine", "written out", "weights", "ratio", "off"), weighted(calls))
    )


if __name__ == "__main__":
    print(section(Path(), tiny=False))
