"""Bags: sizes, and what is known of their label counts."""

from __future__ import annotations

from bagwise.bags.arrays import FloatArray, IntArray
from bagwise.bags.bags import Bags
from bagwise.bags.groupings import Grouping, Groupings, check_bags
from bagwise.bags.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Noise
from bagwise.bags.potentials import Potentials
from bagwise.bags.privacy_budget import PrivacyBudget
from bagwise.bags.rounding import bags_of_other_rows, rounding_slack

__all__ = [
    "Bags",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "FloatArray",
    "Gaussian",
    "Grouping",
    "Groupings",
    "IntArray",
    "Laplace",
    "Noise",
    "Potentials",
    "PrivacyBudget",
    "bags_of_other_rows",
    "check_bags",
    "rounding_slack",
]
