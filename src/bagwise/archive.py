"""A fitted classifier in a folder: config.json and model.safetensors, written in one step.

A model that was fitted to a table has columns.json and fit.json beside them.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bagwise.checkpoint import current_umask, load_tensors, save_tensors
from bagwise.methods import METHODS, Method, make_method
from bagwise.models import MODELS, Factory, Standardize, make_model

if TYPE_CHECKING:
    from bagwise.estimator import LLPClassifier

CONFIG = "config.json"
TENSORS = "model.safetensors"
COLUMNS = "columns.json"
FIT = "fit.json"
MOST_FEATURES = 10_000_000  # a larger shape is a damaged file, and must not allocate memory
FORMAT = 1


def save(
    classifier: LLPClassifier, path: Path, beside: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """Write the classifier to `path`, replacing a classifier that is already there.

    Args:
        classifier: a fitted one.
        path: a folder that is not there yet, or holds a model and nothing else.
        beside: further JSON files, by name.
    """
    refuse_other_things(path)
    classes = classifier.classes_
    if classes.dtype.kind not in "biufUO":
        raise ValueError(f"classes of type {classes.dtype} cannot be saved; use text or numbers.")
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
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        (new / CONFIG).write_text(json.dumps(config, indent=1))
        for name, content in (beside or {}).items():
            (new / name).write_text(json.dumps(content, indent=1))
        save_tensors(new / TENSORS, classifier.model_.state_dict(), {"format": FORMAT})
        new.chmod(0o777 & ~current_umask())
        if path.exists():
            old = new.with_name(f"{new.name}.old")
            path.rename(old)
            try:
                new.rename(path)
            except OSError:
                old.rename(path)
                raise
            shutil.rmtree(old)
        else:
            new.rename(path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def refuse_other_things(path: Path) -> None:
    """A folder may be replaced only if it holds a Bagwise model and nothing else."""
    if not path.exists():
        return
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else {path.name}
    if path.is_dir() and names <= {CONFIG, TENSORS, COLUMNS, FIT}:
        if CONFIG in names:
            _read_config(path / CONFIG)
        return
    raise ValueError(f"{path} holds other things than a Bagwise model; choose another folder.")


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
            raise ValueError(
                f"{type(method).__name__} has no name to find it by when the model is loaded; "
                'put @register("name") before the class.'
            )
        params["method"], options = method.name, method.settings()
    params["model"] = params["model"] if isinstance(params["model"], str) else None
    params["device"] = str(params["device"])
    if not isinstance(params["random_state"], int):
        params["random_state"] = None
    return {"params": params, "method_options": options}


def load(cls: type[LLPClassifier], path: Path, model: nn.Module | Factory | None) -> LLPClassifier:
    """Read a classifier; what is missing, damaged or too new is a ValueError that says so."""
    for name in (CONFIG, TENSORS):
        if not (path / name).is_file():
            raise ValueError(f"{path} has no {name}; it is not a complete Bagwise model folder.")
    config = _read_config(path / CONFIG)
    tensors, _ = load_tensors(path / TENSORS)
    if unknown := config["params"].keys() - set(cls._get_param_names()):
        raise ValueError(f"{path / CONFIG} has unknown parameters: {', '.join(sorted(unknown))}.")
    classifier = cls(**config["params"])
    if config["method_options"] is not None:
        classifier.method = make_method(config["params"]["method"], **config["method_options"])
    try:
        classifier.classes_ = np.array(config["classes"], dtype=config["classes_dtype"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path / CONFIG} is damaged: classes: {error}.") from error
    classifier.shape_in_ = tuple(config["shape"])
    classifier.n_features_in_ = config["n_features_in"]
    if config["feature_names_in"]:
        classifier.feature_names_in_ = np.array(config["feature_names_in"], dtype=object)
    classifier.history_ = config["history"]
    classifier.best_epoch_ = config["best_epoch"]
    own = config["params"]["model"]
    if own is None and model is None:
        raise ValueError(
            f"{path} holds a model that is not one of Bagwise's own; "
            "give its architecture: LLPClassifier.load(path, model=...)."
        )
    if own is None:
        classifier.model = model  # type: ignore[assignment]  # None has been refused
    if isinstance(classifier.model, nn.Module):
        body = copy.deepcopy(classifier.model)
    else:
        body = make_model(classifier.model, classifier.shape_in_, len(classifier.classes_))
    first: nn.Module = nn.Identity()
    if classifier.standardize:
        try:
            first = Standardize(tensors["0.mean"], tensors["0.std"])
        except KeyError as error:
            raise ValueError(f"{path / TENSORS} lacks {error}; the folder is damaged.") from error
    classifier.model_ = nn.Sequential(first, body)
    try:
        classifier.model_.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[-1].strip()
        raise ValueError(f"{path / TENSORS} does not fit {CONFIG}: {reason}") from error
    try:
        classifier.model_.to(torch.device(classifier.device)).eval()
    except RuntimeError as error:
        raise ValueError(
            f"{path / CONFIG} asks for the device {classifier.device!r}, which is not here; "
            'write "cpu" in its place.'
        ) from error
    return classifier


def read_json(path: Path, version: int) -> dict[str, Any]:
    """A JSON file that says which format it has; another one is a ValueError."""
    try:
        content = json.loads(path.read_text())
        found = content["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or was not written by Bagwise ({error}).") from error
    if found != version:
        raise ValueError(
            f"{path} has format {found!r}; this version of Bagwise reads {version}. "
            "Update Bagwise, or make the model again."
        )
    return dict(content)


def _read_config(path: Path) -> dict[str, Any]:
    config = read_json(path, FORMAT)
    expected: dict[str, tuple[type, ...]] = {
        "params": (dict,),
        "method_options": (dict, type(None)),
        "classes": (list,),
        "classes_dtype": (str,),
        "shape": (list,),
        "n_features_in": (int,),
        "feature_names_in": (list, type(None)),
        "best_epoch": (int,),
        "history": (list,),
    }
    for name, kind in expected.items():
        if not isinstance(config.get(name), kind):
            raise ValueError(f"{path} is damaged: {name} is {config.get(name)!r}.")
    if not all(isinstance(size, int) and 0 < size <= MOST_FEATURES for size in config["shape"]):
        raise ValueError(f"{path} is damaged: shape is {config['shape']!r}.")
    params = config["params"]
    for name in ("model", "method"):
        if not isinstance(params.get(name), str | None):
            raise ValueError(f"{path} is damaged: {name} is {params[name]!r}.")
    if len({str(label) for label in config["classes"]}) < max(len(config["classes"]), 2):
        raise ValueError(f"{path} is damaged: classes is {config['classes']!r}.")
    if params.get("model") is not None and params["model"] not in MODELS:
        raise ValueError(f"{path} names the model {params['model']!r}, which does not exist.")
    if params.get("method") not in METHODS:
        raise ValueError(
            f"{path} names the method {params.get('method')!r}, which does not exist here; "
            "import the module that registers it first."
        )
    return config
