"""Tensors in files of storage, those among them of types that numpy does not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from bagwise.storage import array_files
from bagwise.storage.array_files import compare_shapes, not_finite, read_file, save_arrays
from bagwise.storage.files import write_atomically

_OF_NUMPY = (
    torch.int64,
    torch.float64,
    torch.float32,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Write tensors, and facts that JSON can hold, to one file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_tensors(Path(folder) / "x.safetensors", {"x": torch.ones(2)}, {"epoch": 3})
    ...     load_tensors(Path(folder) / "x.safetensors")
    ({'x': tensor([1., 1.])}, {'epoch': 3})
    """
    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    if all(tensor.dtype in _OF_NUMPY for tensor in own.values()):
        save_arrays(path, {name: tensor.numpy() for name, tensor in own.items()}, facts)
        return
    metadata = array_files.metadata_of(_content(own), facts)
    copies = {name: tensor.clone() for name, tensor in own.items()}  # none shares its memory
    write_atomically(path, save(copies, metadata=metadata))


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What `save_tensors` wrote. A file that is something else is a ValueError that names it."""
    return read_file(path, "pt")


def verify(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Compare what `load_tensors` read with the digests it was written with."""
    array_files.verify_content(path, _content(tensors))


def compare(tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Names, types and shapes must be the same; the first difference is a ValueError.

    >>> compare({"weight": torch.ones(2)}, {"weight": torch.ones(3)})
    Traceback (most recent call last):
    bagwise.errors.InputError: 'weight' is float32 (2,); float32 (3,) is expected
    """
    compare_shapes(_shapes(tensors), _shapes(expected))


def require_finite(tensors: Mapping[str, torch.Tensor]) -> None:
    """Weights with NaN or infinity are a ValueError: training never keeps such."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise not_finite(name)


def prefixed(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors with `prefix.` before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those tensors whose name begins with `prefix.`, without it."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }


def _described(tensor: torch.Tensor) -> str:
    return array_files.shape_of(str(tensor.dtype).removeprefix("torch."), *tensor.shape)


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {name: _described(tensor) for name, tensor in tensors.items()}


def _content(tensors: Mapping[str, torch.Tensor]) -> array_files.Content:
    return {
        name: (_described(tensor), tensor.reshape(-1).view(torch.uint8).numpy().data)
        for name, tensor in tensors.items()
    }
