"""Instances, wherever they are: in memory, in a file, or decoded one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from bagwise.errors import InputError, InputTypeError
from bagwise.storage.spread_rows import SpreadRows
from bagwise.storage.stored_rows import StoredRows

Inputs = Any
"""N instances: a tensor (N, ...); an array (N, ...), in memory or mapped from a file, or anything
else with a `shape` and `[rows]`; or a map-style `Dataset`, whose item is one instance as a tensor
or an array, or a tuple that begins with it."""

_PIECE = 4096  # rows that are looked at at a time


def check_inputs(inputs: Inputs) -> None:
    """Refuse what has no rows to take."""
    if isinstance(inputs, list | tuple | str | bytes | dict) or not (
        hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")
    ):
        raise InputTypeError(
            f"inputs is a {type(inputs).__name__}; a torch.Tensor, a numpy array (also a "
            "memory-mapped one) or a map-style Dataset is expected."
        )


def is_array(inputs: Inputs) -> bool:
    """Whether several rows are taken at once, by an index, and all have one known shape."""
    return hasattr(inputs, "shape") and hasattr(inputs, "dtype")


def take(inputs: Inputs, rows: torch.Tensor) -> torch.Tensor:
    """The instances of these rows (n,), in their order, as a tensor (n, ...).

    >>> take(np.array([[0.0], [1.0], [2.0]]), torch.tensor([2, 0]))
    tensor([[2.],
            [0.]], dtype=torch.float64)
    """
    if isinstance(inputs, _Lookup):
        return take(inputs.inputs, inputs.rows[rows])
    if isinstance(inputs, torch.Tensor):
        return inputs[rows.to(inputs.device)]
    if isinstance(inputs, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(inputs[rows.numpy()]))
    if isinstance(inputs, StoredRows):
        return torch.from_numpy(inputs.take(rows.numpy()))
    if is_array(inputs):  # files in chunks want their rows in order
        order = torch.argsort(rows)
        found = torch.from_numpy(np.array(inputs[rows[order].numpy()]))
        return found[torch.argsort(order)]
    return _collate([_instance(inputs[row], row) for row in rows.tolist()])


def take_named(inputs: Inputs, rows: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
    """The instances of these rows, as `take` has them, or a dictionary of them: of inputs in a
    dictionary, and of a `Dataset` whose items are dictionaries.

    >>> take_named({"x": torch.tensor([1, 2, 3]), "y": np.zeros(3)}, torch.tensor([2, 0]))["x"]
    tensor([3, 1])
    """
    if isinstance(inputs, Mapping):
        return {name: take(values, rows) for name, values in inputs.items()}
    if is_array(inputs):
        return take(inputs, rows)
    items = [inputs[row] for row in rows.tolist()]
    if not isinstance(items[0], Mapping):
        return _collate([_instance(item, row) for item, row in zip(items, rows, strict=True)])
    return {
        name: _collate(
            [_value(item[name], name, row) for item, row in zip(items, rows, strict=True)]
        )
        for name in items[0]
    }


def on_device(inputs: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Move to a device; double precision stays on the CPU, because not every device has it."""
    if inputs.dtype == torch.float64 and torch.device(device).type != "cpu":
        inputs = inputs.float()
    return inputs.to(device)


def shape_of(inputs: Inputs) -> tuple[int, ...]:
    """The shape of one instance.

    >>> shape_of(torch.zeros(5, 3, 8, 8))
    (3, 8, 8)
    """
    if is_array(inputs):
        return tuple(int(size) for size in inputs.shape[1:])
    return tuple(np.shape(_instance(inputs[0], 0)))


def sample(inputs: Inputs, most: int) -> torch.Tensor:
    """At most so many instances, evenly spread over all.

    >>> sample(torch.arange(10), 3)
    tensor([0, 3, 6])
    """
    if isinstance(inputs, SpreadRows):
        return torch.from_numpy(inputs.sample)
    n = min(most, len(inputs))
    return take(inputs, torch.arange(n) * len(inputs) // n)


def select(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """Inputs of these rows alone: copied in memory, looked up later elsewhere."""
    if isinstance(inputs, torch.Tensor) or type(inputs) is np.ndarray:
        return inputs[rows]
    return lookup(inputs, rows)


def lookup(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """Inputs of these rows, which may repeat, without copying any.

    >>> repeated = lookup(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 0, 1]))
    >>> repeated.shape, take(repeated, torch.tensor([2]))
    ((3, 1), tensor([[2.]]))
    """
    return _Lookup(inputs, rows) if is_array(inputs) else Subset(inputs, rows.tolist())


def looked_up(inputs: Inputs) -> Inputs:
    """The inputs that `lookup` takes rows of; others as they are.

    >>> looked_up(lookup(torch.zeros(2, 1), torch.tensor([1, 0, 1]))).shape
    torch.Size([2, 1])
    """
    return inputs.inputs if isinstance(inputs, _Lookup) else inputs


def kept_on(inputs: Inputs, device: torch.device) -> Inputs:
    """Tensors on a device, also where rows of one are looked up; others as they are."""
    if isinstance(inputs, _Lookup):
        return _Lookup(kept_on(inputs.inputs, device), inputs.rows)
    return on_device(inputs, device) if isinstance(inputs, torch.Tensor) else inputs


def full(
    inputs: Inputs, shape: tuple[int, ...], value: float, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A tensor filled with a value, to keep something of each row: in memory, or in a file where
    the inputs are more than memory holds.

    >>> full(torch.zeros(2, 5), (2,), -1)
    tensor([-1., -1.])
    """
    if isinstance(inputs, StoredRows):
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        return torch.from_numpy(inputs.full(shape, value, kind))
    return torch.full(shape, value, dtype=dtype)


class _Lookup:
    """Some rows of an array that is not copied, because it may be larger than memory."""

    def __init__(self, inputs: Inputs, rows: torch.Tensor) -> None:
        nested = isinstance(inputs, _Lookup)
        self.inputs: Inputs = inputs.inputs if nested else inputs
        self.rows: torch.Tensor = inputs.rows[rows] if nested else rows
        self.shape = (len(rows), *inputs.shape[1:])
        self.dtype = inputs.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Any:
        return take(self.inputs, self.rows[rows]).numpy()


def feed(
    inputs: Inputs,
    rows: Iterable[torch.Tensor],
    workers: int = 0,
    generator: torch.Generator | None = None,
) -> Iterator[torch.Tensor]:
    """The instances of one index of rows after the other.

    Args:
        rows: indexes (n,), taken as they are needed, by workers some batches ahead.
        workers: processes that fetch the items of a `Dataset`; of tensors and arrays this process
            takes the rows itself, which is faster.
        generator: gives the workers their seeds.
    """
    if is_array(inputs):
        yield from (take(inputs, index) for index in rows)
        return
    yield from DataLoader(
        _Instances(inputs),
        batch_sampler=(index.tolist() for index in rows),
        num_workers=workers,
        collate_fn=_collate,
        generator=generator or torch.Generator().manual_seed(0),
    )


class _Instances(Dataset[Any]):
    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def __getitem__(self, row: int) -> Any:
        return _instance(self.inputs[row], row)


def _instance(item: Any, row: int) -> Any:
    if isinstance(item, tuple | list) and item:
        item = item[0]
    if isinstance(item, np.ndarray):
        item = as_tensor(item)
    if not isinstance(item, torch.Tensor | np.generic | int | float):
        raise InputTypeError(
            f"item {row} of the inputs is a {type(item).__name__}; a tensor or an array is "
            "expected, or a tuple that begins with one. Give the Dataset a transform that makes it."
        )
    return item


def _value(value: Any, name: str, row: int) -> torch.Tensor:
    """What an item that is a dictionary has by this name."""
    try:
        return as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputTypeError(
            f"{name!r} of item {row} of the inputs is a {type(value).__name__}; numbers are "
            "expected. Leave out what the model does not take."
        ) from None


def as_tensor(values: Any) -> torch.Tensor:
    """A tensor of these values, which shares their memory unless that may not be written to."""
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()
    return torch.as_tensor(values)


def _collate(instances: list[Any]) -> torch.Tensor:
    shapes = {tuple(getattr(instance, "shape", ())) for instance in instances}
    if len(shapes) > 1:
        one, other, *_ = sorted(shapes)
        raise InputError(
            f"instances have the shapes {one} and {other}; all must have one shape, so that they "
            "can be put together to a batch. Pad texts to one length."
        )
    made: torch.Tensor = default_collate(instances)
    return made


def fingerprint(digest: hashlib.blake2b, inputs: Inputs) -> None:
    """Add inputs to a digest: the values of tensors and arrays; of a Dataset its class and length,
    and what its own `fingerprint()` says, if it has one.
    """
    if isinstance(inputs, torch.Tensor):
        digest.update(repr((inputs.shape, inputs.dtype)).encode())
        digest.update(inputs.detach().cpu().contiguous().numpy().data)
    elif isinstance(inputs, StoredRows):
        digest.update(inputs.fingerprint().encode())
    elif is_array(inputs):
        digest.update(repr((tuple(inputs.shape), str(inputs.dtype))).encode())
        for start in range(0, len(inputs), _PIECE):
            rows = torch.arange(start, min(start + _PIECE, len(inputs)))
            digest.update(take(inputs, rows).numpy().data)
    else:
        own = inputs.fingerprint() if hasattr(inputs, "fingerprint") else ""
        digest.update(repr((type(inputs).__qualname__, len(inputs), own)).encode())
