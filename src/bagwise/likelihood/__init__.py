"""Linear models fitted to bags by maximum likelihood: no learning rate, no epochs, no chance.

`fit_linear` fits one, `fit_by_evidence` averages over its coefficients and their prior,
`fit_in_pieces` fits one to rows that are read piece by piece, `fit_joint` one to several groupings
of the same rows, `choose_ridge` chooses its penalty on held-out bags,
`covariance` (or `covariance_in_pieces`) says how sure its coefficients are, `choose_bag_effects`
whether bags differ by more than their rows explain, `effects_of_shares` what the known shares of a
bag say about new rows of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bagwise.likelihood.bag_effects import ChosenBagEffects, bags_differ, choose_bag_effects
    from bagwise.likelihood.coefficient_covariance import Covariance
    from bagwise.likelihood.coefficient_intervals import (
        bootstrap_bags,
        covariance,
        covariance_in_pieces,
        fit_for_intervals,
    )
    from bagwise.likelihood.coefficients import LinearFit
    from bagwise.likelihood.effect_posterior import posterior_with_effects
    from bagwise.likelihood.effect_shares import (
        EffectsOfFit,
        effects_of_fit,
        group_shares_with_effects,
    )
    from bagwise.likelihood.effects_from_shares import BagEffects, effects_of_shares
    from bagwise.likelihood.evidence import PosteriorOfPriors, fit_by_evidence
    from bagwise.likelihood.in_pieces import fit_in_pieces
    from bagwise.likelihood.joint_fit import fit_joint
    from bagwise.likelihood.linear_fit import fit_linear, fit_with_variance
    from bagwise.likelihood.mixing import mean_softmax
    from bagwise.likelihood.ridge import (
        ChosenRidge,
        RidgeScore,
        bag_folds,
        bag_log_likelihoods,
        choose_ridge,
    )

__all__ = [
    "BagEffects",
    "ChosenBagEffects",
    "ChosenRidge",
    "Covariance",
    "EffectsOfFit",
    "LinearFit",
    "PosteriorOfPriors",
    "RidgeScore",
    "bag_folds",
    "bag_log_likelihoods",
    "bags_differ",
    "bootstrap_bags",
    "choose_bag_effects",
    "choose_ridge",
    "covariance",
    "covariance_in_pieces",
    "effects_of_fit",
    "effects_of_shares",
    "fit_by_evidence",
    "fit_for_intervals",
    "fit_in_pieces",
    "fit_joint",
    "fit_linear",
    "fit_with_variance",
    "group_shares_with_effects",
    "mean_softmax",
    "posterior_with_effects",
]

# Imported when first used: what a fitted model needs is a small part.
_FILES = {
    "bag_effects": "ChosenBagEffects bags_differ choose_bag_effects",
    "coefficient_covariance": "Covariance",
    "coefficient_intervals": ("bootstrap_bags covariance covariance_in_pieces fit_for_intervals"),
    "coefficients": "LinearFit",
    "effect_posterior": "posterior_with_effects",
    "effect_shares": "EffectsOfFit effects_of_fit group_shares_with_effects",
    "effects_from_shares": "BagEffects effects_of_shares",
    "evidence": "PosteriorOfPriors fit_by_evidence",
    "in_pieces": "fit_in_pieces",
    "joint_fit": "fit_joint",
    "linear_fit": "fit_linear fit_with_variance",
    "mixing": "mean_softmax",
    "ridge": "ChosenRidge RidgeScore bag_folds bag_log_likelihoods choose_ridge",
}


def __getattr__(name: str) -> Any:
    for file, names in _FILES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{file}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
