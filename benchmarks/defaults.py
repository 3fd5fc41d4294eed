"""What the estimator's defaults are worth: held-out accuracy of `LLPClassifier()` in many settings.

Beside it stand its former defaults: batches of 256 instances however few bags these are, a tenth of
the bags held out however few there are, and columns divided by their standard deviation.

Three tenths of a data set are the test part. The rest fills bags of K: at random, once each where
it fills ten bags and else drawn with replacement into 16; or "natural", every bag with label shares
of its own from a Dirichlet(0.1). The draws are those from 0; the defaults were chosen on draws from
1000. Pass the number of draws, 3 if not given, and data sets, all if not given.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import LLPClassifier

Array = npt.NDArray[Any]

FORMER = {"batch_bags": 1, "validation_fraction": 0.1, "standardize": False}
SIZES = (8, 16, 64, 150, 300)
NATURAL_SIZES = (30, 100, 300)
FEWEST, DRAWN = 10, 16  # bags that the data must fill, bags that are drawn where they do not


def gaussians(rng: np.random.Generator) -> tuple[Array, Array]:
    """Five classes in ten dimensions; the best possible accuracy is 89 %."""
    centres = 1.05 * np.random.default_rng(99).normal(size=(5, 10))
    y = rng.integers(5, size=3000)
    return centres[y] + rng.normal(size=(3000, 10)), y


SOURCES = {
    "digits": lambda _: load_digits(return_X_y=True),
    "breast cancer": lambda _: load_breast_cancer(return_X_y=True),
    "wine": lambda _: load_wine(return_X_y=True),
    "iris": lambda _: load_iris(return_X_y=True),
    "Gaussians": gaussians,
}


def accuracies(name: str, K: int, natural: bool, seed: int) -> list[float]:
    """With the former defaults and with today's, on one draw."""
    rng = np.random.default_rng(seed)
    X, y = SOURCES[name](rng)
    C = int(y.max()) + 1
    order = rng.permutation(len(X))
    test, rest = np.split(order, [len(X) * 3 // 10])
    B = len(rest) // K if len(rest) >= FEWEST * K else DRAWN
    if natural:
        shares = rng.dirichlet([0.1] * C, size=B)
        labels = np.concatenate([rng.choice(C, K, p=share) for share in shares])
        rows = np.empty(B * K, dtype=np.int64)
        for c in range(C):
            rows[labels == c] = rng.choice(rest[y[rest] == c], (labels == c).sum())
    else:
        rows = rng.choice(rest, B * K, replace=len(rest) < B * K)
    bags = np.repeat(np.arange(B), K)
    counts = np.stack([np.bincount(part, minlength=C) for part in y[rows].reshape(B, K)])
    today = LLPClassifier(random_state=seed)
    former = make_pipeline(StandardScaler(), LLPClassifier(random_state=seed, **FORMER))
    former.fit(X[rows], bags, llpclassifier__proportions=counts)
    today.fit(X[rows], bags, counts)
    return [float(model.score(X[test], y[test])) for model in (former, today)]


def main(draws: int, names: list[str]) -> None:
    cells = [(name, K, False) for name in names for K in SIZES]
    cells += [(name, K, True) for name in names for K in NATURAL_SIZES]
    found = {
        cell: np.array([accuracies(*cell, seed) for seed in range(draws)])
        for cell in track(cells, description="fitting", transient=True)
    }
    table = Table(title=f"Held-out accuracy in %, mean and standard deviation of {draws} draws")
    for column in ("data", "bags", "K", "former defaults", "defaults"):
        table.add_column(column, justify="right")
    for (name, K, natural), values in found.items():
        shown = [f"{100 * v.mean():.1f} ± {100 * v.std():.1f}" for v in values.T]
        table.add_row(name, "natural" if natural else "random", str(K), *shown)
    table.add_section()
    means = np.mean([values.mean(axis=0) for values in found.values()], axis=0)
    table.add_row("mean", "", "", *(f"{100 * mean:.1f}" for mean in means))
    Console().print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:] or list(SOURCES))
