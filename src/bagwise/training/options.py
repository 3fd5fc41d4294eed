"""How to train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal

import numpy as np

from bagwise.augmentations import Augment, find_augmentation
from bagwise.checks import Rule, check_all, one_of, real_number, whole_number
from bagwise.errors import InputError
from bagwise.training.optimizers import (
    OPTIMIZERS,
    OWN_SCHEDULES,
    SCHEDULES,
    OptimizerFactory,
    ScheduleFactory,
)

Selection = Literal["bag_loss", "accuracy", "last"]


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        epochs: passes over the training bags.
        lr: learning rate.
        weight_decay: of the optimizer.
        batch_instances: a batch holds whole bags up to this many instances; a larger bag is
            trained in random parts of at most so many, see `training.parts`.
        batch_bags: where the model has batch normalisation, a batch holds at least this many bags,
            or half of all if those are fewer, also beyond `batch_instances`, as far as memory
            allows (`training.memory.instances_that_fit`): to normalise a lone bag is to take away
            what tells it from the others, and with it what its counts teach. 1 is the paper's way,
            but for a bag that is left over, which joins the batch before it. Other models learn
            more from more steps.
        schedule: "constant", or "one_cycle": the rate rises over the first 30 % of the epochs and
            falls to nothing. Or one of PyTorch's, stepped once an epoch: cosine, exponential,
            linear, multistep, plateau (by `val_bag_loss`, else by the training loss), polynomial,
            step; or a function of the optimizer that makes one.
        average: decay of an exponential moving average of the weights, which is what is then
            validated and kept; None for no averaging.
        clip: largest norm of a step's gradient; None for no clipping.
        select: which epoch's weights are kept. "bag_loss": the lowest mean -log P(S|X) / K of the
            validation bags, which needs no instance label. "accuracy": the highest validation
            accuracy, where labels exist. "last": the last one. Without validation data: "last".
        patience: stop after this many epochs without improvement; None never does.
        seed: of everything random in training.
        optimizer: adam, adamw or sgd, or a function of the parameters that makes an optimizer, with
            its own learning rate and weight decay then.
        optimizer_options: further arguments of a named optimizer, `{"momentum": 0.9}` for one.
        schedule_options: arguments of a schedule of PyTorch, `{"step_size": 10}` for one.
        augment: changes the inputs of each training batch: None leaves them as they are, "weak"
            shifts, turns and scales images a little, "weak_flip" mirrors half of them besides (and
            there are "strong" and "strong_flip"), or a function, see `bagwise.augmentations`. A
            function has a name, by which a checkpoint knows it; it is not itself saved.
        workers: processes that fetch the instances of a `Dataset`; 0 fetches them here.
    """

    epochs: int = 30
    lr: float = 1e-3
    weight_decay: float = 1e-5
    batch_instances: int = 256
    batch_bags: int = 1
    schedule: str | ScheduleFactory = "constant"
    average: float | None = None
    clip: float | None = None
    select: Selection = "bag_loss"
    patience: int | None = None
    seed: int = 0
    optimizer: str | OptimizerFactory = "adam"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    schedule_options: Mapping[str, Any] = field(default_factory=dict)
    augment: str | Augment | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        check_all(_OPTIONS, self)
        find_augmentation(self.augment)  # is there one of that name?
        for name in _OPTIONS:
            value = getattr(self, name)
            if isinstance(value, np.generic):  # checkpoints are JSON, which knows no numpy
                object.__setattr__(self, name, value.item())
        for name, unused in (
            ("optimizer", callable(self.optimizer)),
            ("schedule", callable(self.schedule) or self.schedule in OWN_SCHEDULES),
        ):
            if unused and getattr(self, f"{name}_options"):
                given = getattr(self, name)
                raise InputError(
                    f"{name}_options is {dict(getattr(self, f'{name}_options'))!r}, but {name} is "
                    f"{given if callable(given) else repr(given)}, which takes none."
                )

    def identity(self) -> dict[str, Any]:
        """What of the options decides the result of a run, as JSON can hold it."""
        found = {name: _plain(getattr(self, name)) for name in (f.name for f in fields(self))}
        if self.schedule in _ENDLESS:
            del found["epochs"]  # a run may be made longer
        for name, default in _LATER.items():
            if found[name] == default:  # checkpoints from before there was a choice stay good
                del found[name]
        del found["workers"]  # who fetches the instances makes no difference
        return found


_ENDLESS = ("constant", "exponential", "linear", "multistep", "plateau", "step")
_LATER: dict[str, Any] = {
    "batch_bags": 1,
    "optimizer": "adam",
    "optimizer_options": {},
    "schedule_options": {},
    "augment": None,
}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "func"):  # functools.partial, whose address would differ in each process
        return [_plain(value.func), _plain(value.args), _plain(value.keywords)]
    kind = value if hasattr(value, "__qualname__") else type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_dataclass(value) and not isinstance(value, type):  # its fields say what it does
        return [name, _plain(asdict(value))]
    return name


def _function(rule: Rule) -> Rule:
    return Rule(
        f"{rule.expected} or a function", lambda value: callable(value) or rule.accepts(value)
    )


_NAMED = Rule(
    "a mapping of names and values",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)
_OPTIONS = {
    "epochs": whole_number(1, 2**53),
    "lr": real_number(0),
    "weight_decay": real_number(0, with_low=True),
    "batch_instances": whole_number(1, 2**53),
    "batch_bags": whole_number(1, 2**53),
    "schedule": _function(one_of(*OWN_SCHEDULES, *SCHEDULES)),
    "average": real_number(0, 1).or_none(),
    "clip": real_number(0).or_none(),
    "select": one_of("bag_loss", "accuracy", "last"),
    "patience": whole_number(1, 2**53).or_none(),
    "seed": whole_number(0, 2**63 - 1),
    "optimizer": _function(one_of(*OPTIMIZERS)),
    "optimizer_options": _NAMED,
    "schedule_options": _NAMED,
    "augment": Rule(
        "a name or a function of inputs and a generator",
        lambda value: callable(value) or isinstance(value, str),
    ).or_none(),
    "workers": whole_number(0, 2**15),
}
