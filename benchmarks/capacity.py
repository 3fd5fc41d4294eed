"""What large tables need on a cluster: a cost model fitted to small runs, and checked on others.

python benchmarks/capacity.py                 # some minutes; writes the tables of
                                              # docs/how_to/capacity.md

CPU seconds of the workers are fitted, step by step, by non-negative least squares of relative
errors: reading, dealing and sending by rows and by numbers (rows x columns), passes by the rows
that they go over, by numbers, and by the logarithm of bag sizes; matrices by bags x coefficients^2.
The driver's seconds are fitted by bags. Other runs than those that the model is fitted to check it.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from bagwise.limits import Limits
from bagwise.memory_size import shown_size
from cluster_runs import Taken, fit, generate, nodes

PAGE = Path(__file__).parent.parent / "docs" / "how_to" / "capacity.md"
# Rows, columns, rows of a bag. With the limit, they count as more than one worker may have, and the
# part of a fit that one worker does alone is that of any larger table.
FITTED = [(700_000, 10, 100), (350_000, 20, 400), (200_000, 40, 200), (300_000, 40, 800)]
FITTED += [(800_000, 8, 5), (250_000, 30, 40)]
CHECKED = [(600_000, 30, 300), (150_000, 60, 60), (1_500_000, 20, 1000)]
LIMITS = Limits(linear_cells=6_000_000)
PLANNED = ((10**8, 1), (10**8, 4), (10**9, 4), (10**9, 16), (10**10, 32), (10**10, 128))
COLUMNS, BAG, CORES, MEMORY = 50, 1000, 8, 4 * 10**9  # of a node: workers, and memory of each
BASE = 450_000_000  # bytes of a worker's process beside its rows
STEPS = {
    "read": ("read",),
    "encode and deal": ("deal",),
    "send": ("send",),
    "sort": ("settle",),
    "passes": ("summed", "of_bags"),
    "matrices": ("curvature", "information", "score_products"),
    "one worker alone": ("apply",),
}


@dataclass(frozen=True)
class Run:
    """A fit, and what it took."""

    rows: int
    columns: int
    bag: int
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


def terms(step: str, rows: float, columns: int, bag: float, passes: float) -> list[float]:
    """What the CPU time of a step is a sum of."""
    if step == "one worker alone":
        return [1.0]
    if step == "passes":
        of_bag = math.log2(1 + bag)
        return [passes * rows, passes * rows * columns, passes * rows * of_bag]
    if step == "matrices":
        of_bags = passes * rows / bag * columns**2
        return [passes * rows, passes * rows * columns, of_bags]
    return [rows, rows * columns]


class CostModel:
    """CPU seconds by step, and how many passes a fit takes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.factors: dict[str, npt.NDArray[np.float64]] = {}
        self.passes = {s: float(np.mean([run.passed(s) for run in runs])) for s in STEPS}
        for step in STEPS:
            found = [terms(step, r.rows, r.columns, r.bag, r.passed(step)) for r in runs]
            cpu = np.array([max(run.cpu(step), 0.05) for run in runs])
            self.factors[step], _ = nnls(np.array(found) / cpu[:, None], np.ones(len(runs)))
        bags = np.array([[1.0, run.bags] for run in runs])
        of_driver = np.array([run.taken.driver for run in runs])
        self.driver, _ = nnls(bags / of_driver[:, None], np.ones(len(runs)))
        memory = np.array([run.taken.most_of_driver for run in runs])
        self.driver_memory, _ = nnls(bags / memory[:, None], np.ones(len(runs)))

    def cpu(self, rows: float, columns: int, bag: float) -> dict[str, float]:
        """CPU seconds of all workers by step, with the mean number of passes."""
        return {
            s: float(self.factors[s] @ terms(s, rows, columns, bag, self.passes[s])) for s in STEPS
        }


def measured(shapes: Sequence[tuple[int, int, int]], folder: Path) -> list[Run]:
    """Fits by two workers."""
    runs = []
    for number, (rows, columns, bag) in enumerate(shapes):
        table = generate(folder / f"{rows}-{columns}-{bag}", rows, columns, bag, seed=number)
        with nodes(2) as there:
            _, taken = fit(there, table, 2, limits=LIMITS)
        runs.append(Run(rows, columns, bag, taken))
        total = sum(taken.cpu.values())
        print(f"{rows:,} rows, {columns} columns, bags of {bag}: {total:.1f} CPU s", flush=True)
    return runs


def table_of(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def rates(model: CostModel) -> str:
    """What the steps cost for each row of 50 columns."""
    unit = model.cpu(1e9, COLUMNS, BAG)
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
        said = sum(model.cpu(run.rows, run.columns, run.bag).values())
        lines.append(
            [
                f"{run.rows:,}",
                f"{run.columns}",
                f"{run.bag:,}",
                f"{found:.1f}",
                f"{said:.1f}",
                f"{said / found - 1:+.0%}",
            ]
        )
    head = ["rows", "columns", "rows of a bag", "measured, CPU s", "predicted", "error"]
    return table_of(head, lines)


def plans(model: CostModel) -> str:
    """Nodes, memory, disk, network and hours of large tables."""
    lines = []
    for rows, n in PLANNED:
        cpu = model.cpu(rows, COLUMNS, BAG)
        alone = cpu.pop("one worker alone")
        bags = rows / BAG
        driver = float(model.driver @ [1.0, bags])
        hours = (sum(cpu.values()) / (n * CORES) + alone + driver) / 3600
        size = 4 * rows * COLUMNS
        held = min(MEMORY, 3 * size / (n * CORES)) + BASE
        sent = 4 * rows * (COLUMNS + 1) * (1 - 1 / n)
        lines.append(
            [
                f"10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(c)] for c in str(round(math.log10(rows))))}",
                f"{n}",
                shown_size(CORES * held),
                shown_size(2 * size / n),
                shown_size(sent) if sent else "-",
                f"{hours:.1f}" if hours >= 1 else f"{60 * hours:.0f} min",
                f"{driver / 60:.0f} min",
                shown_size(float(model.driver_memory @ [1.0, bags])),
            ]
        )
    head = ["rows", f"nodes of {CORES} workers", "memory of a node", "disk of a node"]
    head += [
        "sent between nodes",
        "time, all cores free",
        "of it the driver",
        "memory of the driver",
    ]
    return table_of(head, lines)


def write(parts: dict[str, str]) -> None:
    """Put tables between their marks on the page."""
    text = PAGE.read_text()
    for name, content in parts.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{content}{end}{after}"
    PAGE.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        model = CostModel(measured(FITTED, Path(name)))
        seen = measured(CHECKED, Path(name))
    write({"rates": rates(model), "checks": checks(model, seen), "plans": plans(model)})


if __name__ == "__main__":
    main()
