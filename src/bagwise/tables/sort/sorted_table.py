"""Tables larger than memory: read batch by batch, sorted by bag into a file, learned from there."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

import bagwise
from bagwise.bags import Bags, IntArray
from bagwise.errors import BagwiseWarning, InputError, Option, warn_user
from bagwise.labels.counts_or_shares import to_bags
from bagwise.labels.targets import BagTargets
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import LEAST, shown_size
from bagwise.progress import RowProgress
from bagwise.storage.files import write_to
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.encode.columns import Columns, Inputs
from bagwise.tables.encode.learn_columns import ColumnLearner
from bagwise.tables.labels.label_file import LabelTable
from bagwise.tables.labels.one_class import completed
from bagwise.tables.match.bag_codes import bag_codes
from bagwise.tables.match.bag_table import MatchedRows, match_names, without_absent_classes
from bagwise.tables.match.heavy_tails import NUMBERS, judged_here, with_useful_logs
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.sort.encoded_bags import NUMBER
from bagwise.tables.sort.sorting import Batches, are_sorted, sorted_rows
from bagwise.tables.sort.store import READING, Store, digest_of

if TYPE_CHECKING:
    from bagwise.tables.sort.table_rows import Asked

KEPT = (
    *("cc", "cc_approx", "rc", "rc_approx", "dllp", "ot", "pll", "pvc"),
    *("pll_cc", "cc_then_rc", "cc_approx_then_rc_approx"),
)
CODES = "codes"
_HELD_OUT = 200_000  # rows that are judged at a time, or the largest bag
_ROWS = 1 << 20  # rows whose bags are looked up at a time


@dataclass(frozen=True)
class Reading:
    """What a first reading of all rows says.

    Attributes:
        codes: (N,) the number of each row's bag, -1 where it has none; mapped from a file.
        identity: what it was made of, JSON.
    """

    codes: npt.NDArray[np.int32]
    names: list[str]
    columns: Columns
    identity: Any


def refuse_what_needs_memory(method: str, row_labels: str | None) -> None:
    """Say what cannot be done within a budget."""
    if method not in KEPT:
        raise InputError(
            f"the method {method} looks at all rows at once; with ",
            Option("memory"),
            f" choose one of {', '.join(KEPT)}.",
        )
    if row_labels is not None:
        raise InputError(
            "labels of rows are all kept in memory; leave ",
            Option("row_labels"),
            " or ",
            Option("memory"),
            " out.",
        )


def read_sorted(
    source: RowSource,
    labels: LabelTable,
    asked: Asked,
    store: Store,
    budget: int,
    progress: bool,
) -> tuple[MatchedRows, StoredRows]:
    """The same as `match_rows`, `with_useful_logs` and `encode_rows`, with the rows in a store.

    What was done before, with the same files and the same arguments, is not done again.
    """
    source.require(asked.key)
    limits = source.limits
    reading = _read(source, asked, store, progress)
    rows, bag_of_code = matched(
        reading.columns,
        reading.names,
        row_totals(reading.codes, len(reading.names)),
        labels,
        source.name,
        asked.skip_unmatched,
    )
    rows = without_absent_classes(rows, labels.source)
    bags = rows.targets.bags
    refuse_small_budget(bags, budget, limits)
    batches = partial(encoded_batches, source, reading.codes, bag_of_code)

    def choose_columns() -> Any:
        encode = partial(_encoded, batches, rows.columns, bags)
        most = min(4 * NUMBERS, budget // NUMBER)
        return with_useful_logs(rows, asked.seed, judged_here(encode), most).to_json()

    identity = [reading.identity, _digest(bag_of_code), _digest(bags.sizes)]
    chosen_by = [identity, bags.fingerprint(), asked.seed, budget]
    columns = Columns.from_json(store.once("columns", chosen_by, choose_columns))
    width = len(columns.encoded_names)
    identity = [*identity, columns.to_json()]
    if progress:
        _say_where(
            store, bags.n_instances * width * 4, are_sorted(store, identity, bags.sizes, width)
        )
    path = sorted_rows(
        store,
        identity,
        partial(batches, columns),
        bags.sizes,
        width,
        budget // limits.sorting_part,
        len(reading.codes),
        progress,
        limits,
    )
    stored = StoredRows.of_file(path, bags.sizes, width, budget, digest_of(identity), limits)
    return replace(rows, columns=columns), stored


def _say_where(store: Store, size: int, are_there: bool) -> None:
    text = f"Rows are sorted by bag into {store.folder}, which will take {shown_size(size)}."
    if are_there:
        text = f"Rows are in {store.folder} already, sorted by bag ({shown_size(size)})."
    Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)


def refuse_small_budget(bags: Bags, budget: int, limits: Limits = LIMITS) -> None:
    """Raise a ValueError where held-out bags cannot be judged within so many bytes."""
    rows = max(min(_HELD_OUT, bags.n_instances), int(bags.sizes.max()))
    needed = LEAST + rows * bags.n_classes * limits.probability_bytes
    if needed > budget:
        largest = int(bags.sizes.max())
        raise InputError(
            Option("memory"),
            f" is {shown_size(budget)}; with {bags.n_classes} classes and up to {largest:,} "
            f"rows in a bag, at least {-(-needed // 10**6):,} MB are needed.",
        )


def _read(source: RowSource, asked: Asked, store: Store, progress: bool) -> Reading:
    """Read all rows, unless that was done before; notes of then are given again."""
    learner = learner_for(source, asked)
    unused = [*asked.key, *asked.exclude]
    columns = [asked.key, asked.features, unused, sorted(asked.categorical), asked.ordered]
    sizes = [source.batch_rows, source.limits.tracked_texts]  # which decide what columns mean
    identity = [bagwise.__version__, source.fingerprint(), columns, *sizes]
    path = store.folder / CODES

    def read() -> Any:
        numbers: dict[str, int] = {}
        with (
            warnings.catch_warnings(record=True) as noted,
            RowProgress("reading", source.rows, progress) as bar,
            path.open("wb", buffering=0) as file,
        ):
            warnings.simplefilter("always", UserWarning)
            rows = 0
            for (codes,) in bag_codes(source, [asked.key], learner, bar, [numbers]):
                write_to(file, codes.data)
                rows += len(codes)
            found = learner.finish().to_json()
        notes = [parts_of(w.message) for w in noted if issubclass(w.category, UserWarning)]
        return {"rows": rows, "names": list(numbers), "columns": found, "notes": notes}

    known = store.read(READING, identity)
    if known is not None and not (path.exists() and path.stat().st_size == 4 * known["rows"]):
        store.forget(READING)
    found = store.once(READING, identity, read)
    warn_again(found["notes"])
    codes = np.memmap(path, np.int32, "r", shape=(found["rows"],))
    return Reading(np.asarray(codes), found["names"], Columns.from_json(found["columns"]), identity)


def learner_for(source: RowSource, asked: Asked, first_row: int = 0) -> ColumnLearner:
    """What learns the columns of a table from this row on."""
    return ColumnLearner(
        source.schema,
        asked.features,
        [*asked.key, *asked.exclude],
        asked.categorical,
        asked.ordered,
        source.limits,
        first_row=first_row,
    )


def parts_of(message: Warning | str) -> list[Any]:
    """The parts of a warning, as JSON can hold them."""
    parts = message.args if isinstance(message, BagwiseWarning) else [str(message)]
    return [asdict(part) if isinstance(part, Option) else str(part) for part in parts]


def warn_again(notes: Sequence[list[Any]]) -> None:
    """Give warnings again, of which these are the parts."""
    for note in notes:
        parts = (part if isinstance(part, str) else Option(**part) for part in note)
        warn_user(BagwiseWarning(*parts))


def row_totals(codes: npt.NDArray[np.int32], n_names: int) -> IntArray:
    """(number of names + 1,) rows of each bag, those of no bag last."""
    rows_of = np.zeros(n_names + 1, dtype=np.int64)
    for start in range(0, len(codes), _ROWS):
        some = codes[start : start + _ROWS]
        rows_of += np.bincount(np.where(some < 0, n_names, some), minlength=len(rows_of))
    return rows_of


def matched(
    columns: Columns,
    names: list[str],
    rows_of: IntArray,
    labels: LabelTable,
    name: str,
    skip_unmatched: bool,
) -> tuple[MatchedRows, IntArray]:
    """What is known of the bags, and (number of names + 1,) the place of each among them, -1 for
    those that are left out, and for -1.

    Args:
        names: of the bags that rows are in.
        rows_of: how many, and, last, how many rows are in none.
        name: of the table.
    """
    index, left_out = match_names(int(rows_of[-1]), names, labels, name, skip_unmatched)
    there = np.flatnonzero(index >= 0)
    sizes = np.zeros(len(labels.ids), dtype=np.int64)
    np.add.at(sizes, index[there], rows_of[there])
    used = np.flatnonzero(sizes)
    ids, classes = np.array(labels.ids, dtype=object)[used], np.array(labels.classes, dtype=np.str_)
    numbers = completed(labels, sizes)[used]
    bags, rounding = to_bags(ids, sizes[used], numbers, labels.label_spec, classes)
    # Nothing asks for the order of the rows: they come to lie in it.
    targets = BagTargets(np.empty(0, dtype=np.int64), bags, ids, classes, rounding)
    place = np.full(len(labels.ids), -1)
    place[used] = np.arange(len(used))
    bag_of_code = np.append(np.where(index >= 0, place[index], -1), -1)
    n = int(rows_of.sum())
    rows = MatchedRows(targets, columns, n, left_out, [labels], 0, None, n)
    return rows, bag_of_code


def _digest(array: IntArray) -> str:
    return hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()


def encoded_batches(
    source: RowSource,
    codes: npt.NDArray[np.int32],
    bag_of_code: IntArray,
    columns: Columns,
    first_row: int = 0,
) -> Batches:
    """The bag of each row of a batch, and what encodes it; the first one is this row of a table."""
    row = 0
    for batch in source.batches(columns.names):
        own = bag_of_code[codes[row : row + batch.num_rows]]
        yield own, partial(columns.encode, batch, first_row + row)
        row += batch.num_rows


def _encoded(batches: Any, columns: Columns, bags: Bags, index: IntArray) -> Inputs:
    """(n, width) the encoded rows of some bags, in memory, sorted by bag."""
    places, rows = rows_of_bags(batches(columns), len(bags), index)
    found: Inputs = rows[np.argsort(places, kind="stable")]
    return found


def rows_of_bags(batches: Batches, n_bags: int, index: IntArray) -> tuple[IntArray, Inputs]:
    """(n,) the place in `index` of the bag of each row that is in one of these, and the rows."""
    wanted = np.full(n_bags + 1, -1)
    wanted[index] = np.arange(len(index))
    places, parts = [np.empty(0, dtype=np.int64)], []
    for own, encode in batches:
        place = wanted[own]
        if (there := place >= 0).any():
            parts.append(encode()[there])
            places.append(place[there])
    rows = np.concatenate(parts) if parts else np.empty((0, 0), dtype=np.float32)
    return np.concatenate(places), rows
