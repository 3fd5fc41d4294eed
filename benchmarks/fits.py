"""CPU seconds and quality of `bagwise fit`: real small tables, and a generated one.

Seconds are those of all threads of one fit, after a first fit of a few rows has loaded everything.

python benchmarks/fits.py                            # breast cancer in bags of 20, splits 0 to 15
python benchmarks/fits.py --dataset wine --bag-size 10 --splits 0-3
python benchmarks/fits.py --rows 200000 --bags 2000  # generated, 20 columns
python benchmarks/fits.py --rows 200000 --bags 2000 --against ../older/src   # in turn with this one
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

HERE = Path(__file__).parent.parent
COLUMNS = 20
FIT = """
import json, sys, time
from pathlib import Path
import bagwise
from bagwise.tables.use.evaluate import evaluate_table
small, data, bag, labels, test = sys.argv[1:]
first = (small + "/rows.csv", "ward", small + "/bags.csv")
bagwise.fit(*first, out=Path(small) / "first", progress=False)
started = time.process_time()
model = bagwise.fit(data, bag, labels, out=Path(small) / "second", progress=False).fitted
seconds = time.process_time() - started
scores = evaluate_table(model, test, "truth")
print("FOUND", json.dumps([seconds, scores.accuracy, scores.log_loss]))
"""


def generated(folder: Path, rows: int, bags: int) -> tuple[str, str, str, str]:
    """Two classes whose features overlap, in bags with different proportions."""
    rng = np.random.default_rng(0)
    shares, direction = rng.beta(2, 3, bags), rng.normal(size=COLUMNS) * 0.4
    bag = np.concatenate([np.arange(bags), rng.integers(bags, size=rows - bags)])
    y = (rng.random(rows) < shares[bag]).astype(np.int64)
    X = rng.normal(size=(rows, COLUMNS)) + y[:, None] * direction
    table = pa.table({"bag": bag, **{f"x{i}": x for i, x in enumerate(X.T.copy())}})
    pq.write_table(table, folder / "rows.parquet")
    ones = np.bincount(bag, y, bags).astype(np.int64)
    counts = {"bag": np.arange(bags), "0": np.bincount(bag) - ones, "1": ones}
    pyarrow.csv.write_csv(pa.table(counts), folder / "bags.csv")
    new = rng.integers(2, size=20_000)
    X = rng.normal(size=(len(new), COLUMNS)) + new[:, None] * direction
    columns = {f"x{i}": x for i, x in enumerate(X.T.copy())}
    pq.write_table(pa.table({**columns, "truth": new.astype(str)}), folder / "test.parquet")
    return (
        str(folder / "rows.parquet"),
        "bag",
        str(folder / "bags.csv"),
        str(folder / "test.parquet"),
    )


def real(folder: Path, dataset: str, size: int, split: int) -> tuple[str, str, str, str]:
    """A table of `examples/make_table.py`."""
    script = str(HERE / "examples" / "make_table.py")
    options = ["--out", str(folder), "--bag-size", str(size), "--seed", str(split)]
    command = [sys.executable, script, dataset, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files = [str(folder / name) for name in ("rows.csv", "bags.csv", "test.csv")]
    return files[0], "ward", files[1], files[2]


def fitted(source: Path, table: tuple[str, str, str, str]) -> list[float]:
    """CPU seconds, accuracy and log loss of a fit by the code of a source folder."""
    with tempfile.TemporaryDirectory() as name:
        real(Path(name), "wine", 10, 0)
        command = [sys.executable, "-W", "ignore", "-c", FIT, name, *table]
        environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    found: list[float] = json.loads(done.stdout.rsplit("FOUND", 1)[1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="breast_cancer", help="of examples/make_table.py")
    parser.add_argument("--bag-size", type=int, default=20)
    parser.add_argument("--splits", default="0-15", help="first and last seed of the split")
    parser.add_argument("--rows", type=int, help="of a generated table, in place of a real one")
    parser.add_argument("--bags", type=int, default=2000, help="of the generated table")
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    options = parser.parse_args()
    sources = [HERE / "src", *([options.against] if options.against else [])]
    first, last = (int(part) for part in (options.splits.split("-") * 2)[:2])
    splits = [0] if options.rows else list(range(first, last + 1))
    found: dict[Path, list[list[float]]] = {source: [] for source in sources}
    print("split, then CPU seconds, accuracy, log loss" + " of each version" * (len(sources) > 1))
    for split in splits:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if options.rows:
                table = generated(folder, options.rows, options.bags)
            else:
                table = real(folder, options.dataset, options.bag_size, split)
            for source in sources:
                found[source].append(fitted(source, table))
        print(split, *(_shown(found[source][-1]) for source in sources), sep="   ", flush=True)
    if len(splits) > 1:
        for what, summary in (("mean", np.mean), ("median", np.median), ("most", np.max)):
            print(what, *(_shown(summary(found[s], axis=0)) for s in sources), sep="   ")


def _shown(found: list[float]) -> str:
    return "{:.1f} s  {:.4f}  {:.4f}".format(*found)


if __name__ == "__main__":
    main()
