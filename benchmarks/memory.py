"""`bagwise fit --memory` on a table ten times as large as the memory that it may use.

python benchmarks/memory.py                    # 5.2 million rows, 100 columns, 200 MB
python benchmarks/memory.py --rows 250000 --columns 40 --memory 100MB
python benchmarks/memory.py --rows 1300000 --columns 200 --memory 300MB --model mlp --epochs 1

The same table is fitted within the budget and without one. A process that has fitted a tiny table
already, so that all code is loaded, counts from there: RssAnon in /proc, which is memory that no
file backs (pages of a mapped file can be dropped at any time), sampled 100 times a second. The
first fit runs under a hard limit too: RLIMIT_DATA, on private writable memory, at what it has then
plus the budget. The last one runs in memory under the same limit, to show that it cannot. (Not so
for a perceptron: that limit counts memory that was given back, too.)
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.memory_size import bytes_of, shown_size

BAG, CLASSES, BATCH, TEST = 1000, 2, 50_000, 50_000

# Fits a tiny table, says what memory it has, and does what it is asked to.
CHILD = """
import json, resource, sys, time
from pathlib import Path
import bagwise
from bagwise.tables.use.evaluate import evaluate_table

def has(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

task = json.loads(sys.argv[1])
folder = Path(task["folder"])
how = dict(bag="bag", labels=folder / "tiny.csv", exclude=["y"])
rates = {"linear": 0.01, "mlp": 0.001}
lr = None if task["epochs"] is None else rates[task["model"]]
how |= dict(model=task["model"], epochs=task["epochs"], lr=lr)
bagwise.fit(folder / "tiny.parquet", progress=False, **how)
print("BASE", has("RssAnon"), flush=True)
if task["limit"]:
    limit = has("VmData") + task["limit"]
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
began = time.process_time()
how["labels"] = folder / "labels.csv"
out = folder / "model"
fitted = bagwise.fit(
    folder / "table.parquet", progress=False, out=out, memory=task["memory"], **how
).fitted
cpu = time.process_time() - began
scores = evaluate_table(fitted, folder / "test.parquet", "y")
facts = fitted.facts
print("DONE", cpu, scores.accuracy, scores.log_loss, facts.held_out.log_likelihood, flush=True)
"""


def generate(folder: Path, name: str, rows: int, columns: int, seed: int) -> None:
    """Two classes whose features overlap, in bags of about 1000 with different proportions."""
    rng = np.random.default_rng(seed)
    bags = max(rows // BAG, 3)
    shares = rng.beta(2, 3, bags)
    direction = np.random.default_rng(0).normal(size=columns) * 2 / columns**0.5
    counts = np.zeros((bags, CLASSES), dtype=np.int64)
    names = [f"x{i}" for i in range(columns)]
    fields = [("bag", pa.int64()), *((name, pa.float32()) for name in names), ("y", pa.int8())]
    file = folder / f"{name}.parquet"
    with pq.ParquetWriter(file, pa.schema(fields), use_dictionary=False) as writer:
        for start in range(0, rows, BATCH):
            n = min(BATCH, rows - start)
            bag = rng.integers(bags, size=n)  # the rows of a bag are all over the table
            y = (rng.random(n) < shares[bag]).astype(np.int8)
            np.add.at(counts, (bag, y), 1)
            X = rng.standard_normal((columns, n), dtype=np.float32)
            X += (direction[:, None] * y).astype(np.float32)
            arrays = [pa.array(bag), *(pa.array(column) for column in X), pa.array(y)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
    labels = {"table": "labels"}.get(name, name)
    with (folder / f"{labels}.csv").open("w", newline="") as file:
        text = csv.writer(file)
        text.writerow(["bag", "0", "1"])
        text.writerows([b, *row] for b, row in enumerate(counts.tolist()) if sum(row))


def anonymous(pid: int) -> int:
    """Memory of a process that no file backs; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("RssAnon")]
    return int(found[0]) * 1024 if found else 0


def watched(code: str, task: dict[str, object]) -> tuple[int, int, str, str]:
    """Run code in a process of its own: its memory when it says BASE, its most memory afterwards,
    and what it wrote since then.
    """
    # One arena, one thread and the system's allocator: reserved memory is memory that is used.
    one = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(task)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | one,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    first = child.stdout.readline().split()
    if not first:
        sys.exit(child.stderr.read())
    base, peak = int(first[1]), 0
    while child.poll() is None:
        peak = max(peak, anonymous(child.pid))
        time.sleep(0.01)
    return base, peak, child.stdout.read(), child.stderr.read()


def measured(
    folder: Path,
    name: str,
    memory: str | None,
    limit: int,
    epochs: int | None = None,
    model: str = "linear",
) -> None:
    """Fit in a process of its own, and print what it took."""
    task = {"folder": str(folder), "memory": memory, "limit": limit, "epochs": epochs}
    task["model"] = model
    base, peak, output, errors = watched(CHILD, task)
    done = output.split()
    if not done:
        error = errors.strip().splitlines()[-1]
        print(f"{name}: fails with {error[:100]}", flush=True)
        return
    cpu, accuracy, log_loss, held_out = (float(part) for part in done[1:])
    print(
        f"{name}: peak {shown_size(peak - base)} above the {shown_size(base)} of a tiny fit, "
        f"{cpu:.0f} CPU seconds, held-out log-likelihood {held_out:.5f}; on {TEST:,} new rows "
        f"accuracy {accuracy:.4f}, log loss {log_loss:.4f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_200_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--memory", default="200MB")
    parser.add_argument("--epochs", type=int, help="not to be chosen, nor the rate: .01 or .001")
    parser.add_argument("--model", choices=["linear", "mlp"], default="linear")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    budget = bytes_of(options.memory)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        generate(folder, "tiny", 1000, options.columns, 1)
        generate(folder, "table", options.rows, options.columns, 2)
        generate(folder, "test", TEST, options.columns, 3)
        size = options.rows * options.columns * 4
        print(
            f"{options.rows:,} rows, {options.columns} columns: {shown_size(size)} encoded, "
            f"{size / budget:.1f} times {options.memory}",
            flush=True,
        )
        how = (options.epochs, options.model)
        limit = budget if options.model == "linear" else 0
        measured(folder, f"--memory {options.memory}", options.memory, limit, *how)
        measured(folder, "in memory", None, 0, *how)
        if limit:
            measured(folder, "in memory, with the limit of the first", None, limit, *how)


if __name__ == "__main__":
    main()
