"""Tensors and facts in one file: safetensors with JSON in its header, written atomically."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

_FACTS = "bagwise"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` in one step: it is there whole, or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~current_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def current_umask() -> int:
    """Which permissions this process withholds from new files."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Write tensors, and facts that JSON can hold, to one file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_tensors(Path(folder) / "x.safetensors", {"x": torch.ones(2)}, {"epoch": 3})
    ...     load_tensors(Path(folder) / "x.safetensors")
    ({'x': tensor([1., 1.])}, {'epoch': 3})
    """
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(own, metadata={_FACTS: json.dumps(facts)}))


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What `save_tensors` wrote. A file that is something else is a ValueError that names it."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = json.loads(metadata[_FACTS])
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is damaged or was not written by Bagwise ({error}); "
            "restore it from a copy, or delete it and start again."
        ) from error
    if not isinstance(facts, dict):
        raise ValueError(f"{path} was not written by Bagwise; delete it and start again.")
    return tensors, facts


def prefixed(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors with `prefix.` before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those tensors whose name begins with `prefix.`, without it."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }
