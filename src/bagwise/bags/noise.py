"""Noise that was added to counts, for privacy mostly: how probable each value of it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bagwise.bags.arrays import FloatArray
from bagwise.errors import InputError

REACH = 700.0
"""A count under which an observed number is exp(-REACH) times less probable than under the best one
is taken for impossible: its probability would be lost to rounding anyway."""
_WIDE = 1e4  # from where a sum over whole numbers is an integral, but for a share of 1e-9


@dataclass(frozen=True)
class Noise(ABC):
    """Independent noise in each count, of one width or of a width for each bag and class.

    Args:
        width: a positive number, or an array that broadcasts to (B, C): (C,) for each class,
            (B, 1) for each bag.
        clipped: whether noisy counts below 0 were published as 0.
    """

    width: npt.ArrayLike
    clipped: bool = False
    whole: ClassVar[bool] = False
    """Whether it takes whole numbers only."""

    def __post_init__(self) -> None:
        try:
            width = np.asarray(self.width, dtype=np.float64)
        except (TypeError, ValueError):
            width = np.full(1, np.nan)
        if not (np.isfinite(width) & (width > 0)).all():
            raise InputError(
                f"the width of {type(self).__name__} noise is {self.width!r}; a positive number is "
                "expected (for counts without noise, use Bags(sizes, counts))."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.width!r}{', clipped=True' * self.clipped})"

    def widths(self, shape: tuple[int, int]) -> FloatArray:
        """The width for each bag and class."""
        try:
            return np.broadcast_to(np.asarray(self.width, dtype=np.float64), shape)
        except ValueError:
            raise InputError(
                f"the width of the noise has shape {np.shape(self.width)}, which does not fit "
                f"{shape[0]} bags of {shape[1]} classes; give a number, (C,), (B, 1) or (B, C)."
            ) from None

    @staticmethod
    @abstractmethod
    def log_prob(noise: FloatArray, width: FloatArray) -> FloatArray:
        """Logarithm of the probability (or density) of values of the noise."""

    @staticmethod
    @abstractmethod
    def log_cdf(noise: FloatArray, width: FloatArray) -> FloatArray:
        """Logarithm of the probability of a value or a smaller one: what clipping at 0 needs."""

    @staticmethod
    @abstractmethod
    def reach(width: FloatArray) -> FloatArray:
        """How far from the most probable count others are still possible, see `REACH`."""


class Laplace(Noise):
    """Density exp(-|x| / width) / (2 width): what adding Laplace noise of that scale gives.

    >>> Laplace(2.0).log_prob(np.array([0.0, 2.0]), np.array(2.0)).round(3)
    array([-1.386, -2.386])
    """

    @staticmethod
    def log_prob(noise: FloatArray, width: FloatArray) -> FloatArray:
        """-|x| / width - log(2 width)."""
        found: FloatArray = -np.abs(noise) / width - np.log(2 * width)
        return found

    @staticmethod
    def log_cdf(noise: FloatArray, width: FloatArray) -> FloatArray:
        """x / width - log 2 below 0."""
        above = np.log1p(-0.5 * np.exp(-np.maximum(noise, 0) / width))
        return np.where(noise <= 0, noise / width - np.log(2.0), above)

    @staticmethod
    def reach(width: FloatArray) -> FloatArray:
        """It falls by exp(-1) each width."""
        return REACH * width


class DiscreteLaplace(Noise):
    """Whole numbers x with probability proportional to exp(-|x| / width): the geometric mechanism.

    >>> values = np.arange(-200.0, 201.0)
    >>> float(np.exp(DiscreteLaplace(3.0).log_prob(values, np.array(3.0))).sum().round(9))
    1.0
    """

    whole = True

    @staticmethod
    def log_prob(noise: FloatArray, width: FloatArray) -> FloatArray:
        """-|x| / width + log tanh(1 / (2 width))."""
        found: FloatArray = -np.abs(noise) / width + np.log(np.tanh(0.5 / width))
        return found

    @staticmethod
    def log_cdf(noise: FloatArray, width: FloatArray) -> FloatArray:
        """x / width - log(1 + exp(-1 / width)) up to 0."""
        q = np.exp(-1 / width)
        above = np.log1p(-np.exp(-(np.maximum(noise, 0) + 1) / width) / (1 + q))
        return np.where(noise <= 0, noise / width - np.log1p(q), above)

    @staticmethod
    def reach(width: FloatArray) -> FloatArray:
        """It falls by exp(-1) each width."""
        return REACH * width


class Gaussian(Noise):
    """A normal distribution around 0 with standard deviation `width`.

    >>> Gaussian(1.0).log_prob(np.array([0.0, 1.0]), np.array(1.0)).round(3)
    array([-0.919, -1.419])
    """

    @staticmethod
    def log_prob(noise: FloatArray, width: FloatArray) -> FloatArray:
        """-x^2 / (2 width^2) - log(width sqrt(2 pi))."""
        found: FloatArray = -0.5 * (noise / width) ** 2 - np.log(width * np.sqrt(2 * np.pi))
        return found

    @staticmethod
    def log_cdf(noise: FloatArray, width: FloatArray) -> FloatArray:
        """Of the normal distribution."""
        from scipy.special import log_ndtr  # takes long to import, and is seldom needed

        found: FloatArray = log_ndtr(noise / width)
        return found

    @staticmethod
    def reach(width: FloatArray) -> FloatArray:
        """It falls by exp(-REACH) within that many standard deviations."""
        found: FloatArray = np.sqrt(2 * REACH) * width
        return found


class DiscreteGaussian(Gaussian):
    """Whole numbers x with probability proportional to exp(-x^2 / (2 width^2)).

    >>> values = np.arange(-60.0, 61.0)
    >>> float(np.exp(DiscreteGaussian(2.5).log_prob(values, np.array(2.5))).sum().round(9))
    1.0
    """

    whole = True

    @staticmethod
    def log_prob(noise: FloatArray, width: FloatArray) -> FloatArray:
        """-x^2 / (2 width^2), less the logarithm of the sum over all whole numbers."""
        found: FloatArray = -0.5 * (noise / width) ** 2 - _log_total(width)
        return found

    @staticmethod
    def log_cdf(noise: FloatArray, width: FloatArray) -> FloatArray:
        """By adding up the terms, from where they matter; wide noise is as good as normal."""
        from scipy.special import log_ndtr

        noise, width = np.broadcast_arrays(noise, width)
        found: FloatArray = log_ndtr((noise + 0.5) / width)
        for w in np.unique(width[width < _WIDE]):
            at = width == w
            lowest = noise[at].min() - np.ceil(40 * w)
            x = np.arange(lowest, noise[at].max() + 1)
            sums = np.logaddexp.accumulate(-0.5 * (x / w) ** 2) - _log_total(w)
            found[at] = np.minimum(sums, 0.0)[(noise[at] - lowest).astype(np.int64)]
        return found


def _log_total(width: FloatArray) -> FloatArray:
    """log sum_x exp(-x^2 / (2 width^2)): directly, or by Poisson's summation for wide ones."""
    x = np.arange(1.0, 41.0)
    wide = np.maximum(np.asarray(width, dtype=np.float64)[..., None], 1.0)
    dual = np.log(wide[..., 0] * np.sqrt(2 * np.pi)) + np.log1p(
        2 * np.exp(-2 * (np.pi * wide * x) ** 2).sum(axis=-1)
    )
    narrow = np.minimum(np.asarray(width, dtype=np.float64)[..., None], 1.0)
    direct = np.log1p(2 * np.exp(-0.5 * (x / narrow) ** 2).sum(axis=-1))
    found: FloatArray = np.where(np.asarray(width) > 1, dual, direct)
    return found
