"""Several groupings and weighted rows: how far from exact, how often settled, at what cost.

First, R x R rows grouped by line and by column, the hardest case, as every two bags cross: mean L1
distance of a row's joint posterior from enumeration, by classes C, R and sharpness s of the
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

from bagwise import Bags, Groupings, bag_posterior
from common import table

CASES = ((2, 3), (2, 4), (3, 3))
SHARPNESS = (0.3, 1.0, 2.0, 4.0)
REPEATS = 100


def crossed(rng: np.random.Generator, C: int, R: int, s: float) -> tuple[np.ndarray, Groupings]:
    """R x R rows by line and by column, log-probabilities s onehot(y) + sqrt(s) N(0, 1)."""
    labels = rng.integers(C, size=R * R)
    log_p = log_softmax(s * np.eye(C)[labels] + s**0.5 * rng.normal(size=(R * R, C)), axis=1)
    return log_p, grouped(
        labels, C, {"line": np.arange(R * R) // R, "column": np.arange(R * R) % R}
    )


def grouped(labels: np.ndarray, C: int, bags_of_rows: dict[str, np.ndarray]) -> Groupings:
    """Groupings with the counts of labels."""
    found = {}
    for name, of_row in bags_of_rows.items():
        counts = np.zeros((of_row.max() + 1, C), np.int64)
        np.add.at(counts, (of_row, labels), 1)
        found[name] = (of_row, Bags(np.bincount(of_row), counts))
    return Groupings(found)


def enumerated(log_p: np.ndarray, groupings: Groupings, labels: np.ndarray) -> np.ndarray:
    """The exact joint posterior, over all labelings (L, N)."""
    N, C = log_p.shape
    scores = log_p[np.arange(N), labels].sum(axis=1)
    possible = np.ones(len(labels), np.bool_)
    for g in groupings:
        for b in range(len(g.bags)):
            inside = labels[:, g.bag_of_row == b]
            for c in range(C):
                possible &= (inside == c).sum(axis=1) == g.bags.counts[b, c]
    labels, scores = labels[possible], scores[possible]
    share = np.exp(scores - logsumexp(scores))
    return np.stack([(share[:, None] * (labels == c)).sum(axis=0) for c in range(C)], axis=1)


def distances(repeats: int) -> Iterator[tuple[str, ...]]:
    """C, R, then for each s the mean L1 distance, its share not settled, and one grouping's."""
    for C, R in CASES:
        labels = np.array(list(itertools.product(range(C), repeat=R * R)), np.int8)
        cells, alone = [], ""
        for s in SHARPNESS:
            rng = np.random.default_rng(0)
            joint, single, rounds, unsettled = [], [], [], 0
            for _ in range(repeats):
                log_p, groupings = crossed(rng, C, R, s)
                exact = enumerated(log_p, groupings, labels)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    found = bag_posterior(log_p, groupings)
                joint.append(np.abs(found.weights - exact).sum(axis=1).mean())
                rounds.append(found.rounds)
                unsettled += not found.converged
                line = next(iter(groupings))
                of_line = bag_posterior(log_p[line.rows], line.bags).weights
                single.append(np.abs(of_line - exact[line.rows]).sum(axis=1).mean())
            cells.append(
                f"{np.mean(joint):.4f} ({np.median(rounds):.0f} rounds, {unsettled / repeats:.0%})"
            )
            if s == 1.0:
                alone = f"{np.mean(single):.3f}"
        yield (str(C), str(R), *cells, alone)


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
        bags_of_rows = {str(g): rng.permutation(N) // K for g in range(G)}
        groupings = grouped(labels, C, bags_of_rows)
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
    columns = ["C", "R", *(f"s = {s:g}" for s in SHARPNESS), "one grouping alone, s = 1"]
    calls = 2 if tiny else 30
    return (
        "## Several groupings, weighted rows\n\nMean L1 distance of a row's joint posterior from "
        "enumeration, R x R rows grouped by line and by column\n(in brackets: median rounds, and "
        "how often messages did not settle in 100):\n\n"
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
