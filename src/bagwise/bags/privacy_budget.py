"""How wide the noise of counts is, from the privacy that it was made for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from bagwise.bags.noise import DiscreteLaplace, Gaussian, Laplace
from bagwise.checks import check_all, number, one_of, whole
from bagwise.errors import InputError, Option

_COUNTS_CHANGED = {"label": 2, "person": 1}
_LEAST_DELTA = 1e-15  # below that, rounding would decide
_CHECKS = {
    "epsilon": number(above=0, high=1e6),
    "delta": number(0, below=1),
    "change": one_of(*_COUNTS_CHANGED),
    "groupings": whole(1),
    "rows_per_person": whole(1),
}


@dataclass(frozen=True)
class PrivacyBudget:
    """How much published counts may reveal of one person: (epsilon, delta)-differential privacy.

    Noise of this budget makes any set S of publications about as probable for two tables that
    differ in one person: P(S | one) <= exp(epsilon) P(S | other) + delta. Its width follows from
    how much that person can change the counts of all groupings together: by `change`, D = 2 or 1
    counts of each grouping, each by the person's rows R.

        Laplace, discrete Laplace   scale = D R groupings / epsilon
        Gaussian                    deviation s, by Balle and Wang (2018): the smallest with
                                    Phi(a - b) - exp(epsilon) Phi(-a - b) <= delta, where
                                    a = R sqrt(D groupings) / (2 s), b = epsilon / (2 a)

    Args:
        epsilon: of all groupings together.
        delta: likewise; Gaussian noise needs it, Laplace noise does without.
        change: how tables differ. "label": a person gets another label, or another person takes his
            place; one count falls and another one rises. "person": a person is added or removed.
        groupings: how many of them share the budget: in how many a person is counted.
        rows_per_person: the most rows that a person has, 1 where rows are people.

    >>> PrivacyBudget(epsilon=0.5).discrete_laplace()
    DiscreteLaplace(4.0)
    >>> PrivacyBudget(epsilon=0.5, groupings=4).laplace()
    Laplace(16.0)
    >>> noise = PrivacyBudget(epsilon=0.5, delta=1e-6, groupings=4).gaussian()
    >>> round(noise.width, 2)
    22.79
    """

    epsilon: float
    delta: float = 0.0
    change: Literal["label", "person"] = "label"
    groupings: int = 1
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        check_all(_CHECKS, self)

    def laplace(self, *, clipped: bool = False) -> Laplace:
        """Laplace noise (Dwork, McSherry, Nissim and Smith 2006); `clipped` as for any noise."""
        return Laplace(self._laplace_scale, clipped)

    def discrete_laplace(self, *, clipped: bool = False) -> DiscreteLaplace:
        """The geometric mechanism (Ghosh, Roughgarden and Sundararajan 2009)."""
        return DiscreteLaplace(self._laplace_scale, clipped)

    def gaussian(self, *, clipped: bool = False) -> Gaussian:
        """The analytic Gaussian mechanism (Balle and Wang 2018)."""
        if self.delta < _LEAST_DELTA:
            raise InputError(
                Option("delta"),
                f" is {self.delta:g}; Gaussian noise needs one from {_LEAST_DELTA:g}, for instance "
                "1e-6. Laplace noise does without.",
            )
        changed = self.rows_per_person * math.sqrt(self._counts_changed)
        return Gaussian(changed * _gaussian_width(self.epsilon, self.delta), clipped)

    @property
    def _counts_changed(self) -> int:
        """In all groupings."""
        return self.groupings * _COUNTS_CHANGED[self.change]

    @property
    def _laplace_scale(self) -> float:
        return self.rows_per_person * self._counts_changed / self.epsilon


def _gaussian_width(epsilon: float, delta: float) -> float:
    """The standard deviation for a number that one person changes by 1, rounded up."""
    low = high = 1.0
    while _gaussian_delta(epsilon, high) > delta:
        high *= 2
    while _gaussian_delta(epsilon, low) <= delta:
        low /= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _gaussian_delta(epsilon, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def _gaussian_delta(epsilon: float, width: float) -> float:
    """The smallest delta with that noise in a number that one person changes by 1."""
    from scipy.special import log_ndtr  # takes long to import, and is seldom needed

    a, b = 0.5 / width, epsilon * width
    return math.exp(log_ndtr(a - b)) - math.exp(epsilon + log_ndtr(-a - b))
