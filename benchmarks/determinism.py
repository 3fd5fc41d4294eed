"""What you change, and what then changes: seed, threads, orders and names, for every way to fit.

    python benchmarks/determinism.py --log

Each way to fit answers for the same rows before and after a change that should not matter. A cell
is the largest change of a probability, and the share of rows whose label changes, if any does.
`--repeats` other draws of the table are measured, too; the largest figures are shown.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from threadpoolctl import threadpool_limits
from torch import nn

import bagwise
from bagwise import BagLogisticRegression, Bags, LLPClassifier, TrainingOptions
from bagwise.data import BagData
from bagwise.labels.targets import bag_targets
from reliability_log import write_log

Probabilities = npt.NDArray[np.float64]
TOWNS = ("east", "north", "south")


@dataclass(frozen=True)
class Problem:
    """A table and its labels, under the names and in the orders that a change gives them.

    Attributes:
        rows: with an index by which rows are found again.
        labels: of each bag.
        classes: names of the classes, in the order in which answers are compared.
        seed: of the fit.
    """

    rows: pd.DataFrame
    labels: pd.DataFrame
    classes: tuple[str, ...] = ("a", "b", "c")
    seed: int = 0

    @property
    def features(self) -> list[str]:
        """The columns that are learned from."""
        return [name for name in self.rows if name != "ward"]

    @property
    def numbers(self) -> list[str]:
        """Those of them that are numbers."""
        return [name for name in self.features if self.rows[name].dtype.kind == "f"]


def made(seed: int) -> Problem:
    """Rows in 50 bags, three classes, a boundary that is not straight."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 20, size=50)
    ward = np.repeat(np.arange(50), sizes)
    n = len(ward)
    level = rng.normal(size=(50, 3))
    X = (level[ward] + rng.normal(size=(n, 3))) * (1, 2, 3) + (0, 1, 5)
    Z = (X - (0, 1, 5)) / (1, 2, 3)
    town = rng.integers(3, size=n)
    logits = np.column_stack([1.5 * Z[:, 0], Z[:, 1] ** 2 - 1, Z[:, 2] + (town == 1)])
    y = (logits + rng.gumbel(size=(n, 3))).argmax(axis=1)
    rows = pd.DataFrame(X, columns=["x", "y", "z"])
    rows["town"] = np.array(TOWNS)[town]
    rows["ward"] = [f"W{w:02d}" for w in ward]
    counts = np.asarray(Bags.from_labels(y, sizes, n_classes=3).counts)
    labels = pd.DataFrame(counts, columns=["a", "b", "c"])
    labels.insert(0, "ward", [f"W{w:02d}" for w in range(50)])
    return Problem(rows, labels)


# --- what is changed


def other_seed(problem: Problem) -> Problem:
    """Another seed."""
    return replace(problem, seed=1)


def rows_in_another_order(problem: Problem) -> Problem:
    """Rows shuffled, within bags and between them."""
    return replace(problem, rows=problem.rows.sample(frac=1, random_state=0))


def lines_in_another_order(problem: Problem) -> Problem:
    """Lines of the labels shuffled."""
    return replace(problem, labels=problem.labels.sample(frac=1, random_state=0))


def class_columns_in_another_order(problem: Problem) -> Problem:
    """The labels' class columns turned around."""
    return replace(problem, labels=problem.labels[["ward", *problem.classes[::-1]]])


def columns_in_another_order(problem: Problem) -> Problem:
    """The columns of the rows turned around."""
    return replace(problem, rows=problem.rows[problem.rows.columns[::-1]])


def columns_renamed(problem: Problem) -> Problem:
    """Columns get names that sort otherwise."""
    names = {"x": "p", "y": "o", "z": "n", "town": "m"}
    return replace(problem, rows=problem.rows.rename(columns=names))


def bags_renamed(problem: Problem) -> Problem:
    """Bags get names that sort otherwise."""
    order = np.random.default_rng(0).permutation(len(problem.labels))
    names = {f"W{old:02d}": f"V{new:02d}" for old, new in enumerate(order)}
    rows = problem.rows.assign(ward=problem.rows["ward"].map(names))
    return replace(problem, rows=rows, labels=problem.labels.replace({"ward": names}))


def classes_renamed(problem: Problem) -> Problem:
    """Classes get names that sort otherwise."""
    names = dict(zip(problem.classes, ("f", "d", "e"), strict=True))
    labels = problem.labels.rename(columns=names)
    return replace(problem, labels=labels, classes=tuple(names.values()))


def categories_renamed(problem: Problem) -> Problem:
    """Categories of a column get names that sort otherwise."""
    names = dict(zip(TOWNS, ("3", "1", "2"), strict=True))
    column = problem.rows.columns[problem.rows.isin(TOWNS).all()][0]
    return replace(problem, rows=problem.rows.assign(**{column: problem.rows[column].map(names)}))


def unchanged(problem: Problem) -> Problem:
    """The same once more."""
    return problem


CHANGES: dict[str, Callable[[Problem], Problem]] = {
    "nothing": unchanged,
    "seed": other_seed,
    "threads": unchanged,  # see `answer`
    "order of rows": rows_in_another_order,
    "order of label lines": lines_in_another_order,
    "order of class columns": class_columns_in_another_order,
    "order of columns": columns_in_another_order,
    "names of columns": columns_renamed,
    "names of bags": bags_renamed,
    "names of classes": classes_renamed,
    "names of categories": categories_renamed,
}


# --- what answers


def _in_order(problem: Problem, found: npt.ArrayLike, classes: Any) -> Probabilities:
    """(N, C) in the order of the index of the rows and of `Problem.classes`."""
    places = [list(map(str, classes)).index(name) for name in problem.classes]
    return np.asarray(found, dtype=np.float64)[np.argsort(problem.rows.index)][:, places]


def _fitted(problem: Problem, **options: Any) -> bagwise.TableModel:
    return bagwise.fit(
        problem.rows, "ward", problem.labels, progress=False, seed=problem.seed, **options
    )


def fit_linear(problem: Problem) -> Probabilities:
    """`bagwise.fit(model="linear")`, its predictions."""
    model = _fitted(problem, model="linear")
    return _in_order(problem, model.predict_proba(problem.rows), model.classes)


def fit_mlp(problem: Problem) -> Probabilities:
    """`bagwise.fit(model="mlp")` of a rate and epochs that are given, its predictions."""
    model = _fitted(problem, model="mlp", lr=1e-3, epochs=20)
    return _in_order(problem, model.predict_proba(problem.rows), model.classes)


def label(problem: Problem) -> Probabilities:
    """`TableModel.label` with the linear model."""
    model = _fitted(problem, model="linear")
    found = model.label(problem.rows, problem.labels)
    return _in_order(problem, found[[f"p_{name}" for name in model.classes]], model.classes)


def estimate(problem: Problem) -> Probabilities:
    """`TableModel.estimate` with the linear model: shares and limits, a row for each town."""
    model = _fitted(problem, model="linear")
    by = next(name for name in problem.features if name not in problem.numbers)
    first = problem.rows.groupby(by, sort=False)["ward"].apply(lambda part: part.index.min())
    found = model.estimate(problem.rows, by=by).set_index([by, "class"])
    groups = first.sort_values().index
    cells = [[found.loc[(group, name)] for name in problem.classes] for group in groups]
    return np.array(
        [[cell[name] for cell in row for name in ("share", "low", "high")] for row in cells]
    )


def _arrays(problem: Problem) -> tuple[Any, Any, Any]:
    counts = problem.labels.set_index("ward")
    return problem.rows[problem.numbers].to_numpy(), problem.rows["ward"].to_numpy(), counts


def logistic(problem: Problem) -> Probabilities:
    """`BagLogisticRegression`."""
    X, bags, counts = _arrays(problem)
    model = BagLogisticRegression(random_state=problem.seed).fit(X, bags, counts)
    return _in_order(problem, model.predict_proba(X), model.classes_)


def classifier_by_likelihood(problem: Problem) -> Probabilities:
    """`LLPClassifier(model="linear")`, by maximum likelihood."""
    X, bags, counts = _arrays(problem)
    model = LLPClassifier(model="linear", random_state=problem.seed).fit(X, bags, counts)
    return _in_order(problem, model.predict_proba(X), model.classes_)


def classifier_by_steps(problem: Problem) -> Probabilities:
    """`LLPClassifier`, a perceptron."""
    X, bags, counts = _arrays(problem)
    model = LLPClassifier(epochs=20, random_state=problem.seed).fit(X, bags, counts)
    return _in_order(problem, model.predict_proba(X), model.classes_)


def train(problem: Problem) -> Probabilities:
    """`bagwise.train` of a linear network whose weights begin at 0."""
    X, bags, counts = _arrays(problem)
    targets = bag_targets(bags, counts)
    inputs = torch.from_numpy(X.astype(np.float32))
    model = nn.Linear(3, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    bagwise.train(
        model,
        BagData(inputs[targets.order], targets.bags),
        options=TrainingOptions(epochs=20, lr=0.03, seed=problem.seed, batch_instances=100),
        progress=False,
    )
    return _in_order(problem, model(inputs).softmax(1).detach(), targets.classes)


RESULTS: dict[str, Callable[[Problem], Probabilities]] = {
    "fit, linear": fit_linear,
    "label": label,
    "estimate": estimate,
    "fit, perceptron": fit_mlp,
    "BagLogisticRegression": logistic,
    "LLPClassifier, likelihood": classifier_by_likelihood,
    "LLPClassifier, steps": classifier_by_steps,
    "train": train,
}


def answer(result: str, change: str, problem: Problem) -> Probabilities:
    """What a way to fit says of the rows after a change."""
    n = 2 if change == "threads" else 1
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(n)
    numba.set_num_threads(min(n, numba.config.NUMBA_NUM_THREADS))
    try:
        with threadpool_limits(n), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return RESULTS[result](CHANGES[change](problem))
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def difference(one: Probabilities, other: Probabilities) -> tuple[float, float]:
    """The largest change of a probability, and the share of rows whose label changes."""
    return float(np.abs(one - other).max()), float((one.argmax(1) != other.argmax(1)).mean())


def cell(largest: float, labels: float, result: str) -> str:
    """A difference in words."""
    if largest == 0:
        return "0"
    of_labels = f", {labels:.1%} of labels" if labels and result != "estimate" else ""
    return (f"{largest:.0e}" if largest < 1e-3 else f"{largest:.3f}") + of_labels


def main() -> None:
    """Measure, print, and write the log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="tables")
    parser.add_argument("--only", choices=RESULTS)
    parser.add_argument("--log", action="store_true", help="write results/reliability/determinism")
    options = parser.parse_args()
    results = [name for name in RESULTS if options.only in (None, name)]
    most = {(change, result): (0.0, 0.0) for change in CHANGES for result in results}
    for seed in range(options.repeats):
        problem = made(seed)
        for result in results:
            before = answer(result, "nothing", problem)
            for change in CHANGES:
                found = difference(before, answer(result, change, problem))
                known = most[change, result]
                most[change, result] = max(known[0], found[0]), max(known[1], found[1])
                if seed == options.repeats - 1:
                    text = cell(*most[change, result], result)
                    print(f"{result:28} {change:24} {text}", flush=True)
    if options.log:
        write_log(
            "determinism",
            "Determinism",
            "python benchmarks/determinism.py --log",
            [
                f"{options.repeats} tables of 50 bags and about 600 rows, three classes, each "
                f"answered before and after {len(CHANGES)} changes by {len(results)} ways to fit: "
                f"{options.repeats * len(most):,} comparisons.",
                "A cell is the largest change of a probability (of `estimate`: of a share or a "
                "limit), and the share of rows whose label changes, if any does.",
            ],
            ["what is changed", *results],
            ([change, *(cell(*most[change, r], r) for r in results)] for change in CHANGES),
            [
                (
                    "Perceptrons had other labels for 7% of rows when columns changed places, and "
                    "for 8% when classes were renamed: initial weights went by place and name.",
                    "Initial weights follow the content of columns and the totals of classes.",
                )
            ],
            ("bagwise", "numba", "numpy", "scipy", "torch"),
        )


if __name__ == "__main__":
    main()
