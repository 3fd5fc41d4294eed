"""The linear model with everything that is chosen on held-out bags: ridge and temperature."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_softmax

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.fit_summary import LikelihoodFit, objective_of
from bagwise.likelihood.linear_fit import fit_linear
from bagwise.likelihood.splits import choose_on, fold_numbers, splits_of
from bagwise.likelihood.temperature import fit_temperature
from bagwise.limits import LIMITS, Limits


@dataclass(frozen=True)
class ChosenLinear:
    """A linear model and what was chosen for it.

    Attributes:
        temperature: by which logits are to be divided; 1 unless held-out bags clearly ask for it.
        path: held-out loss per instance for each ridge that was tried, the largest ridge first.
    """

    fit: LinearFit
    temperature: float = 1.0
    path: list[dict[str, float]] = field(default_factory=list)

    def summary(self) -> LikelihoodFit:
        """What is kept of it beside the weights."""
        return LikelihoodFit(self.fit.ridge, objective_of(self.fit), self.path)


def choose_linear(
    X: FloatArray,
    bags: Bags,
    seed: int = 0,
    limits: Limits = LIMITS,
    rows: IntArray | None = None,
) -> ChosenLinear:
    """Fit a linear model by maximum likelihood, with ridge and temperature chosen on held-out bags.

    Args:
        X: (N, d) standardized features.
        seed: of the folds in which bags are held out; nothing else is random.
        limits: up to which size there are folds, not one split.
        rows: (N,) which row each instance is, where bags share rows; see `splits_of`.

    >>> X = np.random.default_rng(0).normal(size=(90, 1))
    >>> bags = Bags.from_labels((X[:, 0] > 0).astype(int), [3] * 30)
    >>> bool(choose_linear(X, bags).fit.weights[0, 1] > 1)
    True
    """
    if len(bags) < 2:
        return ChosenLinear(fit_linear(X, bags))
    folds = fold_numbers(len(bags), splits_of(bags, seed, limits=limits, rows=rows))
    found = choose_on(X, bags, folds)
    held_out = np.flatnonzero(found.folds >= 0)
    log_probs = log_softmax(found.held_out_logits[bags.rows(held_out)], axis=-1)
    temperature = fit_temperature(log_probs, bags.select(held_out))
    path = [{"ridge": tried.ridge, "val_bag_loss": -tried.score} for tried in found.path]
    return ChosenLinear(found.fit, temperature, path)
