"""Sizes at which Bagwise changes how it works, in one value that is passed to what decides by them.

Users need not set them. Tests pass smaller ones, so that a small table counts as a large one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes that decide how something is computed.

    Attributes:
        cross_validated: instances up to which every bag is held out once, in turn.
        few_bags: with fewer bags than these, that holds up to more instances.
        linear_cells: rows times columns that a linear model is fitted to as a whole, in double
            precision and more than once in memory.
        linear_cells_at_once: cells that are read at a time where there are more than those.

    >>> Limits(cross_validated=0).few_bags
    50
    """

    cross_validated: int = 50_000
    few_bags: int = 50
    linear_cells: int = 20_000_000
    linear_cells_at_once: int = 1_000_000


LIMITS = Limits()
