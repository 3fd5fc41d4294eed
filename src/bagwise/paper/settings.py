"""What a run is: its settings, and the identity that follows from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import KW_ONLY, MISSING, InitVar, asdict, dataclass, fields
from itertools import dropwhile
from typing import Any

from bagwise.augmentations import AUGMENTATIONS, find_augmentation
from bagwise.checks import (
    Where,
    any_number,
    check_all,
    list_of,
    plain,
    record,
    short_text,
    shown,
    whole,
    wrong,
)
from bagwise.errors import InputError
from bagwise.methods import METHODS, Method, make_method, takes
from bagwise.networks import MODELS
from bagwise.paper.datasets import DATASETS
from bagwise.posterior import ENGINES
from bagwise.training.optimizers import check_options
from bagwise.training_options import OPTIONS, Precision, TrainingOptions

Pairs = tuple[tuple[str, Any], ...]
"""Names and values, sorted by name."""

TRAINING = tuple(name for name, option in OPTIONS.items() if option.help is not None)
"""Settings that are training options."""
PAIRS = ("method_options", "optimizer_options", "schedule_options")
"""Settings that are names and values themselves."""
_CHECKS = {
    "dataset": short_text,
    "model": short_text,
    "method": short_text,
    "engine": short_text,
    "bag_size": whole(1, 10**9),
    **{name: OPTIONS[name].in_file for name in TRAINING if name not in PAIRS},
    "seed": whole(0, 2**62),  # the split has a larger one
}
_PAPER: Any = TrainingOptions  # whose defaults are the paper's


@dataclass(frozen=True)
class RunSettings:
    """One training run of the paper's protocol.

    Attributes:
        dataset: a name of `bagwise.paper.datasets`.
        model: a name of `bagwise.networks`.
        method: a name of `bagwise.methods`.
        seed: of the validation split, the bags, the model and the batches.
        engine: of RC and CC; other methods have none ("-").
        method_options: pairs of a name and a value, sorted; a mapping is taken too.
        lr, epochs, ...: the others are `bagwise.TrainingOptions`, with the same defaults, which are
            the paper's; `optimizer_options` and `schedule_options` are pairs like the method's.
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
    schedule: str = _PAPER.schedule
    average: float | None = _PAPER.average
    batch_instances: int = _PAPER.batch_instances
    weight_decay: float = _PAPER.weight_decay
    method_options: Pairs = ()
    optimizer: str = _PAPER.optimizer
    optimizer_options: Pairs = ()
    schedule_options: Pairs = ()
    clip: float | None = _PAPER.clip
    augment: str | None = _PAPER.augment
    drop_last: bool = _PAPER.drop_last
    precision: Precision = _PAPER.precision
    accumulate_batches: int = _PAPER.accumulate_batches
    compile: bool = _PAPER.compile
    _: KW_ONLY
    check_names: InitVar[bool] = True

    def __post_init__(self, check_names: bool) -> None:
        check_all(_CHECKS, self)
        for name in PAIRS:
            object.__setattr__(self, name, _pairs(getattr(self, name), name))
        if self.method in METHODS:
            if not takes(self.method, "engine"):
                object.__setattr__(self, "engine", "-")
            if METHODS[self.method].needs_labels:  # which bags there are makes no difference
                object.__setattr__(self, "bag_size", 1)
        if check_names:
            self.require_known()
        for field in fields(self):
            value = plain(getattr(self, field.name))
            if isinstance(value, int) and "float" in str(field.type):  # 0 and 0.0 are one run
                value = float(value)
            object.__setattr__(self, field.name, value)
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
                "engine is given as an option of the method; give it as a setting of its own."
            )
        if self.method_options:
            self.new_method()  # knows its options
        check_options(self.options())

    def options(self) -> TrainingOptions:
        """The part of the settings that training knows about."""
        given = {name: getattr(self, name) for name in TRAINING}
        given |= {name: dict(given[name]) for name in TRAINING if name in PAIRS}
        if self.augment not in AUGMENTATIONS:  # of a run elsewhere
            given["augment"] = None
        return TrainingOptions(**given)

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
                f"unknown setting {shown(unknown[0])}; known are {', '.join(sorted(known))}."
            )
        for field in known.values():
            if field.name not in settings and field.default is MISSING:
                raise InputError(f"{field.name} is missing.")
        return cls(**settings, check_names=check_names)


# Fields are added at the end: runs from before have the defaults, and keep their names.
LATER = {
    field.name: field.default
    for field in dropwhile(lambda field: field.name != "method_options", fields(RunSettings))
}


def _pairs(options: Any, place: Where) -> Pairs:
    """Names and values, sorted, from a mapping or from pairs as JSON has them."""
    if isinstance(options, list | tuple):
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in options):
            raise wrong(options, place, "a table of names and values")
        options = {str(name): value for name, value in options}
    record({}, others=_single if place == "method_options" else _single_or_several)(options, place)
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return tuple(sorted(frozen.items()))


def _single(value: Any, place: Where) -> None:
    if isinstance(value, str):
        short_text(value, place)
    elif not isinstance(value, bool | None):
        any_number(value, place)


def _single_or_several(value: Any, place: Where) -> None:
    """Also several numbers: betas of Adam, milestones of a schedule."""
    if isinstance(value, list | tuple):
        list_of(any_number, 1)(list(value), place)
    else:
        _single(value, place)
