"""Learning from label proportions: classify instances when labels are known only per bag."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise.extras import require

if TYPE_CHECKING:
    from bagwise.bags import (
        Bags,
        DiscreteGaussian,
        DiscreteLaplace,
        Gaussian,
        Groupings,
        Laplace,
        PrivacyBudget,
    )
    from bagwise.data import BagBatchSampler, BagData, BagDataset, collate_bags
    from bagwise.data.stored_bags import stored_bags
    from bagwise.ecological import EcologicalTable, ecological_table
    from bagwise.errors import BagwiseError, BagwiseWarning, InputError
    from bagwise.estimator import BagKFold, LLPClassifier, bag_scorer
    from bagwise.labels.label_spec import Rounded
    from bagwise.logistic import BagLogisticRegression
    from bagwise.losses import (
        CCLoss,
        CCSquaredLoss,
        DLLPLoss,
        LLPFCLoss,
        OTLoss,
        PLLCCLoss,
        PLLLoss,
        PVCLoss,
        RCLoss,
        ViewLoss,
        cc_loss,
        cc_squared_loss,
        dllp_loss,
        llpfc_loss,
        ot_loss,
        pll_cc_loss,
        pll_loss,
        pvc_loss,
        rc_loss,
        view_loss,
    )
    from bagwise.posterior import (
        JointPosterior,
        Posterior,
        bag_posterior,
        most_probable_labeling,
    )
    from bagwise.posterior.disclosed_labels import Disclosure, disclosure
    from bagwise.table_model import TableModel, fit, load
    from bagwise.tables import read_bags
    from bagwise.training import train
    from bagwise.training_options import TrainingOptions

__all__ = [
    "BagBatchSampler",
    "BagData",
    "BagDataset",
    "BagKFold",
    "BagLogisticRegression",
    "Bags",
    "BagwiseError",
    "BagwiseWarning",
    "CCLoss",
    "CCSquaredLoss",
    "DLLPLoss",
    "Disclosure",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "EcologicalTable",
    "Gaussian",
    "Groupings",
    "InputError",
    "JointPosterior",
    "LLPClassifier",
    "LLPFCLoss",
    "Laplace",
    "OTLoss",
    "PLLCCLoss",
    "PLLLoss",
    "PVCLoss",
    "Posterior",
    "PrivacyBudget",
    "RCLoss",
    "Rounded",
    "TableModel",
    "TrainingOptions",
    "ViewLoss",
    "bag_posterior",
    "bag_scorer",
    "cc_loss",
    "cc_squared_loss",
    "collate_bags",
    "disclosure",
    "dllp_loss",
    "ecological_table",
    "fit",
    "llpfc_loss",
    "load",
    "most_probable_labeling",
    "ot_loss",
    "pll_cc_loss",
    "pll_loss",
    "pvc_loss",
    "rc_loss",
    "read_bags",
    "stored_bags",
    "train",
    "view_loss",
]
__version__ = "0.1.0"

# Where the names come from; each room is imported when one of its names is first used, so that
# `import bagwise` and `bagwise --help` need not wait for all of them.
_ROOMS = {
    "bags": (
        "Bags",
        "DiscreteGaussian",
        "DiscreteLaplace",
        "Gaussian",
        "Groupings",
        "Laplace",
        "PrivacyBudget",
    ),
    "ecological": ("EcologicalTable", "ecological_table"),
    "data": ("BagBatchSampler", "BagData", "BagDataset", "collate_bags"),
    "data.stored_bags": ("stored_bags",),
    "errors": ("BagwiseError", "BagwiseWarning", "InputError"),
    "estimator": ("BagKFold", "LLPClassifier", "bag_scorer"),
    "labels.label_spec": ("Rounded",),
    "logistic": ("BagLogisticRegression",),
    "losses": (
        "CCLoss",
        "CCSquaredLoss",
        "DLLPLoss",
        "LLPFCLoss",
        "OTLoss",
        "PLLCCLoss",
        "PLLLoss",
        "PVCLoss",
        "RCLoss",
        "ViewLoss",
        "cc_loss",
        "cc_squared_loss",
        "dllp_loss",
        "llpfc_loss",
        "ot_loss",
        "pll_cc_loss",
        "pll_loss",
        "pvc_loss",
        "rc_loss",
        "view_loss",
    ),
    "posterior": ("JointPosterior", "Posterior", "bag_posterior", "most_probable_labeling"),
    "posterior.disclosed_labels": ("Disclosure", "disclosure"),
    "table_model": ("TableModel", "fit", "load"),
    "tables": ("read_bags",),
    "training": ("train",),
    "training_options": ("TrainingOptions",),
}


_OF_TORCH = ("data", "data.stored_bags", "estimator", "losses", "training")


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            if room in _OF_TORCH:
                require("torch", "torch")
            if room == "logistic":
                require("sklearn", "sklearn")
            value = getattr(import_module(f"bagwise.{room}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'bagwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
