"""What the estimator's defaults are worth, beside `bagwise fit`: test accuracy and log loss.

Three tenths of a data set are the test part, the rest fills bags of K at random. `LLPClassifier()`
and `LLPClassifier(model="linear")` have the columns as they are; `bagwise fit` reads the same rows
from files, with the model linear and with auto. The last two columns are the largest difference
between probabilities of the two linear models: of the test rows as they are, where `fit` also cuts
far values and may add logarithms, and of the training rows as `fit` encodes them for both. Pass the
number of seeds, 5 if not given, and data sets, all if not given.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs
from sklearn.metrics import log_loss

import bagwise
from bagwise import LLPClassifier

Array = npt.NDArray[Any]

SETTINGS = {
    "breast cancer": (lambda _: load_breast_cancer(return_X_y=True), 20),
    "wine": (lambda _: load_wine(return_X_y=True), 8),
    "digits, K = 16": (lambda _: load_digits(return_X_y=True), 16),
    "digits, K = 64": (lambda _: load_digits(return_X_y=True), 64),
    "two blobs": (lambda s: make_blobs(1000, 5, centers=2, cluster_std=4, random_state=s), 50),
}
MODELS = ("LLPClassifier()", 'model="linear"', "fit, linear", "fit, auto")


def probabilities(name: str, seed: int) -> tuple[list[Array], Array, float]:
    """Of the test rows by each of the models, their labels, and the difference on encoded rows."""
    make, K = SETTINGS[name]
    X, y = make(seed)
    C = int(y.max()) + 1
    order = np.random.default_rng(seed).permutation(len(X))
    test, rest = np.split(order, [len(X) * 3 // 10])
    rest = rest[: len(rest) // K * K]
    bags = np.arange(len(rest)) // K
    counts = np.stack([np.bincount(part, minlength=C) for part in y[rest].reshape(-1, K)])
    found = [
        LLPClassifier(model=model, random_state=0).fit(X[rest], bags, counts).predict_proba(X[test])
        for model in ("mlp", "linear")
    ]
    rows = pd.DataFrame(X).add_prefix("x")
    labels = pd.DataFrame(counts).add_prefix("class ").rename_axis("bag").reset_index()
    counted = rows.iloc[rest].assign(bag=bags)
    for model in ("linear", "auto"):
        table = bagwise.fit(counted, "bag", labels, model=model, progress=False)
        found.append(table.predict_proba(rows.iloc[test]).to_numpy())
        if model == "linear":
            batch = pa.RecordBatch.from_pandas(rows.iloc[rest], preserve_index=False)
            inputs = table.fitted.columns.encode(batch)
            own = LLPClassifier(model="linear", standardize=False).fit(inputs, bags, counts)
            theirs = np.exp(table.fitted.log_probs(inputs))
            encoded = float(np.abs(own.predict_proba(inputs) - theirs).max())
    return found, y[test], encoded


def main(seeds: int, names: list[str]) -> None:
    table = Table(title=f"Test accuracy in % / log loss, means of {seeds} seeds")
    for column in ("data", *MODELS, "difference", "encoded"):
        table.add_column(column, justify="right")
    for name in track(names, description="fitting", transient=True):
        measured, differences, on_encoded = [], [], []
        for seed in range(seeds):
            found, y, encoded = probabilities(name, seed)
            classes = range(found[0].shape[1])
            measured.append(
                [(100 * (p.argmax(1) == y).mean(), log_loss(y, p, labels=classes)) for p in found]
            )
            on_encoded.append(encoded)
            differences.append(np.abs(found[1] - found[2]).max())
        cells = [f"{a:.1f} / {loss:.3f}" for a, loss in np.mean(measured, axis=0)]
        table.add_row(name, *cells, f"{max(differences):.1g}", f"{max(on_encoded):.1g}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:] or list(SETTINGS))
