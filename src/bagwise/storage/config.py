"""config.json of a model folder: what it must hold, of each kind of model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.checks import (
    Check,
    Where,
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
from bagwise.errors import DamagedError, InputError
from bagwise.training_options import OPTIONS

LINEAR, NETWORK = "linear", "network"  # kinds of models
MOST_FEATURES = 10_000_000  # a larger shape is a damaged file
_KINDS = "biufUO"
_MOST_DRAWS = 100_000  # of a model's coefficients
_LARGEST = 2**28  # bytes of class labels


def _label(value: Any, place: Where) -> None:
    """A class label: text, a number, true or false."""
    if isinstance(value, str):
        text(value, place)
    elif not isinstance(value, bool):
        any_number(value, place)


def _dtype(value: Any, place: Where) -> None:
    text(value, place)
    try:
        kind = np.dtype(value).kind
    except (TypeError, ValueError, SyntaxError):
        kind = ""
    if not kind or kind not in _KINDS:
        raise wrong(value, place, "a numpy type of text or numbers")


def _share_or_auto(value: Any, place: Where) -> None:
    if value != "auto":
        number(0, 1)(value, place)


_PARAMS: dict[str, Check] = {
    "model": maybe(short_text),
    "method": short_text,
    "engine": short_text,
    "validation_fraction": _share_or_auto,
    "standardize": flag,
    "device": short_text,
    "random_state": maybe(whole(-(2**63), 2**63)),
    "verbose": anything,
    **{name: maybe(option.in_file) for name, option in OPTIONS.items() if option.of_classifier},
}
_LIKELIHOOD: dict[str, Check] = {
    "ridge": number(0),
    "objective": any_number,
    "bag_effects": number(0),
}
_NETWORK = record(
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
        "maximum_likelihood": maybe(record(_LIKELIHOOD)),
        "kind": text,  # since format 3
    },
)
_LINEAR = record(
    {
        "format": anything,
        "kind": text,
        "classes": list_of(text, 2),
        "n_features": whole(1, MOST_FEATURES),
        "temperature": number(0),
        "maximum_likelihood": maybe(
            record({**_LIKELIHOOD, "history": list_of(record({}, others=any_number))})
        ),
    },
    {"draws": whole(1, _MOST_DRAWS)},  # since format 4
)
_KINDS_OF_MODELS = {LINEAR: _LINEAR, NETWORK: _NETWORK}


def check_config(path: Path, config: dict[str, Any]) -> str:
    """The kind of model that config.json describes; what does not hold together is a ValueError
    that names it.
    """
    kind = config.get("kind") if config["format"] >= 3 else NETWORK
    try:
        if not isinstance(kind, str) or kind not in _KINDS_OF_MODELS:
            raise wrong(kind, "kind", " or ".join(_KINDS_OF_MODELS))
        _KINDS_OF_MODELS[kind](config, "")
        if kind == NETWORK:
            _check_together(config)
        elif len(set(config["classes"])) < len(config["classes"]):
            raise InputError("a class is there twice.")
    except InputError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    if kind == NETWORK and (missing := {"model", "method"} - config["params"].keys()):
        raise InputError(f"{path} is damaged: params.{min(missing)} is missing.")
    return kind


def _check_together(config: dict[str, Any]) -> None:
    """What must agree between fields of a network."""
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
