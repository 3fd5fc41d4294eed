"""Whether bags differ by more than their rows explain, and how that is said."""

from __future__ import annotations

import math
from dataclasses import dataclass

OFFER = (
    " `bagwise fit --bag-effects` (a linear model of up to 20 million cells) gives each bag an "
    "intercept of its own."
)
IDLE = " Bags do not differ by more than their rows explain: bag effects are idle here."


def log_odds(tau: float) -> float:
    """How much the log-odds of two classes vary between bags, the standard deviation of each
    class's effect being tau: they are a difference of two.
    """
    return math.sqrt(2) * tau


@dataclass(frozen=True)
class BagsDiffer:
    """What the test for bag effects found.

    Attributes:
        tau: the standard deviation of an effect of each bag and class.
        p_value: of the likelihood-ratio test that there is none.
    """

    tau: float
    p_value: float

    def clearly(self) -> bool:
        """Whether that is no chance, and large enough to matter."""
        return self.p_value < 0.01 and log_odds(self.tau) > 0.2

    def in_words(self) -> str:
        """For people.

        >>> print(BagsDiffer(0.5, 0.002).in_words())
        Beyond what their rows explain, log-odds vary by 0.71 between bags (p = 0.002).
        """
        p = "< 0.001" if self.p_value < 0.001 else f"= {self.p_value:.3f}"
        return (
            f"Beyond what their rows explain, log-odds vary by {log_odds(self.tau):.2f} between "
            f"bags (p {p})."
        )
