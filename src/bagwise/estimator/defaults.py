"""How a table is trained on where nobody says how, and why not as the paper does.

`TrainingOptions()` is the paper's way: images in many small bags, a constant rate, the best epoch
by validation. What is not named here is the same as there.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from bagwise.bags import Bags, IntArray
from bagwise.training import TrainingOptions

DEFAULTS = TrainingOptions(
    # A table has few bags and an epoch few steps.
    epochs=50,
    # Batch normalization takes away what tells a lone large bag from others.
    batch_bags=8,
    # It ends with small steps: where the bags are too few to choose an epoch, the last one is good.
    schedule="one_cycle",
)
"""Of `LLPClassifier`, where a model is trained step by step."""

LINEAR_LR = 3e-2  # with it, 500 steps come close to the maximum of the likelihood
LINEAR_STEPS = 500

MANY_BAGS = 50  # enough that a tenth of them can choose an epoch
MANY_STEPS = 500  # of an epoch
LARGE_BATCH = 4096


def defaults_for(model: object, bags: Bags, batch_instances: int | None = None) -> TrainingOptions:
    """`DEFAULTS` for a model and these bags.

    A linear model that is not fitted by maximum likelihood gets a rate of .03, 500 steps at least,
    in 10 to 500 epochs, and a weight decay of 1 / N, which is a ridge of 1.

    >>> defaults_for("linear", Bags([100] * 50, [[50, 50]] * 50)).epochs
    26
    >>> defaults_for("mlp", Bags([100] * 50, [[50, 50]] * 50)).epochs
    50
    """
    if not (isinstance(model, str) and model == "linear"):
        return DEFAULTS
    steps = max(bags.n_instances / (batch_instances or DEFAULTS.batch_instances), 1)
    epochs = int(np.clip(math.ceil(LINEAR_STEPS / steps), 10, 500))
    return replace(DEFAULTS, epochs=epochs, lr=LINEAR_LR, weight_decay=1 / bags.total)


def share_held_out(asked: float | Literal["auto"], n_bags: int) -> float:
    """Of the bags, by `LLPClassifier`, to choose the best epoch.

    >>> share_held_out("auto", 49), share_held_out("auto", 50), share_held_out(0.3, 50)
    (0.0, 0.1, 0.3)
    """
    if asked == "auto":
        return 0.1 if n_bags >= MANY_BAGS else 0.0
    return asked


def searched(sizes: IntArray) -> dict[str, Any]:
    """Parameters of `LLPClassifier` for `bagwise fit`, which searches rate and number of epochs.

    `estimator.network_candidates` says which. All else is as in `LLPClassifier()`.

    >>> searched(np.array([400, 600]))["weight_decay"]
    0.001
    >>> [searched(np.full(n, 1000))["batch_instances"] for n in (499, 500)]
    [256, 1500]
    """
    batch = DEFAULTS.batch_instances
    if len(sizes) >= MANY_STEPS:
        # Where there are many bags, a whole one at a time makes steps enough, and parts of it cost
        # more: in time, and in memory for what the model said of the other parts.
        batch = int(np.clip(1.5 * np.median(sizes), batch, LARGE_BATCH))
    return {
        "batch_instances": batch,
        # The loss is a mean over N instances: 1 / N is a Gaussian prior of variance 1 on weights.
        "weight_decay": 1 / int(sizes.sum()),
        # The first epochs of a long training must be those of a short one: its curve tells how many
        # to take.
        "schedule": "constant",
        # The columns of a table are standardized when they are encoded.
        "standardize": False,
    }
