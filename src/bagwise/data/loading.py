"""Bags for one's own training loop: a dataset of bags, a sampler of batches of them, a collate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from bagwise.bags import Bags, IntArray
from bagwise.checks import whole
from bagwise.data import inputs as reading
from bagwise.data.bag_data import BagData
from bagwise.data.inputs import Inputs
from bagwise.errors import InputError, InputTypeError

_COUNT = whole(1)


class BagDataset(Dataset[tuple[torch.Tensor, torch.Tensor | Bags]]):
    """A map-style dataset whose item is a bag: its instances (K, ...) and its counts (C,), or a
    `Bags` of one bag where counts are not exact, labels are known or rows have weights.

    Args:
        inputs: as `BagData` takes them; the items of a `Dataset` are fetched bag by bag, by the
            workers of the `DataLoader`.

    >>> dataset = BagDataset(torch.arange(5.0), Bags([3, 2], [[2, 1], [0, 2]]))
    >>> dataset[1]
    (tensor([3., 4.]), tensor([0, 2]))
    """

    def __init__(self, inputs: Inputs, bags: Bags) -> None:
        self.data = BagData(inputs, bags)

    def __len__(self) -> int:
        return len(self.data.bags)

    def __getitem__(self, bag: int) -> tuple[torch.Tensor, torch.Tensor | Bags]:
        bags = self.data.bags
        bag = index(bag)  # no slice, no list: what belongs together is for `collate_bags`
        if not -len(bags) <= bag < len(bags):
            raise IndexError(f"there is no bag {bag} among {len(bags)}")
        start, size = int(bags.offsets[:-1][bag]), int(bags.sizes[bag])
        rows = torch.arange(start, start + size)
        inputs = reading.take(self.data.inputs, rows)
        plain = bags.potentials is None and bags.row_labels is None and bags.weights is None
        if not plain:
            return inputs, bags.select([bag % len(bags)])
        return inputs, torch.from_numpy(bags.counts[bag].copy())


def collate_bags(items: Sequence[Sequence[Any]]) -> tuple[torch.Tensor, Bags]:
    """Put bags together: items (instances (K, ...), counts (C,)) become (inputs (N, ...), `Bags`).

    In place of counts an item may have a `Bags` of one bag, for what is known otherwise.

    The `collate_fn` of a `DataLoader` whose dataset has bags as its items: a `BagDataset`, or one's
    own. What it yields is what a loss takes: `cc_loss(model(inputs), bags)`.

    >>> bag, other = (torch.zeros(3, 4), [2, 1]), (torch.ones(2, 4), [0, 2])
    >>> inputs, bags = collate_bags([bag, other])
    >>> inputs.shape, bags
    (torch.Size([5, 4]), Bags(2 bags, 5 instances, 2 classes, sizes 2 to 3))
    """
    if not items:
        raise InputError("there are no items to collate; at least one bag is needed.")
    for item in items:
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputTypeError(
                f"an item of the dataset is a {type(item).__name__}; a pair is expected: the "
                "instances of a bag (K, ...) and its label counts (C,)."
            )
        if isinstance(item[0], Mapping):
            raise InputTypeError(
                f"the instances of a bag are a {type(item[0]).__name__}; a tensor or an array "
                "(K, ...) is expected. For models of several inputs, collate each of them."
            )
    instances = [reading.as_tensor(item[0]) for item in items]
    _require_alike([bag.shape[1:] for bag in instances], "instances of shape", "kind of instances")
    known = [item[1] for item in items if isinstance(item[1], Bags)]
    if known:
        if len(known) < len(items):
            raise InputTypeError(
                "some items have counts and others a Bags; give all of them one kind."
            )
        return torch.cat(instances), Bags.join(known)
    counts = [np.asarray(item[1]) for item in items]
    _require_alike([found.shape for found in counts], "counts of shape", "classes")
    return torch.cat(instances), Bags([len(bag) for bag in instances], np.stack(counts))


def _require_alike(shapes: Sequence[tuple[int, ...]], what: str, of: str) -> None:
    """Items that are put together have the same shapes."""
    for place, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise InputError(
                f"item {place} has {what} {tuple(shape)} and item 0 {tuple(shapes[0])}; all bags "
                f"need the same {of}."
            )


class BagBatchSampler(Sampler[list[int]]):
    """Batches of whole bags, up to a number of instances: the `batch_sampler` of a `DataLoader`.

    Bags come in another random order each epoch. Seed and epoch decide the order. Each new
    iteration is the next epoch; `set_epoch` chooses another, for instance to go on after a restart.

    In distributed training each worker gets its own share of an epoch's batches, the same number
    each: where they do not divide evenly, some batches of the beginning come twice. Which worker
    this is, is asked when an epoch begins, so the sampler may be made before the process group.

    Its length is the number of batches of the epoch that is running, or of the one that
    `set_epoch` announced. It can differ between epochs if bags differ in size.

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
        self.set_epoch(0)

    @property
    def sampler(self) -> BagBatchSampler:
        """Itself: Lightning calls `set_epoch` of a batch sampler's `sampler`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration yields; those after it follow."""
        whole(0, 2**31)(epoch, "epoch")
        self.epoch = epoch
        self._has_begun = False

    def __len__(self) -> int:
        return -(-len(self._batches()) // self._place()[1])

    def __iter__(self) -> Iterator[list[int]]:
        # All of this runs when the first batch is asked for: Lightning makes an iterator first and
        # calls set_epoch then.
        if self._has_begun:
            self.epoch += 1
        self._has_begun = True
        batches, (rank, replicas) = self._batches(), self._place()
        for place in range(rank, len(batches) + -len(batches) % replicas, replicas):
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
