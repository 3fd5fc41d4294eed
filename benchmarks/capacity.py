"""What large tables need on a cluster: a cost model fitted to small runs, and checked on others.

python benchmarks/capacity.py                 # some minutes; writes the tables of
                                              # docs/how_to/capacity.md

CPU seconds of the workers are fitted, step by step, by non-negative least squares of relative
errors: most steps by a constant, rows and numbers (rows x columns), reading also by how often a
column is taken up, once for each batch (a tight budget makes batches small), passes by the rows
that they go over and numbers, matrices by bags x coefficients^2, too. Bags are of hundreds of rows,
whose likelihood takes about as long a row; smaller ones may take several times as long. The
driver's seconds and memory are fitted by bags. Other runs than those that the model is fitted to
check it.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from bagwise.limits import LIMITS
from bagwise.memory_size import shown_size
from bagwise.tables.read.row_source import rows_within
from cluster_runs import Taken, fit, generate, nodes

PAGE = Path(__file__).parent.parent / "docs" / "how_to" / "capacity.md"
# Rows, columns, rows of a bag, and MB of a worker. They are more than one worker may have, and
# workers have them in files, as those of large tables. The last one of each list has as little
# memory as so many columns need.
WARM = [(200_000, 12, 500, 130), (200_000, 12, 1000, 130)]  # to compile kernels; do not count
FITTED = [(900_000, 10, 500, 130), (300_000, 20, 1000, 130), (150_000, 40, 300, 130)]
FITTED += [(450_000, 60, 800, 130), (300_000, 50, 600, 90)]
MANY_BAGS = [(300_000, 8, 5, 130)]  # for the driver alone
CHECKED = [(400_000, 30, 600, 130), (1_000_000, 100, 1000, 150)]
LARGEST = (15_000_000, 100, 1000, 500)  # of benchmarks/cluster.py --only beyond
ROOM = 600_000  # bytes of a column that reading takes, of row groups of 50,000 rows
PLANNED = ((10**8, 1), (10**8, 4), (10**9, 4), (10**9, 16), (10**10, 32), (10**10, 128))
COLUMNS, BAG, CORES, MEMORY = 50, 1000, 8, 10**9  # of a node: workers, and memory of each
BASE = 450_000_000  # bytes of a worker's process beside its rows
STEPS = {
    "read": ("read",),
    "encode and deal": ("deal",),
    "send": ("send",),
    "sort": ("settle",),
    "passes": ("summed", "of_bags"),
    "matrices": ("curvature", "information", "score_products"),
    "assess": ("surprising", "log_probs"),
    "one worker alone": ("apply",),
}


@dataclass(frozen=True)
class Run:
    """A fit, and what it took."""

    rows: int
    columns: int
    bag: int
    memory: int
    taken: Taken

    @property
    def bags(self) -> float:
        """How many there are, about."""
        return self.rows / self.bag

    def cpu(self, step: str) -> float:
        """CPU seconds of all workers."""
        return sum(self.taken.cpu[name] for name in STEPS[step])

    def passed(self, step: str) -> float:
        """Rows that were gone over, in units of all rows."""
        return sum(self.taken.rows[name] for name in STEPS[step]) / self.rows


def terms(
    step: str, rows: float, columns: int, bag: float, memory: int, passes: float
) -> list[float]:
    """What the CPU time of a step is a sum of."""
    if step == "one worker alone":
        return [1.0]
    if step == "passes":
        return [1.0, passes * rows, passes * rows * columns]
    if step == "matrices":
        of_bags = passes * rows / bag * columns**2
        return [1.0, passes * rows, passes * rows * columns, of_bags]
    if step in ("read", "encode and deal"):
        batch = rows_within(memory, columns + 1, ROOM * columns, LIMITS)
        return [1.0, rows, rows * columns, rows * columns / batch]
    return [1.0, rows, rows * columns]


class CostModel:
    """CPU seconds by step, and how many passes a fit takes.

    Args:
        runs: that tell what workers take.
        many_bags: that tell, with these, what the driver takes.
    """

    def __init__(self, runs: Sequence[Run], many_bags: Sequence[Run]) -> None:
        self.factors: dict[str, npt.NDArray[np.float64]] = {}
        self.passes = {s: float(np.mean([run.passed(s) for run in runs])) for s in STEPS}
        for step in STEPS:
            found = [terms(step, r.rows, r.columns, r.bag, r.memory, r.passed(step)) for r in runs]
            cpu = np.array([max(run.cpu(step), 0.05) for run in runs])
            self.factors[step], _ = nnls(np.array(found) / cpu[:, None], np.ones(len(runs)))
        everything = [*runs, *many_bags]
        bags = np.array([[1.0, run.bags] for run in everything])
        self.driver, _ = nnls(bags, np.array([run.taken.driver for run in everything]))
        memory = np.array([float(run.taken.most_of_driver) for run in everything])
        self.driver_memory, _ = nnls(bags, memory)

    def cpu(self, rows: float, columns: int, bag: float, memory: int) -> dict[str, float]:
        """CPU seconds of all workers by step, with the mean number of passes."""
        return {
            s: float(self.factors[s] @ terms(s, rows, columns, bag, memory, self.passes[s]))
            for s in STEPS
        }


def measured(shapes: Sequence[tuple[int, int, int, int]], folder: Path, there: Any) -> list[Run]:
    """Fits by the two workers of a cluster."""
    runs = []
    for number, (rows, columns, bag, megabytes) in enumerate(shapes):
        table = generate(folder / f"{rows}-{columns}-{bag}", rows, columns, bag, seed=number)
        _, taken = fit(there, table, 2, memory=f"{megabytes}MB")
        shutil.rmtree(table)
        runs.append(Run(rows, columns, bag, megabytes * 10**6, taken))
        steps = ", ".join(f"{step} {runs[-1].cpu(step):.1f}" for step in STEPS)
        print(f"{rows:,} rows, {columns} columns, bags of {bag}, CPU s: {steps}", flush=True)
    return runs


def table_of(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def rates(model: CostModel) -> str:
    """What the steps cost for each row of 50 columns."""
    unit = model.cpu(1e9, COLUMNS, BAG, MEMORY)
    lines = []
    for step in STEPS:
        passes = f"{model.passes[step]:.1f}" if model.passes[step] else ""
        cost = f"{unit[step]:.1f} s in all" if step == "one worker alone" else f"{unit[step]:,.0f}"
        lines.append([step, passes, cost])
    return table_of(["step", "passes over all rows", "CPU seconds for 10⁹ rows"], lines)


def checks(model: CostModel, runs: Sequence[Run]) -> str:
    """What the model says of runs that it has not seen."""
    lines = []
    for run in runs:
        found = sum(run.cpu(step) for step in STEPS)
        said = sum(model.cpu(run.rows, run.columns, run.bag, run.memory).values())
        lines.append(
            [
                f"{run.rows:,}",
                f"{run.columns}",
                f"{run.bag:,}",
                shown_size(run.memory),
                f"{found:.1f}",
                f"{said:.1f}",
                f"{said / found - 1:+.0%}",
            ]
        )
    head = ["rows", "columns", "rows of a bag", "`--memory`"]
    head += ["measured, CPU s", "predicted", "error"]
    rows, columns, bag, megabytes = LARGEST
    said = sum(model.cpu(rows, columns, bag, megabytes * 10**6).values())
    return (
        f"{table_of(head, lines)}\n\nFor {rows:,} rows of {columns} columns in bags of {bag:,}, "
        f"which is what `benchmarks/cluster.py --only beyond` fits, it predicts {said:.0f} CPU s."
    )


def plans(model: CostModel) -> str:
    """Nodes, memory, disk, network and hours of large tables."""
    lines = []
    for rows, n in PLANNED:
        cpu = model.cpu(rows, COLUMNS, BAG, MEMORY)
        alone = cpu.pop("one worker alone")
        bags = rows / BAG
        driver = float(model.driver @ [1.0, bags])
        hours = (sum(cpu.values()) / (n * CORES) + alone + driver) / 3600
        size = 4 * rows * COLUMNS
        read = sum(model.passes.values()) * size / n
        sent = 4 * rows * (COLUMNS + 1) * (1 - 1 / n)
        lines.append(
            [
                f"10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(c)] for c in str(round(math.log10(rows))))}",
                f"{n}",
                shown_size(CORES * (MEMORY + BASE)),
                shown_size(size / n),
                shown_size(2 * size / n),
                shown_size(read),
                shown_size(sent) if sent else "-",
                f"{hours:.1f}" if hours >= 1 else f"{60 * hours:.0f} min",
                f"{driver / 60:.0f} min",
                shown_size(float(model.driver_memory @ [1.0, bags])),
            ]
        )
    head = ["rows", "nodes", "memory of a node", "its rows", "disk of a node"]
    head += ["read in passes", "sent between nodes", "time", "of it the driver"]
    head += ["memory of the driver"]
    return table_of(head, lines)


def write(parts: dict[str, str]) -> None:
    """Put tables between their marks on the page."""
    text = PAGE.read_text()
    for name, content in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{content}\n{end}{after}"
    PAGE.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name, nodes(2) as there:
        measured(WARM, Path(name), there)
        fitted, many = (measured(shapes, Path(name), there) for shapes in (FITTED, MANY_BAGS))
        model = CostModel(fitted, many)
        seen = measured(CHECKED, Path(name), there)
    write({"rates": rates(model), "checks": checks(model, seen), "plans": plans(model)})


if __name__ == "__main__":
    main()
