"""Choosing model, learning rate and number of epochs by the likelihood of held-out bags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import uniform_filter1d

from bagwise.bags import Bags, IntArray
from bagwise.data import BagData
from bagwise.estimator import LLPClassifier
from bagwise.tabular.model import log_probs_by
from bagwise.tabular.workspace import Workspace
from bagwise.training import DivergedError
from bagwise.training.progress import TaskProgress
from bagwise.training.selection import best_index, score

RATES = {"linear": (1e-3, 3e-3, 1e-2, 3e-2), "mlp": (3e-4, 1e-3, 3e-3)}
FOLDS = 5
CROSS_VALIDATED = 50_000  # instances up to which every bag is held out once,
FEW_BAGS, FEW_BAGS_INSTANCES = 50, 500_000  # and where there are so few bags, up to more
HELD_OUT = 0.1  # share of the bags otherwise,
MOST_HELD_OUT = 200_000  # up to so many instances
PILOT = 100_000  # instances that rates are tried on,
PILOT_BAGS = 10  # and bags, at least
PILOT_EPOCHS = 8
VISITS = 2e6  # instances that training looks at, in all epochs together

Split = tuple[IntArray, IntArray]
"""Bags to train on, bags held out."""


@dataclass(frozen=True)
class Trial:
    """A model and learning rate, and how they did on held-out bags.

    Attributes:
        model: its name.
        lr: learning rate.
        epochs: after which the held-out bags were most probable.
        bag_loss: -log P(S|X) per instance of the held-out bags then.
        curve: the same for each epoch.
        parts: the same for each part of the held-out bags, after `epochs`.
    """

    model: str
    lr: float
    epochs: int
    bag_loss: float
    curve: tuple[float, ...]
    parts: tuple[float, ...]


def most_epochs(n_instances: int) -> int:
    """Epochs to try at most: many for small tables, few for large ones."""
    return int(np.clip(math.ceil(VISITS / n_instances), 3, 120))


def patience(epochs: int) -> int:
    """Epochs without improvement after which training stops."""
    return max(2, epochs // 3)


def splits_of(bags: Bags, seed: int) -> list[Split]:
    """Five folds of the bags for small tables, so that each bag is held out once; else one split.

    >>> [len(held_out) for _, held_out in splits_of(Bags([10] * 12, [[5, 5]] * 12), seed=0)]
    [3, 3, 2, 2, 2]
    """
    order = np.random.default_rng(seed).permutation(len(bags))
    few = len(bags) < FEW_BAGS and bags.n_instances <= FEW_BAGS_INSTANCES
    if few or bags.n_instances <= CROSS_VALIDATED:
        parts = np.array_split(order, min(FOLDS, len(bags)))
    else:
        tenth = order[: max(round(HELD_OUT * len(bags)), 1)]
        parts = [_up_to(bags, tenth if len(bags) >= FEW_BAGS else order[: -(-len(bags) // FOLDS)])]
    everything = np.arange(len(bags))
    return [(np.setdiff1d(everything, part), np.sort(part)) for part in parts]


def choose(
    base: LLPClassifier,
    data: BagData,
    classes: npt.NDArray[Any],
    splits: Sequence[Split],
    candidates: Sequence[tuple[str, float]],
    work: Workspace,
    epochs: int | None = None,
    progress: bool = False,
) -> list[Trial]:
    """Try every (model, learning rate) on the splits; the one to take comes first.

    That is the one under which the held-out bags are most probable. But a perceptron has to be
    better than the linear model by more than the standard error of their difference over the parts:
    few bags say little, and the simpler model is then the safer one.

    Args:
        base: a classifier with all the other settings.
        data: the bags.
        classes: class labels.
        splits: bags to train on and to hold out; losses are averaged over them by instances.
        candidates: what to try.
        work: keeps the curve of each of them on each split.
        epochs: the number of epochs, where it is given and not to be chosen.
        progress: show a bar, on a terminal.
    """
    most = most_epochs(len(data)) if epochs is None else epochs
    if len(splits) == 1:
        most = min(most, PILOT_EPOCHS) if epochs is None else epochs
        splits = [_smaller(data.bags, splits[0])]
    parts = [(data.select(kept), data.select(held_out)) for kept, held_out in splits]
    trials = []
    with TaskProgress("choosing", len(candidates) * len(parts), progress) as bar:
        for model, lr in candidates:
            bar.begin(f"{model}, learning rate {lr:g}")
            tried = variant(base, model, lr, most, patience(most) if epochs is None else None)
            curves = []
            for part, (kept, held_out) in enumerate(parts):
                trial = partial(_curve, tried, kept, held_out, classes)
                curves.append(work.once(f"curve-{model}-{lr!r}-{part}", trial).tolist())
                bar.advance()
            trials.append(_trial(model, lr, curves, [len(h) for _, h in parts], epochs))
    trials.sort(key=lambda trial: score(trial.bag_loss, "bag_loss"), reverse=True)
    if not math.isfinite(trials[0].bag_loss):
        raise ValueError(
            "training diverged with every learning rate tried; look for extreme values among the "
            "features, or give a smaller --lr."
        )
    return _simpler_first(trials)


def _curve(
    tried: LLPClassifier, kept: BagData, held_out: BagData, classes: npt.NDArray[Any]
) -> torch.Tensor:
    """(epochs,) -log P(S|X) per instance of the held-out bags, infinite where training diverged."""
    try:
        tried.fit_bags(kept, classes, held_out)
    except DivergedError:
        return torch.full((tried.epochs,), math.inf, dtype=torch.float64)
    return torch.tensor([row["val_bag_loss"] for row in tried.history_], dtype=torch.float64)


def _simpler_first(trials: list[Trial]) -> list[Trial]:
    best = trials[0]
    linear = next((trial for trial in trials if trial.model == "linear"), best)
    gains = np.subtract(linear.parts, best.parts)
    if len(gains) > 1 and np.isfinite(gains).all():
        error = gains.std(ddof=1) / math.sqrt(len(gains))
        best = linear if gains.mean() <= error else best
    return [best, *(trial for trial in trials if trial is not best)]


def _trial(
    model: str, lr: float, curves: list[list[float]], weights: list[int], epochs: int | None
) -> Trial:
    shortest = min(len(curve) for curve in curves)
    mean = np.average([curve[:shortest] for curve in curves], axis=0, weights=weights)
    # A dip of a single epoch is chance: of long curves, the mean of a few epochs decides.
    smooth = uniform_filter1d(mean, 1 + 2 * min(len(mean) // 20, 2), mode="nearest")
    best = best_index(smooth, "bag_loss") if epochs is None else epochs - 1
    parts = tuple(curve[best] for curve in curves)
    return Trial(model, lr, best + 1, float(mean[best]), tuple(mean.tolist()), parts)


def held_out_log_probs(
    base: LLPClassifier,
    data: BagData,
    classes: npt.NDArray[Any],
    splits: Sequence[Split],
    chosen: Trial,
    work: Workspace,
    progress: bool = False,
) -> torch.Tensor:
    """(N, C) log-probabilities of every instance by a model that did not see its bag."""
    log_probs = torch.empty(len(data), len(classes))
    model = variant(base, chosen.model, chosen.lr, chosen.epochs)
    with TaskProgress("held-out bags", len(splits), progress) as bar:
        for part, split in enumerate(splits):
            rows = torch.from_numpy(data.bags.rows(split[1]))
            fold = partial(_fold_log_probs, model, data, split, classes)
            log_probs[rows] = work.once(f"held-out-{part}", fold)
            bar.advance()
    return log_probs


def _fold_log_probs(
    model: LLPClassifier, data: BagData, split: Split, classes: npt.NDArray[Any]
) -> torch.Tensor:
    kept, held_out = split
    model.fit_bags(data.select(kept), classes)
    return log_probs_by(model, data.select(held_out).inputs)


def variant(
    base: LLPClassifier,
    model: str,
    lr: float,
    epochs: int,
    patience: int | None = None,
    verbose: bool = False,
) -> LLPClassifier:
    """A classifier that differs from `base` in what is searched."""
    changes = {"model": model, "lr": lr, "epochs": epochs, "patience": patience, "verbose": verbose}
    return LLPClassifier(**base.get_params(deep=False) | changes)


def _smaller(bags: Bags, split: Split) -> Split:
    """As many of the bags as the pilot needs, at random."""
    rng = np.random.default_rng(0)
    kept, held_out = (rng.permutation(part) for part in split)
    return np.sort(_up_to(bags, kept, PILOT)), np.sort(_up_to(bags, held_out, PILOT // 2))


def _up_to(bags: Bags, order: IntArray, instances: int = MOST_HELD_OUT) -> IntArray:
    """The first of these bags, up to so many instances; ten of them at least."""
    n = int((np.cumsum(bags.sizes[order]) <= instances).sum())
    return order[: max(n, PILOT_BAGS)]
