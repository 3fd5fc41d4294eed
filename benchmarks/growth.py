"""How the time of a table's fit and use grows, and what a fit costs beside supervised learning.

CPU seconds of all threads in one process, so that a busy machine changes little. Tables are
generated, and fitted once small before, so that kernels are compiled and everything is imported.

python benchmarks/growth.py                          # as docs/benchmarks.md has it: three minutes
python benchmarks/growth.py --against ../older/src   # the fits by another version as well, in turn
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import bagwise
from common import digits, table

HERE = Path(__file__).parent
BASE = {"rows": 16_000, "columns": 16, "classes": 2, "bag size": 50}
SIZES = {
    "rows": (16_000, 64_000, 256_000),
    "columns": (16, 48, 144),
    "classes": (2, 3, 4),
    "bag size": (10, 50, 250),
}
BESIDE = ((100_000, 96), (1_000_000, 96))  # rows and columns of fits beside supervised ones
CALLS = ("fit", "predict", "label", "estimate")


def generated(folder: Path, rows: int, columns: int, classes: int, bag_size: int) -> None:
    """Rows of classes whose features overlap, in bags of different proportions."""
    rng = np.random.default_rng(0)
    bags = max(rows // bag_size, 2)
    X = rng.normal(size=(rows, columns))
    weights = rng.normal(size=(columns, classes)) / columns**0.5
    bag = np.concatenate([np.arange(bags), rng.integers(bags, size=rows - bags)])
    X += 0.7 * rng.normal(size=(bags, columns))[bag]  # bags differ in their rows
    y = (X @ weights + rng.gumbel(size=(rows, classes))).argmax(axis=1)
    own = {"bag": bag, "group": (X[:, 0] > 0).astype(np.int64), "truth": y}
    features = {f"x{i}": x for i, x in enumerate(X.T)}
    pq.write_table(pa.table({**own, **features}), folder / "rows.parquet")
    counts = np.zeros((bags, classes), dtype=np.int64)
    np.add.at(counts, (bag, y), 1)
    of_classes = {f"class {c}": counts[:, c] for c in range(classes)}
    pyarrow.csv.write_csv(pa.table({"bag": np.arange(bags), **of_classes}), folder / "bags.csv")


def fitted(folder: Path, name: str = "rows.parquet") -> bagwise.TableModel:
    """The linear model of a generated table."""
    rows, bags = folder / name, folder / "bags.csv"
    unused = ["truth", "group"]
    return bagwise.fit(rows, bag="bag", labels=bags, exclude=unused, model="linear", progress=False)


def supervised(folder: Path) -> None:
    """Read the same rows, and learn from their labels."""
    from sklearn.linear_model import LogisticRegression

    read = pq.read_table(folder / "rows.parquet")
    X = np.column_stack([read[name].to_numpy() for name in read.column_names if name[0] == "x"])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    LogisticRegression(max_iter=1000).fit(X, read["truth"].to_numpy())


def seconds(call: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    started = time.process_time()
    call()
    return time.process_time() - started


def times_of(sizes: dict[str, int]) -> list[float]:
    """CPU seconds of each call, on a table of these sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generated(folder, *sizes.values())
        rows, bags = folder / "rows.parquet", folder / "bags.csv"
        found: list[bagwise.TableModel] = []
        calls: tuple[Callable[[], object], ...] = (
            lambda: found.append(fitted(folder)),
            lambda: found[0].predict(rows),
            lambda: found[0].label(rows, bags),
            lambda: found[0].estimate(rows, by="group"),
        )
        return [seconds(call) for call in calls]


def exponent(sizes: tuple[int, ...], times: list[float]) -> float:
    """The slope of log time by log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(times, 1e-3)), 1)[0])


def growth(tiny: bool) -> str:
    """A table with the time of each call at each size, and the exponents."""
    base = {**BASE, "rows": 2_000} if tiny else BASE
    times_of(base)
    lines: list[list[str]] = []
    for what, sizes in SIZES.items():
        if tiny:
            sizes = tuple(n // 8 for n in sizes) if what == "rows" else sizes[:2]
        found = []
        for size in sizes:
            found.append(times_of({**base, what: size}))
            shown = [digits(time_) for time_ in found[-1]]
            lines.append([what, f"{size:,}", *shown])
        slopes = [exponent(sizes, list(of_call)) for of_call in zip(*found, strict=True)]
        lines.append([what, "exponent", *(f"**{slope:.2f}**" for slope in slopes)])
    return table(("grows", "size", *(f"{name}, CPU s" for name in CALLS)), lines)


def by_code(source: Path, *task: str, **variables: str) -> Any:
    """What this script finds when it uses the code of a source folder."""
    command = [sys.executable, "-W", "ignore", __file__, *task]
    environment = {**os.environ, "PYTHONPATH": str(source.resolve()), **variables}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.rsplit("FOUND", 1)[1])


def measure_first(columns: int) -> None:
    """Print CPU seconds of a first fit, with all that is compiled and imported, and of a fit to a
    CSV file of many columns.
    """
    found = []
    for rows, width, bag_size in ((3_000, 20, 100), (40, columns, 4)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            generated(folder, rows, width, 2, bag_size)
            pyarrow.csv.write_csv(pq.read_table(folder / "rows.parquet"), folder / "rows.csv")
            fit = partial(fitted, folder, "rows.csv")
            if found:  # the first one has compiled most, and the second time all is there
                fit()
            found.append(seconds(fit))
    print("FOUND", json.dumps(found))


def firsts(tiny: bool, against: Path | None = None) -> str:
    """A table of what a first fit takes, and one of many columns."""
    columns, shown = 200 if tiny else 5_000, []
    for name, source in versions(against).items():
        with tempfile.TemporaryDirectory() as cache:
            first, wide = by_code(source, "--first", str(columns), NUMBA_CACHE_DIR=cache)
        shown.append([f"{digits(first)}{name}", f"{digits(wide)}{name}"])
    head = ("first fit, no kernel compiled, CPU s", f"40 rows of {columns:,} columns, CSV, CPU s")
    return table(head, shown)


def versions(against: Path | None) -> dict[str, Path]:
    """Source folders, by what is said of them."""
    return {"": HERE.parent / "src", **({" before": against} if against else {})}


def measure_beside(sizes: list[list[int]]) -> None:
    """Print CPU seconds of fits, and of supervised learning."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        generated(Path(name), 3_000, 20, 2, 100)
        fitted(Path(name))
        supervised(Path(name))
    for rows, columns in sizes:
        with tempfile.TemporaryDirectory() as name:
            generated(Path(name), rows, columns, 2, 100)
            calls = partial(fitted, Path(name)), partial(supervised, Path(name))
            found.append([seconds(call) for call in calls])
    print("FOUND", json.dumps(found))


def comparison(tiny: bool, against: Path | None = None) -> str:
    """A table of fits beside supervised logistic regression on the same rows."""
    sizes = ((2_000, 8),) if tiny else BESIDE
    task = "--beside", json.dumps(sizes)
    found = {name: by_code(source, *task) for name, source in versions(against).items()}
    lines = []
    for place, (rows, columns) in enumerate(sizes):
        for name in found:
            fit, other = found[name][place]
            shown = (f"{digits(fit)}{name}", digits(other), f"{fit / other:.1f}")
            lines.append((f"{rows:,}", columns, *shown))
    columns_ = ("rows", "columns", "fit, CPU s", "supervised, CPU s", "ratio")
    return table(columns_, lines)


def section(pictures: Path, tiny: bool, against: Path | None = None) -> str:
    """The section of docs/benchmarks.md."""
    del pictures  # it has none
    base = ", ".join(f"{value:,} {what}" for what, value in BASE.items() if what != "bag size")
    return (
        "## Growth\n\n"
        "A fit reads the table twice, learns what its columns mean, averages the linear model over "
        "its prior, judges it on\nheld-out bags, and makes intervals. Supervised learning is "
        "scikit-learn's `LogisticRegression` on the same rows, reading\nand standardizing "
        "included. Both are timed in one process, in bags of 100:\n\n"
        f"{comparison(tiny, against)}\n"
        "The first fit on a machine compiles what it needs, once. A table of many columns:\n\n"
        f"{firsts(tiny, against)}\n"
        f"Each size is changed alone, from {base} and bags of {BASE['bag size']}. An exponent of 1 "
        "means twice the time for\ntwice the size:\n\n"
        f"{growth(tiny)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds, to test it")
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--beside", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        measure_first(options.first)
        return
    if options.beside:
        measure_beside(json.loads(options.beside))
        return
    print(section(Path(), options.tiny, options.against))


if __name__ == "__main__":
    main()
