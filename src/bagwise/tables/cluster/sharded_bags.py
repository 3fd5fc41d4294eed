"""The encoded rows of a table that the workers of a cluster keep, each those of whole bags."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.in_pieces import Keep, SummedLikelihood
from bagwise.likelihood.linear_fit import occurring
from bagwise.likelihood.sharded import ShardedLikelihood
from bagwise.limits import Limits
from bagwise.tables.assess.surprising import all_log_probs, most_surprising
from bagwise.tables.model.fit_facts import SurprisingBag
from bagwise.tables.sort.encoded_bags import NUMBER, EncodedBags

if TYPE_CHECKING:
    from bagwise.tables.cluster.worker_pool import Workers


@dataclass(frozen=True, eq=False)
class ShardedRows:
    """Rows of some of the bags that workers keep.

    Attributes:
        workers: who keep them.
        begins: (workers + 1,) the first bag of each worker, and, last, the number of all bags.
        index: (B,) which of all bags these are, ascending.
        width: numbers of a row.
        memory: bytes that each worker may use; None for all there is.
        digest: of all rows.
    """

    workers: Workers
    begins: IntArray
    index: IntArray
    width: int
    memory: int | None
    digest: str

    @property
    def shape(self) -> tuple[int | None, int]:
        """As that of an array; how many rows there are the bags say."""
        return None, self.width

    def by_worker(self) -> dict[int, IntArray]:
        """The bags of each worker that has some of these, by their numbers there."""
        cuts = np.searchsorted(self.index, self.begins)
        return {
            i: self.index[cuts[i] : cuts[i + 1]] - self.begins[i]
            for i in range(len(self.begins) - 1)
            if cuts[i] < cuts[i + 1]
        }


@dataclass(frozen=True, eq=False)
class ShardedBags(EncodedBags):
    """As `EncodedBags`; no row ever comes to the driver."""

    inputs: Any  # ShardedRows

    def select(self, index: IntArray) -> ShardedBags:
        """These bags only, in ascending order."""
        rows = replace(self.inputs, index=self.inputs.index[index])
        return ShardedBags(rows, self.bags.select(index))

    def in_pieces(
        self, index: IntArray, most: int, keep: Keep | None = None
    ) -> tuple[SummedLikelihood, IntArray]:
        """The likelihood of these bags by sums over workers, and the classes that they have."""
        bags, classes = occurring(self.bags.select(index))
        workers: Workers = self.inputs.workers
        chosen = self.select(index).inputs.by_worker()
        own = {i: workers.put(local) for i, local in chosen.items()}

        def ask(name: str, *arguments: Any) -> list[Any]:
            sent = {i: (local, classes, most, name, *arguments) for i, local in own.items()}
            return workers.each("likelihood", sent)

        return ShardedLikelihood(ask, self.width, bags, keep), classes

    def apply(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        watch: Callable[[int, int], None] | None = None,
    ) -> Any:
        """What a function says of these bags; the first worker that has some gets all their rows.
        Nobody is told how far it is.
        """
        own = {i: (local,) for i, local in self.inputs.by_worker().items()}
        workers: Workers = self.inputs.workers
        return workers.gathered("rows", own, "apply", function, self.bags, arguments)

    def log_probs(self, predict: Callable[[npt.NDArray[Any]], FloatArray]) -> ShardedLogProbs:
        """What a model says of rows."""
        return ShardedLogProbs(self, predict)

    def together(self, function: Callable[..., Any], sample: IntArray, *arguments: Any) -> Any:
        """What a function says that all workers with bags call at the same time: the first of them.

        It is called with a worker's bags, its number among these workers, the first bag of each of
        them, the arguments, and of each an address at which to meet it and some of its rows.

        Args:
            sample: the numbers of these rows, ascending. Bags are those of the whole table.
        """
        inputs, workers = self.inputs, self.inputs.workers
        rows = self._places(sample)
        sent = [workers.put(value) for value in arguments]
        begins = inputs.begins[[*rows, -1]]
        own = {i: (function, n, begins, *sent) for n, i in enumerate(rows)}
        return workers.together("meet", {i: (part,) for i, part in rows.items()}, "with_own", own)[
            next(iter(rows))
        ]

    def _places(self, rows: IntArray) -> dict[int, IntArray]:
        """The numbers that rows, ascending, have at each worker that has bags of the table."""
        begins = self.inputs.begins
        first = self.bags.offsets[begins]
        cuts = np.searchsorted(rows, first)
        return {
            i: rows[cuts[i] : cuts[i + 1]] - first[i]
            for i in range(len(begins) - 1)
            if begins[i] < begins[i + 1]
        }

    def compact(self) -> EncodedBags:
        """Rows stay as they are."""
        return self

    def written_out(self) -> EncodedBags:
        """Rows have no weights."""
        return self

    def most_numbers(self, limits: Limits) -> int:
        """Cells that one worker may have in double precision."""
        memory = self.inputs.memory
        return limits.linear_cells if memory is None else min(limits.linear_cells, memory // NUMBER)

    def fingerprint(self) -> str:
        """A short digest of rows and bags."""
        digest = hashlib.blake2b(self.bags.fingerprint().encode(), digest_size=8)
        digest.update(self.inputs.digest.encode())
        digest.update(self.inputs.index.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class ShardedLogProbs:
    """What a model says of the rows of all bags; asked for some, workers compute them."""

    data: ShardedBags
    predict: Callable[[npt.NDArray[Any]], FloatArray]

    def __getitem__(self, rows: IntArray) -> npt.NDArray[np.float32]:
        """(n, C) log-probabilities of these rows, ascending."""
        places = self.data._places(rows)
        asked = {i: (self.predict, own) for i, own in places.items() if len(own)}
        found = self.data.inputs.workers.each("log_probs", asked)
        return np.concatenate([np.empty((0, self.data.bags.n_classes), np.float32), *found])

    def surprising(self, temperature: float, ids: npt.NDArray[Any]) -> list[SurprisingBag]:
        """The bags that surprise the model most."""
        inputs = self.data.inputs
        own = inputs.by_worker()
        asked = dict.fromkeys(own, (self.predict, temperature))
        found = []
        for i, bags in zip(own, inputs.workers.each("surprising", asked), strict=True):
            found += [replace(b, bag=str(ids[inputs.begins[i] + int(b.bag)])) for b in bags]
        return most_surprising(found)


def log_probs_of(predict: Callable[[npt.NDArray[Any]], FloatArray], data: EncodedBags) -> Any:
    """`all_log_probs`; where rows are spread over workers, what gives those of some."""
    return (
        data.log_probs(predict) if isinstance(data, ShardedBags) else all_log_probs(predict, data)
    )


def shard_begins(bags: Bags, n: int) -> IntArray:
    """(n + 1,) the first bag of each of n shards of about as many rows, and the number of bags.

    >>> shard_begins(Bags([5, 1, 1, 3], [[5], [1], [1], [3]]), 2)
    array([0, 1, 4])
    """
    ends = bags.offsets[1:]
    middles = ends - bags.sizes / 2
    cuts = np.searchsorted(middles, np.linspace(0, bags.n_instances, n + 1)[1:-1])
    begins: IntArray = np.concatenate([[0], cuts, [len(bags)]]).astype(np.int64)
    return begins
