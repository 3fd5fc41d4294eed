"""What seeds, threads, orders and names may change: docs/understand/determinism.md, held to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import nn

import bagwise
from bagwise import BagLogisticRegression, Bags, LLPClassifier, TrainingOptions
from bagwise.data import BagData
from bagwise.estimator.initial_weights import placed_by_content
from bagwise.labels.targets import bag_targets

CLASSES = ("a", "b", "c")
Found = npt.NDArray[np.float64]


class Table:
    """Rows in 30 bags, with an index by which they are found again, and their counts."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        sizes = rng.integers(4, 12, size=30)
        ward = np.repeat(np.arange(30), sizes)
        x = rng.normal(size=(30, 3))[ward] + rng.normal(size=(len(ward), 3))
        y = (x * (1.5, 1, 2) + rng.gumbel(size=x.shape)).argmax(axis=1)
        self.rows = pd.DataFrame(x * (1, 2, 3) + (0, 1, 5), columns=["x", "y", "z"])
        self.rows["town"] = np.array(["n", "s"])[rng.integers(2, size=len(x))]
        self.rows["ward"] = [f"W{w:02d}" for w in ward]
        counts = np.asarray(Bags.from_labels(y, sizes, n_classes=3).counts)
        self.labels = pd.DataFrame(counts, columns=list(CLASSES))
        self.labels.insert(0, "ward", [f"W{w:02d}" for w in range(30)])
        self.names = dict(zip(CLASSES, CLASSES, strict=True))

    def arrays(self) -> tuple[Found, Any, pd.DataFrame]:
        X = self.rows.select_dtypes("float").to_numpy()
        return X, self.rows["ward"].to_numpy(), self.labels.set_index("ward")

    def in_order(self, found: Any, classes: Any) -> Found:
        """By the index of the rows, and by the classes under their first names."""
        places = [[str(name) for name in classes].index(self.names[name]) for name in CLASSES]
        return np.asarray(found)[np.argsort(self.rows.index)][:, places]


def changed(what: str) -> Table:
    table = Table()
    if what == "rows":
        table.rows = table.rows.sample(frac=1, random_state=0)
    elif what == "lines":
        table.labels = table.labels.sample(frac=1, random_state=0)
    elif what == "class columns":
        table.labels = table.labels[["ward", *CLASSES[::-1]]]
    elif what == "columns":
        table.rows = table.rows[table.rows.columns[::-1]]
    elif what == "names of columns":
        names = {"x": "p", "y": "o", "z": "n", "town": "m"}
        table.rows = table.rows.rename(columns=names)
    elif what == "names of bags":
        names = {f"W{w:02d}": f"V{7 * w % 30:02d}" for w in range(30)}
        table.rows, table.labels = (x.replace({"ward": names}) for x in (table.rows, table.labels))
    elif what == "names of classes":
        table.names = dict(zip(CLASSES, "fde", strict=True))
        table.labels = table.labels.rename(columns=table.names)
    return table


def of_fit(table: Table, seed: int, **options: Any) -> Found:
    model = bagwise.fit(table.rows, "ward", table.labels, seed=seed, progress=False, **options)
    return table.in_order(model.predict_proba(table.rows), model.classes)


def of_estimator(table: Table, model: Any) -> Found:
    X, bags, counts = table.arrays()
    model.fit(X, bags, counts)
    return table.in_order(model.predict_proba(X), model.classes_)


def of_train(table: Table, seed: int) -> Found:
    X, bags, counts = table.arrays()
    targets = bag_targets(bags, counts)
    inputs, model = torch.from_numpy(X.astype(np.float32)), nn.Linear(3, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    options = TrainingOptions(epochs=3, lr=0.03, seed=seed, batch_instances=40)
    data = BagData(inputs[targets.order], targets.bags)
    bagwise.train(model, data, options=options, progress=False)
    return table.in_order(model(inputs).softmax(1).detach(), targets.classes)


WAYS: dict[str, Any] = {
    "linear": lambda table, seed: of_fit(table, seed, model="linear"),
    "perceptron": lambda table, seed: of_fit(table, seed, model="mlp", lr=1e-3, epochs=2),
    "logistic": lambda t, seed: of_estimator(t, BagLogisticRegression(random_state=seed)),
    "likelihood": lambda t, s: of_estimator(t, LLPClassifier(model="linear", random_state=s)),
    "steps": lambda t, s: of_estimator(
        t, LLPClassifier(epochs=2, validation_fraction=0, random_state=s)
    ),
    "train": of_train,
}
NOTHING = ("again", "lines", "class columns", "names of columns")
ROUNDING, DRAWS = 1e-5, 0.05
# How far a probability may change; None is like another seed. What rounding changes in training
# grows with its steps, which are few here.
MAY_CHANGE = {
    ("rows", "linear"): ROUNDING,
    ("rows", "logistic"): ROUNDING,
    ("rows", "likelihood"): ROUNDING,
    ("rows", "perceptron"): 1e-3,
    ("rows", "steps"): 1e-3,
    ("rows", "train"): ROUNDING,
    ("threads", "linear"): ROUNDING,
    ("threads", "perceptron"): 1e-3,
    ("threads", "steps"): 1e-3,
    ("seed", "linear"): 0,
    ("columns", "linear"): DRAWS,
    ("columns", "logistic"): DRAWS,
    ("columns", "likelihood"): ROUNDING,
    ("columns", "perceptron"): 1e-3,
    ("columns", "steps"): 1e-3,
    ("columns", "train"): ROUNDING,
    ("names of bags", "linear"): ROUNDING,
    ("names of bags", "logistic"): ROUNDING,
    ("names of classes", "linear"): DRAWS,
    ("names of classes", "logistic"): DRAWS,
    ("names of classes", "likelihood"): ROUNDING,
    ("names of classes", "perceptron"): 1e-3,
    ("names of classes", "steps"): 1e-3,
    ("names of classes", "train"): ROUNDING,
    **{(change, way): 0 for change in NOTHING for way in WAYS},
}


@pytest.fixture(scope="module")
def before() -> dict[str, Found]:
    with threadpool_limits(1):
        return {way: answer(Table(), 0) for way, answer in WAYS.items()}


@pytest.mark.parametrize(("change", "way"), MAY_CHANGE)
def test_a_change_that_should_not_matter_changes_no_more_than_the_page_says(
    change: str, way: str, before: dict[str, Found]
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if change == "threads" else threads)
    with threadpool_limits(2 if change == "threads" else 1):
        found = WAYS[way](changed(change), 1 if change == "seed" else 0)
    torch.set_num_threads(threads)
    assert np.abs(found - before[way]).max() <= MAY_CHANGE[change, way]


@pytest.mark.parametrize("way", ["perceptron", "steps", "train"])
def test_what_is_trained_step_by_step_depends_on_the_seed(
    way: str, before: dict[str, Found]
) -> None:
    assert np.abs(WAYS[way](Table(), 1) - before[way]).max() > 1e-4


def test_initial_weights_follow_columns_and_classes_to_other_places() -> None:
    X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) ** 2
    totals, columns, classes = np.array([5.0, 9.0, 7.0]), [2, 0, 3, 1], [1, 2, 0]

    def body(inputs: torch.Tensor, totals: Found) -> nn.Sequential:
        torch.manual_seed(1)
        made = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
        placed_by_content(made, inputs, totals)
        return made

    one, other = body(X, totals), body(X[:, columns], totals[classes])
    np.testing.assert_allclose(
        one(X)[:, classes].detach(), other(X[:, columns]).detach(), atol=1e-6
    )
