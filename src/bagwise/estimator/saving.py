"""An LLPClassifier in a folder, and from there."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bagwise.errors import DamagedError, InputError
from bagwise.likelihood.fit_summary import LikelihoodFit
from bagwise.methods import METHODS, Method, make_method
from bagwise.networks import MODELS, Factory, Standardize, make_model
from bagwise.storage.array_files import compare, require_finite, verify
from bagwise.storage.config import NETWORK, classes_of
from bagwise.storage.model_folder import (
    COLUMNS,
    CONFIG,
    FORMAT,
    TENSORS,
    TENSORS_FORMAT,
    Write,
    as_json,
    read_config,
    require_files,
)
from bagwise.training.tensor_files import load_tensors, prefixed, save_tensors

if TYPE_CHECKING:
    from bagwise.estimator.classifier import LLPClassifier

_LIKELIHOOD = ("ridge", "objective", "bag_effects")  # what is kept of a `LikelihoodFit`


def files_of(classifier: LLPClassifier) -> dict[str, Write]:
    """What writes the files of a fitted classifier, by name, see `model_folder.save_folder`."""
    classes = classifier.classes_
    if classes.dtype.kind not in "biufUO":
        raise InputError(f"classes of type {classes.dtype} cannot be saved; use text or numbers.")
    fit = classifier.likelihood_
    likelihood = fit and {name: getattr(fit, name) for name in _LIKELIHOOD}
    config = {
        "format": FORMAT,
        "kind": NETWORK,
        **_plain_params(classifier),
        "classes": classes.tolist(),
        "classes_dtype": classes.dtype.str,
        "shape": list(classifier.shape_in_),
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": getattr(classifier, "feature_names_in_", np.array([])).tolist() or None,
        "best_epoch": classifier.best_epoch_,
        "history": classifier.history_,
        "temperature": classifier.temperature_,
        "maximum_likelihood": likelihood,
    }
    tensors = classifier.model_.state_dict()
    for name in {"0.mean", "0.std"} & tensors.keys() if classifier.standardize else ():
        tensors[name] = tensors[name].cpu().double()  # single precision on some devices

    def write_tensors(path: Path) -> None:
        save_tensors(path, tensors, {"format": TENSORS_FORMAT})

    return {CONFIG: as_json(config), TENSORS: write_tensors}


def _plain_params(classifier: LLPClassifier) -> dict[str, Any]:
    """The constructor's arguments as JSON can hold them."""
    params = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in classifier.get_params(deep=False).items()
    }
    method = params["method"]
    options = None
    if isinstance(method, Method):
        if METHODS.get(method.name) is not type(method):
            raise InputError(
                f"{type(method).__name__} has no name to find it by when the model is loaded; "
                'put @register("name") before the class.'
            )
        params["method"], options = method.name, method.get_params()
    params["model"] = params["model"] if isinstance(params["model"], str) else None
    for name in ("optimizer", "schedule", "augment"):  # functions are not saved, but not forgotten:
        if callable(params[name]):  # a fit with the loaded parameters says that one is missing
            params[name] = f"function {getattr(params[name], '__qualname__', type(params[name]))}"
    params["device"] = str(params["device"])
    if not isinstance(params["random_state"], int):
        params["random_state"] = None
    return {"params": params, "method_options": options}


def refuse_table(path: Path) -> None:
    """A table's model takes encoded rows; raw columns would be taken for these."""
    if (path / COLUMNS).is_file():
        raise InputError(
            f"{path} is the model of a table, from bagwise fit; LLPClassifier would take its "
            "columns as they are, without encoding them. Use bagwise predict, or in Python "
            "bagwise.load(path).predict(rows)."
        )


def load(
    cls: type[LLPClassifier],
    path: Path,
    model: nn.Module | Factory | None = None,
    device: str | None = None,
) -> LLPClassifier:
    """Read a classifier; what is missing, damaged or too new is a ValueError that says so.

    `model_folder.check_files` is to follow.
    """
    require_files(path)
    kind, config = read_config(path)
    if kind != NETWORK:
        raise InputError(f"{path} holds a {kind} model of a table, which LLPClassifier is not.")
    _require_names(path / CONFIG, config["params"])
    tensors, _ = load_tensors(path / TENSORS)
    known = {*cls._get_param_names(), *(n for n in config["params"] if n.startswith("method__"))}
    if unknown := config["params"].keys() - known:
        raise InputError(f"{path / CONFIG} has unknown parameters: {', '.join(sorted(unknown))}.")
    classifier = cls(**config["params"])
    if config["method_options"] is not None:
        classifier.method = _method(config, path / CONFIG)
    classifier.classes_ = classes_of(config)
    classifier.shape_in_ = tuple(config["shape"])
    classifier.n_features_in_ = config["n_features_in"]
    if config["feature_names_in"]:
        classifier.feature_names_in_ = np.array(config["feature_names_in"], dtype=object)
    classifier.history_ = config["history"]
    classifier.best_epoch_ = config["best_epoch"]
    classifier.temperature_ = config.get("temperature", 1.0)
    likelihood = config.get("maximum_likelihood")
    classifier.likelihood_ = (
        None if likelihood is None else LikelihoodFit(**likelihood, history=config["history"])
    )
    if device is not None:
        classifier.device = device
    own = config["params"]["model"]
    if own is None and model is None:
        raise InputError(
            f"{path} holds a model that is not one of Bagwise's own; "
            "give its architecture: LLPClassifier.load(path, model=...)."
        )
    if own is None:
        classifier.model = model  # type: ignore[assignment]  # None has been refused
    first: nn.Module = nn.Identity()
    try:
        require_finite(tensors)
        if classifier.standardize:
            first = _standardization(tensors, classifier.shape_in_)
        if own is not None:
            with torch.device("meta"):  # a damaged shape must not allocate memory
                layout = make_model(own, classifier.shape_in_, len(classifier.classes_))
            expected = prefixed("0", first.state_dict()) | prefixed("1", layout.state_dict())
            compare(tensors, expected)
        verify(path / TENSORS, tensors)
    except InputError as error:
        raise DamagedError(
            f"{path / TENSORS} does not fit {CONFIG}, the folder is damaged: {error}."
        ) from error
    if isinstance(classifier.model, nn.Module):
        body = copy.deepcopy(classifier.model)
    else:
        body = make_model(classifier.model, classifier.shape_in_, len(classifier.classes_))
    classifier.model_ = nn.Sequential(first, body)
    try:
        classifier.model_.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[-1].strip()
        raise InputError(f"{path / TENSORS} does not fit {CONFIG}: {reason}") from error
    try:
        if (place := torch.device(classifier.device)).type == "meta":
            raise RuntimeError("it holds no numbers")
        classifier.model_.to(place).eval()
    except (RuntimeError, AssertionError, ImportError, ValueError) as error:
        raise InputError(
            f"the model in {path} computes on the device {classifier.device!r}, which is not here; "
            'load it with device="cpu".'
        ) from error
    return classifier


def _require_names(path: Path, params: dict[str, Any]) -> None:
    """Refuse a model or a method that only a plugin knows, which is not loaded."""
    for what, known in (("model", MODELS), ("method", METHODS)):
        name = params[what]
        if name not in known and not (what == "model" and name is None):
            raise InputError(
                f"{path} names the {what} {name!r}, which does not exist here; "
                "load the plugin that registers it first."
            )


def _method(config: dict[str, Any], path: Path) -> Method:
    try:
        return make_method(config["params"]["method"], **config["method_options"])
    except InputError as error:
        raise DamagedError(f"{path} is damaged: method_options: {error}.") from error


def _standardization(tensors: dict[str, torch.Tensor], shape: tuple[int, ...]) -> Standardize:
    """The first layer, from the file: a mean and a deviation for each column or channel."""
    wanted = torch.zeros(shape[0], *[1] * (len(shape) - 1), dtype=torch.float64)
    found = {name: tensor for name, tensor in tensors.items() if name.startswith("0.")}
    compare(found, {"0.mean": wanted, "0.std": wanted})
    if not (found["0.std"] > 0).all():
        raise InputError("'0.std' has values that are not above 0")
    return Standardize(found["0.mean"], found["0.std"])
