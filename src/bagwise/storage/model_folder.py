"""A fitted classifier in a folder: config.json and model.safetensors, written in one step.

A model that was fitted to a table has columns.json, fit.json and held_out_bags.csv beside them, a
linear one intervals.safetensors, and one with bag effects effects.safetensors. manifest.json has
the digests of all of them but held_out_bags.csv: that is for people, who may open it in a
spreadsheet and save it, and nothing is read from it.
"""

from __future__ import annotations

import copy
import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bagwise.checks import shown
from bagwise.errors import DamagedError, InputError
from bagwise.likelihood.fit_summary import LikelihoodFit
from bagwise.methods import METHODS, Method, make_method
from bagwise.networks import Factory, Standardize, make_model
from bagwise.storage.config import check_config, classes_of
from bagwise.storage.files import (
    compare,
    load_tensors,
    prefixed,
    require_finite,
    save_tensors,
    unfinished,
    verify,
    write_atomically,
)
from bagwise.storage.json_file import read_json as parse
from bagwise.storage.manifest import MANIFEST, check_manifest, write_manifest

if TYPE_CHECKING:
    from bagwise.estimator import LLPClassifier

CONFIG = "config.json"
TENSORS = "model.safetensors"
COLUMNS = "columns.json"
FIT = "fit.json"
INTERVALS = "intervals.safetensors"
EFFECTS = "effects.safetensors"
HELD_OUT = "held_out_bags.csv"
FORMAT = 2  # of config.json; since 2 there is a manifest, and maximum likelihood is said
OLDEST = 1
_TENSORS_FORMAT = 1
_NAMES = {CONFIG, TENSORS, COLUMNS, FIT, INTERVALS, EFFECTS, HELD_OUT, MANIFEST}


def save(
    classifier: LLPClassifier,
    path: Path,
    beside: Mapping[str, dict[str, Any]] | None = None,
    tensors_beside: Mapping[str, dict[str, torch.Tensor]] | None = None,
    writers_beside: Mapping[str, Callable[[Path], None]] | None = None,
) -> None:
    """Write the classifier to `path`, replacing a classifier that is already there.

    Args:
        classifier: a fitted one.
        path: a folder that is not there yet, or holds a model and nothing else.
        beside: further JSON files, by name.
        tensors_beside: further files of tensors, by name.
        writers_beside: functions that write further files, by name.
    """
    refuse_other_things(path)
    classes = classifier.classes_
    if classes.dtype.kind not in "biufUO":
        raise InputError(f"classes of type {classes.dtype} cannot be saved; use text or numbers.")
    likelihood = classifier.likelihood_
    config = {
        "format": FORMAT,
        **_plain_params(classifier),
        "classes": classes.tolist(),
        "classes_dtype": classes.dtype.str,
        "shape": list(classifier.shape_in_),
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": getattr(classifier, "feature_names_in_", np.array([])).tolist() or None,
        "best_epoch": classifier.best_epoch_,
        "history": classifier.history_,
        "temperature": classifier.temperature_,
        "maximum_likelihood": None if likelihood is None else _without_history(likelihood),
    }
    place = path.resolve()  # a link stays, and what it leads to is replaced
    place.parent.mkdir(parents=True, exist_ok=True)
    if _aside(place).is_dir():
        shutil.rmtree(_aside(place))
    with unfinished(place, folder=True) as new:
        for name, content in {CONFIG: config, **(beside or {})}.items():
            write_atomically(new / name, json.dumps(content, indent=1).encode())
        for name, found in (tensors_beside or {}).items():
            save_tensors(new / name, found, {"format": _TENSORS_FORMAT})
        for name, write in (writers_beside or {}).items():
            write(new / name)
        tensors = classifier.model_.state_dict()
        for name in {"0.mean", "0.std"} & tensors.keys() if classifier.standardize else ():
            tensors[name] = tensors[name].cpu().double()  # single precision on some devices
        save_tensors(new / TENSORS, tensors, {"format": _TENSORS_FORMAT})
        write_manifest(new, apart=[HELD_OUT])
        replace_folder(new, place)


def replace_folder(new: Path, place: Path) -> None:
    """Move a folder to a place; what is there now is gone when the new one is there."""
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        shutil.rmtree(new)  # the old one, which has got its name
    else:
        old = _aside(place)
        place.rename(old)
        try:
            new.rename(place)
        except OSError:
            old.rename(place)
            raise
        shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, so that a kill finds either; False where that cannot be done.

    Only Linux has it, and Python has no name for it.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "renameat2"):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    names = os.fsencode(one), os.fsencode(other)
    return bool(libc.renameat2(here, names[0], here, names[1], exchange) == 0)


def _aside(place: Path) -> Path:
    """Where the old folder waits while the new one takes its place, if it has to."""
    return place.with_name(f".{place.name}.aside")


def recover(path: Path) -> None:
    """Bring back a model that `save` had put aside when it was killed before the new one was there.

    That happens only where folders cannot be swapped in one step.
    """
    place = Path(os.path.realpath(path))  # also of a link that leads to itself
    if not place.exists() and _aside(place).is_dir():
        _aside(place).rename(place)


def refuse_other_things(path: Path) -> None:
    """A folder may be replaced only if it holds a Bagwise model and nothing else."""
    recover(path)
    if not path.exists():
        return
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else {path.name}
    if path.is_dir() and names <= _NAMES:
        if CONFIG in names:
            check_config(path / CONFIG, read_json(path / CONFIG, FORMAT, OLDEST))
        return
    raise InputError(f"{path} holds other things than a Bagwise model; choose another folder.")


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


def _without_history(fit: LikelihoodFit) -> dict[str, float]:
    return {"ridge": fit.ridge, "objective": fit.objective, "bag_effects": fit.bag_effects}


def refuse_table(path: Path) -> None:
    """A table's model takes encoded rows; raw columns would be taken for these."""
    if (path / COLUMNS).is_file():
        raise InputError(
            f"{path} is the model of a table, from bagwise fit; LLPClassifier would take its "
            "columns as they are, without encoding them. Use bagwise predict, or in Python "
            "bagwise.tables.TableModel.load(path) with bagwise.tables.predict_table."
        )


def check_files(path: Path, apart: Collection[str] = ()) -> None:
    """Refuse a folder whose files are not those that were saved; older ones cannot tell."""
    if read_json(path / CONFIG, FORMAT, OLDEST)["format"] >= 2:
        check_manifest(path, [HELD_OUT, *apart])


def load(
    cls: type[LLPClassifier],
    path: Path,
    model: nn.Module | Factory | None = None,
    device: str | None = None,
) -> LLPClassifier:
    """Read a classifier; what is missing, damaged or too new is a ValueError that says so.

    `check_files` is to follow, when all that can be said about single files has been said.
    """
    recover(path)
    for name in (CONFIG, TENSORS):
        if not (path / name).is_file():
            raise InputError(f"{path} has no {name}; it is not a complete Bagwise model folder.")
    config = check_config(path / CONFIG, read_json(path / CONFIG, FORMAT, OLDEST))
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


def read_json(path: Path, version: int, oldest: int | None = None) -> dict[str, Any]:
    """A JSON file that says which format it has; another one is a ValueError.

    Args:
        path: the file.
        version: the newest format that is known.
        oldest: the oldest that is; the same if not given.
    """
    content = parse(path)
    if not isinstance(content, dict) or "format" not in content:
        raise InputError(f"{path} is damaged or was not written by Bagwise: it has no format.")
    known = range(version if oldest is None else oldest, version + 1)
    if type(content["format"]) is not int or content["format"] not in known:
        raise InputError(
            f"{path} has format {shown(content['format'])}; this version of Bagwise reads "
            f"{version}. Update Bagwise, or make the model again."
        )
    return content
