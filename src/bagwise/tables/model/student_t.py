"""Quantiles of Student's t, without scipy: `predict` needs the verdict and starts quickly."""

from __future__ import annotations

import math

_STEPS = 200  # of Simpson's rule


def student_t(degrees: float, level: float = 0.95) -> float:
    """The t for which P(|T| < t) = level; infinite for less than one degree of freedom.

    With T = sqrt(degrees) tan(a), the density of a is proportional to cos(a)^(degrees - 1).

    >>> round(student_t(2), 3), round(student_t(1e6), 3)
    (4.303, 1.96)
    """
    if degrees < 1:
        return math.inf
    log_all = math.lgamma(degrees / 2) - math.lgamma((degrees + 1) / 2)
    wanted = level * math.sqrt(math.pi) / 2 * math.exp(log_all)
    low, high = 0.0, math.pi / 2
    if degrees > 2:  # where the density is narrow, the rule must not step over it
        high = math.atan(10 / math.sqrt(degrees))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _area(middle, degrees) < wanted else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _area(end: float, degrees: float) -> float:
    """The integral of cos(a)^(degrees - 1) from 0 to end."""
    step = end / _STEPS
    values = [math.pow(math.cos(k * step), degrees - 1) for k in range(_STEPS + 1)]
    return step / 3 * (values[0] + values[-1] + 4 * sum(values[1::2]) + 2 * sum(values[2:-1:2]))
