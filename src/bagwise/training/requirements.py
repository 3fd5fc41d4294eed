"""What `train` is given, and what it gets from the user's parts: refused at once and by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from bagwise.bags.arrays import IntArray
from bagwise.data import BagData
from bagwise.errors import InputError, InputTypeError, Option
from bagwise.methods import METHODS, Batch, Method
from bagwise.training.devices import DEVICE
from bagwise.training_options import TrainingOptions

_HOOKS = ("on_train_begin", "on_epoch_end", "on_train_end")
_OWN = ("epoch", "lr", "seconds", "train_", "val_", "test_")  # how names in a history begin


def check_arguments(
    model: nn.Module,
    data: BagData,
    options: TrainingOptions | None,
    validation: BagData | None,
    test: BagData | None,
    device: torch.device | str,
    callbacks: Sequence[object],
) -> None:
    """Refuse what is of another kind than `train` needs, before anything is done with it."""
    parts = {"validation": validation, "test": test}
    kinds = [("model", model, nn.Module), ("data", data, BagData)]
    kinds += [(name, part, BagData) for name, part in parts.items() if part is not None]
    if options is not None:
        kinds.append(("options", options, TrainingOptions))
    for name, given, kind in kinds:
        if not isinstance(given, kind):
            raise InputTypeError(
                f"{name} is a {type(given).__name__}; a {kind.__name__} is expected."
            )
    for callback in callbacks:
        if not all(hasattr(callback, hook) for hook in _HOOKS):
            raise InputTypeError(
                f"callbacks holds a {type(callback).__name__}; a bagwise.training.Callback is "
                "expected."
            )
    DEVICE(device, "device")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("the model has no parameter that requires a gradient: it cannot learn.")
    for name, part in parts.items():
        if part is not None and part.bags.n_classes != data.bags.n_classes:
            raise InputError(
                f"the bags of {name} have {part.bags.n_classes} classes, those of data "
                f"{data.bags.n_classes}; give all of them the same."
            )


def check_groupings(method: Method, data: BagData) -> None:
    """Not every method can learn from several groupings jointly."""
    if data.joint and not method.joins_groupings:
        joining = ", ".join(name for name, cls in METHODS.items() if cls.joins_groupings)
        raise InputError(
            f"method {method.name or type(method).__name__!r} cannot learn from several groupings "
            f"jointly; {joining} can. Choose one of them, or say ",
            Option("joint", False),
            ".",
        )


def check_room(method: Method, sizes: IntArray, room: int, instances: int) -> None:
    """Bags are no larger than a batch where the method needs whole ones, and several of them."""
    name, largest = method.name or type(method).__name__, int(sizes.max())
    if largest > room and (method.needs_whole_bags or method.least_bags > 1):
        raise InputError(
            f"the largest bag has {largest} instances, a batch {room}, and method {name!r} needs "
            f"whole bags; set batch_instances, now {instances}, to {largest} or more."
        )
    if len(sizes) < method.least_bags:
        raise InputError(
            f"method {name!r} needs {method.least_bags} bags in a batch, and there are only "
            f"{len(sizes)}."
        )


def check_views(views: Sequence[object], inputs: torch.Tensor) -> None:
    """An augmentation makes one view of each instance."""
    for view in views:
        if not isinstance(view, torch.Tensor) or len(view) != len(inputs):
            found = f"type {type(view).__name__}"
            if isinstance(view, torch.Tensor):
                found = f"shape {tuple(view.shape)}"
            raise InputTypeError(
                f"an augmentation returns what has {found} for inputs of shape "
                f"{tuple(inputs.shape)}; a tensor with a view of each is expected."
            )


@contextmanager
def dtypes_named(model: nn.Module, inputs: torch.Tensor) -> Iterator[None]:
    """Say which types do not go together, where PyTorch says that some do not."""
    try:
        yield
    except RuntimeError as error:
        if "dtype" not in str(error):
            raise
        kinds = ", ".join(sorted({str(parameter.dtype) for parameter in model.parameters()}))
        raise InputTypeError(
            f"the model, of {kinds}, cannot take inputs of {inputs.dtype} ({error}); convert one "
            "of them, for instance inputs.float()."
        ) from error


def check_logits(logits: object, n: int, n_classes: int) -> None:
    """The model returns (n, C) for n instances."""
    if not isinstance(logits, torch.Tensor):
        raise InputTypeError(
            f"the model returns a {type(logits).__name__}; a tensor of logits, {(n, n_classes)} "
            f"for {n} instances of {n_classes} classes, is expected. Wrap a model that returns "
            "more than that."
        )
    if logits.shape != (n, n_classes):
        raise InputError(
            f"the model returns {tuple(logits.shape)} for {n} instances of {n_classes} classes; "
            f"{(n, n_classes)} is expected."
        )


def checked_loss(method: Method, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The method's loss, which is a tensor of one number that depends on the logits."""
    loss = method.loss(logits, batch)
    name = method.name or type(method).__name__
    if not isinstance(loss, torch.Tensor) or loss.dim() > 0:
        is_tensor = isinstance(loss, torch.Tensor)
        kind = f"shape {tuple(loss.shape)}" if is_tensor else f"type {type(loss).__name__}"
        raise InputTypeError(
            f"the loss of method {name!r} has {kind}; a tensor without dimensions is expected, the "
            "mean loss per instance."
        )
    if logits.requires_grad and not loss.requires_grad:
        raise InputTypeError(
            f"the loss of method {name!r} has no gradient: it does not depend on the logits, or "
            "was computed with detach() or numbers of theirs."
        )
    return loss


def own_metrics(method: Method, row: dict[str, float]) -> dict[str, float]:
    """What the method measured in an epoch: numbers with names of their own."""
    name, found = method.name or type(method).__name__, {}
    for key, value in method.epoch_metrics().items():
        if key in row or str(key).startswith(_OWN):
            raise InputError(
                f"epoch_metrics of method {name!r} has {key!r}, which is a name of what `train` "
                "measures itself, or begins like one; choose another."
            )
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise InputTypeError(
                f"epoch_metrics of method {name!r} has a {type(value).__name__} as {key!r}; a "
                "number is expected, for instance tensor.item()."
            )
        found[key] = float(value)
    return found
