"""Networks of a table whose rows the workers of a cluster share.

A training on few bags is done by one worker, which gets their rows. One on all bags is done by all
workers together, each of which has the rows of its own bags and no others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from bagwise.bags import Bags, IntArray
from bagwise.data import BagData
from bagwise.estimator.classifier import SAMPLE, LLPClassifier
from bagwise.likelihood.splits import Split
from bagwise.storage.array_files import Arrays
from bagwise.storage.spread_rows import SpreadRows
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.cluster.sharded_bags import ShardedBags
from bagwise.tables.sort.encoded_bags import EncodedBags
from bagwise.training import Callback

_PATIENCE = timedelta(minutes=10)  # of workers that wait for one that may have died


def train_on_a_worker(
    data: ShardedBags, tried: LLPClassifier, split: Split, classes: npt.NDArray[Any]
) -> Arrays:
    """What `network_candidates.train_fold` finds."""
    index = np.sort(np.concatenate(split))
    places = [np.searchsorted(index, part) for part in split]
    arguments = tried, places, classes, data.inputs.memory
    found: Arrays = data.select(index).apply(_trained_fold, *arguments)
    return found


def _trained_fold(
    data: EncodedBags,
    tried: LLPClassifier,
    split: Split,
    classes: npt.NDArray[Any],
    memory: int | None,
) -> Arrays:
    from bagwise.estimator.network_candidates import train_fold

    return train_fold(tried, _bag_data(data, memory), split, classes, Callback())


def train_all_on_a_worker(
    data: ShardedBags, classifier: LLPClassifier, classes: npt.NDArray[Any]
) -> LLPClassifier:
    """The classifier, trained on all bags."""
    found: LLPClassifier = data.apply(_trained, classifier, classes, data.inputs.memory)
    return found


def _trained(
    data: EncodedBags, classifier: LLPClassifier, classes: npt.NDArray[Any], memory: int | None
) -> LLPClassifier:
    nothing_at_once: list[Callback] = [Callback()]  # by steps, not by maximum likelihood
    return classifier.fit_bags(_bag_data(data, memory), classes, callbacks=nothing_at_once)


def _bag_data(data: EncodedBags, memory: int | None) -> BagData:
    """The rows as a fit without a cluster has them."""
    if memory is None:
        return BagData(torch.from_numpy(np.asarray(data.inputs)), data.bags)
    rows, begins = np.asarray(data.inputs), data.bags.offsets[:-1]
    return BagData(StoredRows(rows, begins, data.bags.sizes, memory), data.bags)


def train_together(
    data: ShardedBags, classifier: LLPClassifier, split: Split, classes: npt.NDArray[Any]
) -> LLPClassifier:
    """The classifier, trained on the first part of all bags until the second one is most probable.

    The same batches as in one process; statistics to standardize by are those of some rows.
    """
    kept = split[0]
    n = int(data.bags.sizes[kept].sum())
    few = min(SAMPLE, n)
    # The numbers that evenly spread rows of the kept bags have among all.
    ends = np.cumsum(data.bags.sizes[kept])
    places = np.arange(few) * n // few
    bag = np.searchsorted(ends, places, side="right")
    sample = data.bags.offsets[kept[bag]] + places - (ends - data.bags.sizes[kept])[bag]
    found: LLPClassifier = data.together(
        _trained_together, sample, data.bags, classifier, split, classes
    )
    return found


def _trained_together(
    own: EncodedBags,
    rank: int,
    begins: IntArray,
    bags: Bags,
    classifier: LLPClassifier,
    split: Split,
    classes: npt.NDArray[Any],
    *met: tuple[str, npt.NDArray[np.float32]],
) -> LLPClassifier | None:
    sample = np.concatenate([rows for _, rows in met])
    assert isinstance(own.inputs, StoredRows)
    rows = SpreadRows(own.inputs, begins, rank, bags.sizes, sample)
    kept, held_out = (BagData(rows, bags).select(index) for index in split)
    host, _, port = met[0][0].rpartition(":")
    size = len(begins) - 1
    store = dist.TCPStore(host, int(port), size, rank == 0, _PATIENCE)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    try:
        classifier.fit_bags(kept, classes, held_out)
    finally:
        dist.destroy_process_group()
    return classifier if rank == 0 else None
