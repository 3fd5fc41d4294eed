"""The linear model of a table: by maximum likelihood, its ridge chosen on held-out bags."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from bagwise.bags import IntArray
from bagwise.data import BagData
from bagwise.likelihood import choose_ridge
from bagwise.networks import make_model
from bagwise.tabular.tuning import Split, Trial
from bagwise.tabular.workspace import Tensors, Workspace
from bagwise.training.progress import WorkProgress

MOST_NUMBERS = 20_000_000  # rows times columns, in double precision, more than once


def fits(data: BagData) -> bool:
    """Whether a table is small enough to be fitted as a whole."""
    return len(data) * (data.shape[0] + 1) <= MOST_NUMBERS


def linear_trials(
    data: BagData, splits: Sequence[Split], work: Workspace, progress: bool = False
) -> list[Trial]:
    """The linear model with each ridge that was tried, the chosen one first.

    One split is enough for a large table; its model does not see the bags that are held out, and
    the final one is fitted to all.
    """
    folds = np.full(len(data.bags), -1)
    for number, (_, held_out) in enumerate(splits):
        folds[held_out] = number
    with WorkProgress("linear model", "fits", 1, progress) as bar:
        found = work.once("linear", partial(_fitted, data, folds, bar))
    chosen = int(found["chosen"])
    trials = [
        Trial(
            model="linear",
            setting=f"ridge {ridge:.3g}",
            bag_loss=-score,
            of_bags=found["of_bags"][place].numpy(),
            log_probs=found["log_probs"] if place == chosen else None,
            ridge=ridge,
            weights=found if place == chosen else None,
        )
        for place, (ridge, score) in enumerate(
            zip(found["ridges"].tolist(), found["scores"].tolist(), strict=True)
        )
    ]
    return [trials[chosen], *trials[:chosen], *trials[chosen + 1 :]]


def _fitted(data: BagData, folds: IntArray, bar: WorkProgress) -> Tensors:
    X = data.inputs.double().numpy()
    with warnings.catch_warnings():
        # A fit that ends before its optimum is judged by held-out bags like any other.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = choose_ridge(X, data.bags, folds=folds, watch=bar.at)
    path = [score.ridge for score in found.path]
    log_probs = torch.from_numpy(found.held_out_logits).log_softmax(-1)
    return {
        "ridges": torch.tensor(path, dtype=torch.float64),
        "scores": torch.tensor([score.score for score in found.path], dtype=torch.float64),
        "of_bags": torch.from_numpy(np.stack([score.of_bags for score in found.path])),
        "chosen": torch.tensor(path.index(found.ridge)),
        "log_probs": log_probs.float(),
        "weight": torch.from_numpy(found.fit.weights.T.copy()),
        "bias": torch.from_numpy(found.fit.intercept),
        "train_loss": torch.tensor(-found.fit.log_likelihood / len(X), dtype=torch.float64),
    }


def module_of(weights: Tensors) -> nn.Module:
    """The model as a PyTorch module."""
    n_classes, n_features = weights["weight"].shape
    model = make_model("linear", (n_features,), n_classes)
    layer = model[-1]  # type: ignore[index]  # it is a sequence
    with torch.no_grad():
        layer.weight.copy_(weights["weight"])
        layer.bias.copy_(weights["bias"])
    return model
