"""A linear model of encoded rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.errors import DamagedError, InputError
from bagwise.likelihood.fit_summary import LikelihoodFit
from bagwise.likelihood.linear_predictions import Floats, linear_log_probs, mean_log_probs
from bagwise.storage.array_files import (
    Arrays,
    compare,
    load_arrays,
    require_finite,
    shape_of,
    verify,
)
from bagwise.storage.config import LINEAR
from bagwise.storage.model_folder import CONFIG, FORMAT, TENSORS, Write, as_arrays, as_json


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Class probabilities softmax(x W + b) of encoded rows x, or their mean over draws of W and b.

    Attributes:
        classes: (C,) the class labels.
        weights: (d, C) W, the most probable one.
        intercept: (C,) b, likewise.
        temperature: by which both were divided after the fit.
        fit: what is known of a fit by maximum likelihood; None of a model that was trained step by
            step.
        draws: (S, d + 1, C) weights and, last, intercepts, that predictions are means over; None
            of a model that predicts by W and b alone.

    >>> model = LinearModel(("no", "yes"), np.array([[0.0, 1.0]]), np.zeros(2))
    >>> np.exp(model.log_probs(np.array([[0.0], [1.0]]))).round(3)
    array([[0.5  , 0.5  ],
           [0.269, 0.731]])
    """

    classes: tuple[str, ...]
    weights: Floats
    intercept: Floats
    temperature: float = 1.0
    fit: LikelihoodFit | None = None
    draws: Floats | None = None

    @property
    def n_features(self) -> int:
        """How many numbers an encoded row has."""
        return len(self.weights)

    def log_probs(self, inputs: npt.NDArray[Any]) -> Floats:
        """(N, C) log-probabilities of encoded rows (N, d)."""
        if self.draws is not None:
            return mean_log_probs(inputs, self.draws)
        return linear_log_probs(inputs, self.weights, self.intercept)

    def divided(self, temperature: float) -> LinearModel:
        """The same with logits that are divided by a temperature."""
        return replace(
            self,
            weights=self.weights / temperature,
            intercept=self.intercept / temperature,
            temperature=self.temperature * temperature,
            draws=None if self.draws is None else self.draws / temperature,
        )

    def files(self) -> dict[str, Write]:
        """What writes its files, by name, see `model_folder.save_folder`."""
        config = {
            "format": FORMAT,
            "kind": LINEAR,
            "classes": list(self.classes),
            "n_features": self.n_features,
            "temperature": self.temperature,
            "maximum_likelihood": None if self.fit is None else asdict(self.fit),
        }
        arrays = {"weights": self.weights, "intercept": self.intercept}
        if self.draws is not None:
            config["draws"] = len(self.draws)
            arrays["draws"] = self.draws
        return {CONFIG: as_json(config), TENSORS: as_arrays(arrays)}


def read_linear(path: Path, config: dict[str, Any]) -> LinearModel:
    """The linear model of a folder; a damaged one is a ValueError."""
    classes = tuple(config["classes"])
    shapes = {
        "weights": shape_of("float64", config["n_features"], len(classes)),
        "intercept": shape_of("float64", len(classes)),
    }
    if "draws" in config:
        shape = config["draws"], config["n_features"] + 1, len(classes)
        shapes["draws"] = shape_of("float64", *shape)
    arrays = _checked(path / TENSORS, shapes)
    known = config["maximum_likelihood"]
    fit = None if known is None else LikelihoodFit(**known)
    temperature = float(config["temperature"])
    weights, intercept = arrays["weights"], arrays["intercept"]
    return LinearModel(classes, weights, intercept, temperature, fit, arrays.get("draws"))


def read_linear_network(path: Path, config: dict[str, Any]) -> LinearModel:
    """The same from a folder of formats 1 and 2, which have it as a network of one layer.

    A standardization before it becomes part of the weights.
    """
    classes, (d,) = tuple(map(str, config["classes"])), config["shape"]
    C = len(classes)
    weight, bias = f"1.{_LAYER}.weight", f"1.{_LAYER}.bias"
    shapes = {weight: shape_of("float32", C, d), bias: shape_of("float32", C)}
    if config["params"].get("standardize", True):
        shapes |= {name: shape_of("float64", d) for name in (_MEAN, _STD)}
    arrays = {name: x.astype(np.float64) for name, x in _checked(path / TENSORS, shapes).items()}
    weights, intercept = arrays[weight].T, arrays[bias]
    if _STD in arrays:
        weights = weights / arrays[_STD][:, None]
        intercept = intercept - arrays[_MEAN] @ weights
    known = config.get("maximum_likelihood")
    fit = None if known is None else LikelihoodFit(**known, history=config["history"])
    weights = np.ascontiguousarray(weights)
    return LinearModel(classes, weights, intercept, float(config.get("temperature", 1.0)), fit)


_MEAN, _STD = "0.mean", "0.std"
_LAYER = 1  # of the network "linear", after one that flattens its inputs


def _checked(path: Path, shapes: dict[str, str]) -> Arrays:
    """The arrays of a file, which must have these types and shapes."""
    arrays, _ = load_arrays(path)
    try:
        require_finite(arrays)
        compare(arrays, shapes)
        if _STD in arrays and not (arrays[_STD] > 0).all():
            raise InputError(f"{_STD!r} has values that are not above 0")
        verify(path, arrays)
    except InputError as error:
        raise DamagedError(
            f"{path} does not fit {CONFIG}, the folder is damaged: {error}."
        ) from error
    return arrays
