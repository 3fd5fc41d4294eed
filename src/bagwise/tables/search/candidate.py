"""What is known of a candidate, and which one is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import FloatArray
from bagwise.errors import InputError, Option
from bagwise.likelihood import LinearFit
from bagwise.likelihood.nonlinearity import is_nonlinear, nonlinearity_scores
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.likelihood.splits import some_bags
from bagwise.storage.array_files import Arrays
from bagwise.tables.model.fit_facts import Tried
from bagwise.tables.model.stored_covariance import fit_of
from bagwise.tables.sort.encoded_bags import EncodedBags

JUDGED = 200_000  # instances by which it is judged whether a linear model misses something


@dataclass(frozen=True)
class Trial:
    """A candidate, and how it did on held-out bags.

    Attributes:
        model: its name.
        bag_loss: -log P(S|X) per instance of the held-out bags.
        of_bags: (B,) log P(S|X) of each bag that was held out; NaN of the others.
        log_probs: (N, C) of the rows of these, by models that did not see their bags, or, where one
            part was held out, (n, C) of some of its rows; None if it was left before.
        lr: learning rate, where there is one.
        epochs: after which the held-out bags were most probable, likewise.
        curve: loss of the held-out bags by epoch, likewise.
        ridge: strength of the penalty, where that was chosen.
        fitted: the final model, where it is known already: `weights` (d, C), `intercept` (C,),
            what was minimized, and with bag effects what is known of these.
        tau: (B,) standard deviation of the bags' own effects under the models that did not see
            them, where there are such; `log_probs` are for an effect of zero then.
        folds: on which it was tried, where that is not all of them.
        some_bags: whether it was tried on some of the bags only.
        joint: whether it is fitted to all groupings together.
    """

    model: str
    bag_loss: float
    of_bags: FloatArray
    log_probs: npt.NDArray[Any] | None = None
    lr: float | None = None
    epochs: int | None = None
    curve: tuple[float, ...] = ()
    ridge: float | None = None
    fitted: Arrays | None = None
    tau: FloatArray | None = None
    folds: int | None = None
    some_bags: bool = False
    joint: bool = False

    @property
    def facts(self) -> Tried:
        """What is said of it."""
        return Tried(
            model=self.model,
            bag_loss=self.bag_loss,
            ridge=self.ridge,
            lr=self.lr,
            epochs=self.epochs,
            tau=self.fitted_tau,
            folds=self.folds,
            some_bags=self.some_bags,
            joint=self.joint,
        )

    @property
    def fitted_tau(self) -> float | None:
        """The standard deviation of bag effects, where the model has such."""
        if self.tau is None or self.fitted is None:
            return None
        return float(self.fitted["tau"])


def choose(trials: list[Trial], data: EncodedBags) -> list[Trial]:
    """The trials, the one to take first.

    That is the one under which the held-out bags are most probable. But a perceptron has to be
    better than the linear model by more than chance: by two standard errors of their difference
    over bags, or by one if squares, cubes and products of columns would improve the linear model
    (`nonlinearity_scores`). Few bags say little, and the simpler model is then the safer one.
    """
    whole = sorted((trial for trial in trials if trial.log_probs is not None), key=by_loss)
    if not whole or not math.isfinite(whole[0].bag_loss):
        raise InputError(
            "training diverged with every learning rate tried; look for extreme values among the "
            "features, or give a smaller ",
            Option("lr"),
            ".",
        )
    best = whole[0]
    linear = next((trial for trial in whole if trial.model == "linear"), best)
    gains = best.of_bags - linear.of_bags
    known = np.flatnonzero(np.isfinite(gains))
    if linear is not best and len(known) > 1:
        mean, error = mean_per_instance(gains[known], data.bags.select(known))
        if mean <= error or (mean <= 2 * error and not is_nonlinear(scores_of(linear, data))):
            best = linear
    return [best, *(trial for trial in sorted(trials, key=by_loss) if trial is not best)]


def scores_of(linear: Trial, data: EncodedBags) -> FloatArray | None:
    """What speaks against a linear model in some of the bags; None where that is not known."""
    judges = some_bags(data.bags.sizes, JUDGED)
    if linear.fitted is None or not len(judges):  # the first bag is too large
        return None
    fit = fit_of(linear.fitted["weights"], linear.fitted["intercept"])
    found: FloatArray | None = data.select(judges).apply(_scores, fit)
    return found


def _scores(data: EncodedBags, fit: LinearFit) -> FloatArray | None:
    return nonlinearity_scores(data.double(), data.bags, fit)


def by_loss(trial: Trial) -> float:
    """To sort trials by, the best first, and last those whose training diverged."""
    return math.inf if math.isnan(trial.bag_loss) else trial.bag_loss
