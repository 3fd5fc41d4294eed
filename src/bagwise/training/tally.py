"""What an epoch's steps add up to, and the refusal of what is not a number.

On the CPU each step is looked at as it is done. Elsewhere to look is to wait for the device, so the
epoch is looked at when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from bagwise.autograd.bag_tensors import weighted
from bagwise.errors import BagwiseError
from bagwise.methods import Batch
from bagwise.training_options import Precision


class DivergedError(BagwiseError, RuntimeError):
    """The loss became NaN or infinite."""


_FIRST = "epoch 1, batch 1"


class Tally:
    """Losses and hits of the steps of an epoch."""

    def __init__(self, epoch: int, device: torch.device, precision: Precision = "full") -> None:
        self.seen = 0
        self._epoch = epoch
        self._precision = precision
        self._at_once = device.type == "cpu"
        self._sizes: list[int] = []
        self._losses: list[torch.Tensor] = []
        self._finite: list[torch.Tensor] = []
        self._right: list[torch.Tensor] = []
        self._known: list[torch.Tensor] = []

    def diverged(self, what: str, batch: int | None = None) -> DivergedError:
        """The error that something is not finite, in a batch or in the last one that was added."""
        place = f"epoch {self._epoch}, batch {batch or max(len(self._sizes), 1)}"
        return diverged(what, place, self._precision)

    def watched(self, logits: torch.Tensor, loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The loss of the next step; what is not finite is refused as soon as it is known."""
        batch = len(self._sizes) + 1
        if self._at_once and not logits.isfinite().all():
            raise self.diverged("the model's output", batch)
        try:
            value = loss()
        except ValueError:  # of whatever kind: NaN is its cause if there is any
            if logits.isfinite().all():
                raise
            raise self.diverged("the model's output", batch) from None
        if self._at_once and not math.isfinite(value.item()):
            raise self.diverged("the loss", batch)
        return value

    def add(self, loss: torch.Tensor, logits: torch.Tensor, batch: Batch) -> None:
        """A step is done."""
        self.seen += batch.n_instances
        self._sizes.append(batch.n_instances)
        self._losses.append(loss)
        if not self._at_once:
            self._finite.append(logits.isfinite().all())
        if batch.labels is not None:
            right, known = logits.argmax(-1) == batch.labels, batch.labels >= 0
            self._right.append(weighted(right.long(), batch.copies).sum())
            self._known.append(weighted(known.long(), batch.copies).sum())

    def means(self) -> dict[str, float]:
        """`train_loss`, the mean per instance."""
        losses = torch.stack(self._losses).tolist()
        finite = torch.stack(self._finite).tolist() if self._finite else [True] * len(losses)
        for number, (loss, whole) in enumerate(zip(losses, finite, strict=True), start=1):
            if not (whole and math.isfinite(loss)):
                raise self.diverged("the loss" if whole else "the model's output", number)
        total = sum(loss * size for loss, size in zip(losses, self._sizes, strict=True))
        return {"train_loss": total / self.seen}

    def accuracy(self) -> float:
        """Share of the known labels that were the most probable ones."""
        right, known = (int(torch.stack(counts).sum()) for counts in (self._right, self._known))
        return right / max(known, 1)


def refuse_broken(model: nn.Module, place: str) -> None:
    """Weights that are not finite are an error."""
    tensors = [t for t in model.state_dict().values() if t.is_floating_point()]
    if tensors and not torch.stack([t.isfinite().all() for t in tensors]).all():
        raise diverged("a weight", place)


def diverged(what: str, place: str, precision: Precision = "full") -> DivergedError:
    """The error that says what became NaN, where, and what to do."""
    if precision == "fp16":
        return DivergedError(
            f"{what} became NaN or infinite in {place}. Numbers of fp16 end at 65504: use bf16, or "
            "the full precision, standardize the inputs, or lower the learning rate."
        )
    if place == _FIRST:
        return DivergedError(
            f"{what} became NaN or infinite in {place}, before anything was learned. Are all "
            "inputs finite and standardized, and is the loss finite for any logits?"
        )
    return DivergedError(
        f"{what} became NaN or infinite in {place}. The usual causes are a learning rate that is "
        "too high (try a tenth of it) and inputs that are not standardized. The last checkpoint, "
        "if one was asked for, is that of the epoch before."
    )
