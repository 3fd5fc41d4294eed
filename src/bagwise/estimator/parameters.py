"""The method and the training that a classifier's parameters describe."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from bagwise.bags import Bags
from bagwise.errors import InputError, InputTypeError
from bagwise.estimator.defaults import defaults_for
from bagwise.methods import METHODS, Method, make_method, takes
from bagwise.posterior import check_engine
from bagwise.training.distributed import workers_of
from bagwise.training_options import OPTIONS, TrainingOptions

if TYPE_CHECKING:
    from bagwise.estimator.classifier import LLPClassifier


_METHOD = "method__"  # before an option of the method
STEP_BY_STEP = tuple(name for name, option in OPTIONS.items() if option.of_classifier)
"""Parameters of training step by step; maximum likelihood has none of them."""


class MethodOptions(BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator whose method's options are parameters, `method__epsilon` for one."""

    method: str | Method

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, those of the method (`method__...`) included."""
        params: dict[str, Any] = super().get_params(deep)
        return params | {_METHOD + name: value for name, value in self._method_options().items()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; `method__epsilon=0.5` is the option epsilon of the method."""
        if not isinstance(params.get("method", self.method), Method):
            for name in [name for name in params if name.startswith(_METHOD)]:
                setattr(self, name, params.pop(name))
        super().set_params(**params)
        return self

    def _set_method_options(self, options: dict[str, Any]) -> None:
        """Keep what the constructor was given beside its own parameters."""
        for name, value in options.items():
            if not name.startswith(_METHOD):
                raise InputTypeError(
                    f"{type(self).__name__} has no parameter {name!r}; options of the method are "
                    f"given with {_METHOD} before their name, for instance method__epsilon."
                )
            setattr(self, name, value)

    def _method_options(self) -> dict[str, Any]:
        """The options that are set here, without the prefix."""
        own = ((name, value) for name, value in vars(self).items() if name.startswith(_METHOD))
        return {name.removeprefix(_METHOD): value for name, value in own}


def new_method(method: str | Method, engine: str, options: dict[str, Any]) -> Method:
    """A method of its own for one training; parameters that contradict each other are ValueErrors.

    >>> new_method("ot", "auto", {"epsilon": 0.5}).get_params()
    {'epsilon': 0.5, 'iterations': 75}
    """
    check_engine(engine)
    made = make_method(method)  # an unknown name comes first
    if made.needs_labels:
        raise InputError(
            f"method={made.name!r} learns from labels of instances, which fit(X, y) without "
            "proportions does with any method; choose a bag method, for instance cc."
        )
    if engine != "auto":
        if "engine" in options:
            raise InputError("engine and method__engine are both given; give one of them.")
        options = options | {"engine": engine}
    if isinstance(method, Method):
        if options:
            name = next(iter(options))
            raise InputError(
                f"{name} is {options[name]!r}, but method is a {type(method).__name__} that has "
                f"its own settings; give it to that, for instance "
                f"{type(method).__name__}({name}={options[name]!r})."
            )
        return copy.deepcopy(made)
    if engine != "auto" and not takes(method, "engine"):
        takers = [name for name in METHODS if takes(name, "engine")]
        raise InputError(
            f"engine is {engine!r}, but the method {method!r} takes none; "
            f"{', '.join(takers)} do. Leave engine at 'auto'."
        )
    return make_method(method, **options)


def new_seed(classifier: LLPClassifier) -> int:
    """A seed from `random_state`; of several workers, all take the first one's."""
    drawn = int(check_random_state(classifier.random_state).randint(2**31))
    return int(workers_of(torch.device(classifier.device)).from_first(drawn))


def fold_seed(classifier: LLPClassifier) -> int:
    """Of the folds of maximum likelihood: `random_state` if that is a number, else 0."""
    given = classifier.random_state
    seed = int(given) if isinstance(given, int | np.integer) else 0
    return int(workers_of(torch.device(classifier.device)).from_first(seed))


def trains_step_by_step(classifier: LLPClassifier) -> bool:
    """Whether a parameter is given that only training step by step has a use for."""
    given = any(getattr(classifier, name) is not None for name in STEP_BY_STEP)
    return given or classifier.validation_fraction != "auto"


def training_options(
    classifier: LLPClassifier, bags: Bags, seed: int = 0, workers: int = 0
) -> TrainingOptions:
    """How to train it step by step on these bags."""
    given = {name: getattr(classifier, name) for name in STEP_BY_STEP}
    given = {name: value for name, value in given.items() if value is not None}
    default = defaults_for(classifier.model, bags, given.get("batch_instances"))
    return replace(default, seed=seed, workers=workers, **given)
