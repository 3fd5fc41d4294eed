"""Writes a table with bags from a real data set, as `bagwise fit` takes it.

python examples/make_table.py breast_cancer --out data/

rows.csv has a row for each instance, with the bag it is in and no label; bags.csv has the number of
each label in each bag, which is all that is known; test.csv has further rows with their true label.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

SETS = {"breast_cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}


def bag_of_rows(n: int, mean_size: int | None, rng: np.random.Generator) -> np.ndarray:
    """The bag of each row: of about one size, or of very different sizes, from 1 up to hundreds."""
    if mean_size is not None:
        return rng.integers(max(n // mean_size, 2), size=n)
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(min(int(np.ceil(rng.lognormal(1.7, 1.3))), n - sum(sizes)))
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes))


def main() -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("dataset", choices=SETS, nargs="?", default="breast_cancer")
    parser.add_argument("--out", type=Path, default=Path("data"), help="folder for the files")
    parser.add_argument("--bag-size", type=int, help="mean size; very different ones if not given")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    source = SETS[options.dataset]()
    columns = [str(name).replace(" ", "_") for name in source.feature_names]
    names = [str(source.target_names[y]) for y in source.target]
    rng = np.random.default_rng(options.seed)
    order = rng.permutation(len(names))
    test, train = order[: len(order) // 4], order[len(order) // 4 :]
    bags = [f"ward {b}" for b in bag_of_rows(len(train), options.bag_size, rng)]
    options.out.mkdir(parents=True, exist_ok=True)

    def write(name: str, header: list[str], rows: list[list[object]]) -> None:
        with (options.out / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    rows = [[b, *source.data[i].tolist()] for b, i in zip(bags, train, strict=True)]
    write("rows.csv", ["ward", *columns], rows)
    counts = Counter((b, names[i]) for b, i in zip(bags, train, strict=True))
    classes = sorted(set(names))
    known = [[b, *(counts[b, label] for label in classes)] for b in sorted(set(bags))]
    write("bags.csv", ["ward", *classes], known)
    write("test.csv", [*columns, "truth"], [[*source.data[i].tolist(), names[i]] for i in test])
    print(
        f"{len(train)} rows in {len(known)} bags, and {len(test)} rows for testing: {options.out}"
    )


if __name__ == "__main__":
    main()
