"""Reading a table by the workers of a cluster: the same bags, columns and numbers as by one
process, and no row on the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import bagwise
from bagwise.bags import Bags, IntArray
from bagwise.errors import InputError
from bagwise.progress import WorkProgress
from bagwise.tables.cluster.sharded_bags import ShardedBags, ShardedRows, shard_begins
from bagwise.tables.cluster.shares import SharedSource
from bagwise.tables.cluster.worker import ShareOfRows
from bagwise.tables.cluster.worker_pool import Workers
from bagwise.tables.encode.columns import Columns
from bagwise.tables.labels.label_file import LabelTable
from bagwise.tables.match.bag_table import MatchedRows, without_absent_classes
from bagwise.tables.match.heavy_tails import NUMBERS, with_useful_logs
from bagwise.tables.read.streaming import Look
from bagwise.tables.read.table_files import TableFile, is_text_file
from bagwise.tables.sort.encoded_bags import NUMBER
from bagwise.tables.sort.sorted_table import (
    learner_for,
    matched,
    refuse_small_budget,
    warn_again,
)
from bagwise.tables.sort.store import digest_of
from bagwise.tables.sort.table_rows import Asked


def looked_at(files: Sequence[TableFile], asked: Asked, workers: Workers) -> dict[TableFile, Look]:
    """What the columns of CSV files hold; workers read these, each some of them."""
    parts = np.array_split(np.arange(len(files)), len(workers))
    own = {i: [files[k] for k in part if is_text_file(files[k])] for i, part in enumerate(parts)}
    found: dict[TableFile, Look] = {}
    arguments = {i: (texts, asked.as_text, asked.limits) for i, texts in own.items() if texts}
    for looks in workers.each("look", arguments):
        found |= looks
    return found


def rows_in_shards(
    source: SharedSource,
    labels: LabelTable,
    asked: Asked,
    workers: Workers,
    memory: int | None,
    progress: bool,
) -> tuple[Sequence[str], MatchedRows, ShardedBags]:
    """As `rows_in_store`, the rows with the workers.

    Args:
        memory: bytes that each of them may use; None for all there is.
    """
    with WorkProgress("workers", "steps", 4, progress) as bar:
        bar.begin("read the table")
        shares = source.shares(len(workers))
        asked = replace(asked, label_file=None)
        parts = workers.prepare("read", {i: (share, asked) for i, share in enumerate(shares)})
        bar.advance()
        columns = _columns(source, asked, parts)
        rows = _matched(workers, columns, parts, labels, source.name, asked.skip_unmatched)
        rows = without_absent_classes(rows, labels.source)
        bags = rows.targets.bags
        if memory is not None:
            refuse_small_budget(bags, memory, source.limits)
        bar.begin("look at heavy tails")
        most = 4 * NUMBERS if memory is None else min(4 * NUMBERS, memory // NUMBER)
        judge = partial(_judged, workers, columns, bags)
        columns = with_useful_logs(rows, asked.seed, judge, most)
        bar.advance()
        bar.begin("sort rows by bag")
        width, begins = len(columns.encoded_names), shard_begins(bags, len(workers))
        keepers = {i for i in range(len(workers)) if begins[i] < begins[i + 1]}
        own_bags = {i: bags.select(np.arange(begins[i], begins[i + 1])) for i in keepers}
        settle = {i: (part, width, memory, source.limits) for i, part in own_bags.items()}
        workers.settle(columns, begins, width, settle)
        bar.advance(2)
    digest = digest_of([bagwise.__version__, source.fingerprint(), columns.to_json(), memory])
    inputs = ShardedRows(workers, begins, np.arange(len(bags)), width, memory, digest)
    return source.places, replace(rows, columns=columns), ShardedBags(inputs, bags)


def _columns(source: SharedSource, asked: Asked, parts: Sequence[ShareOfRows]) -> Columns:
    """What the columns mean, by what each worker has learned."""
    if not sum(int(part.rows_of.sum()) for part in parts):
        raise InputError(f"{source.name} has no rows.")
    learner = learner_for(source, asked)
    for part in parts:
        learner.merge(part.learner)
        warn_again(part.notes)
    return learner.finish()


def _matched(
    workers: Workers,
    columns: Columns,
    parts: Sequence[ShareOfRows],
    labels: LabelTable,
    name: str,
    skip_unmatched: bool,
) -> MatchedRows:
    """What is known of the bags; workers keep which bag each of their names is.

    Names of bags stay with the workers, unless labels lack some.
    """
    everyone, n = range(len(workers)), len(labels.ids)
    ids = workers.put(pa.array(labels.ids, pa.string()))
    found = workers.prepare("known", dict.fromkeys(everyone, (ids,)))
    if all((label >= 0).all() for label in found):
        rows_of = np.zeros(n + 1, dtype=np.int64)
        for label, part in zip(found, parts, strict=True):
            rows_of[label] += part.rows_of[:-1]
            rows_of[-1] += part.rows_of[-1]
        there = np.flatnonzero(rows_of[:-1])
        names = [labels.ids[place] for place in there.tolist()]
        rows, bag_of_code = matched(
            columns, names, rows_of[[*there, -1]], labels, name, skip_unmatched
        )
        bag_of_label = np.full(n + 1, -1)
        bag_of_label[there] = bag_of_code[:-1]
        workers.prepare("match", dict.fromkeys(everyone, (workers.put(bag_of_label),)))
        return rows
    lists = workers.each("names", dict.fromkeys(everyone, ()))
    place = {bag: number for number, bag in enumerate(dict.fromkeys(chain(*lists)))}
    numbers = [np.array([*(place[bag] for bag in own), -1]) for own in lists]
    rows_of = np.zeros(len(place) + 1, dtype=np.int64)
    for own, part in zip(numbers, parts, strict=True):
        np.add.at(rows_of, own, part.rows_of)
    rows, bag_of_code = matched(columns, list(place), rows_of, labels, name, skip_unmatched)
    workers.prepare("match", {i: (None, bag_of_code[own]) for i, own in enumerate(numbers)})
    return rows


def _judged(
    workers: Workers,
    columns: Columns,
    all_bags: Bags,
    index: IntArray,
    is_log: npt.NDArray[np.bool_],
    bags: Bags,
    seed: int,
) -> tuple[float, float]:
    """`log_gain` of some bags, whose rows the first worker gets."""
    own = dict.fromkeys(range(len(workers)), (columns, len(all_bags), index))
    found: tuple[float, float] = workers.gathered("some", own, "judge", is_log, bags, seed)
    return found
