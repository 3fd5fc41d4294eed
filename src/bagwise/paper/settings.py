"""What a run is: its settings, and the identity that follows from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import KW_ONLY, MISSING, InitVar, asdict, dataclass, fields
from typing import Any

from bagwise.augmentations import AUGMENTATIONS, find_augmentation
from bagwise.errors import InputError
from bagwise.methods import METHODS, Method, make_method, takes
from bagwise.networks import MODELS
from bagwise.paper.datasets import DATASETS
from bagwise.posterior import ENGINES
from bagwise.storage.schema import (
    LARGE,
    any_number,
    list_of,
    maybe,
    number,
    record,
    short_text,
    whole,
    wrong,
)
from bagwise.training import TrainingOptions
from bagwise.training.optimizers import check_options

Pairs = tuple[tuple[str, Any], ...]
"""Names and values, sorted by name."""

_CHECKS = {
    "dataset": short_text,
    "model": short_text,
    "method": short_text,
    "bag_size": whole(1, 10**9),
    "lr": number(0, LARGE, within=True),
    "epochs": whole(1, 10**9),
    "seed": whole(0, 2**62),
    "engine": short_text,
    "schedule": short_text,
    "average": maybe(number(0, 1, within=True)),
    "batch_instances": whole(1, 10**9),
    "weight_decay": number(0),
    "optimizer": short_text,
    "clip": maybe(number(0, LARGE, within=True)),
    "augment": maybe(short_text),
}
OPTIONS = ("method_options", "optimizer_options", "schedule_options")
"""Settings that are names and values themselves."""
LATER = {"optimizer": "adam", "clip": None, "augment": None, **dict.fromkeys(OPTIONS, ())}
"""Settings that runs of before there were any have at these values: they keep their names."""


@dataclass(frozen=True)
class RunSettings:
    """One training run of the paper's protocol.

    Attributes:
        dataset: a name of `bagwise.paper.datasets`.
        model: a name of `bagwise.networks`.
        method: a name of `bagwise.methods`.
        bag_size: K.
        lr: learning rate.
        epochs: at most.
        seed: of the validation split, the bags, the model and the batches.
        engine: of RC and CC; other methods have none ("-").
        schedule: "constant" (the paper), "one_cycle" or another of `bagwise.TrainingOptions`.
        average: decay of averaged weights, or None (the paper).
        batch_instances: instances in a batch.
        weight_decay: of the optimizer.
        method_options: pairs of a name and a value, sorted; a mapping is taken too.
        optimizer: "adam" (the paper), "adamw" or "sgd".
        optimizer_options: pairs like the method's.
        schedule_options: likewise.
        clip: largest norm of a step's gradient, or None (the paper).
        augment: a name of `bagwise.augmentations`, or None (the paper).
        check_names: whether data set, model, method and engine must be known here. To do a run they
            must; the settings of a run that was done elsewhere need not.

    >>> run = RunSettings("digits", "linear", "cc", 16, 1e-3, 30, 0)
    >>> run.name
    'digits-linear-cc-K16-lr0.001-e30-s0-b487ae6e'
    """

    dataset: str
    model: str
    method: str
    bag_size: int
    lr: float
    epochs: int
    seed: int
    engine: str = "auto"
    schedule: str = "constant"
    average: float | None = None
    batch_instances: int = 256
    weight_decay: float = 1e-5
    method_options: Pairs = ()
    optimizer: str = "adam"
    optimizer_options: Pairs = ()
    schedule_options: Pairs = ()
    clip: float | None = None
    augment: str | None = None
    _: KW_ONLY
    check_names: InitVar[bool] = True

    def __post_init__(self, check_names: bool) -> None:
        for field, check in _CHECKS.items():
            check(getattr(self, field), field)
        for field in OPTIONS:
            object.__setattr__(self, field, _pairs(getattr(self, field), field))
        if self.method in METHODS:
            if not takes(self.method, "engine"):
                object.__setattr__(self, "engine", "-")
            if METHODS[self.method].needs_labels:  # which bags there are makes no difference
                object.__setattr__(self, "bag_size", 1)
        if check_names:
            self.require_known()
        for field in ("lr", "weight_decay", "average", "clip"):  # 0 and 0.0 are one run
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else float(value))
        self.options()  # checks the rest

    def require_known(self) -> None:
        """Data set, model, method and engine must be known here; another one is a ValueError."""
        for registry in (DATASETS, MODELS, METHODS, ENGINES):
            name = getattr(self, registry.kind)
            if (registry.kind, name) != ("engine", "-"):  # of a method without one
                registry[name]
        find_augmentation(self.augment)
        if "engine" in dict(self.method_options):
            raise InputError(
                "engine is given as an option of the method; it is a setting of its own: "
                "engine = ... in a sweep, --engine on the command line."
            )
        if self.method_options:
            self.new_method()  # knows its options
        check_options(self.options())

    def options(self) -> TrainingOptions:
        """The part of the settings that training knows about."""
        return TrainingOptions(
            epochs=self.epochs,
            lr=self.lr,
            weight_decay=self.weight_decay,
            batch_instances=self.batch_instances,
            schedule=self.schedule,
            average=self.average,
            clip=self.clip,
            seed=self.seed,
            optimizer=self.optimizer,
            optimizer_options=dict(self.optimizer_options),
            schedule_options=dict(self.schedule_options),
            augment=self.augment if self.augment in AUGMENTATIONS else None,  # of a run elsewhere
        )

    def new_method(self) -> Method:
        """The method; it records how far its weights are from the approximate ones, if it can."""
        options: dict[str, Any] = {} if self.engine == "-" else {"engine": self.engine}
        if takes(self.method, "record_gap"):
            options["record_gap"] = True
        return make_method(self.method, **options | dict(self.method_options))

    @property
    def name(self) -> str:
        """A folder's name: readable, and different for different settings."""
        settings = asdict(self)
        for field, value in LATER.items():
            if settings[field] == value:
                del settings[field]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return (
            f"{self.dataset}-{self.model}-{self.method}-K{self.bag_size}-lr{self.lr:g}"
            f"-e{self.epochs}-s{self.seed}-{digest[:8]}"
        )

    @classmethod
    def from_dict(cls, settings: dict[str, Any], check_names: bool = True) -> RunSettings:
        """Settings from what a file says; unknown, missing and senseless ones are ValueErrors."""
        known = {field.name: field for field in fields(cls)}
        if unknown := sorted(settings.keys() - known):
            raise InputError(
                f"unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}."
            )
        for field in known.values():
            if field.name not in settings and field.default is MISSING:
                raise InputError(f"{field.name} is missing.")
        return cls(**settings, check_names=check_names)


def _pairs(options: Any, place: str) -> Pairs:
    """Names and values, sorted, from a mapping or from pairs as JSON has them."""
    if isinstance(options, list | tuple):
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in options):
            raise wrong(options, place, "a table of names and values")
        options = {str(name): value for name, value in options}
    record({}, others=_single if place == "method_options" else _single_or_several)(options, place)
    return tuple(sorted((name, _frozen(value)) for name, value in options.items()))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _single(value: Any, place: str) -> None:
    if isinstance(value, str):
        short_text(value, place)
    elif not isinstance(value, bool | None):
        any_number(value, place)


def _single_or_several(value: Any, place: str) -> None:
    """Also several numbers: betas of Adam, milestones of a schedule."""
    if isinstance(value, list | tuple):
        list_of(any_number, 1)(list(value), place)
    else:
        _single(value, place)
