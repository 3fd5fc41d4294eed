"""Memory and speed of `bagwise fit` and `bagwise predict` on a large Parquet table.

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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 20
BAG = 1000
BATCH = 250_000


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


def measured(name: str, rows: int, *arguments: str) -> None:
    """Run a command; print its peak memory, seconds of the clock and of the CPU, rows a second."""
    code = (
        "import resource, sys\nfrom bagwise.cli import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit as e: assert not e.code, e.code\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print('PEAK', used.ru_maxrss, used.ru_utime + used.ru_stime)"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    print(done.stdout.rsplit("PEAK", 1)[0].strip())
    peak, cpu = (float(part) for part in done.stdout.rsplit("PEAK", 1)[1].split())
    print(
        f"{name}: {seconds:.0f} s, {cpu:.0f} of the CPU, {rows / seconds:,.0f} rows a second, "
        f"peak {peak / 1e6:.2f} GB\n",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, rows)
        size = (folder / "table.parquet").stat().st_size / 1e9
        print(f"{rows:,} rows, {COLUMNS} columns, {size:.2f} GB of Parquet\n")
        table, model = str(folder / "table.parquet"), str(folder / "model")
        options = ["--bag", "bag", "--labels", str(folder / "labels.csv"), "--exclude", "y"]
        measured("fit", rows, "fit", table, *options, "--out", model)
        out = str(folder / "predictions.parquet")
        measured("predict", rows, "predict", model, table, "--out", out)
        measured("evaluate", rows, "evaluate", model, table, "--target", "y")


if __name__ == "__main__":
    main()
