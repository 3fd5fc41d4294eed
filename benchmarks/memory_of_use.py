"""Memory of `estimate` and `explain` on a table of a million rows.

python benchmarks/memory_of_use.py                     # a million rows, 100 columns, 200 MB
python benchmarks/memory_of_use.py --only "estimate, counted"

A linear model of 50,000 rows is used on the rows of another table, whose groups are the classes of
its rows; with counts once in memory, and once within a budget. As in `memory.py`, a process that
has done the same with a thousand rows counts from there: RssAnon, memory that no file backs,
sampled 100 times a second.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bagwise.memory_size import shown_size
from memory import generate, watched

USES = ("predict", "estimate", "estimate, counted", "explain")

CHILD = """
import inspect, json, sys, time
from pathlib import Path
import bagwise

def has(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

task = json.loads(sys.argv[1])
folder = Path(task["folder"])
model = bagwise.load(folder / "model")

def use(name, memory):
    rows = folder / f"{name}.parquet"
    labels = folder / f"{ {'table': 'labels'}.get(name, name)}.csv"
    more = {} if memory is None else {"memory": memory}
    if task["what"] == "predict":
        return model.predict(rows, out=folder / "p.parquet")
    if task["what"] == "estimate":
        return model.estimate(rows, by="y")
    if task["what"] == "explain":
        return model.importance(rows, labels, bag="bag", **more)
    return model.estimate(rows, by="y", labels=labels, bag="bag", **more)

use("tiny", None)
print("BASE", has("RssAnon"), flush=True)
began = time.process_time()
found = use("table", task["memory"])
print("DONE", time.process_time() - began, flush=True)
if task["what"] != "predict":
    print(found)
"""


def measured(folder: Path, what: str, memory: str | None) -> None:
    """Use the model in a process of its own, and print what it took."""
    task = {"folder": str(folder), "what": what, "memory": memory}
    base, peak, output, errors = watched(CHILD, task)
    done, _, answer = output.partition("\n")
    if not done:
        sys.exit(errors)
    name = what if memory is None else f"{what} --memory {memory}"
    print(
        f"{name}: peak {shown_size(peak - base)} above the {shown_size(base)} of a tiny table, "
        f"{float(done.split()[1]):.0f} CPU seconds\n{answer}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--memory", default="200MB", help="of a second run with counts")
    parser.add_argument("--only", choices=USES)
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    import bagwise

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        generate(folder, "tiny", 1000, options.columns, 1)
        generate(folder, "train", 50_000, options.columns, 2)
        generate(folder, "table", options.rows, options.columns, 3)
        how = {"bag": "bag", "exclude": ["y"], "model": "linear", "progress": False}
        bagwise.fit(
            folder / "train.parquet", labels=folder / "train.csv", out=folder / "model", **how
        )
        for what in USES if options.only is None else [options.only]:
            measured(folder, what, None)
            if what in ("estimate, counted", "explain"):
                measured(folder, what, options.memory)


if __name__ == "__main__":
    main()
