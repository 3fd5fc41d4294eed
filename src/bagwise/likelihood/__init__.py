"""Linear models fitted to bags by maximum likelihood: no learning rate, no epochs, no chance.

`fit_linear` fits one, `choose_ridge` chooses its penalty on held-out bags.
"""

from bagwise.likelihood.linear import LinearFit, fit_linear
from bagwise.likelihood.ridge import (
    ChosenRidge,
    RidgeScore,
    bag_folds,
    bag_log_likelihoods,
    choose_ridge,
)

__all__ = [
    "ChosenRidge",
    "LinearFit",
    "RidgeScore",
    "bag_folds",
    "bag_log_likelihoods",
    "choose_ridge",
    "fit_linear",
]
