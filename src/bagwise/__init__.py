"""Learning from label proportions: classify instances when labels are known only per bag."""

from bagwise.bags import Bags
from bagwise.data import BagData
from bagwise.estimator import LLPClassifier
from bagwise.estimator.selection import BagKFold, bag_scorer
from bagwise.losses import cc_loss, dllp_loss, llpfc_loss, ot_loss, pll_loss, rc_loss
from bagwise.posterior import Posterior, bag_posterior, most_probable_labeling
from bagwise.tabular import read_bags
from bagwise.training import TrainingOptions, train

__all__ = [
    "BagData",
    "BagKFold",
    "Bags",
    "LLPClassifier",
    "Posterior",
    "TrainingOptions",
    "bag_posterior",
    "bag_scorer",
    "cc_loss",
    "dllp_loss",
    "llpfc_loss",
    "most_probable_labeling",
    "ot_loss",
    "pll_loss",
    "rc_loss",
    "read_bags",
    "train",
]
__version__ = "0.1.0"
