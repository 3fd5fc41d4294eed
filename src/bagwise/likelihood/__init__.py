"""Linear models fitted to bags by maximum likelihood: no learning rate, no epochs, no chance.

`fit_linear` fits one, `choose_ridge` chooses its penalty on held-out bags, `covariance` says how
sure its coefficients are, `choose_bag_effects` whether bags differ by more than their rows explain.
"""

from bagwise.likelihood.bag_effects import ChosenBagEffects, choose_bag_effects
from bagwise.likelihood.intervals import (
    Covariance,
    bootstrap_bags,
    covariance,
    fit_for_intervals,
)
from bagwise.likelihood.linear import LinearFit, fit_linear, fit_with_variance
from bagwise.likelihood.ridge import (
    ChosenRidge,
    RidgeScore,
    bag_folds,
    bag_log_likelihoods,
    choose_ridge,
)

__all__ = [
    "ChosenBagEffects",
    "ChosenRidge",
    "Covariance",
    "LinearFit",
    "RidgeScore",
    "bag_folds",
    "bag_log_likelihoods",
    "bootstrap_bags",
    "choose_bag_effects",
    "choose_ridge",
    "covariance",
    "fit_for_intervals",
    "fit_linear",
    "fit_with_variance",
]
