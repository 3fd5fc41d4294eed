"""Probabilities of a model trained step by step, made as sure as held-out bags allow."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch

from bagwise.bags import FloatArray
from bagwise.data import BagData
from bagwise.data.inputs import on_device, take
from bagwise.likelihood import bag_folds
from bagwise.likelihood.temperature import fit_temperature
from bagwise.training.divide_logits import divide_logits
from bagwise.training.evaluation import predict_logits

if TYPE_CHECKING:
    from bagwise.estimator.classifier import LLPClassifier

FOLDS = 3
FEWEST_BAGS = 6  # of which three parts can be held out in turn
_EXAMPLE = 32  # rows on which a temperature is tried out


def calibrate(
    classifier: LLPClassifier, data: BagData, held_out: BagData | None, seed: int
) -> None:
    """Fit `temperature_` to held-out bags and have the model's last layer divide by it.

    A perceptron soon fits the counts of few large bags perfectly, and is then far too sure of
    single rows. Its log-odds, as they differ from those of the overall shares, are divided by the
    temperature: the hotter, the nearer to predicting the shares for every row.

    Args:
        held_out: bags that chose its epoch. Without them, and if neither epochs nor a
            `validation_fraction` are given, three models are trained, each without a third of the
            bags, to tell how sure such a model may be; not of single rows, whose labels are known.
    """
    bags = data.bags
    if held_out is not None:
        logits, judged = (
            predict_logits(classifier.model_, held_out.inputs, classifier.device),
            held_out.bags,
        )
    elif (
        classifier.epochs is None
        and classifier.validation_fraction == "auto"
        and len(bags) >= FEWEST_BAGS
        and bags.sizes.max() > 1
    ):
        logits, judged = _by_folds(classifier, data, seed), bags
    else:
        return
    shares = shares_of(data)
    temperature = fit_temperature(logits.log_softmax(-1).numpy(), judged, shares)
    example = take(data.inputs, torch.arange(min(len(data), _EXAMPLE)))
    if temperature != 1 and divide_logits(
        classifier.model_, temperature, on_device(example, classifier.device), shares
    ):
        classifier.temperature_ = temperature


def shares_of(data: BagData) -> FloatArray:
    """(C,) of all instances, half an instance of each class added."""
    counts = data.bags.expected_counts.sum(axis=0) + 0.5
    shares: FloatArray = counts / counts.sum()
    return shares


def _by_folds(classifier: LLPClassifier, data: BagData, seed: int) -> torch.Tensor:
    """(N, C) logits by models that did not see the row's bag."""
    fold = bag_folds(data.bags, FOLDS, seed)
    logits = torch.zeros(len(data), data.bags.n_classes)
    other = copy.copy(classifier)
    other.verbose = False
    for number in range(int(fold.max()) + 1):
        part = np.flatnonzero(fold == number)
        other._train(data.select(np.flatnonzero(fold != number)), None, seed)
        rows = torch.from_numpy(data.bags.rows(part))
        found = predict_logits(other.model_, data.select(part).inputs, other.device)
        logits[rows] = found.float()
    return logits
