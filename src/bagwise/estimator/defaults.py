"""How a table is trained on where nobody says how, and why not as the paper does.

`TrainingOptions()` is the paper's way: images in many small bags, a constant rate, the best epoch
by validation. What is not named here is the same as there.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from bagwise.training import TrainingOptions

DEFAULTS = TrainingOptions(
    # A table has few bags and an epoch few steps.
    epochs=50,
    # Batch normalisation takes away what tells a lone large bag from others;
    # `benchmarks/defaults.py` shows what eight are worth.
    batch_bags=8,
    # It ends with small steps: where the bags are too few to choose an epoch, the last one is good.
    schedule="one_cycle",
)
"""Of `LLPClassifier`."""

MANY_BAGS = 50  # enough that a tenth of them can choose an epoch


def share_held_out(asked: float | Literal["auto"], n_bags: int) -> float:
    """Of the bags, by `LLPClassifier`, to choose the best epoch.

    >>> share_held_out("auto", 49), share_held_out("auto", 50), share_held_out(0.3, 50)
    (0.0, 0.1, 0.3)
    """
    if asked == "auto":
        return 0.1 if n_bags >= MANY_BAGS else 0.0
    return asked


class Searched(TypedDict):
    """What differs from `DEFAULTS` where rate and number of epochs are searched."""

    weight_decay: float
    schedule: str
    standardize: bool


def searched(n_instances: int) -> Searched:
    """Of `bagwise fit`, which tries models, rates and numbers of epochs on held-out bags.

    `tabular.tuning` says which. All else is as in `LLPClassifier()`.

    >>> searched(1000)["weight_decay"]
    0.001
    """
    return {
        # The loss is a mean over N instances: 1 / N is a Gaussian prior of variance 1 on weights.
        "weight_decay": 1 / n_instances,
        # The first epochs of a long training must be those of a short one: its curve tells how many
        # to take.
        "schedule": "constant",
        # The columns of a table are standardised when they are encoded.
        "standardize": False,
    }
