"""Batches of whole bags for one's own training loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from bagwise.bags import Bags, IntArray
from bagwise.checks import whole
from bagwise.errors import InputError

_COUNT = whole(1)
_EPOCH = whole(0, 2**31)


class BagBatchSampler(Sampler[list[int]]):
    """Batches of whole bags, up to a number of instances: the `batch_sampler` of a `DataLoader`.

    Bags come in another random order each epoch. Seed and epoch decide the order. Each new
    iteration is the next epoch; `set_epoch` chooses another, for instance to go on after a restart.

    In distributed training each worker gets its own share of an epoch's batches, the same number
    each: where they do not divide evenly, some batches of the beginning come twice. Which worker
    this is, is asked when an epoch begins, so the sampler may be made before the process group.

    Its length is the number of batches of the whole epoch that is running, or of the one that
    `set_epoch` announced. It can differ between epochs if bags differ in size.

    `state_dict` says which batches are left of an epoch. A sampler of the same bags and options
    that loads it yields these first, also with another number of workers, then the next epoch's.

    Args:
        max_instances: a batch holds at most so many instances; a larger bag is a batch of its own.
        min_bags: but at least so many bags, as batch normalization needs several.
        shuffle: or in their own order.
        rank: which worker this is; that of `torch.distributed` if not given, 0 without it.
        replicas: how many workers there are; likewise. Give rank=0 and replicas=1 where something
            else divides the batches among workers.

    >>> bags = Bags([3, 2, 2, 9, 1], [[3], [2], [2], [9], [1]])
    >>> list(BagBatchSampler(bags, max_instances=5, shuffle=False))
    [[0, 1], [2], [3], [4]]
    >>> sampler = BagBatchSampler(bags, max_instances=5, seed=1)
    >>> first = list(sampler)
    >>> list(sampler) == first
    False
    >>> sampler.set_epoch(0)
    >>> list(sampler) == first
    True
    """

    def __init__(
        self,
        bags: Bags,
        max_instances: int = 256,
        *,
        min_bags: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        replicas: int | None = None,
    ) -> None:
        _COUNT(max_instances, "max_instances")
        _COUNT(min_bags, "min_bags")
        whole(0, 2**62)(seed, "seed")
        if replicas is not None:
            _COUNT(replicas, "replicas")
        if rank is not None:
            _check_rank(rank, 2**53 if replicas is None else replicas)
        self.bags = bags
        self.max_instances = max_instances
        self.min_bags = min_bags
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.replicas = replicas
        self._packed: tuple[int, list[IntArray]] | None = None  # an epoch and its batches
        self.epoch = 0
        self._has_begun = False
        self._begin = 0  # batches of the epoch, of all workers, before those of this iteration
        self._given = 0  # batches of this iteration, to this worker

    @property
    def sampler(self) -> BagBatchSampler:
        """The sampler itself; Lightning calls `set_epoch` of a batch sampler's `sampler`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration yields; those after it follow.

        If it is the epoch of a state that was just loaded, it goes on where that was.
        """
        _EPOCH(epoch, "epoch")
        if self._has_begun or epoch != self.epoch:
            self._begin = 0
        self.epoch = epoch
        self._has_begun = False
        self._given = 0

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Where the sampler is, for `load_state_dict`; the same for all workers of a training.

        Args:
            batches: how many batches of this iteration the loop has used. If not given, those that
                the sampler has given away; a `DataLoader` with `num_workers` is ahead of the loop,
                so that the loop must count.

        >>> sampler = BagBatchSampler(Bags([2, 2, 2], [[2], [2], [2]]), max_instances=2, seed=1)
        >>> batches = iter(sampler)
        >>> used = [next(batches)]
        >>> resumed = BagBatchSampler(sampler.bags, max_instances=2, seed=1)
        >>> resumed.load_state_dict(sampler.state_dict())
        >>> list(resumed) == list(batches)
        True
        """
        if batches is not None:
            whole(0, self._given)(batches, "batches")
        used = self._given if batches is None else batches
        epoch, begin = self.epoch, self._begin + used * self._place()[1]
        if begin >= len(self._batches()):
            epoch, begin = epoch + 1, 0
        return {"epoch": epoch, "batches": begin, **self._options()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another sampler was: the next iteration yields what it had left."""
        expected = self._options()
        if set(state) != {"epoch", "batches", *expected}:
            raise InputError(
                f"the state has the names {list(state)}; load what state_dict of a "
                "BagBatchSampler returned."
            )
        for name, value in expected.items():
            if state[name] != value:
                raise InputError(
                    f"the state is that of a sampler with {name} {state[name]!r}, and here it is "
                    f"{value!r}; make the sampler with the same bags and options."
                )
        _EPOCH(state["epoch"], "epoch")
        whole(0)(state["batches"], "batches")
        self.epoch, self._begin, self._given = state["epoch"], state["batches"], 0
        self._has_begun = False

    def _options(self) -> dict[str, Any]:
        """What the batches of an epoch depend on."""
        return {
            "bags": self.bags.fingerprint(),
            "max_instances": self.max_instances,
            "min_bags": self.min_bags,
            "shuffle": self.shuffle,
            "seed": self.seed,
        }

    def __len__(self) -> int:
        return -(-len(self._batches()) // self._place()[1])

    def __iter__(self) -> Iterator[list[int]]:
        # All of this runs when the first batch is asked for: Lightning makes an iterator first and
        # calls set_epoch then.
        if self._has_begun:
            self.epoch += 1
            self._begin = 0
        self._has_begun = True
        self._given = 0
        batches, (rank, replicas) = self._batches(), self._place()
        end = len(batches) + -(len(batches) - self._begin) % replicas
        for place in range(self._begin + rank, end, replicas):
            self._given += 1
            yield batches[place % len(batches)].tolist()

    def _batches(self) -> list[IntArray]:
        """All batches of the epoch, of all workers."""
        if self._packed is None or self._packed[0] != self.epoch:
            order = None
            if self.shuffle:
                mixed = np.random.SeedSequence([self.seed, self.epoch]).generate_state(1).item()
                generator = torch.Generator().manual_seed(mixed)
                order = torch.randperm(len(self.bags), generator=generator)
            batches = self.bags.batches(self.max_instances, order, self.min_bags)
            self._packed = self.epoch, list(batches)
        return self._packed[1]

    def _place(self) -> tuple[int, int]:
        """Rank and number of workers, as they are now."""
        joined = torch.distributed.is_available() and torch.distributed.is_initialized()
        replicas, rank = self.replicas, self.rank
        if replicas is None:
            replicas = torch.distributed.get_world_size() if joined else 1
        if rank is None:
            rank = torch.distributed.get_rank() if joined else 0
        _check_rank(rank, replicas)
        return rank, replicas


def _check_rank(rank: int, replicas: int) -> None:
    whole(0, replicas - 1)(rank, "rank")
