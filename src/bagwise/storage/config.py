"""config.json of a model folder: what it must hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.errors import DamagedError, InputError
from bagwise.methods import METHODS
from bagwise.networks import MODELS
from bagwise.storage.schema import (
    Check,
    any_number,
    anything,
    flag,
    list_of,
    maybe,
    number,
    record,
    short_text,
    text,
    whole,
    wrong,
)

MOST_FEATURES = 10_000_000  # a larger shape is a damaged file
_KINDS = "biufUO"
_LARGEST = 2**28  # bytes of class labels


def _label(value: Any, place: str) -> None:
    """A class label: text, a number, true or false."""
    if isinstance(value, str):
        text(value, place)
    elif not isinstance(value, bool):
        any_number(value, place)


def _dtype(value: Any, place: str) -> None:
    text(value, place)
    try:
        kind = np.dtype(value).kind
    except (TypeError, ValueError, SyntaxError):
        kind = ""
    if not kind or kind not in _KINDS:
        raise wrong(value, place, "a numpy type of text or numbers")


def _share_or_auto(value: Any, place: str) -> None:
    if value != "auto":
        number(0, 1)(value, place)


_PARAMS: dict[str, Check] = {
    "model": maybe(short_text),
    "method": short_text,
    "engine": short_text,
    "epochs": maybe(whole()),
    "lr": maybe(number(0)),
    "weight_decay": maybe(number(0)),
    "batch_instances": maybe(whole()),
    "batch_bags": maybe(whole()),
    "schedule": maybe(short_text),
    "average": maybe(number(0, 1)),
    "validation_fraction": _share_or_auto,
    "patience": maybe(whole()),
    "optimizer": maybe(short_text),
    "optimizer_options": maybe(record({}, others=anything)),
    "schedule_options": maybe(record({}, others=anything)),
    "augment": maybe(short_text),
    "standardize": flag,
    "device": short_text,
    "random_state": maybe(whole(-(2**63), 2**63)),
    "verbose": anything,
}
_CONFIG = record(
    {
        "format": anything,
        "params": record({}, _PARAMS, anything),
        "method_options": maybe(record({}, others=anything)),
        "classes": list_of(_label, 2),
        "classes_dtype": _dtype,
        "shape": list_of(whole(1, MOST_FEATURES), 1, 8),
        "n_features_in": whole(1, MOST_FEATURES),
        "feature_names_in": maybe(list_of(text)),
        "best_epoch": maybe(whole(1)),
        "history": list_of(record({}, others=any_number)),
    },
    {  # since format 2
        "temperature": number(0),
        "maximum_likelihood": maybe(
            record({"ridge": number(0), "objective": any_number, "bag_effects": number(0)})
        ),
    },
)


def check_config(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """What config.json says; anything that does not hold together is a ValueError naming it."""
    try:
        _CONFIG(config, "")
        _check_together(config)
    except InputError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    params = config["params"]
    if params.get("model") is not None and params["model"] not in MODELS:
        raise InputError(
            f"{path} names the model {params['model']!r}, which does not exist here; "
            "import the module that registers it first (bagwise --plugin MODULE ...)."
        )
    if missing := {"model", "method"} - params.keys():
        raise InputError(f"{path} is damaged: params.{min(missing)} is missing.")
    if params["method"] not in METHODS:
        raise InputError(
            f"{path} names the method {params['method']!r}, which does not exist here; "
            "import the module that registers it first (bagwise --plugin MODULE ...)."
        )
    return config


def _check_together(config: dict[str, Any]) -> None:
    """What must agree between fields."""
    shape, names = config["shape"], config["feature_names_in"]
    if math.prod(shape) > MOST_FEATURES:
        raise wrong(math.prod(shape), "the product of shape", f"at most {MOST_FEATURES}")
    if config["n_features_in"] != shape[0]:
        raise wrong(config["n_features_in"], "n_features_in", f"{shape[0]}, as in shape,")
    if names and len(names) != shape[0]:
        raise wrong(names, "feature_names_in", f"a list of {shape[0]}")
    if config.get("maximum_likelihood") is None:  # it has no epochs
        whole(1, len(config["history"]))(config["best_epoch"], "best_epoch")
    classes_of(config)


def classes_of(config: dict[str, Any]) -> npt.NDArray[Any]:
    """The class labels in their own type, each once."""
    classes, kind = config["classes"], np.dtype(config["classes_dtype"])
    # numpy 1 takes sizes modulo 2**32, with a sign.
    if not 0 <= kind.itemsize * len(classes) <= _LARGEST:
        raise wrong(config["classes_dtype"], "classes_dtype", "a type of the labels' size")
    try:
        labels = np.array(classes, dtype=kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"classes are not of the type {kind}: {error}.") from error
    if labels.tolist() != classes or len({str(label) for label in classes}) < len(classes):
        raise InputError(f"classes are not of the type {kind}, each once.")
    return labels
