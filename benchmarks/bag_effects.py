"""What `--bag-effects` and known shares are worth: log loss on new rows of generated schools.

Pupils lie in schools of 10 to 50; two classes; four features, a quarter of whose variance is
between schools. Beyond the features, the log-odds of schools vary by `effect`. Ten new pupils of
each school that was fitted to are predicted, and ten of each of as many new schools, by

    fit              the linear model
    --bag-effects    the linear model with an intercept of each school
    --labels         the linear model of fit, with the schools' counts in predict
    share            the share of the school, without any model
    truth            the probabilities that labels were drawn with

python benchmarks/bag_effects.py               # two to three minutes
python benchmarks/bag_effects.py --rows 1,5    # some of the rows
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import expit

import bagwise
from bagwise import TableModel

Floats = npt.NDArray[np.float64]
SETTINGS = [  # schools, variation of their log-odds, slope of the features
    (100, 1.0, 1.0),
    (300, 1.0, 1.0),
    (100, 1.5, 1.0),
    (100, 1.5, 0.0),
    (100, 0.0, 1.0),
    (300, 0.0, 1.0),
]
FEATURES, NEW, BETWEEN = 4, 10, 0.25
COLUMNS = [f"x{i}" for i in range(FEATURES)]


class Schools:
    """Schools, the first half of which are fitted to."""

    def __init__(self, seed: int, n: int, effect: float, slope: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.level = BETWEEN**0.5 * self.rng.normal(size=(2 * n, FEATURES))
        self.effect = effect * self.rng.normal(size=2 * n)
        self.beta = slope * np.array([1.0, -0.7, 0.4, 0.0])

    def pupils(self, sizes: npt.NDArray[np.int64], first: int) -> tuple[Floats, Floats, Floats]:
        """School, features and probability of passing of so many pupils of each school."""
        school = np.repeat(np.arange(first, first + len(sizes)), sizes)
        noise = (1 - BETWEEN) ** 0.5 * self.rng.normal(size=(len(school), FEATURES))
        X = self.level[school] + noise
        return school, X, expit(X @ self.beta + self.effect[school])


def write(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    """A CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def table(path: Path, school: Floats, X: Floats) -> Path:
    """A CSV file of pupils."""
    rows = [[f"S{s}", *x] for s, x in zip(school, X.round(5).tolist(), strict=True)]
    return write(path, ["school", *COLUMNS], rows)


def losses(folder: Path, seed: int, n: int, effect: float, slope: float) -> Floats:
    """Log losses of new pupils of known schools by five ways, and of new schools by three."""
    schools = Schools(seed, n, effect, slope)
    rng = schools.rng
    school, X, p = schools.pupils(rng.integers(10, 51, size=n), 0)
    y = rng.random(len(p)) < p
    data = table(folder / "rows.csv", school, X)
    passed, sizes = np.bincount(school, y), np.bincount(school)
    counts = [[f"S{s}", int(sizes[s] - passed[s]), int(passed[s])] for s in range(n)]
    labels = write(folder / "bags.csv", ["school", "fail", "pass"], counts)
    plain = bagwise.fit(data, "school", labels, model="linear", progress=False)
    effects = bagwise.fit(data, "school", labels, bag_effects=True, progress=False)
    found = []
    for first in (0, n):
        school, X, p = schools.pupils(np.full(n, NEW), first)
        y = rng.random(len(p)) < p
        new = table(folder / "new.csv", school, X)

        def loss(q: Floats, y: npt.NDArray[np.bool_] = y) -> float:
            return float(-np.log(np.where(y, q, 1 - q)).mean())

        def predicted(model: TableModel, new: Path = new, **options: object) -> Floats:
            return np.asarray(model.predict_proba(new, **options)["pass"])

        found += [loss(predicted(plain)), loss(predicted(effects))]
        if not first:
            found.append(loss(predicted(plain, bag="school", labels=labels)))
            share = (passed[school] + 0.5) / (sizes[school] + 1)
            found.append(loss(share))
        found.append(loss(p))
    return np.array(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=3, help="generated tables of each kind")
    parser.add_argument("--rows", help="numbers of the rows, with commas between; all if not given")
    options = parser.parse_args()
    sets = options.sets
    rows = [int(number) for number in (options.rows or "").split(",") if number]
    settings = [SETTINGS[number - 1] for number in rows] if rows else SETTINGS
    shown = Table(title=f"Log loss, mean of {sets} generated tables")
    header = ["schools", "effect", "slope", "fit", "--bag-effects", "--labels", "share", "truth"]
    for name in (*header, "new: fit", "new: --bag-effects", "new: truth"):
        shown.add_column(name, justify="right")
    tasks = [(setting, seed) for setting in settings for seed in range(sets)]
    results: dict[tuple[int, float, float], list[Floats]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for setting, seed in track(tasks, console=Console(stderr=True), transient=True):
            results.setdefault(setting, []).append(losses(Path(folder), seed, *setting))
    for (n, effect, slope), values in results.items():
        means = np.mean(values, axis=0)
        shown.add_row(str(n), f"{effect:g}", f"{slope:g}", *(f"{x:.3f}" for x in means))
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
