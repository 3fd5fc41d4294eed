"""Memory and speed of `bagwise fit`, `predict`, `label` and `evaluate` on a Parquet table.

python benchmarks/tables.py                    # 10 million rows, 20 numeric columns
python benchmarks/tables.py --rows 1000000
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import digits, picture, table

COLUMNS = 20
BAG = 1000
BATCH = 250_000
ROWS = (10_000, 100_000, 1_000_000)


class Cost(NamedTuple):
    """What a command took, and what it said."""

    name: str
    rows: int
    seconds: float
    cpu: float
    peak: float
    said: str


def generate(folder: Path, rows: int) -> None:
    """Two classes whose features overlap, in bags of about 1000 with different proportions."""
    rng = np.random.default_rng(0)
    bags = max(rows // BAG, 2)
    shares = rng.beta(2, 3, bags)
    direction = rng.normal(size=COLUMNS) * 0.4
    counts = np.zeros((bags, 2), dtype=np.int64)
    names = [f"x{i}" for i in range(COLUMNS)]
    fields = [("bag", pa.int64()), *((name, pa.float64()) for name in names), ("y", pa.int8())]
    with pq.ParquetWriter(folder / "table.parquet", pa.schema(fields)) as writer:
        for start in range(0, rows, BATCH):
            n = min(BATCH, rows - start)
            bag = rng.integers(bags, size=n)
            y = (rng.random(n) < shares[bag]).astype(np.int8)
            np.add.at(counts, (bag, y), 1)
            X = rng.normal(size=(n, COLUMNS)) + y[:, None] * direction
            arrays = [pa.array(bag), *(pa.array(column) for column in X.T.copy()), pa.array(y)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["bag", "0", "1"])
        writer.writerows([b, *row] for b, row in enumerate(counts.tolist()) if sum(row))


def measured(name: str, rows: int, *arguments: str) -> Cost:
    """Run a command, and say what it took."""
    code = (
        "import resource, sys\nfrom bagwise.cli import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit as e: assert not e.code, e.code\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "status = open('/proc/self/status').read()\n"  # ru_maxrss counts the parent's memory, too
        "print('PEAK', status.split('VmHWM:')[1].split()[0], used.ru_utime + used.ru_stime)"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    said, found = done.stdout.rsplit("PEAK", 1)
    peak, cpu = (float(part) for part in found.split())
    return Cost(name, rows, seconds, cpu, peak / 1e6, said.strip())


def costs(rows: int) -> Iterator[Cost]:
    """Of the commands, one after the other, on a table of so many rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, rows)
        data, model = str(folder / "table.parquet"), str(folder / "model")
        known = ["--bag", "bag", "--labels", str(folder / "labels.csv")]
        yield measured("fit", rows, "fit", data, *known, "--exclude", "y", "--out", model)
        out = str(folder / "predictions.parquet")
        yield measured("predict", rows, "predict", model, data, "--out", out)
        out = str(folder / "labeled.parquet")
        yield measured("label", rows, "label", model, data, *known, "--out", out)
        yield measured("evaluate", rows, "evaluate", model, data, "--target", "y")


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    found = [cost for rows in ((2000,) if tiny else ROWS) for cost in costs(rows)]
    lines: dict[str, list[tuple[float, float]]] = {}
    for x in found:
        lines.setdefault(x.name, []).append((x.rows, x.rows / x.seconds))
    columns = ("command", "rows", "seconds", "CPU seconds", "rows a second", "peak memory, GB")
    cells = (
        (x.name, f"{x.rows:,}", *map(digits, x[2:4]), digits(x.rows / x.seconds), f"{x.peak:.2f}")
        for x in found
    )
    return (
        f"## Tables\n\nCommands on a Parquet file of {COLUMNS} numeric columns, two classes, bags "
        f"of about {BAG} rows; a few\nseconds of each are Python's start. "
        "`python benchmarks/tables.py` does ten million rows.\n\n"
        + picture(
            pictures / "tables.png",
            lines,
            ("rows", "rows a second"),
            "Commands on tables",
        )
        + f"\n{table(columns, cells)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    for x in costs(parser.parse_args().rows):
        print(
            f"{x.said}\n{x.name}: {x.seconds:.0f} s, {x.cpu:.0f} of the CPU, "
            f"{x.rows / x.seconds:,.0f} rows a second, peak {x.peak:.2f} GB\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
