"""The memory of training steps: how many instances it suffices for, and keeping it between them."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import torch
from torch import nn

from bagwise.data.inputs import Inputs, take
from bagwise.limits import LIMITS
from bagwise.storage.spread_rows import SpreadRows
from bagwise.storage.stored_rows import StoredRows

_SAMPLE = 4
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's mallopt


def instances_that_fit(
    model: nn.Module,
    inputs: Inputs,
    device: torch.device | str = "cpu",
    budget: int = LIMITS.step_bytes,
) -> int:
    """How many of these inputs (N, ...) a training step can take at once, at least one.

    Of inputs that are more than memory holds, a step takes its part of what memory they may have.

    Counted is what autograd keeps of some of them for the backward pass, weights left out: a
    perceptron keeps kilobytes of a row, a convolutional network megabytes of an image.

    >>> model = nn.Sequential(nn.Linear(8, 100), nn.ReLU(), nn.Linear(100, 2))
    >>> inputs = torch.zeros(1000, 8)
    >>> instances_that_fit(model, inputs, budget=43_200)  # 8 + 100 numbers of 4 bytes each
    100
    """
    if isinstance(inputs, StoredRows):
        budget = min(budget, inputs.step_bytes)
    if isinstance(inputs, SpreadRows):
        some = torch.from_numpy(inputs.sample[:_SAMPLE])
    else:
        some = take(inputs, torch.arange(min(_SAMPLE, len(inputs))))
    sample = some.to(device)  # a copy: a view would count the memory of all
    weights = {tensor.untyped_storage().data_ptr() for tensor in model.state_dict().values()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the output of an operation would keep its own graph for good

    was_training = model.training
    model.eval()  # leaves the statistics of batch normalization alone
    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        model(sample)
    model.train(was_training)
    return max(budget * len(sample) // max(sum(kept.values()), 1), 1)


def keep_freed() -> None:
    """Let this process keep memory that it frees for what it needs next.

    A step of a convolutional network frees hundreds of megabytes, and the next one needs as many:
    to get them from the system again, page by page, takes a good part of its time. This is for
    processes that are there to train; one of the user's is left as it is.
    """
    with suppress(AttributeError, OSError, TypeError):  # only Linux with glibc has it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
