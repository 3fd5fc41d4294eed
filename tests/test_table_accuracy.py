"""What `fit` finds without tuning, compared with the same model and the true labels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from bagwise.tables.use.evaluate import evaluate_table
from fitted import fit_table


def write(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.mark.slow
def test_bags_of_about_twenty_are_within_three_points_of_true_labels(tmp_path: Path) -> None:
    source = load_breast_cancer()
    X, y = source.data, source.target
    names = [f"x{c}" for c in range(X.shape[1])]
    gaps = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(y))
        test, train = order[:142], order[142:]
        ward = rng.integers(len(train) // 20, size=len(train))
        rows = [[f"P{i}", f"W{w}", *X[i]] for w, i in zip(ward, train, strict=True)]
        data = write(tmp_path / "rows.csv", ["patient", "ward", *names], rows)
        counts = [[f"W{w}", *np.bincount(y[train[ward == w]], minlength=2)] for w in set(ward)]
        bags = write(tmp_path / "bags.csv", ["ward", "0", "1"], counts)
        known = [[f"P{i}", 1 - y[i], y[i]] for i in train]
        labels = write(tmp_path / "labels.csv", ["patient", "0", "1"], known)
        truth = write(tmp_path / "truth.csv", [*names, "y"], [[*X[i], y[i]] for i in test])
        from_bags = fit_table(data, "ward", bags, exclude="patient")
        model = from_bags.facts.settings.model
        settings = {"model": model, "lr": 0.01, "epochs": 60}  # as good as searched ones
        from_labels = fit_table(data, "patient", labels, exclude="ward", **settings)
        accuracies = [evaluate_table(m, truth, "y").accuracy for m in (from_labels, from_bags)]
        assert accuracies[1] > 0.9
        gaps.append(accuracies[0] - accuracies[1])
    assert np.mean(gaps) < 0.03, gaps
