"""LLPClassifier with scikit-learn's conventions, and model selection on whole bags."""

from bagwise.estimator.classifier import LLPClassifier
from bagwise.estimator.selection import BagKFold, bag_scorer

__all__ = ["BagKFold", "LLPClassifier", "bag_scorer"]
