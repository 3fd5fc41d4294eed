"""What a model says of all rows of a table, however many, and the bags that surprise it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood.temperature import tempered
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.assess.held_out import SURPRISING, surprising_bags
from bagwise.tables.model.fit_facts import SurprisingBag
from bagwise.tables.sort.encoded_bags import EncodedBags

_ROWS = 1 << 16  # that are predicted at a time; a model's own pieces are a part of them
_BAG_ROWS = 200_000  # instances of bags that are looked at at a time


def all_log_probs(
    log_probs: Callable[[npt.NDArray[Any]], FloatArray], data: EncodedBags
) -> npt.NDArray[Any]:
    """(N, C) what a function says of all encoded rows, in a file where the rows are in one."""
    found = data.per_row(data.bags.n_classes, 0.0)
    for first in range(0, len(data), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(data)))
        stored = isinstance(data.inputs, StoredRows)
        found[rows] = log_probs(data.inputs.take(rows) if stored else data.inputs[rows])
    return found


def surprising_in_pieces(
    log_probs: Callable[[int, int], FloatArray],
    temperature: float,
    bags: Bags,
    ids: npt.NDArray[Any],
    tau: FloatArray | None = None,
) -> list[SurprisingBag]:
    """`surprising_bags` at a temperature, of some bags after the other: each is judged alone.

    Args:
        log_probs: gives those of the rows from one number to another, (n, C).
    """
    found: list[SurprisingBag] = []
    for index in bags.batches(_BAG_ROWS):
        first, last = int(bags.offsets[index[0]]), int(bags.offsets[index[-1] + 1])
        own = None if tau is None else tau[index]
        part = tempered(log_probs(first, last), temperature)
        found += surprising_bags(part, bags.select(index), ids[index], own)
    return most_surprising(found)


def most_surprising(bags: list[SurprisingBag]) -> list[SurprisingBag]:
    """The first of these, the most surprising one first."""
    return sorted(bags, key=lambda bag: -bag.surprise)[:SURPRISING]
