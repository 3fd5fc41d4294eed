"""LLPClassifier with scikit-learn's conventions, and model selection on whole bags."""

from bagwise.estimator.bag_folds import BagKFold, bag_scorer
from bagwise.estimator.classifier import LLPClassifier

__all__ = ["BagKFold", "LLPClassifier", "bag_scorer"]
