"""All that a training run needs to go on, to and from one checkpoint file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bagwise.checkpoint import load_tensors, prefixed, save_tensors, without_prefix
from bagwise.methods import Method

CHECKPOINT = "checkpoint.safetensors"


@dataclass
class RunState:
    """A training run between two epochs."""

    model: nn.Module
    average: nn.Module | None
    optimizer: torch.optim.Optimizer
    method: Method
    generator: torch.Generator
    n_classes: int
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    steps: int = 0


def save_run(folder: Path, state: RunState, identity: dict[str, Any]) -> None:
    """Write the state to the folder's checkpoint, in one step."""
    tensors = prefixed("model", state.model.state_dict())
    tensors |= prefixed("best", state.best)
    tensors |= prefixed("method", state.method.kept)
    if state.average is not None:
        tensors |= prefixed("average", state.average.state_dict())
    for number, values in state.optimizer.state_dict()["state"].items():
        tensors |= prefixed(f"optimizer.{number}", values)
    tensors["random.order"] = state.generator.get_state()
    tensors["random.torch"] = torch.get_rng_state()
    facts = {
        "identity": identity,
        "history": state.history,
        "best_epoch": state.best_epoch,
        "steps": state.steps,
    }
    save_tensors(folder / CHECKPOINT, tensors, facts)


def load_run(folder: Path, state: RunState, identity: dict[str, Any]) -> None:
    """Bring `state` to where the folder's checkpoint is; without one it stays at the beginning."""
    path = folder / CHECKPOINT
    for unfinished in folder.glob(f".{CHECKPOINT}.*"):  # left by a run killed while writing
        unfinished.unlink()
    if not path.exists():
        return
    tensors, facts = load_tensors(path)
    if facts.get("identity") != identity:
        raise ValueError(
            f"{path} belongs to another run: {_difference(facts.get('identity'), identity)}. "
            "Use another folder, or delete this one to start again."
        )
    state.model.load_state_dict(without_prefix("model", tensors))
    if state.average is not None:
        state.average.load_state_dict(without_prefix("average", tensors))
    state.best = without_prefix("best", tensors)
    kept = state.method.kept
    for name, tensor in without_prefix("method", tensors).items():
        kept[name] = tensor.to(kept[name].device) if name in kept else tensor
    saved: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in without_prefix("optimizer", tensors).items():
        number, key = name.split(".", 1)
        saved.setdefault(int(number), {})[key] = tensor
    groups = state.optimizer.state_dict()["param_groups"]
    state.optimizer.load_state_dict({"state": saved, "param_groups": groups})
    state.generator.set_state(tensors["random.order"])
    torch.set_rng_state(tensors["random.torch"])
    state.history = facts["history"]
    state.best_epoch = facts["best_epoch"]
    state.steps = facts["steps"]


def _difference(saved: Any, wanted: dict[str, Any]) -> str:
    """Name the first setting in which two identities differ."""
    if not isinstance(saved, dict):
        return "it does not say which"
    for key, value in wanted.items():
        other = saved.get(key)
        if other == value:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            for name in value:
                if other.get(name) != value[name]:
                    return f"{name} was {other.get(name)!r} and is now {value[name]!r}"
        return f"{key} was {other!r} and is now {value!r}"
    return "its settings differ"
