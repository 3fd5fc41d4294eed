"""Which devices this machine has."""

from __future__ import annotations

from typing import Any

import torch

from bagwise.checks import Check, Rule


def _is_device(value: Any) -> bool:
    if not isinstance(value, str | torch.device):
        return False
    try:
        made = torch.empty(0, device=value)
    except (RuntimeError, AssertionError):  # no such name, or no such device here
        return False
    return not made.is_meta


DEVICE: Check = Rule('the name of a device of this machine, for instance "cpu",', _is_device)
