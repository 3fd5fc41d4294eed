"""All that a training run needs to go on, to and from one checkpoint file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from bagwise.checks import any_number, anything, list_of, number, record, shown, whole, wrong
from bagwise.errors import DamagedError, InputError
from bagwise.methods import Method
from bagwise.storage.array_files import compare, require_finite, verify
from bagwise.storage.files import remove_leftovers
from bagwise.training.averaging import set_steps
from bagwise.training.distributed import Alone
from bagwise.training.randomness import restore, states
from bagwise.training.tensor_files import load_tensors, prefixed, save_tensors, without_prefix
from bagwise.training_options import Precision

CHECKPOINT = "checkpoint.safetensors"
_SCALER = {"scale": "scale", "steps": "_growth_tracker"}  # what of a scaler's state changes


@dataclass
class RunState:
    """A training run between two epochs.

    Attributes:
        forward: the model, compiled if it is to be.
        optimizer_layout: what it keeps of a parameter, see `state_layout`.
        scaler: of gradients in half precision; others it leaves as they are.
        precision: in which the model computes.
        generator: of everything that a run draws itself.
        device: whose generators are part of the state.
        measures: what every row of the history has beside the training's own columns.
        group: the workers that train together, all of which have the same state.
    """

    model: nn.Module
    forward: nn.Module
    average: AveragedModel | None
    optimizer: torch.optim.Optimizer
    optimizer_layout: dict[str, bool]
    scaler: torch.amp.GradScaler
    precision: Precision
    method: Method
    generator: torch.Generator
    device: torch.device
    n_classes: int
    measures: tuple[str, ...]
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    steps: int = 0
    group: Alone = field(default_factory=Alone)


class OtherRunError(InputError):
    """A checkpoint belongs to another run."""


def save_run(folder: Path, state: RunState, identity: dict[str, Any]) -> None:
    """Write the state to the folder's checkpoint, in one step."""
    tensors = prefixed("model", state.model.state_dict())
    tensors |= prefixed("best", state.best)
    tensors |= prefixed("method", state.method.kept)
    if state.average is not None:
        tensors |= prefixed("average", state.average.module.state_dict())
    numbers: dict[str, float] = {}
    for index, values in state.optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            elif isinstance(value, int | float):
                numbers[f"{index}.{name}"] = value
    tensors["random.order"] = state.generator.get_state()
    tensors |= prefixed("random", states(state.device))
    facts = {
        "identity": identity,
        "history": state.history,
        "best_epoch": state.best_epoch,
        "steps": state.steps,
    }
    if numbers:
        facts["optimizer"] = numbers
    if state.scaler.is_enabled():
        scaler = state.scaler.state_dict()
        facts["scaler"] = {name: scaler[key] for name, key in _SCALER.items()}
    save_tensors(folder / CHECKPOINT, tensors, facts)


def load_run(folder: Path, state: RunState, identity: dict[str, Any]) -> None:
    """Bring `state` to where the folder's checkpoint is; without one it stays at the beginning.

    All that the file holds is compared with what this run needs before anything is changed.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"checkpoint is {folder}, which is a file; a folder is expected.")
    path = folder / CHECKPOINT
    remove_leftovers(folder)
    if not path.exists():
        return
    tensors, facts = load_tensors(path)
    if facts.get("identity") != identity:
        raise OtherRunError(
            f"{path} belongs to another run: {_difference(facts.get('identity'), identity)}. "
            "Use another folder, or delete this one to start again."
        )
    try:
        _check_facts(facts, state)
        _check_tensors(tensors, state)
        verify(path, tensors)
    except InputError as error:
        raise DamagedError(
            f"{path} is damaged: {str(error).removesuffix('.')}; "
            "restore it from a copy, or delete it and start again."
        ) from error
    state.model.load_state_dict(without_prefix("model", tensors))
    if state.average is not None:
        state.average.module.load_state_dict(without_prefix("average", tensors))
        set_steps(state.average, facts["steps"])
    state.best = without_prefix("best", tensors)
    kept = state.method.kept
    for name, tensor in without_prefix("method", tensors).items():
        kept[name] = kept[name].copy_(tensor) if name in kept else tensor
    saved: dict[int, dict[str, Any]] = {}
    for name, value in {
        **without_prefix("optimizer", tensors),
        **facts.get("optimizer", {}),
    }.items():
        place, key = name.split(".", 1)
        saved.setdefault(int(place), {})[key] = value
    groups = state.optimizer.state_dict()["param_groups"]
    state.optimizer.load_state_dict({"state": saved, "param_groups": groups})
    if state.scaler.is_enabled():
        changed = {key: facts["scaler"][name] for name, key in _SCALER.items()}
        state.scaler.load_state_dict(state.scaler.state_dict() | changed)
    state.generator.set_state(tensors["random.order"])
    restore(without_prefix("random", tensors), state.device)
    state.history = facts["history"]
    state.best_epoch = facts["best_epoch"]
    state.steps = facts["steps"]


def _check_facts(facts: dict[str, Any], state: RunState) -> None:
    losses = {name: number(high=math.inf) for name in state.measures}
    own = {"epoch": whole(1), "train_loss": number(), "lr": number(0), "seconds": number(0)}
    rows = list_of(record(own | losses, others=any_number), 1)
    needed = {"identity": anything, "history": rows, "best_epoch": whole(1), "steps": whole()}
    if state.scaler.is_enabled():
        needed["scaler"] = record({"scale": number(above=0), "steps": whole()})
    record(needed, {"optimizer": record({}, others=any_number)})(facts, "")
    parameters = sum(len(group["params"]) for group in state.optimizer.param_groups)
    for name in facts.get("optimizer", {}):
        place, dot, _ = name.partition(".")
        if not (dot and place.isdecimal() and int(place) < parameters):
            raise InputError(f"optimizer has {shown(name)}, which is not a parameter's")
    for index, row in enumerate(facts["history"]):
        if row["epoch"] != index + 1:
            raise wrong(row["epoch"], f"history[{index}].epoch", f"{index + 1}")
    whole(1, len(facts["history"]))(facts["best_epoch"], "best_epoch")


def _check_tensors(tensors: dict[str, torch.Tensor], state: RunState) -> None:
    weights = state.model.state_dict()
    expected = prefixed("model", weights) | prefixed("best", weights)
    if state.average is not None:
        expected |= prefixed("average", weights)
    require_finite({name: tensors[name] for name in expected if name in tensors})
    expected["random.order"] = state.generator.get_state()
    expected |= prefixed("random", states(state.device))
    if "random.device" in tensors:  # of a run that was on another device, where it was
        expected.setdefault("random.device", tensors["random.device"])
    expected |= prefixed("method", state.method.kept)
    for name, tensor in prefixed("method", without_prefix("method", tensors)).items():
        expected.setdefault(name, tensor)  # added by the method while it was training
    parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
    for index, parameter in enumerate(parameters):
        # An optimizer knows nothing of a parameter that never had a gradient.
        if any(name.startswith(f"optimizer.{index}.") for name in tensors):
            like = {
                name: parameter if shaped else torch.zeros(())
                for name, shaped in state.optimizer_layout.items()
            }
            expected |= prefixed(f"optimizer.{index}", like)
    compare(tensors, expected)
    for name in ("random.order", "random.torch"):
        try:
            torch.Generator().set_state(tensors[name])
        except RuntimeError as error:
            raise InputError(f"{name!r} is not a state of a random generator ({error})") from error
    for name, tensor in prefixed("optimizer", without_prefix("optimizer", tensors)).items():
        if tensor.isnan().any():
            raise InputError(f"{name!r} has NaN values, which training never keeps")


def _difference(saved: Any, wanted: dict[str, Any]) -> str:
    """Name the first setting in which two identities differ."""
    if not isinstance(saved, dict):
        return "it does not say which"
    for key, value in wanted.items():
        other = saved.get(key)
        if other == value:
            continue
        if key == "data" and isinstance(other, list):
            parts = ("the training data", "the validation data", "the test data")
            other, value = (dict(zip(parts, one, strict=False)) for one in (other, value))
        if isinstance(value, dict) and isinstance(other, dict):
            for name in sorted({*value, *other}):
                before, now = (
                    shown(part[name]) if name in part else "nothing" for part in (other, value)
                )
                if before != now:
                    return f"{name} was {before} and is now {now}"
        return f"{key} was {shown(other)} and is now {shown(value)}"
    return "its settings differ"
