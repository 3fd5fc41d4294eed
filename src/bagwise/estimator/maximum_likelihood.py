"""The linear model of `LLPClassifier`, fitted by maximum likelihood as `bagwise fit` does."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from bagwise.data import BagData
from bagwise.estimator.parameters import new_method, trains_step_by_step
from bagwise.likelihood import fit_joint
from bagwise.likelihood.choose_linear import choose_linear
from bagwise.likelihood.fit_summary import LikelihoodFit
from bagwise.limits import LIMITS, Limits
from bagwise.training.divide_logits import divide_logits

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
        and isinstance(data.distinct()[0], torch.Tensor)
        and len(data) * (math.prod(data.shape) + 1) <= classifier._limits.linear_cells
    )


def fit_by_likelihood(
    model: nn.Sequential, data: BagData, seed: int, limits: Limits = LIMITS
) -> tuple[LikelihoodFit, float]:
    """Fit a linear model, in place; the ridge and the temperature are chosen on held-out bags.

    Of several groupings, they are chosen for the composite likelihood, from whose fit the joint one
    starts.

    Args:
        model: standardization, or nothing in its place, and the linear model.

    Returns:
        (what is known of the fit, the temperature that the logits are divided by)
    """
    inputs, _ = data.distinct()
    assert isinstance(inputs, torch.Tensor)
    X, groupings = model[0](inputs).flatten(1).double().numpy(), data.groupings
    if groupings is None:
        found = choose_linear(X, data.bags, seed, limits)
    else:
        rows, bags = groupings.stacked()
        found = choose_linear(X[rows], bags, seed, limits, rows)
        if data.joint:
            fit = fit_joint(X, groupings, found.fit.ridge, start=found.fit)
            found = replace(found, fit=fit)
    layer = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(found.fit.weights.T))
        layer.bias.copy_(torch.from_numpy(found.fit.intercept))
    divide_logits(model, found.temperature)
    return found.summary(), found.temperature
