"""Optimizers and schedules of the learning rate, by name or made by a function."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.optim import lr_scheduler

from bagwise.errors import InputError, InputTypeError
from bagwise.training_options import OPTIMIZERS, OWN_SCHEDULES, SCHEDULES, TrainingOptions

Optimizer = torch.optim.Optimizer
OptimizerFactory = Callable[[Iterable[torch.nn.Parameter]], Optimizer]
"""factory(parameters) makes an optimizer."""
ScheduleFactory = Callable[[Optimizer], Any]
"""factory(optimizer) makes a schedule of `torch.optim.lr_scheduler`, stepped once an epoch."""

_LENGTH = {"cosine": "T_max", "polynomial": "total_iters"}  # the argument that is all epochs

Row = Mapping[str, float]


def new_optimizer(options: TrainingOptions, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """The optimizer that the options describe.

    >>> from bagwise import TrainingOptions
    >>> options = TrainingOptions(optimizer="sgd", optimizer_options={"momentum": 0.9}, lr=0.1)
    >>> new_optimizer(options, [torch.nn.Parameter(torch.zeros(1))]).defaults["momentum"]
    0.9
    """
    if callable(options.optimizer):
        made = options.optimizer(parameters)
        if not isinstance(made, Optimizer):
            raise InputTypeError(
                f"the optimizer's factory returned a {type(made).__name__}; "
                "a torch.optim.Optimizer is expected."
            )
        if isinstance(made, torch.optim.LBFGS):
            raise InputTypeError(
                "LBFGS evaluates the loss several times in a step, which `train` does not; choose "
                "an optimizer of single steps, such as Adam."
            )
        return made
    given = {"lr": options.lr, "weight_decay": options.weight_decay, **options.optimizer_options}
    with _refused_by_torch("optimizer", options.optimizer):
        made = getattr(torch.optim, OPTIMIZERS[options.optimizer])(parameters, **given)
    assert isinstance(made, Optimizer)
    return made


@contextmanager
def _refused_by_torch(kind: str, name: object) -> Iterator[None]:
    """What PyTorch says of options within, by whichever exception, is a mistake in them."""
    try:
        yield
    except Exception as error:
        reason = re.sub(r"^\w+\.__init__\(\) ", "", str(error)).removesuffix(".")
        raise InputError(f"{kind} {name!r}: {reason}; see {kind}_options.") from error


def check_options(options: TrainingOptions) -> None:
    """Use optimizer and schedule once, so that a mistake in their options shows now."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = new_optimizer(options, [parameter])
    schedule = Schedule(options, optimizer)
    with _refused_by_torch("optimizer", options.optimizer):
        optimizer.step()
    with _refused_by_torch("schedule", options.schedule):
        schedule.epoch_done({"train_loss": 1.0})


def state_layout(options: TrainingOptions) -> dict[str, bool]:
    """What the optimizer keeps of a parameter: name -> whether it is shaped like the parameter.

    Found by a step with a parameter of its own.

    >>> from bagwise import TrainingOptions
    >>> state_layout(TrainingOptions())
    {'step': False, 'exp_avg': True, 'exp_avg_sq': True}
    """
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = new_optimizer(replace(options, lr=1e-3), [parameter])
    optimizer.step()
    kept = optimizer.state_dict()["state"].get(0, {})
    return {
        name: value.shape == parameter.shape
        for name, value in kept.items()
        if isinstance(value, torch.Tensor)
    }


class Schedule:
    """The learning rate over a run.

    "one_cycle" follows the share of all instances that were seen, however many batches that takes.
    A schedule of PyTorch steps once an epoch. It needs no place in a checkpoint: the epochs that
    were done say what it has been told.
    """

    def __init__(
        self, options: TrainingOptions, optimizer: Optimizer, history: Iterable[Row] = ()
    ) -> None:
        self._options = options
        self._optimizer = optimizer
        self._first = [group["lr"] for group in optimizer.param_groups]
        self._torch = self._of_torch()
        for row in history:
            self.epoch_done(row)

    @property
    def rate(self) -> float:
        """Of the first group of parameters, now."""
        return float(self._optimizer.param_groups[0]["lr"])

    def before_step(self, done: float) -> None:
        """Set the rates of a step, given the share of the run that is done."""
        if self._options.schedule == "one_cycle":
            factor = one_cycle(done)
            for group, rate in zip(self._optimizer.param_groups, self._first, strict=True):
                group["lr"] = rate * factor

    def epoch_done(self, row: Row) -> None:
        """An epoch has ended; its row says how well."""
        if self._torch is None:
            return
        with warnings.catch_warnings():  # of a resumed run, whose optimizer has not stepped yet
            warnings.filterwarnings("ignore", ".*lr_scheduler.step.*", UserWarning)
            if isinstance(self._torch, lr_scheduler.ReduceLROnPlateau):
                self._torch.step(row.get("val_bag_loss", row["train_loss"]))
            else:
                self._torch.step()

    def _of_torch(self) -> Any:
        name = self._options.schedule
        if callable(name):
            return name(self._optimizer)
        if name in OWN_SCHEDULES:
            return None
        given = {_LENGTH[name]: self._options.epochs} if name in _LENGTH else {}
        with _refused_by_torch("schedule", name):
            schedule = getattr(lr_scheduler, SCHEDULES[name])
            return schedule(self._optimizer, **given | dict(self._options.schedule_options))


def one_cycle(done: float) -> float:
    """Factor of the learning rate after the share `done` of a run: it rises, then falls to nothing.

    >>> [round(one_cycle(done), 2) for done in (0, 0.3, 0.65, 1)]
    [0.04, 1.0, 0.5, 0.0]
    """
    rise = 0.3
    if done < rise:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * done / rise)) / 2
    return max((1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2, 1e-4)
