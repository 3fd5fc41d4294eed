"""What is known of a model that was fitted by maximum likelihood, beside its weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bagwise.likelihood.coefficients import LinearFit


@dataclass(frozen=True)
class LikelihoodFit:
    """How a linear model was fitted by maximum likelihood.

    Attributes:
        ridge: strength of the penalty.
        objective: what was minimized, -log P(S|X) of all bags + ridge / 2 ||W||^2, at its optimum.
        history: a row for each ridge that was tried, strongest first, with -log P(S|X) per instance
            of the held-out bags, `val_bag_loss`; empty of one bag, which cannot be held out.
        bag_effects: the standard deviation of the bags' own intercepts; 0 without.
    """

    ridge: float
    objective: float
    history: list[dict[str, float]] = field(default_factory=list)
    bag_effects: float = 0.0


def objective_of(fit: LinearFit) -> float:
    """What `fit_linear` minimizes, at a fit."""
    return float(-fit.log_likelihood + fit.ridge / 2 * (fit.weights**2).sum())
