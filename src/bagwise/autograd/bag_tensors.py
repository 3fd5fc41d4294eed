"""`Bags` as tensors, which compiled training steps can read.

A compiler of PyTorch follows tensors that are there when a step begins; it cannot make them from
arrays in the midst of it. So, from the import of this module on, every `Bags` has its tensors. One
that was made before gets them when they are first asked for, which no compiled step must be.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec

import numpy.typing as npt
import torch

from bagwise.bags import Bags
from bagwise.bags.bags import bags_of_bytes

_P = ParamSpec("_P")


class BagTensors(NamedTuple):
    """What is known of bags, not to be written to: it lies in the memory of the arrays.

    Attributes:
        sizes: (B,) instances per bag.
        low: (B, C) the counts, or the least possible ones.
        packed: None where the counts are exact, else `Potentials.packed`.
        labels: (N,) `Bags.row_labels`.
        weights: (N,) `Bags.weights`.
        totals: (B,) `Bags.totals`.
    """

    sizes: torch.Tensor
    low: torch.Tensor
    packed: torch.Tensor | None
    labels: torch.Tensor | None
    weights: torch.Tensor | None
    totals: torch.Tensor

    @property
    def known(
        self,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """What the operator takes of them."""
        return self.sizes, self.low, self.packed, self.weights


def tensors_of(bags: Bags, device: torch.device | None = None) -> BagTensors:
    """The tensors of bags, made once; on the device where they have been moved to it."""
    if is_moved(bags, device):
        moved: BagTensors = bags.on_device.known
        return moved
    if bags.tensors is None:
        _keep_tensors(bags)
    found: BagTensors = bags.tensors
    return found


def is_moved(bags: Bags, device: torch.device | None) -> bool:
    """Whether `device_bags` has brought the bags to that device."""
    return bags.on_device is not None and bool(bags.on_device.bag_of_row.device == device)


def _not_followed(function: Callable[_P, None]) -> Callable[_P, None]:
    """As `torch.compiler.disable` has it: compilers do not look into calls of a function.

    That imports the compiler, which takes as long as the rest of PyTorch, so it is done where a
    compiler is there.
    """
    disabled: list[Callable[_P, None]] = []

    @functools.wraps(function)
    def called(*args: _P.args, **named: _P.kwargs) -> None:
        if "torch._dynamo" not in sys.modules:
            function(*args, **named)
            return
        if not disabled:
            disabled.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        disabled[0](*args, **named)

    return called


@_not_followed
def _keep_tensors(bags: Bags) -> None:
    labels = None if bags.row_labels is None else _shared(bags.row_labels)
    if bags.tensors is not None:  # the same bags, whose labels are known now
        bags.tensors = bags.tensors._replace(labels=labels)
        bags.packed = bags.on_device = None
        return
    packed = None if bags.potentials is None else _shared(bags.potentials.packed())
    sizes, weights, totals = _shared(bags.sizes), None, None
    if bags.weights is not None:
        weights, totals = _shared(bags.weights), _shared(bags.totals)
    low = _shared(bags.min_counts)
    bags.tensors = BagTensors(
        sizes, low, packed, labels, weights, sizes if totals is None else totals
    )


Bags.when_made.append(_keep_tensors)
torch.serialization.add_safe_globals([bags_of_bytes])  # torch.load makes bags of files of tensors
# Compilers are not to follow, array by array, how bags are made within a step.
Bags._set = _not_followed(Bags._set)  # type: ignore[method-assign]


def _shared(array: npt.NDArray[Any]) -> torch.Tensor:
    """In the memory of the array; PyTorch warns of that if the array is read-only already."""
    return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)


def bags_of_tensors(
    sizes: torch.Tensor,
    low: torch.Tensor,
    packed: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
) -> Bags:
    """Bags again from their tensors, nothing checked."""
    more = [None if tensor is None else tensor.numpy() for tensor in (packed, weights)]
    return Bags.of_packed(sizes.numpy(), low.numpy(), *more)


def expected_counts(bags: Bags, device: torch.device | None = None) -> torch.Tensor:
    """`Bags.expected_counts`; whole numbers where the counts are exact."""
    low, packed = tensors_of(bags, device).low, tensors_of(bags, device).packed
    return low if packed is None else packed[: low.numel()].view_as(low)


def most(bags: Bags, device: torch.device | None = None) -> torch.Tensor:
    """`Bags.max_counts`."""
    low, packed = tensors_of(bags, device).low, tensors_of(bags, device).packed
    if packed is None:
        return low
    begins = packed[low.numel() : 2 * low.numel() + 1].long()
    return low + begins.diff().view_as(low) - 1


def weighted(of_rows: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Values of rows, (N,) or (N, C), times how many identical rows each stands for."""
    if weights is None:
        return of_rows
    m = weights.to(of_rows)
    return of_rows * (m if of_rows.dim() == 1 else m[:, None])


def bag_of_row(bags: Bags, device: torch.device) -> torch.Tensor:
    """`Bags.bag_of_row`."""
    if is_moved(bags, device):
        found: torch.Tensor = bags.on_device.bag_of_row
        return found
    sizes = tensors_of(bags).sizes.to(device)
    return torch.repeat_interleave(sizes, output_size=bags.n_instances)


def others_impossible(log_probs: torch.Tensor, bags: Bags) -> torch.Tensor:
    """`Bags.others_impossible`."""
    known = tensors_of(bags, log_probs.device).labels
    if known is None:
        return log_probs
    labels = known.to(log_probs.device)[:, None]
    other = torch.arange(log_probs.shape[1], device=log_probs.device) != labels
    return log_probs.masked_fill(other & (labels >= 0), -math.inf)
