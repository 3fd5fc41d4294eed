"""The method and the training that a classifier's parameters describe."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from bagwise.methods import METHODS, Method, make_method, takes
from bagwise.posterior import check_engine
from bagwise.training import TrainingOptions

if TYPE_CHECKING:
    from bagwise.estimator.classifier import LLPClassifier


def new_method(method: str | Method, engine: str, options: dict[str, Any]) -> Method:
    """A method of its own for one training; parameters that contradict each other are ValueErrors.

    >>> new_method("ot", "auto", {"epsilon": 0.5}).get_params()
    {'epsilon': 0.5, 'iterations': 75}
    """
    check_engine(engine)
    made = make_method(method)  # an unknown name comes first
    if made.needs_labels:
        raise ValueError(
            f"method={made.name!r} learns from labels of instances, which fit(X, y) without "
            "proportions does with any method; choose a bag method, for instance cc."
        )
    if engine != "auto":
        if "engine" in options:
            raise ValueError("engine and method__engine are both given; give one of them.")
        options = options | {"engine": engine}
    if isinstance(method, Method):
        if options:
            name = next(iter(options))
            raise ValueError(
                f"{name} is {options[name]!r}, but method is a {type(method).__name__} that has "
                f"its own settings; give it to that, for instance "
                f"{type(method).__name__}({name}={options[name]!r})."
            )
        return copy.deepcopy(made)
    if engine != "auto" and not takes(method, "engine"):
        takers = [name for name in METHODS if takes(name, "engine")]
        raise ValueError(
            f"engine is {engine!r}, but the method {method!r} takes none; "
            f"{', '.join(takers)} do. Leave engine at 'auto'."
        )
    return make_method(method, **options)


def training_options(classifier: LLPClassifier, seed: int, workers: int) -> TrainingOptions:
    """How to train it."""
    return TrainingOptions(
        epochs=classifier.epochs,
        lr=classifier.lr,
        weight_decay=classifier.weight_decay,
        batch_instances=classifier.batch_instances,
        batch_bags=classifier.batch_bags,
        schedule=classifier.schedule,
        average=classifier.average,
        patience=classifier.patience,
        seed=seed,
        optimizer=classifier.optimizer,
        optimizer_options=classifier.optimizer_options or {},
        schedule_options=classifier.schedule_options or {},
        augment=classifier.augment,
        workers=workers,
    )
