"""`bagwise fit --ray`: the model of one process, its speed, a lost node, a table beyond memory.

python benchmarks/cluster.py                                  # the first three, some minutes
python benchmarks/cluster.py --only beyond --rows 15000000    # 6 GB on two nodes of 1.5 GB

All nodes are on this machine, see `cluster_runs`. Each has one worker with one thread. `beyond`
encodes and fits a generated table of 100 columns on two nodes: every process of a node may have 1.3
GB of private writable memory (RLIMIT_DATA), and its object store 100 MB; what the node has together
is measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import bagwise
from bagwise.memory_size import shown_size
from bagwise.table_model import TableModel
from bagwise.tables.cluster.worker_pool import Workers
from cluster_runs import Taken, fit, generate, nodes

PARTS = ("equality", "speed", "killed", "beyond")
LIMIT, MEMORY = 1_300_000_000, "500MB"  # of a process of a node, and of a worker's rows
# Small enough for some minutes, and no worker may have all of it.
ROWS, COLUMNS, BAG = 2_000_000, 40, 200


def said(name: str, taken: Taken) -> None:
    """One line for a fit."""
    parts = ", ".join(f"{what} {cpu:.1f}" for what, cpu in taken.cpu.most_common())
    print(
        f"{name}: {sum(taken.cpu.values()):.0f} CPU seconds of all workers, {taken.busiest:.0f} of "
        f"the busiest, {taken.driver:.0f} of the driver; {taken.seconds:.0f} s by the clock; a "
        f"node has {shown_size(taken.most)} at most, the driver {shown_size(taken.most_of_driver)} "
        f"more than before ({parts})",
        flush=True,
    )


def differences(name: str, ours: TableModel, theirs: TableModel) -> None:
    """How far two models are apart."""
    one, other = ours.fitted, theirs.fitted
    weights = np.abs(one.model.weights - other.model.weights).max()
    assert one.intervals is not None
    assert other.intervals is not None
    matrix, expected = one.intervals.matrix, other.intervals.matrix
    apart = np.abs(matrix - expected).max() / np.abs(expected).max()
    held_out = abs(one.facts.held_out.log_likelihood - other.facts.held_out.log_likelihood)
    print(
        f"{name}: weights differ by {weights:.0e} at most, covariances by {apart:.0e} of the "
        f"largest, held-out log-likelihood by {held_out:.0e}",
        flush=True,
    )


def alone(folder: Path, **options: Any) -> TableModel:
    """The fit of one process."""
    rows, labels = folder / "*.parquet", folder / "labels.csv"
    return bagwise.fit(rows, bag="bag", labels=labels, model="linear", progress=False, **options)


def equality(folder: Path) -> None:
    """Two workers, in memory and in files, against one process."""
    with nodes(2) as there:
        in_memory, taken = fit(there, folder, 2)
        said("two workers, rows in memory", taken)
        differences("  against one process", in_memory, alone(folder))
        in_files, taken = fit(there, folder, 2, memory="100MB")
        said("two workers, --memory 100MB", taken)
        differences("  against one process", in_files, alone(folder, memory="100MB"))


def speed(folder: Path) -> None:
    """One worker, and two."""
    with nodes(2) as there:
        fit(there, folder, 2)  # compiles kernels
        _, one = fit(there, folder, 1)
        _, two = fit(there, folder, 2)
    said("one worker", one)
    said("two workers", two)
    serial = [taken.busiest + taken.driver for taken in (one, two)]
    print(
        f"the busiest worker and the driver after each other: {serial[0]:.1f} and {serial[1]:.1f} "
        f"CPU seconds, {serial[0] / serial[1]:.2f} times as fast",
        flush=True,
    )


def killed(folder: Path) -> None:
    """One of two workers is killed in the middle of the fit."""
    import ray

    with nodes(2) as there:
        whole, expected = fit(there, folder, 2)
        called, passes = Workers._called, [0]
        dead: list[int] = []

        def killing(self: Workers, method: str, arguments: Any) -> Any:
            passes[0] += method == "likelihood"
            if passes[0] == 10 and not dead:
                dead.append(ray.get(self._actors[1].ping.remote()))
                os.kill(dead[0], signal.SIGKILL)
            return called(self, method, arguments)

        with patch.object(Workers, "_called", killing):
            model, taken = fit(there, folder, 2)
    said("nobody is killed", expected)
    said("a worker is killed in its tenth pass", taken)
    differences("  against that of nobody killed", model, whole)


def beyond(folder: Path) -> None:
    """A table of several times the memory of the nodes."""
    with nodes(2, limit=LIMIT) as there:
        model, taken = fit(there, folder, 2, memory=MEMORY)
    facts = model.fitted.facts
    size = facts.data.rows * facts.data.n_features * 4
    said(
        f"{facts.data.rows:,} rows, {facts.data.n_features} columns, {shown_size(size)} encoded, "
        f"two nodes, --memory {MEMORY}",
        taken,
    )
    print(
        f"held-out log-likelihood {facts.held_out.log_likelihood:.5f} per row, baseline "
        f"{facts.held_out.baseline:.5f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:3])
    parser.add_argument("--rows", type=int, help="of the generated table")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if set(options.only) - {"beyond"}:
            generate(folder / "table", options.rows or ROWS, COLUMNS, BAG)
        for part in options.only:
            if part == "beyond":
                generate(folder / "large", options.rows or 15_000_000, 100, 1000)
                beyond(folder / "large")
            else:
                {"equality": equality, "speed": speed, "killed": killed}[part](folder / "table")


if __name__ == "__main__":
    main()
