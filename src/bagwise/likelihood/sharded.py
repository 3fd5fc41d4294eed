"""The likelihood of bags whose rows are in several places, none of which sees those of another."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from bagwise.bags import Bags, FloatArray
from bagwise.likelihood._curvature import Curvature
from bagwise.likelihood.in_pieces import Keep, SummedLikelihood

Ask = Callable[..., list[Any]]
"""Called with the name of a method of `SummedLikelihood` and its arguments; returns what that
returns in each place, those of the first bags first."""


class ShardedLikelihood(SummedLikelihood):
    """Sums of what the places say of their own bags.

    Args:
        ask: has every place compute something of its bags.
        bags: of all places, those of the first one first.

    >>> from bagwise.likelihood.in_pieces import LikelihoodInPieces
    >>> X, bags = np.array([[-1.], [1.], [0.]]), Bags([2, 1], [[1, 1], [0, 1]])
    >>> parts = [LikelihoodInPieces(lambda i, j, X=rows: X[i:j], 1, bags.select([b]), 9)
    ...          for b, rows in enumerate((X[:2], X[2:]))]
    >>> whole = ShardedLikelihood(lambda name, *to: [getattr(p, name)(*to) for p in parts], 1, bags)
    >>> whole.of_bags(np.zeros((2, 1)))
    array([-0.69314718, -0.69314718])
    """

    def __init__(self, ask: Ask, width: int, bags: Bags, keep: Keep | None = None) -> None:
        super().__init__(width, bags, keep)
        self._ask = ask

    def passed(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `SummedLikelihood`, also for the others."""
        log_likelihoods, gradients = zip(*self._ask("summed", theta), strict=True)
        return np.concatenate(log_likelihoods), sum(gradients[1:], gradients[0])

    def of_bags(self, theta: FloatArray) -> FloatArray:
        """(B,) the log-likelihood of each bag."""
        return np.concatenate(self._ask("of_bags", theta))

    def curvature(self, theta: FloatArray, n_rows: int, penalty: FloatArray) -> Curvature:
        """Information rows themselves come here only where they are few."""
        found: Curvature = self._sum("curvature", theta, n_rows, penalty)
        return found

    def levels(self, coefficients: FloatArray) -> float:
        """The sum over rows."""
        return float(self._sum("levels", coefficients))

    def information(self, theta: FloatArray) -> FloatArray:
        """(P, P) what all bags say."""
        found: FloatArray = self._sum("information", theta)
        return found

    def score_products(self, theta: FloatArray, inverse: FloatArray) -> FloatArray:
        """(P, P) a sum over bags."""
        found: FloatArray = self._sum("score_products", theta, inverse)
        return found

    def _sum(self, name: str, *arguments: Any) -> Any:
        return reduce(add, self._ask(name, *arguments))
