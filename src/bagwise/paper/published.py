"""The figures that the paper printed."""

from __future__ import annotations

import csv
import importlib.resources
from functools import lru_cache
from typing import NamedTuple

from bagwise.paper.appearance import look
from bagwise.paper.datasets import published_name


class Published(NamedTuple):
    """A cell of the paper's tables.

    Attributes:
        mark: ● where the paper's best proposed method is significantly better, ○ where it is worse.
    """

    mean: float
    std: float
    mark: str = ""


MARKS = {"better": "●", "worse": "○", "": ""}


@lru_cache
def paper_results() -> dict[tuple[str, str, str, int], Published | None]:
    """(dataset, model, method, bag size) -> its cell; None where the paper has NA.

    Supervised learning has bag size 1. What the paper has no row for, PLL for one, is not there.
    """
    source = importlib.resources.files("bagwise.paper") / "paper.csv"
    found = {}
    with source.open() as file:
        for row in csv.DictReader(file):
            key = (row["dataset"], row["model"], row["method"], int(row["bag_size"] or 1))
            mark = MARKS[row["significance"]]
            known = Published(float(row["mean"]), float(row["std"]), mark) if row["mean"] else None
            found[key] = known
    return found


def in_paper(dataset: str, model: str) -> tuple[str, str]:
    """What the paper calls a data set and a model: raw pixels and the authors' code are its own.

    >>> in_paper("cifar10-raw", "resnet32_authors")
    ('cifar10', 'resnet32')
    """
    return published_name(dataset), model.removesuffix("_authors")


def has_cell(dataset: str, model: str, method: str, K: int) -> bool:
    """Whether the paper's tables have such a cell, be it NA."""
    return (*in_paper(dataset, model), method, K) in paper_results()


def published(dataset: str, model: str, method: str, K: int) -> Published | None:
    """A cell of the paper; None where it has NA or no such cell.

    >>> published("mnist-raw", "linear", "dllp", 32)
    Published(mean=53.9, std=13.6, mark='●')
    """
    return paper_results().get((*in_paper(dataset, model), method, K))


def paper_best(dataset: str, model: str, K: int) -> Published | None:
    """The best cell of a column of the paper, supervised learning excepted."""
    wanted = (*in_paper(dataset, model), K)
    cells = [
        cell
        for (d, m, method, size), cell in paper_results().items()
        if cell is not None and (d, m, size) == wanted and not look(method).needs_labels
    ]
    return max(cells) if cells else None
