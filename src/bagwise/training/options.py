"""How to train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bagwise.checks import check_all, one_of, real_number, whole_number

Selection = Literal["bag_loss", "accuracy", "last"]


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        epochs: passes over the training bags.
        lr: learning rate of Adam.
        weight_decay: of Adam.
        batch_instances: a batch holds whole bags up to this many instances; a larger bag is a batch
            of its own.
        batch_bags: where the model has batch normalisation, a batch holds at least this many bags,
            or half of all if those are fewer, also beyond `batch_instances`, as far as memory
            allows (`training.memory.instances_that_fit`): to normalise a lone bag is to take away
            what tells it from the others, and with it what its counts teach. 1 is the paper's way.
            Other models learn more from more steps.
        schedule: "constant", or "one_cycle": the rate rises over the first 30 % of the epochs and
            falls to nothing.
        average: decay of an exponential moving average of the weights, which is what is then
            validated and kept; None for no averaging.
        clip: largest norm of a step's gradient; None for no clipping.
        select: which epoch's weights are kept. "bag_loss": the lowest mean -log P(S|X) / K of the
            validation bags, which needs no instance label. "accuracy": the highest validation
            accuracy, where labels exist. "last": the last one. Without validation data: "last".
        patience: stop after this many epochs without improvement; None never does.
        seed: of everything random in training.
    """

    epochs: int = 30
    lr: float = 1e-3
    weight_decay: float = 1e-5
    batch_instances: int = 256
    batch_bags: int = 1
    schedule: Literal["constant", "one_cycle"] = "constant"
    average: float | None = None
    clip: float | None = None
    select: Selection = "bag_loss"
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_all(_OPTIONS, self)
        for name in _OPTIONS:
            value = getattr(self, name)
            if isinstance(value, np.generic):  # checkpoints are JSON, which knows no numpy
                object.__setattr__(self, name, value.item())


_OPTIONS = {
    "epochs": whole_number(1, 2**53),
    "lr": real_number(0),
    "weight_decay": real_number(0, with_low=True),
    "batch_instances": whole_number(1, 2**53),
    "batch_bags": whole_number(1, 2**53),
    "schedule": one_of("constant", "one_cycle"),
    "average": real_number(0, 1).or_none(),
    "clip": real_number(0).or_none(),
    "select": one_of("bag_loss", "accuracy", "last"),
    "patience": whole_number(1, 2**53).or_none(),
    "seed": whole_number(0, 2**63 - 1),
}
