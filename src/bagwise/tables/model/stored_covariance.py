"""How sure a linear model's coefficients are, as its folder keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bagwise.bags import FloatArray
from bagwise.likelihood.coefficient_covariance import MAX_PARAMETERS, Covariance
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts
from bagwise.limits import LIMITS, Limits
from bagwise.storage.array_files import Arrays
from bagwise.tables.model.interval_file import EFFECTS
from bagwise.tables.sort.encoded_bags import EncodedBags

if TYPE_CHECKING:
    from bagwise.likelihood import EffectsOfFit


def intervals_of(data: EncodedBags, model: LinearFit, limits: Limits = LIMITS) -> Arrays:
    """The fit that intervals are made of, its covariance clustered by bag, and the effects of its
    bags, where it has such; empty where there are too many coefficients.

    Args:
        data: all bags.
        model: fitted to them.
        limits: see `bagwise.likelihood.covariance`.
    """
    from bagwise.likelihood import covariance, effects_of_fit, fit_for_intervals

    if too_many(model):
        return {}
    X = data.double()
    fit = fit_for_intervals(X, data.bags, model)
    found = covariance(X, data.bags, fit, rows=data.rows, limits=limits)
    effects = {}
    if fit.effects is not None:
        of_bags = effects_of_fit(X, data.bags, fit)
        effects = {name: getattr(of_bags, of) for name, of in EFFECTS.items()}
    return arrays_of(found) | effects


def too_many(model: LinearFit) -> bool:
    """Whether a model has too many coefficients for their covariance."""
    d, C = model.weights.shape
    return bool((d + 1) * (C - 1) > MAX_PARAMETERS)


def arrays_of(found: Covariance) -> Arrays:
    """A covariance as a model's folder keeps it."""
    basis = contrasts(len(found.fit.intercept))
    matrices = {"covariance": found.matrix}
    if found.posterior is not None:
        matrices["posterior"] = found.posterior
    return {
        "weights": found.fit.weights,
        "intercept": found.fit.intercept,
        "absent": found.absent.astype(np.uint8),
        "n_bags": np.array(found.n_bags),
        "ridge": np.array(found.fit.ridge),
        **{
            name: np.einsum("ce,icjd,df->iejf", basis, full, basis, optimize=True)
            for name, full in matrices.items()
        },
    }


def covariance_of(arrays: Arrays, tau: float = 0.0) -> Covariance:
    """The covariance that `intervals_of` found, with bag effects of standard deviation tau."""
    basis = contrasts(len(arrays["intercept"]))
    matrix, posterior = (
        np.einsum("ce,iejf,df->icjd", basis, arrays[name], basis, optimize=True)
        if name in arrays
        else None
        for name in ("covariance", "posterior")
    )
    assert matrix is not None
    ridge = float(arrays.get("ridge", 0.0))
    fit = fit_of(arrays["weights"], arrays["intercept"], ridge, tau)
    absent = arrays["absent"].astype(bool)
    return Covariance(fit, matrix, int(arrays["n_bags"]), "", absent, posterior)


def effects_in(arrays: Arrays, tau: float, n_bags: int) -> EffectsOfFit | None:
    """The effects that `intervals_of` found, of the first bags; None where it did not look."""
    if not EFFECTS.keys() <= arrays.keys() or len(arrays["spreads"]) < n_bags or tau <= 0:
        return None
    from bagwise.likelihood import EffectsOfFit

    return EffectsOfFit(tau=tau, **{of: arrays[name][:n_bags] for name, of in EFFECTS.items()})


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
