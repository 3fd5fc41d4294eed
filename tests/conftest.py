from __future__ import annotations

from pathlib import Path

import pytest
import torch

import bagwise


def pytest_configure(config: pytest.Config) -> None:
    """Drop compiled kernels that are older than a source file they may have been compiled from.

    numba looks only at the file of a kernel itself, not at the files of the helpers it calls.
    """
    if hasattr(config, "workerinput"):
        # pytest-xdist's workers share the cores; more threads than cores wait for each other.
        torch.set_num_threads(1)
        return
    package = Path(bagwise.__file__).parent
    newest = max(source.stat().st_mtime for source in package.rglob("*.py"))
    for compiled in package.rglob("*.nb[ic]"):
        if compiled.stat().st_mtime < newest:
            compiled.unlink()
