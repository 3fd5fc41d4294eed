"""Tables and models fitted to them that many tests share; each is made once in a test run."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from scipy.special import expit
from typer.testing import CliRunner

import bagwise
from bagwise.bags import FloatArray
from bagwise.cli import app
from bagwise.storage.manifest import write_manifest
from bagwise.tables.model.fitted_table import FittedTable

QUICK = ("--model", "linear", "--lr", "0.03", "--epochs", "15")
B, NEW = 80, 10  # schools, and new pupils of each


def sign(folder: Path) -> None:
    """Let the manifest of a model's folder agree with files that a test has changed."""
    write_manifest(folder, apart=["held_out_bags.csv"])


def fit_table(*where: Any, **options: Any) -> FittedTable:
    """What `bagwise.fit` fits."""
    return bagwise.fit(*where, progress=False, **options).fitted


def _fit(folder: Path, *arguments: Any) -> None:
    """`bagwise fit`; what it says is kept in fit.txt."""
    done = CliRunner().invoke(app, ["fit", *map(str, arguments)], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    (folder / "fit.txt").write_text(done.output)


def patients(folder: Path) -> None:
    """A table of 300 patients in 24 wards of 1 to about 60, its counts, and a model of it."""
    rng = np.random.default_rng(0)
    n = 300
    ward = np.minimum(rng.geometric(0.12, n) - 1, 23)
    ward[:24] = np.arange(24)
    sick = (rng.random(n) < 0.2 + 0.6 * (ward % 3) / 2).astype(int)
    x = rng.normal(size=n) + 2.5 * sick
    names = np.array(["healthy", "sick"])
    table = {
        "patient": [f"P{i:03d}" for i in range(n)],
        "ward": [f"W{w:02d}" for w in ward],
        "blood": [None if i % 50 == 7 else round(value, 4) for i, value in enumerate(x)],
        "smoker": [bool(b) for b in rng.random(n) < 0.3 + 0.4 * sick],
        "group": [str(g) for g in np.array(["A", "B", "0"])[rng.integers(3, size=n)]],
        "clinic": ["north"] * n,
    }
    pq.write_table(pa.table(table), folder / "rows.parquet")
    pcsv.write_csv(pa.table(table), folder / "rows.csv")
    pcsv.write_csv(pa.table({**table, "truth": names[sick].tolist()}), folder / "truth.csv")
    lines = ["ward,healthy,sick"]
    for w in range(24):
        own = np.bincount(sick[ward == w], minlength=2)
        lines.append(f"W{w:02d},{own[0]},{own[1]}")
    (folder / "bags.csv").write_text("\n".join(lines) + "\n")
    np.save(folder / "sick.npy", sick)
    bags = ("--bag", "ward", "--labels", folder / "bags.csv", "--out", folder / "m")
    _fit(folder, folder / "rows.parquet", *bags, *QUICK)


def precincts(folder: Path) -> None:
    """Income in thousands (slope .05 a unit), a town (north +1), noise; precincts by income."""
    rng = np.random.default_rng(1)
    n, B = 1600, 80
    level = rng.normal(scale=10, size=B)
    precinct = np.arange(n) % B
    income = 40 + level[precinct] + rng.normal(scale=15, size=n)
    north = rng.random(n) < 0.2 + 0.6 * (precinct % 2)
    noise = rng.normal(size=n)
    logits = 0.05 * (income - 40) + np.where(north, 1.0, 0.0) - 0.5
    yes = rng.random(n) < 1 / (1 + np.exp(-logits))
    towns = np.where(north, "north", "south")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["precinct", "income", "town", "noise"])
        for i in range(n):
            writer.writerow([f"P{precinct[i]}", f"{income[i]:.3f}", towns[i], f"{noise[i]:.3f}"])
    with (folder / "bags.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["precinct", "no", "yes"])
        for b in range(B):
            k = int(yes[precinct == b].sum())
            writer.writerow([f"P{b}", int((precinct == b).sum()) - k, k])
    np.savez(folder / "truth.npz", yes=yes, north=north)
    fit_table(
        folder / "rows.csv", "precinct", folder / "bags.csv", model="linear", out=folder / "m"
    )


def wards(folder: Path) -> None:
    """A strong column, a category that says something, and noise."""
    rng = np.random.default_rng(0)
    n, B = 800, 40
    ward = np.repeat(np.arange(B), n // B)
    strong, noise = rng.normal(size=n) + rng.normal(size=B)[ward], rng.normal(size=n)
    town = rng.integers(3, size=n)
    yes = 1.5 * strong + town + rng.logistic(size=n) > 1
    rows = [
        f"W{w},{s:.4f},{'ABC'[t]},{e:.4f}"
        for w, s, t, e in zip(ward, strong, town, noise, strict=True)
    ]
    (folder / "rows.csv").write_text("ward,strong,town,noise\n" + "\n".join(rows) + "\n")
    counts = [f"W{b},{(~yes[ward == b]).sum()},{yes[ward == b].sum()}" for b in range(B)]
    (folder / "bags.csv").write_text("ward,no,yes\n" + "\n".join(counts) + "\n")
    files = (folder / "rows.csv", "ward", folder / "bags.csv")
    fit_table(*files, model="linear", out=folder / "linear")
    fit_table(*files, model="mlp", lr=1e-3, epochs=6, out=folder / "mlp")


def schools(folder: Path) -> None:
    """Schools that differ, a model without bag effects (plain) and one with them (m)."""
    make_schools(folder, 1.4)
    fit_table(
        folder / "rows.csv", "school", folder / "bags.csv", model="linear", out=folder / "plain"
    )
    bags = ("--bag", "school", "--labels", folder / "bags.csv", "--out", folder / "m")
    _fit(folder, folder / "rows.csv", *bags, "--bag-effects")


def make_schools(folder: Path, tau: float) -> Path:
    """Pupils of 80 schools that differ by tau beyond the two columns, new pupils of the same, and
    pupils of other schools.
    """
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(5)
    sizes = rng.integers(10, 40, size=B)
    u = tau * rng.normal(size=2 * B)
    level = 0.5 * rng.normal(size=(2 * B, 2))

    def pupils(school: int, n: int) -> tuple[FloatArray, np.ndarray]:
        X = level[school] + rng.normal(size=(n, 2))
        return X, rng.random(n) < expit(1.5 * X[:, 0] - X[:, 1] + u[school])

    tables: dict[str, list[str]] = {"rows": ["school,x,z"], "bags": ["school,fail,pass"]}
    tables["new"], tables["others"] = ["school,x,z,truth"], ["school,x,z,truth"]
    for school in range(2 * B):
        if school < B:
            X, y = pupils(school, int(sizes[school]))
            tables["rows"] += [f"S{school},{a:.4f},{b:.4f}" for a, b in X]
            tables["bags"].append(f"S{school},{(~y).sum()},{y.sum()}")
        X, y = pupils(school, NEW)
        names = np.where(y, "pass", "fail")
        lines = [f"S{school},{a:.4f},{b:.4f},{t}" for (a, b), t in zip(X, names, strict=True)]
        tables["new" if school < B else "others"] += lines
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder
