"""Learning from label proportions: classify instances when labels are known only per bag."""

from bagwise.bags import Bags
from bagwise.posterior import Posterior, bag_posterior

__all__ = ["Bags", "Posterior", "bag_posterior"]
__version__ = "0.1.0"
