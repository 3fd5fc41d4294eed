"""How to train: each option with its default, what it may be, and who has it.

All that has training options takes them from here: `LLPClassifier`, the runs of sweeps, the command
line, and the files in which they are kept. This imports neither torch nor numpy, which
the help of the command line would wait for.
"""

# ruff: noqa: RUF009  (the defaults of the dataclass are fields)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from bagwise import errors
from bagwise.checks import (
    Check,
    Rule,
    flag,
    maybe,
    number,
    one_of,
    or_else,
    plain,
    short_text,
    whole,
)

if TYPE_CHECKING:
    from bagwise.augmentations import Augment
    from bagwise.training.optimizers import OptimizerFactory, ScheduleFactory

Selection = Literal["bag_loss", "accuracy", "last"]
Precision = Literal["full", "bf16", "fp16"]

OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
"""Names, and the classes of `torch.optim` that they stand for."""
SCHEDULES = {
    "cosine": "CosineAnnealingLR",
    "exponential": "ExponentialLR",
    "linear": "LinearLR",
    "multistep": "MultiStepLR",
    "plateau": "ReduceLROnPlateau",
    "polynomial": "PolynomialLR",
    "step": "StepLR",
}
"""Names, and the classes of `torch.optim.lr_scheduler` that they stand for."""
OWN_SCHEDULES = ("constant", "one_cycle")
_ENDLESS = ("constant", "exponential", "linear", "multistep", "plateau", "step")


@dataclass(frozen=True)
class Option:
    """What is to be known of an option beside its type and its default.

    Attributes:
        check: what it may be.
        help: what `bagwise train` says of it; None where the runs of sweeps, and so `train`, have
            no such setting.
        in_file: what a file may say of it: only a name where Python takes a function, too.
        of_classifier: whether it is a parameter of `LLPClassifier`.
        later: whether checkpoints of before it was there exist; they have the default.
    """

    check: Check
    help: str | None
    in_file: Check
    of_classifier: bool
    later: bool


def _option(
    default: Any,
    check: Check,
    help: str | None = None,
    *,
    in_file: Check | None = None,
    of_classifier: bool = True,
    later: bool = False,
) -> Any:
    """A field of a dataclass."""
    about = {"option": Option(check, help, in_file or check, of_classifier, later)}
    if default == {}:
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


_NAMED = Rule(
    "a mapping of names and values",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)
_VIEW = maybe(
    Rule(
        "a name or a function of inputs and a generator",
        lambda value: callable(value) or isinstance(value, str),
    )
)


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        epochs: passes over the training bags.
        lr: learning rate.
        weight_decay: of the optimizer.
        batch_instances: a batch holds whole bags up to this many instances; a larger bag is
            trained in random parts of at most so many, see `training.parts`.
        batch_bags: where the model has batch normalization, a batch holds at least this many bags,
            or half of all if those are fewer, also beyond `batch_instances`, as far as memory
            allows (`training.memory.instances_that_fit`): to normalize a lone bag is to take away
            what tells it from the others, and with it what its counts teach. 1 is the paper's way,
            but for a bag that is left over, which joins the batch before it. Other models learn
            more from more steps.
        schedule: "constant", or "one_cycle": the rate rises over the first 30% of the epochs and
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
        drop_last: leave out the last batch of an epoch where it has fewer instances than the one
            before it, as the paper's authors do. Batches are drawn anew in each epoch.
        augment: changes the inputs of each training batch: None leaves them as they are, "weak"
            shifts, turns and scales images a little, "weak_flip" mirrors half of them besides (and
            there are "strong" and "strong_flip"), or a function, see `bagwise.augmentations`. A
            function has a name, by which a checkpoint knows it; it is not itself saved.
        precision: "full", or mixed: with "bf16" or "fp16" matrix products and convolutions of a
            training step have half precision (`torch.autocast`); weights, losses and evaluation
            have full. Gradients of "fp16" are scaled (`torch.amp.GradScaler`): a step whose
            gradients are too large is left out and the scale lowered.
        accumulate_batches: the gradients of this many batches make one step, as if they were one
            batch, each instance counting the same. Batch normalization sees one batch at a time,
            and so do methods that keep probabilities. The last step of an epoch has what is left.
        compile: whether the model is compiled for training, by `torch.compile`, for batches of any
            size. Evaluation, and the model that is returned, are not.
        workers: processes that fetch the instances of a `Dataset`; 0 fetches them here.

    >>> from dataclasses import replace
    >>> replace(TrainingOptions(epochs=5), lr=0.01).epochs
    5
    """

    epochs: int = _option(30, whole(1), "Passes over the training bags.")
    lr: float = _option(1e-3, number(above=0), "Learning rate.")
    weight_decay: float = _option(1e-5, number(0), "Weight decay of the optimizer.")
    batch_instances: int = _option(
        256, whole(1), "Instances in a batch; a larger bag comes in parts."
    )
    batch_bags: int = _option(1, whole(1), later=True)
    schedule: str | ScheduleFactory = _option(
        "constant",
        or_else(one_of(*OWN_SCHEDULES, *SCHEDULES), "a function", callable),
        "constant, one_cycle, cosine, ..., see docs/sweeps.md.",
        in_file=short_text,
    )
    average: float | None = _option(
        None, maybe(number(above=0, below=1)), "Decay of averaged weights, for instance 0.998."
    )
    clip: float | None = _option(
        None, maybe(number(above=0)), "Largest norm of a step's gradient.", of_classifier=False
    )
    select: Selection = _option(
        "bag_loss", one_of("bag_loss", "accuracy", "last"), of_classifier=False
    )
    patience: int | None = _option(None, maybe(whole(1)))
    seed: int = _option(
        0, whole(0, 2**63 - 1), "Of the bags, the model and the batches.", of_classifier=False
    )
    optimizer: str | OptimizerFactory = _option(
        "adam",
        or_else(one_of(*OPTIMIZERS), "a function", callable),
        "adam, adamw or sgd.",
        in_file=short_text,
        later=True,
    )
    optimizer_options: Mapping[str, Any] = _option(
        {}, _NAMED, "An option of the optimizer; may be repeated.", later=True
    )
    schedule_options: Mapping[str, Any] = _option(
        {}, _NAMED, "An option of the schedule; may be repeated.", later=True
    )
    augment: str | Augment | None = _option(
        None,
        _VIEW,
        "Random views of images: weak, weak_flip, strong, ...",
        in_file=maybe(short_text),
        later=True,
    )
    drop_last: bool = _option(
        False,
        flag,
        "Leave out an epoch's last batch where it is not full.",
        of_classifier=False,
        later=True,
    )
    precision: Precision = _option(
        "full",
        one_of("full", "bf16", "fp16"),
        "full, or mixed with half precision: bf16, fp16.",
        later=True,
    )
    accumulate_batches: int = _option(
        1, whole(1), "Batches whose gradients make one step.", later=True
    )
    compile: bool = _option(False, flag, "Train with torch.compile.", later=True)
    workers: int = _option(0, whole(0, 2**15), of_classifier=False)

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            option.check(getattr(self, name), errors.Option(name))
            object.__setattr__(self, name, plain(getattr(self, name)))
        if self.augment is not None:
            # Is there one of that name? Only who trains, and has PyTorch, asks.
            import_module("bagwise.augmentations").find_augmentation(self.augment)
        for name, unused in (
            ("optimizer", callable(self.optimizer)),
            ("schedule", callable(self.schedule) or self.schedule in OWN_SCHEDULES),
        ):
            if unused and getattr(self, f"{name}_options"):
                given = getattr(self, name)
                raise errors.InputError(
                    f"{name}_options is {dict(getattr(self, f'{name}_options'))!r}, but {name} is "
                    f"{given if callable(given) else repr(given)}, which takes none."
                )

    def identity(self) -> dict[str, Any]:
        """What of the options decides the result of a run, as JSON can hold it."""
        found = {name: _as_json(getattr(self, name)) for name in OPTIONS}
        default = {name: _as_json(getattr(TrainingOptions(), name)) for name in OPTIONS}
        if self.schedule in _ENDLESS:
            del found["epochs"]  # a run may be made longer
        for name, option in OPTIONS.items():
            if option.later and found[name] == default[name]:
                del found[name]
        del found["workers"]  # who fetches the instances makes no difference
        return found


OPTIONS: dict[str, Option] = {
    field.name: field.metadata["option"] for field in fields(TrainingOptions)
}


def _as_json(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, Mapping):
        return {str(name): _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "func"):  # functools.partial, whose address would differ in each process
        return [_as_json(value.func), _as_json(value.args), _as_json(value.keywords)]
    kind = value if hasattr(value, "__qualname__") else type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_dataclass(value) and not isinstance(value, type):  # its fields say what it does
        return [name, _as_json(asdict(value))]
    return name
