"""The linear model of `LLPClassifier`, fitted by maximum likelihood as `bagwise fit` does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import log_softmax
from torch import nn

from bagwise.data import BagData
from bagwise.estimator.parameters import new_method, trains_step_by_step
from bagwise.likelihood import LinearFit, fit_linear
from bagwise.likelihood.fit_summary import LikelihoodFit, objective_of
from bagwise.likelihood.splits import choose_on, fold_numbers, splits_of
from bagwise.likelihood.temperature import fit_temperature
from bagwise.limits import LIMITS, Limits
from bagwise.training.temperature import divide_logits

if TYPE_CHECKING:
    from bagwise.estimator.classifier import LLPClassifier


def fits_by_likelihood(classifier: LLPClassifier, data: BagData) -> bool:
    """Whether parameters and data leave a linear model to maximum likelihood.

    They do if the method is cc with the engine auto, nothing is said about training step by step,
    and the rows are in memory, up to 20 million numbers.
    """
    if not (isinstance(classifier.model, str) and classifier.model == "linear"):
        return False
    method = new_method(classifier.method, classifier.engine, classifier._method_options())
    return (
        method.is_likelihood
        and method.get_params() in ({}, {"engine": "auto"})
        and not trains_step_by_step(classifier)
        and isinstance(data.inputs, torch.Tensor)
        and len(data) * (math.prod(data.shape) + 1) <= classifier._limits.linear_cells
    )


def set_linear(model: nn.Module, fit: LinearFit) -> None:
    """Give the last layer of a linear model these weights."""
    layer = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(fit.weights.T))
        layer.bias.copy_(torch.from_numpy(fit.intercept))


def fit_by_likelihood(
    model: nn.Sequential, data: BagData, seed: int, limits: Limits = LIMITS
) -> tuple[LikelihoodFit, float]:
    """Fit a linear model, in place; the ridge and the temperature are chosen on held-out bags.

    Args:
        model: standardization, or nothing in its place, and the linear model.
        data: the bags.
        seed: of the folds in which bags are held out; nothing else is random.
        limits: up to which size there are folds, not one split.

    Returns:
        (what is known of the fit, the temperature that the logits are divided by)
    """
    inputs = data.inputs
    assert isinstance(inputs, torch.Tensor)
    X, bags = model[0](inputs).flatten(1).double().numpy(), data.bags
    if len(bags) < 2:
        fit = fit_linear(X, bags)
        set_linear(model, fit)
        return LikelihoodFit(fit.ridge, objective_of(fit)), 1.0
    splits = splits_of(bags, seed, limits=limits)
    found = choose_on(X, bags, fold_numbers(len(bags), splits))
    set_linear(model, found.fit)
    held_out = np.flatnonzero(found.folds >= 0)
    logits = found.held_out_logits[bags.rows(held_out)]
    temperature = fit_temperature(log_softmax(logits, axis=-1), bags.select(held_out))
    divide_logits(model, temperature)
    history = [{"ridge": tried.ridge, "val_bag_loss": -tried.score} for tried in found.path]
    return LikelihoodFit(found.ridge, objective_of(found.fit), history), temperature
