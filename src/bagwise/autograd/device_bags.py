"""`Bags` on an accelerator: all that losses and the device engine read of a batch, in one transfer.

What depends on sizes and counts alone (which bags are computed exactly, in which order classes
come, how much is padded) is decided on the host, which knows them without asking the device.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from bagwise.autograd.bag_tensors import BagTensors, is_moved, tensors_of
from bagwise.autograd.device_lattice import STEPS
from bagwise.bags import Bags, IntArray
from bagwise.errors import InputError
from bagwise.posterior.device import LEAST_INSTANCES, MAX_STATES, MOST_PADDED
from bagwise.posterior.exact import lattice_states

_MOST_ROWS = 32  # of a bag whose lattice is computed
_MOST_ENTRIES = 2**24  # of the tables of all lattices
_NATS = 17.0  # what is left out is below exp(-17) of the largest probability


class PaddedIndex(NamedTuple):
    """Which rows and classes the bags of a padded batch have.

    Attributes:
        bags: (G,) places of these bags among all.
        begins: (G,) their first rows.
        sizes: (G,) how many rows they have.
        rows: (K,) 0, 1, ... up to the largest size.
        classes: (G, A) by count, the most frequent last.
        counts: (G, A) of these classes; 0 for padding.
        is_factor: (G, A) see `device_bethe.PaddedBags`.
        nodes: (T,) 0, 1, ...: points of the characteristic function.
        states: (S + 1,) see `device_lattice.Lattices`; empty where there is no lattice.
        strides: (G, A - 1) the same.
    """

    bags: torch.Tensor
    begins: torch.Tensor
    sizes: torch.Tensor
    rows: torch.Tensor
    classes: torch.Tensor
    counts: torch.Tensor
    is_factor: torch.Tensor
    nodes: torch.Tensor
    states: torch.Tensor
    strides: torch.Tensor


_OF_BAGS = {"bag_of_row": 1, "sizes": 1, "low": 2, "labels": 1, "weights": 1, "totals": 1}
_OF_GROUP = dict(zip(PaddedIndex._fields, (1, 1, 1, 1, 2, 2, 2, 1, 1, 2), strict=True))
_LAYOUT = {
    **_OF_BAGS,
    **{f"{group} {name}": rank for group in ("large", "small") for name, rank in _OF_GROUP.items()},
}
"""All parts of what is sent, and how many dimensions each has."""


class DeviceBags(NamedTuple):
    """A batch of bags on a device.

    Attributes:
        known: sizes, counts, labels, weights and the like.
        bag_of_row: (N,).
        large: what belief propagation computes, a `PaddedIndex`; empty if there is nothing.
        small: what is computed over the lattice, in the same way.
        max_states: up to which a lattice is.
        bound: (B,) `Posterior.bound`, on the CPU.
        suits: see `suits_device`.
    """

    known: BagTensors
    bag_of_row: torch.Tensor
    large: list[torch.Tensor]
    small: list[torch.Tensor]
    max_states: float
    bound: torch.Tensor
    suits: bool

    @property
    def tensors(self) -> tuple[Any, ...]:
        """What the operator takes of them."""
        known = self.known
        of_bags = (self.bag_of_row, known.sizes, known.labels, known.weights)
        return *of_bags, self.large, self.small


class PackedBags(NamedTuple):
    """The same on the host.

    Attributes:
        numbers: whole numbers of all parts, one after the other.
        shapes: of the parts, in the order of `_LAYOUT`.
        potentials: `BagTensors.packed`.
    """

    numbers: torch.Tensor
    shapes: list[tuple[int, ...]]
    potentials: torch.Tensor | None
    max_states: float
    bound: torch.Tensor
    suits: bool

    def pinned(self) -> PackedBags:
        """The same in memory from which a device reads while the host goes on."""
        potentials = None if self.potentials is None else self.potentials.pin_memory()
        return self._replace(numbers=self.numbers.pin_memory(), potentials=potentials)

    def on(self, device: torch.device, non_blocking: bool = False) -> DeviceBags:
        """On a device, in one transfer (two where counts are not exact)."""
        numbers = self.numbers.to(device, non_blocking=non_blocking)
        packed = self.potentials
        if packed is not None:
            kind = torch.float32 if device.type == "mps" else packed.dtype
            packed = packed.to(kind).to(device, non_blocking=non_blocking)
        parts = torch.split(numbers, [math.prod(shape) for shape in self.shapes])
        found = {
            name: part.view(shape)
            for name, part, shape in zip(_LAYOUT, parts, self.shapes, strict=True)
            if part.numel()
        }
        _vary(found.values())
        known = BagTensors(
            found["sizes"], found["low"], packed, found.get("labels"), found.get("weights"),
            found["totals"],
        )  # fmt: skip
        large, small = (
            [found.get(f"{group} {name}", numbers[:0]) for name in _OF_GROUP]
            if f"{group} bags" in found
            else []
            for group in ("large", "small")
        )
        return DeviceBags(
            known, found["bag_of_row"], large, small, self.max_states, self.bound, self.suits
        )


def _vary(tensors: Iterable[torch.Tensor]) -> None:
    """Tell the compiler, if there is one, that sizes will change: else it makes another program for
    each size that does.
    """
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        for tensor in tensors:
            dynamo.maybe_mark_dynamic(
                tensor, [d for d, size in enumerate(tensor.shape) if size > 1]
            )


def on_device(
    bags: Bags, device: torch.device, max_states: float = MAX_STATES, non_blocking: bool = False
) -> DeviceBags:
    """The bags on a device; sent there once."""
    if is_moved(bags, device):
        there: DeviceBags = bags.on_device
        if there.max_states == max_states:
            return there
    if torch.compiler.is_compiling():
        raise InputError(
            f"the bags are not on {device} yet, and a compiled step cannot bring them there; call "
            f"bags.to({str(device)!r}) before the step."
        )
    packed: PackedBags | None = bags.packed
    if packed is None or packed.max_states != max_states:
        packed = packed_bags(bags, max_states)
    found = packed.on(device, non_blocking)
    row = found.bag_of_row
    hidden = torch._C._functorch.is_functorch_wrapped_tensor(row)
    if not (hidden or isinstance(row, FakeTensor)):
        bags.on_device = found
    return found


def bring(bags: Bags, device: torch.device) -> None:
    """Send bags to the device of what they go with, if nobody has and they suit it, so that losses
    do not send their parts one by one.
    """
    is_away = device.type != "cpu" and not torch.compiler.is_compiling()
    if is_away and not is_moved(bags, device) and suits_device(bags):
        on_device(bags, device)


def move(bags: Bags, device: Any, non_blocking: bool) -> None:
    """See `Bags.to`."""
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f'device is {device!r}; the name of a device of this machine, for instance "cpu", is '
            "expected."
        ) from error
    if found.type != "cpu":
        on_device(bags, found, non_blocking=non_blocking)


def pin(bags: Bags) -> None:
    """Keep what is to be sent in pinned memory, see `Bags.pin_memory`."""
    packed = packed_bags(bags) if bags.packed is None else bags.packed
    bags.packed = packed.pinned()


def packed_bags(bags: Bags, max_states: float = MAX_STATES) -> PackedBags:
    """All that is to be sent, on the host."""
    parts: dict[str, Any] = {
        "bag_of_row": bags.bag_of_row, "sizes": bags.sizes, "low": bags.min_counts,
        "labels": bags.row_labels, "weights": bags.weights, "totals": bags.totals,
    }  # fmt: skip
    bound = np.full(len(bags), np.inf)
    if bags.potentials is None:
        small = _small(bags, max_states)
        for name, is_in in (("small", small), ("large", ~small)):
            index = np.flatnonzero(is_in)
            if len(index):
                more = _index_of(bags, index, name == "small")._asdict()
                parts |= {f"{name} {key}": value for key, value in more.items()}
        two = (bags.min_counts > 0).sum(1) <= 2  # which belief propagation computes exactly
        bound[small | two] = 0.0
    flat = [
        np.zeros((0,) * rank) if parts.get(name) is None else parts[name]
        for name, rank in _LAYOUT.items()
    ]
    return PackedBags(
        torch.from_numpy(np.concatenate([np.asarray(part, np.int64).ravel() for part in flat])),
        [np.shape(part) for part in flat],
        tensors_of(bags).packed,
        max_states,
        torch.from_numpy(bound),
        suits_device(bags),
    )


def suits_device(bags: Bags) -> bool:
    """Whether `auto` computes these bags with the device engine, if they are on one: they are
    enough, not too different in size, and their counts are exact.
    """
    padded = len(bags) * int(bags.sizes.max()) * bags.n_classes
    enough = bags.n_instances >= LEAST_INSTANCES and padded <= MOST_PADDED
    return enough and bags.potentials is None


def _small(bags: Bags, max_states: float) -> Any:
    """(B,) the bags whose lattice is computed: few states, few rows, and tables that fit."""
    small = (lattice_states(bags) <= max_states) & (bags.sizes <= _MOST_ROWS)
    small &= (bags.min_counts > 0).sum(1) > 2
    if bags.weights is not None:
        small[:] = False
    index = np.flatnonzero(small)
    states = _own_states(bags.min_counts[index])
    index = index[np.argsort(states, kind="stable")]
    entries = np.arange(1, len(index) + 1) * np.sort(states) * _MOST_ROWS
    small[index[entries > _MOST_ENTRIES]] = False
    return small


def _own_states(counts: IntArray) -> Any:
    """Of lattices without the most frequent class."""
    return (counts + 1.0).prod(1) / (counts.max(1) + 1.0)


def _index_of(bags: Bags, index: IntArray, lattice: bool) -> PaddedIndex:
    if lattice and len(index) == 1:  # compilers make a program of its own for a size of 1
        index = index.repeat(2)
    counts, sizes = bags.min_counts[index], bags.sizes[index]
    occurring = (counts > 0).sum(1)
    A = min(max(int(occurring.max()), 2), bags.n_classes)
    classes = np.argsort(counts, 1, kind="stable")[:, -A:]
    n = np.take_along_axis(counts, classes, 1)
    K = int(sizes.max())
    totals = bags.totals[index][:, None]
    is_factor = (n > 0) & (n < totals)
    is_factor[occurring == 2, -1] = False
    states, strides = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
    if lattice:
        K += -K % STEPS
        ends = np.cumprod(n[:, :-1] + 1, 1)
        strides = np.concatenate([np.ones_like(ends[:, :1]), ends[:, :-1]], 1)
        states = np.arange(int(ends[:, -1].max()) + 1)
    variance = (n * (1 - n / totals)).max()
    parts: list[Any] = [
        index, bags.offsets[index], sizes, np.arange(K), classes, n, is_factor,
        np.arange(_nodes(int(totals.max()), float(variance))), states, strides,
    ]  # fmt: skip
    return PaddedIndex(*parts)


def _nodes(most: int, variance: float) -> int:
    """Points of the circle, of which there are M = 2 T - 1 with those for t < 0.

    As in `posterior.fourier`: by Bernstein's inequality P(|N - n| >= M) is below exp(-17) then, and
    no count beyond the size needs to be told apart. A count of n among K has a variance of at most
    n (1 - n / K) where that is its mean.
    """
    third = _NATS / 3
    M = int(third + math.sqrt(third**2 + 2 * _NATS * variance)) + 3
    return min(M, most + 1) // 2 + 1
