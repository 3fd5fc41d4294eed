"""The linear model of a table: by maximum likelihood, its ridge chosen on held-out bags."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bagwise.bags import IntArray
from bagwise.data import BagData
from bagwise.data.stored_rows import StoredRows
from bagwise.errors import InputError
from bagwise.likelihood import (
    BagEffects,
    ChosenRidge,
    LinearFit,
    bags_differ,
    choose_bag_effects,
)
from bagwise.likelihood.bag_effects import bags_to_look_at
from bagwise.likelihood.fit_summary import LikelihoodFit, objective_of
from bagwise.likelihood.splits import Split, choose_on, fold_numbers
from bagwise.limits import LIMITS, Limits
from bagwise.networks import make_model
from bagwise.progress import WorkProgress
from bagwise.storage.journal import Tensors, Workspace
from bagwise.tables.model.bag_differences import BagsDiffer
from bagwise.tables.model.known_bags import KnownBags
from bagwise.tables.search.candidate import Trial

NUMBER = 64  # bytes of memory that one of these takes in all, where memory is limited
_OWN = "own."  # before the names of what is known of the model with bag effects


def fits(data: BagData, limits: Limits = LIMITS) -> bool:
    """Whether a table is small enough to be fitted as a whole."""
    return len(data) * (data.shape[0] + 1) <= most_numbers(data, limits)


def most_numbers(data: BagData, limits: Limits) -> int:
    """Cells of rows that may be in memory in double precision."""
    if isinstance(data.inputs, StoredRows):
        return min(limits.linear_cells, data.inputs.budget // NUMBER)
    return limits.linear_cells


def linear_trials(
    data: BagData, splits: Sequence[Split], work: Workspace, progress: bool = False
) -> list[Trial]:
    """The linear model with each ridge that was tried, the chosen one first.

    One split is enough for a large table; its model does not see the bags that are held out, and
    the final one is fitted to all.
    """
    with WorkProgress("linear model", "fits", 1, progress) as bar:
        found = work.once(
            "linear", partial(fitted, data, fold_numbers(len(data.bags), splits), bar.at)
        )
    return trials_of(found)


def effect_trials(data: BagData, splits: Sequence[Split], work: Workspace) -> list[Trial]:
    """The linear model with an effect of each bag, and those without it, for comparison."""
    found = work.once(
        "bag-effects", partial(_fitted_with_effects, data, fold_numbers(len(data.bags), splits))
    )
    own = {name.removeprefix(_OWN): x for name, x in found.items() if name.startswith(_OWN)}
    ridge = float(own["ridge"])
    trial = Trial(
        model="linear",
        setting=f"bag effects, ridge {ridge:.3g}",
        bag_loss=-float(own["score"]),
        of_bags=own["of_bags"].numpy(),
        log_probs=own["log_probs"],
        ridge=ridge,
        weights=own,
        tau=own["held_out_tau"].numpy(),
    )
    return [trial, *trials_of(found)]


def check_bag_effects(
    data: BagData, model: str, by_likelihood: bool, limits: Limits = LIMITS
) -> None:
    """Say why there can be no bag effects, and what to do."""
    if model == "mlp":
        raise InputError(
            "bag effects are those of a linear model; leave --model mlp or --bag-effects out."
        )
    if not data.bags.is_sharp.all():
        raise InputError(
            "bag effects need exact counts: noise, ranges or rounding cannot be told from bags "
            "that differ. Leave --bag-effects out."
        )
    if not fits(data, limits):
        raise InputError(
            f"the table has {len(data):,} rows of {data.shape[0]:,} features, too many for bag "
            f"effects, which take up to {limits.linear_cells:,} cells; use fewer columns "
            "(--features, --exclude) or a part of the bags, or leave --bag-effects out."
        )
    if not by_likelihood:
        raise InputError(
            "bag effects are fitted by maximum likelihood; leave --method, --engine, --set, --lr "
            "and --epochs out, or --bag-effects."
        )
    if len(data.bags) < 3:
        raise InputError(
            f"there are only {len(data.bags)} bags; at least three are needed to say how far bags "
            "differ. Leave --bag-effects out."
        )


def facts_of(trials: Sequence[Trial]) -> LikelihoodFit:
    """What is known of the fit of the first of these, a linear model by maximum likelihood."""
    chosen = trials[0]
    assert chosen.weights is not None
    assert chosen.ridge is not None
    tried = {trial.ridge: trial.bag_loss for trial in reversed(trials) if trial.ridge is not None}
    return LikelihoodFit(
        ridge=chosen.ridge,
        objective=float(chosen.weights["objective"]),
        history=[{"ridge": r, "val_bag_loss": tried[r]} for r in sorted(tried, reverse=True)],
        bag_effects=tau_of(chosen) or 0.0,
    )


def tau_of(chosen: Trial) -> float | None:
    """The standard deviation of bag effects, where the model has such."""
    if chosen.tau is None or chosen.weights is None:
        return None
    return float(chosen.weights["tau"])


def known_bags(chosen: Trial, key: list[str], ids: npt.NDArray[Any]) -> KnownBags | None:
    """The bags with their effects, where the model has such; the first ones are `ids`."""
    tau = tau_of(chosen)
    if tau is None or chosen.weights is None:
        return None
    n = len(ids)
    means, spreads = (chosen.weights[name].numpy()[:n] for name in ("effects", "spreads"))
    return KnownBags(tuple(key), tuple(ids.tolist()), BagEffects(tau, means, spreads))


def differences(chosen: Trial, data: BagData, limits: Limits = LIMITS) -> BagsDiffer | None:
    """Whether a linear model by maximum likelihood should have bag effects; None of others, and
    where the counts are not exact.
    """
    if chosen.weights is None or chosen.tau is not None or not data.bags.is_sharp.all():
        return None
    W, b = (chosen.weights[name].numpy() for name in ("weight", "bias"))
    bags, some = data.bags, bags_to_look_at(data.bags)
    if fits(data, limits):
        logits = data.select(some).inputs.double().numpy() @ W.T + b
    else:  # log-probabilities of all rows are those of the final model there
        assert chosen.log_probs is not None
        logits = chosen.log_probs[torch.from_numpy(bags.rows(some))].double().numpy()
    return BagsDiffer(*bags_differ(logits, bags.select(some)))


def trials_of(found: Tensors) -> list[Trial]:
    """A trial of each ridge from what `fitted` found, the chosen one first."""
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


def fitted(data: BagData, folds: IntArray, watch: Callable[[int, int], None]) -> Tensors:
    """What `choose_ridge` finds."""
    X = data.inputs.double().numpy()
    return _tensors(choose_on(X, data.bags, folds, watch))


def _fitted_with_effects(data: BagData, folds: IntArray) -> Tensors:
    X = data.inputs.double().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = choose_bag_effects(X, data.bags, folds=folds)
    assert found.fit.effects is not None
    assert found.fit.spreads is not None
    own = model_of(found.fit) | {
        "ridge": torch.tensor(found.fit.ridge, dtype=torch.float64),
        "tau": torch.tensor(found.tau, dtype=torch.float64),
        "effects": torch.from_numpy(found.fit.effects),
        "spreads": torch.from_numpy(found.fit.spreads),
        "score": torch.tensor(found.score, dtype=torch.float64),
        "of_bags": torch.from_numpy(found.of_bags),
        "log_probs": torch.from_numpy(found.held_out_logits).log_softmax(-1).float(),
        "held_out_tau": torch.from_numpy(found.held_out_tau),
    }
    return _tensors(found.without) | {f"{_OWN}{name}": x for name, x in own.items()}


def _tensors(found: ChosenRidge) -> Tensors:
    path = [score.ridge for score in found.path]
    log_probs = torch.from_numpy(found.held_out_logits).log_softmax(-1)
    return {
        "ridges": torch.tensor(path, dtype=torch.float64),
        "scores": torch.tensor([score.score for score in found.path], dtype=torch.float64),
        "of_bags": torch.from_numpy(np.stack([score.of_bags for score in found.path])),
        "chosen": torch.tensor(path.index(found.ridge)),
        "log_probs": log_probs.float(),
        **model_of(found.fit),
    }


def model_of(fit: LinearFit) -> Tensors:
    """A model as `module_of` takes it."""
    return {
        "weight": torch.from_numpy(fit.weights.T.copy()),
        "bias": torch.from_numpy(fit.intercept),
        "objective": torch.tensor(objective_of(fit), dtype=torch.float64),
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
