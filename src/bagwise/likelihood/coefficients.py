"""The coefficients of a linear model, and what they predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from bagwise.bags import FloatArray, IntArray
from bagwise.likelihood.coordinates import contrasts


@dataclass(frozen=True)
class LinearFit:
    """A linear model: logits = X weights + intercept.

    Attributes:
        weights: (d, C), each row summing to 0.
        intercept: (C,), summing to 0.
        ridge: what the squared weights were penalized by.
        bag_effects: tau, the standard deviation of the bags' own intercepts; 0 without.
        effects: (B, C) the mean of each bag's own intercept given its counts; None without.
        log_likelihood: log P(S|X) of all bags together.
        evaluations: how often the likelihood was computed.
        message: in what way it was, or was not.
        spreads: (B,) the standard deviation of each bag's own intercept given its counts, in a
            direction that sums to zero; None without.
    """

    weights: FloatArray
    intercept: FloatArray
    ridge: float
    bag_effects: float
    effects: FloatArray | None
    log_likelihood: float
    evaluations: int
    converged: bool
    message: str
    spreads: FloatArray | None = None

    def theta(self, classes: IntArray | slice = slice(None)) -> FloatArray:
        """(d + 1, C - 1) the coefficients of these classes in the coordinates of `contrasts`."""
        coefficients = np.vstack([self.weights, self.intercept])[:, classes]
        theta: FloatArray = coefficients @ contrasts(coefficients.shape[1])
        return theta

    def logits(self, X: npt.ArrayLike) -> FloatArray:
        """(N, C) X weights + intercept."""
        z: FloatArray = np.asarray(X, dtype=np.float64) @ self.weights + self.intercept
        return z

    def probabilities(self, X: npt.ArrayLike, bag: npt.ArrayLike | None = None) -> FloatArray:
        """(N, C) class probabilities.

        Without bag effects that is softmax(logits); with them, its mean over the effects of new
        bags, or, where `bag` (N,) gives the number of each row's bag among those of the fit, over
        what is known of the effects of these.
        """
        z = self.logits(X)
        if bag is None and self.bag_effects == 0:
            p: FloatArray = softmax(z, axis=1)
            return p
        from bagwise.likelihood.mixing import mean_softmax  # compiled, and seldom needed

        if bag is None or self.effects is None or self.spreads is None:
            none = np.zeros((1, z.shape[1]))
            return mean_softmax(z, np.zeros(len(z), int), none, np.array([self.bag_effects]))
        return mean_softmax(z, np.asarray(bag), self.effects, self.spreads)
