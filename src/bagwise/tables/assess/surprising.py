"""What a model says of all rows of a table, however many, and the bags that surprise it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from bagwise.bags import Bags, FloatArray
from bagwise.data import Inputs
from bagwise.data.inputs import full, take
from bagwise.data.stored_rows import StoredRows
from bagwise.likelihood.temperature import tempered
from bagwise.tables.assess.held_out import SURPRISING, surprising_bags
from bagwise.tables.model.fit_facts import SurprisingBag
from bagwise.tables.model.table_model import log_probs_by

_ROWS = 1 << 16  # that are predicted at a time; a model's own pieces are a part of them
_BAG_ROWS = 200_000  # instances of bags that are looked at at a time


def all_log_probs(model: nn.Module, inputs: Inputs) -> torch.Tensor:
    """(N, C) log-probabilities of encoded rows, in a file where the rows are in one."""
    if not isinstance(inputs, StoredRows):
        return log_probs_by(model, inputs)
    found: torch.Tensor | None = None
    for first in range(0, len(inputs), _ROWS):
        rows = torch.arange(first, min(first + _ROWS, len(inputs)))
        part = log_probs_by(model, take(inputs, rows))
        if found is None:
            found = full(inputs, (len(inputs), part.shape[1]), 0.0)
        found[first : first + _ROWS] = part
    assert found is not None
    return found


def surprising_in_pieces(
    log_probs: torch.Tensor,
    temperature: float,
    bags: Bags,
    ids: npt.NDArray[Any],
    tau: FloatArray | None = None,
) -> list[SurprisingBag]:
    """`surprising_bags` at a temperature, of some bags after the other: each is judged alone."""
    found: list[SurprisingBag] = []
    for index in bags.batches(_BAG_ROWS):
        first, last = int(bags.offsets[index[0]]), int(bags.offsets[index[-1] + 1])
        own = None if tau is None else tau[index]
        part = torch.from_numpy(tempered(log_probs[first:last].numpy(), temperature))
        found += surprising_bags(part, bags.select(index), ids[index], own)
    return sorted(found, key=lambda bag: -bag.surprise)[:SURPRISING]
