"""The random generators of PyTorch that a run draws from: the CPU's, and its device's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within, PyTorch's generators begin at `seed`; afterwards they are where they were.

    >>> before = torch.get_rng_state()
    >>> with seeded(3, torch.device("cpu")):
    ...     _ = torch.rand(5)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    before = states(device)
    try:
        torch.manual_seed(seed)  # of every device
        yield
    finally:
        restore(before, device)


def states(device: torch.device) -> dict[str, torch.Tensor]:
    """The state of the CPU's generator, and of the device's where there is another."""
    found = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        found["device"] = torch.mps.get_rng_state()
    return found


def restore(saved: dict[str, torch.Tensor], device: torch.device) -> None:
    """Put generators back to states; a run may go on on another device, which then begins anew."""
    torch.set_rng_state(saved["torch"])
    if "device" in saved and device.type == "cuda":
        torch.cuda.set_rng_state(saved["device"], device)
    elif "device" in saved and device.type == "mps":
        torch.mps.set_rng_state(saved["device"])
