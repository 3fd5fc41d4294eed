"""Batches of whole bags."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bagwise.bags.arrays import IntArray
from bagwise.errors import InputError


def batches_of(
    sizes: IntArray, order: IntArray, max_instances: int, bags: int, most: int | None
) -> Iterator[IntArray]:
    """Parts of `order`, bags of these sizes in that order: see `Bags.batches`."""
    if max_instances < 1:
        raise InputError(f"max_instances is {max_instances}; a batch needs room for at least one.")
    if bags < 1:
        raise InputError(f"bags is {bags}; a batch needs at least one.")
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends])  # the first row of each bag, in this order
    limit = int(starts[-1]) if most is None else most

    def bags_up_to(rows: int) -> int:
        return int(np.searchsorted(ends, rows, side="right"))

    begin = end = 0  # the batch that is not yet given away
    while end < len(order):
        row = int(starts[end])
        several = min(end + bags, bags_up_to(row + limit))
        stop = max(end + 1, bags_up_to(row + max_instances), several)
        joins = begin < end and stop - end < bags and starts[stop] - starts[begin] <= limit
        if begin < end and not joins:
            yield order[begin:end]
            begin = end
        end = stop
    if begin < end:
        yield order[begin:end]
