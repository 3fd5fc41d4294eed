"""Tensors in the files of `storage.array_files`, also of types that numpy does not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from bagwise.storage.array_files import metadata_of, read_file, save_arrays
from bagwise.storage.files import write_atomically

_OF_NUMPY = (torch.int64, torch.float64, torch.float32, torch.int32, torch.uint8, torch.bool)


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
    metadata = metadata_of(own, facts)
    copies = {name: tensor.clone() for name, tensor in own.items()}  # none shares its memory
    write_atomically(path, save(copies, metadata=metadata))


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What `save_tensors` wrote. A file that is something else is a ValueError that names it."""
    return read_file(path, "pt")


def prefixed(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors with `prefix.` before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those tensors whose name begins with `prefix.`, without it."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }
