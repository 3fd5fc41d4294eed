"""Several workers, the processes of a `torch.distributed` group, that train one model together.

All workers draw the same batches. Each computes the logits of every so-manieth instance of a batch,
all get the logits of all, and the loss is that of the whole batch, whatever the method. Its
gradient goes back to each worker's own instances, and the gradients of the weights are added up.
So workers have the same weights, the same stored probabilities and the same history at every
moment, those of one process with the same batches.

Where workers have the rows of different bags (`SpreadRows`), each computes the logits of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bagwise.data import BagData, Inputs
from bagwise.errors import BagwiseError, InputError, Option
from bagwise.storage.spread_rows import SpreadRows
from bagwise.training.batch_norm import SharedBatchNorm
from bagwise.training.devices import DEVICE


class WorkerError(BagwiseError, RuntimeError):
    """Another worker failed, or was given something else."""


class Alone:
    """One process: everything is its own. `Together` overrides all of it."""

    is_first = True

    def share(self, rows: torch.Tensor) -> torch.Tensor:
        """Those of a batch's n rows, (n, ...), that this worker computes."""
        return rows

    def logits(self, model: nn.Module, inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """What the model says of this worker's share of a batch's rows (n,)."""
        logits: torch.Tensor = model(inputs)
        return logits

    def gather(self, logits: torch.Tensor, rows: torch.Tensor, views: int = 1) -> torch.Tensor:
        """(views * n, C) of all workers' (views * share, C), one view after the other."""
        return logits

    def share_of_loss(self, n: int) -> float:
        """What to multiply the loss of n instances by, so that the workers' gradients add up."""
        return 1.0

    def add_gradients(self, model: nn.Module) -> None:
        """Before a step: the gradient becomes the sum of all workers' gradients."""

    def sum(self, numbers: torch.Tensor) -> torch.Tensor:
        """Of all workers' numbers."""
        return numbers

    def shard(self, data: BagData) -> BagData | None:
        """Whole bags that are this worker's to evaluate; None if there are too few."""
        return data

    def from_first(self, number: float) -> float:
        """The first worker's number."""
        return number

    def make_alike(self, *models: nn.Module | None) -> None:
        """Give all workers the first one's weights."""

    def require_same(self, facts: str) -> None:
        """Refuse workers that are not doing the same, before they wait for each other forever."""

    def first_does(self, act: Callable[[], object]) -> None:
        """The first worker acts, the others wait; its failure is everyone's."""
        act()

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Let the generators of PyTorch, which dropout draws from, differ between workers."""

    def check_compiled(self, model: nn.Module) -> None:
        """Refuse to compile what a compiler would make something else of."""


class Together(Alone):
    """The workers of the default process group."""

    def __init__(self, device: torch.device) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.is_first = self.rank == 0
        self._device = device

    def share(self, rows: torch.Tensor) -> torch.Tensor:
        """Every so-manieth: of each bag some. Fewer rows than workers are computed by all."""
        return rows[self.rank :: self.size] if len(rows) >= self.size else rows

    def logits(self, model: nn.Module, inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Batch normalization has the statistics of all workers' instances."""
        if self._by_each(len(rows)) or not _normalizes_by_batch(model):
            return super().logits(model, inputs, rows)
        with SharedBatchNorm():
            return super().logits(model, inputs, rows)

    def gather(self, logits: torch.Tensor, rows: torch.Tensor, views: int = 1) -> torch.Tensor:
        """The backward pass takes each worker's own rows; all have the same loss of the whole."""
        if self._by_each(len(rows)):
            return logits
        owners = self._owners(rows)
        whole: torch.Tensor = _Gather.apply(logits, owners, views, self.rank, self.size)  # type: ignore[no-untyped-call]
        return whole

    def share_of_loss(self, n: int) -> float:
        """Fewer instances than workers are computed by each of them."""
        return 1 / self.size if self._by_each(n) else 1.0

    def _by_each(self, n: int) -> bool:
        """Whether every worker computes all of so few rows."""
        return n < self.size

    def _owners(self, rows: torch.Tensor) -> torch.Tensor:
        """(n,) who computes each row of a batch."""
        return torch.arange(len(rows)) % self.size

    @torch.no_grad()
    def add_gradients(self, model: nn.Module) -> None:
        """One message has all gradients, and who has any: a weight nobody used stays without."""
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        parts = [
            torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights
        ]
        used = torch.tensor([float(weight.grad is not None) for weight in weights])
        message = torch.cat([part.reshape(-1) for part in parts] + [used.to(parts[0])])
        dist.all_reduce(message)
        *sums, used = torch.split(message, [part.numel() for part in parts] + [len(parts)])
        for weight, total, users in zip(weights, sums, used.tolist(), strict=True):
            if users:
                weight.grad = total.reshape(weight.shape).to(weight)

    def sum(self, numbers: torch.Tensor) -> torch.Tensor:
        """Of all workers' numbers, on the CPU."""
        total = numbers.to(self._device)
        dist.all_reduce(total)
        return total.cpu()

    def shard(self, data: BagData) -> BagData | None:
        """As many instances for each as whole bags allow."""
        middles = data.bags.offsets[:-1] + data.bags.sizes / 2
        own = np.flatnonzero((middles * self.size // len(data)).astype(int) == self.rank)
        return data.select(own) if len(own) else None

    def from_first(self, number: float) -> float:
        """By a broadcast."""
        sent = torch.tensor([number], dtype=torch.float64, device=self._device)
        dist.broadcast(sent, 0)
        return sent.item()

    @torch.no_grad()
    def make_alike(self, *models: nn.Module | None) -> None:
        """By broadcasts of all weights and buffers."""
        for model in models:
            for tensor in () if model is None else model.state_dict().values():
                sent = tensor.contiguous()
                dist.broadcast(sent, 0)
                tensor.copy_(sent)

    def require_same(self, facts: str) -> None:
        """All tell each other what they do."""
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, facts)
        for rank, other in enumerate(told):
            if other != told[0]:
                raise WorkerError(
                    f"worker 0 has {told[0]}, and worker {rank} has {other}; all workers must be "
                    "given the same, and see the same checkpoint."
                )

    def first_does(self, act: Callable[[], object]) -> None:
        """The others learn whether it went well."""
        failed: BaseException | None = None
        if self.is_first:
            try:
                act()
            except BaseException as error:
                failed = error
        some = self.from_first(float(failed is not None))
        if failed is not None:
            raise failed
        if some:
            raise WorkerError("the first worker failed; its own message says why.")

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """The first is as a lone process is; the others begin anew each epoch, also resumed."""
        if not self.is_first:
            mixed = np.random.SeedSequence([seed, epoch, self.rank]).generate_state(1).item()
            torch.manual_seed(mixed)

    def check_compiled(self, model: nn.Module) -> None:
        """Compiled batch normalization would have each worker's own statistics."""
        if _normalizes_by_batch(model):
            raise InputError(
                "the model has batch normalization, which cannot be compiled for several workers; "
                "leave out ",
                Option("compile"),
                ", or normalize in another way (LayerNorm, GroupNorm).",
            )


class Spread(Together):
    """The workers of the default process group, each of which has the rows of some bags alone.

    Args:
        rows: of the training bags.
    """

    def __init__(self, device: torch.device, rows: SpreadRows) -> None:
        super().__init__(device)
        self._ends = torch.from_numpy(rows.ends)

    def share(self, rows: torch.Tensor) -> torch.Tensor:
        """Those that are here, maybe none."""
        return rows[self._owners(rows) == self.rank]

    def shard(self, data: BagData) -> BagData | None:
        """The bags that are here."""
        own = data.inputs.own_bags()
        return data.select(own) if len(own) else None

    def _by_each(self, n: int) -> bool:
        return False

    def _owners(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(rows, self._ends, right=True)


def _normalizes_by_batch(model: nn.Module) -> bool:
    return any(isinstance(module, _BatchNorm) for module in model.modules())


class _Gather(torch.autograd.Function):
    """The rows of all, each at its place, by who has it (n,); each has its own in their order."""

    @staticmethod
    def forward(
        ctx: Any, part: torch.Tensor, owners: torch.Tensor, views: int, rank: int, size: int
    ) -> torch.Tensor:
        ctx.facts = owners == rank, views
        n, width, counts = len(owners), part.shape[1], torch.bincount(owners, minlength=size)
        own = part.new_zeros(int(counts.max()), views, width)
        own[: counts[rank]] = part.reshape(views, -1, width).transpose(0, 1)
        parts = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(parts, own)
        whole = part.new_empty(n, views, width)
        for worker, found in enumerate(parts):
            whole[owners == worker] = found[: counts[worker]]
        return whole.transpose(0, 1).reshape(-1, width)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        is_own, views = ctx.facts
        own = gradient.reshape(views, len(is_own), -1)[:, is_own]
        return own.reshape(-1, gradient.shape[1]), None, None, None, None


def workers_of(device: torch.device, inputs: Inputs = None) -> Alone:
    """The workers of the process group that is initialized; without one, this process alone.

    Args:
        inputs: what is trained on.

    >>> workers_of(torch.device("cpu")).share(torch.tensor([3, 1, 2]))
    tensor([3, 1, 2])
    """
    joined = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    if joined and isinstance(inputs, SpreadRows):
        return Spread(device, inputs)
    return Together(device) if joined else Alone()


def backend_for(device: str) -> str:
    """How workers talk to each other where models compute on this device.

    >>> backend_for("cuda")
    'cpu:gloo,cuda:nccl'
    """
    return "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"


@contextmanager
def launched(device: str = "cpu") -> Iterator[tuple[bool, str]]:
    """Within, this process is in the group that `torchrun` started it for, if it did.

    Args:
        device: where models compute; of "cuda" each worker of a machine has a GPU of its own.

    Yields:
        whether this is the first worker, or the only one, and its device.
    """
    if not is_launched():
        yield True, device
        return
    if device.startswith("cuda"):
        if device != "cuda":
            raise InputError(
                f"device is {device!r}, and several workers would share it; give cuda, of which "
                "each has its own."
            )
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        DEVICE(device, "device")
        torch.cuda.set_device(device)
    dist.init_process_group(backend_for(device))
    try:
        yield dist.get_rank() == 0, device
    finally:
        dist.destroy_process_group()


def is_launched() -> bool:
    """Whether `torchrun` started this process."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
