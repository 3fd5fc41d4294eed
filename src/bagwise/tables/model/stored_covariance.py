"""How sure a linear model's coefficients are, kept in the model's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bagwise.bags import FloatArray
from bagwise.checks import whole
from bagwise.data import BagData
from bagwise.errors import DamagedError, InputError
from bagwise.likelihood import (
    Covariance,
    EffectsOfFit,
    LinearFit,
    covariance,
    effects_of_fit,
    fit_for_intervals,
)
from bagwise.likelihood.coefficient_intervals import MAX_PARAMETERS
from bagwise.likelihood.objective import contrasts
from bagwise.limits import LIMITS, Limits
from bagwise.storage.files import compare, load_tensors, require_finite, verify
from bagwise.storage.journal import Tensors

_EFFECTS = {"effects": "means", "spreads": "spreads", "centres": "centres"}  # and what they are


def intervals_of(
    data: BagData, weights: Tensors, ridge: float, tau: float = 0.0, limits: Limits = LIMITS
) -> Tensors:
    """The fit that intervals are made of, its covariance clustered by bag, and the effects of its
    bags, where it has such; empty where there are too many coefficients.

    Args:
        data: all bags.
        weights: of the model, `weight` (C, d) and `bias` (C,).
        ridge: with which it was fitted.
        tau: standard deviation of bag effects.
        limits: see `bagwise.likelihood.covariance`.
    """
    if too_many(weights):
        return {}
    X = data.inputs.double().numpy()
    start = fit_of(weights["weight"].numpy().T, weights["bias"].numpy(), ridge, tau)
    fit = fit_for_intervals(X, data.bags, start)
    found = covariance(X, data.bags, fit, limits=limits)
    effects = {}
    if fit.effects is not None:
        of_bags = effects_of_fit(X, data.bags, fit)
        arrays = {name: getattr(of_bags, of) for name, of in _EFFECTS.items()}
        effects = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in arrays.items()}
    return tensors_of(found) | effects


def too_many(weights: Tensors) -> bool:
    """Whether a model has too many coefficients for their covariance."""
    C, d = weights["weight"].shape
    return (d + 1) * (C - 1) > MAX_PARAMETERS


def tensors_of(found: Covariance) -> Tensors:
    """A covariance as a model's folder keeps it."""
    basis = contrasts(len(found.fit.intercept))
    small = np.einsum("ce,icjd,df->iejf", basis, found.matrix, basis, optimize=True)
    return {
        "weights": torch.from_numpy(np.ascontiguousarray(found.fit.weights)),
        "intercept": torch.from_numpy(np.ascontiguousarray(found.fit.intercept)),
        "covariance": torch.from_numpy(np.ascontiguousarray(small)),
        "absent": torch.from_numpy(found.absent.astype(np.uint8)),
        "n_bags": torch.tensor(found.n_bags),
    }


def read_intervals(path: Path, n_features: int, n_classes: int) -> Tensors:
    """What a model's folder says; empty if it says nothing, a ValueError if it is damaged."""
    if not path.exists():
        return {}
    tensors, _ = load_tensors(path)
    d, C = n_features + 1, n_classes
    numbers = torch.zeros((), dtype=torch.float64)
    wanted = {
        "weights": numbers.expand(d - 1, C),
        "intercept": numbers.expand(C),
        "covariance": numbers.expand(d, C - 1, d, C - 1),
        "absent": torch.zeros(C, dtype=torch.uint8),
        "n_bags": torch.zeros((), dtype=torch.int64),
    }
    try:
        compare({name: x for name, x in tensors.items() if name not in _EFFECTS}, wanted)
        B = int(tensors["n_bags"])
        whole(2)(B, "n_bags")
        if tensors.keys() & _EFFECTS.keys():
            shapes = dict(zip(_EFFECTS, ((B, C), (B,), (B, d - 1)), strict=True))
            of_bags = {name: numbers.expand(shape) for name, shape in shapes.items()}
            compare({name: x for name, x in tensors.items() if name in _EFFECTS}, of_bags)
            if (tensors["spreads"] < 0).any():
                raise InputError("'spreads' has numbers below 0")
        require_finite(tensors)
        verify(path, tensors)
    except InputError as error:
        raise DamagedError(f"{path} is damaged: {error}; fit the model again.") from error
    return tensors


def covariance_of(tensors: Tensors, tau: float = 0.0) -> Covariance:
    """The covariance that `intervals_of` found, with bag effects of standard deviation tau."""
    basis = contrasts(len(tensors["intercept"]))
    small = tensors["covariance"].numpy()
    matrix = np.einsum("ce,iejf,df->icjd", basis, small, basis, optimize=True)
    fit = fit_of(tensors["weights"].numpy(), tensors["intercept"].numpy(), tau=tau)
    absent = tensors["absent"].numpy().astype(bool)
    return Covariance(fit, matrix, int(tensors["n_bags"]), "", absent)


def effects_in(tensors: Tensors, tau: float, n_bags: int) -> EffectsOfFit | None:
    """The effects that `intervals_of` found, of the first bags; None where it did not look."""
    if not _EFFECTS.keys() <= tensors.keys() or len(tensors["spreads"]) < n_bags or tau <= 0:
        return None
    arrays = {of: tensors[name].numpy()[:n_bags] for name, of in _EFFECTS.items()}
    return EffectsOfFit(tau=tau, **arrays)


def fit_of(
    weights: FloatArray, intercept: FloatArray, ridge: float = 0.0, tau: float = 0.0
) -> LinearFit:
    """A fit of which only the coefficients, the ridge and tau are known."""
    return LinearFit(
        weights=weights,
        intercept=intercept,
        ridge=ridge,
        bag_effects=tau,
        effects=None,
        log_likelihood=0.0,
        evaluations=0,
        converged=True,
        message="",
    )
