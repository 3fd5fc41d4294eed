from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from bagwise import LLPClassifier
from bagwise.bags import Bags
from bagwise.methods.direct import CC
from fitted import fit_table

Array = npt.NDArray[Any]


def in_bags(X: Array, y: Array, K: int, B: int, seed: int) -> tuple[Array, ...]:
    """B bags of K rows drawn from seven tenths of the data; the rest is for testing."""
    rng = np.random.default_rng(seed)
    test, rest = np.split(rng.permutation(len(X)), [len(X) * 3 // 10])
    rows = rng.choice(rest, B * K, replace=len(rest) < B * K)
    bags = np.repeat(np.arange(B), K)
    counts = np.stack([np.bincount(part, minlength=y.max() + 1) for part in y[rows].reshape(B, K)])
    return X[rows], bags, counts, X[test], y[test]


def gaussians(seed: int) -> tuple[Array, Array]:
    """Five classes in ten dimensions that hardly overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(5, size=20_000)
    return 1.5 * rng.normal(size=(5, 10))[y] + rng.normal(size=(len(y), 10)), y


def test_digits_are_learned_from_few_bags() -> None:
    X, bags, counts, X_test, y_test = in_bags(*load_digits(return_X_y=True), K=64, B=19, seed=7)
    assert LLPClassifier(random_state=0).fit(X, bags, counts).score(X_test, y_test) > 0.95


# Fewer and larger steps than by default, to save time.
QUICK: dict[str, Any] = {"epochs": 12, "lr": 4e-3, "random_state": 0}


@pytest.mark.parametrize("K", [150, pytest.param(300, marks=pytest.mark.slow)])
def test_digits_are_learned_from_large_bags(K: int) -> None:
    X, bags, counts, X_test, y_test = in_bags(*load_digits(return_X_y=True), K, B=49, seed=7)
    assert LLPClassifier(**QUICK).fit(X, bags, counts).score(X_test, y_test) > 0.95


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"model": "linear", "lr": 3e-2}, marks=pytest.mark.slow)]
)
def test_gaussians_are_learned_from_large_bags(options: dict[str, Any]) -> None:
    X, bags, counts, X_test, y_test = in_bags(*gaussians(7), K=300, B=40, seed=7)
    model = LLPClassifier(**QUICK | options).fit(X, bags, counts)
    assert model.score(X_test, y_test) > 0.9


@pytest.mark.parametrize(("B", "many"), [(2, False), (49, False), (50, True), (200, True)])
def test_bags_are_held_out_where_there_are_many(B: int, many: bool) -> None:
    X, bags, counts, *_ = in_bags(*gaussians(7), K=4, B=B, seed=7)
    model = LLPClassifier(model="linear", epochs=1).fit(X, bags, counts)
    assert ("val_bag_loss" in model.history_[0]) == many
    asked = LLPClassifier(model="linear", epochs=1, validation_fraction=0.5).fit(X, bags, counts)
    assert "val_bag_loss" in asked.history_[0]


@pytest.mark.parametrize("fraction", [1.0, -0.1, "some", None])
def test_a_senseless_fraction_to_hold_out_is_named(fraction: Any) -> None:
    X, bags, counts, *_ = in_bags(*gaussians(7), K=4, B=9, seed=7)
    with pytest.raises(ValueError, match=rf"validation_fraction is {fraction!r}; .*less than 1"):
        LLPClassifier(validation_fraction=fraction).fit(X, bags, counts)


def test_no_table_is_learned_from_lone_bags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, bags, counts, *_ = in_bags(*gaussians(7), K=300, B=12, seed=7)
    pd.DataFrame(X).add_prefix("x").assign(ward=bags).to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame(counts).add_prefix("c").rename_axis("ward").to_csv(tmp_path / "bags.csv")
    seen: list[Bags] = []
    loss = CC.loss

    def spy(self: CC, logits: Any, batch: Any) -> Any:
        seen.append(batch.bags)
        return loss(self, logits, batch)

    monkeypatch.setattr(CC, "loss", spy)
    fit_table(tmp_path / "rows.csv", "ward", tmp_path / "bags.csv", model="mlp", lr=1e-3, epochs=1)
    assert min(len(bags) for bags in seen) >= 4  # half of the nine or ten of a fold
