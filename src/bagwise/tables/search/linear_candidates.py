"""The linear model of a table: averaged over its prior, or with a ridge chosen on held-out bags."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from bagwise.bags import FloatArray, Groupings, IntArray
from bagwise.errors import InputError, Option
from bagwise.likelihood import (
    BagEffects,
    ChosenRidge,
    LinearFit,
    bag_log_likelihoods,
    bags_differ,
    choose_bag_effects,
    fit_by_evidence,
    fit_joint,
)
from bagwise.likelihood.bag_effects import bags_to_look_at
from bagwise.likelihood.evidence import MOST_AVERAGED, VARIANCES, PosteriorOfPriors, refit
from bagwise.likelihood.fit_summary import LikelihoodFit, objective_of
from bagwise.likelihood.linear_predictions import mean_log_probs
from bagwise.likelihood.ridge import FOLD_TOLERANCE, mean_per_instance
from bagwise.likelihood.splits import Split, choose_on, fold_numbers
from bagwise.likelihood.trust import mixed, trust_of
from bagwise.limits import LIMITS, Limits
from bagwise.posterior import log_likelihoods
from bagwise.progress import WorkProgress
from bagwise.storage.array_files import Arrays
from bagwise.storage.journal import Workspace
from bagwise.tables.assess.baseline import overall_shares
from bagwise.tables.model.fit_facts import BagsDiffer
from bagwise.tables.model.known_bags import KnownBags
from bagwise.tables.model.linear_model import LinearModel
from bagwise.tables.model.stored_covariance import fit_of
from bagwise.tables.search.candidate import Trial
from bagwise.tables.sort.encoded_bags import EncodedBags

_PAIRS = 64  # of draws of coefficients
_TINY = 1e-12  # share
_OWN = "own."  # before the names of what is known of the model with bag effects


def _nobody(done: int, planned: int) -> None:
    """Where nobody is told how far a fit is."""


def linear_trials(
    data: EncodedBags,
    splits: Sequence[Split],
    work: Workspace,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> list[Trial]:
    """The linear model: averaged over its coefficients and their prior, or, where that is not
    possible, with each ridge that was tried, the chosen one first.

    One split is enough for a large table; its model does not see the bags that are held out, and
    the final one is fitted to all.
    """
    with WorkProgress("linear model", "fits", 1, progress) as bar:
        if averages(data):
            found = work.once("linear", partial(data.apply, averaged, splits, limits, watch=bar.at))
        else:
            folds = fold_numbers(len(data.bags), splits)
            found = work.once("linear", partial(data.apply, fitted, folds, watch=bar.at))
    return trials_of(found)


def averages(data: EncodedBags) -> bool:
    """Whether the linear model is averaged over its prior: of one grouping, and where there are
    not too many coefficients.
    """
    free = (data.width + 1) * (data.bags.n_classes - 1)
    return data.rows is None and free <= MOST_AVERAGED


def averaged(
    data: EncodedBags,
    splits: Sequence[Split],
    limits: Limits = LIMITS,
    watch: Callable[[int, int], None] = _nobody,
) -> Arrays:
    """What `fit_by_evidence` finds, and how models of the same priors do on held-out bags."""
    X, bags = data.double(), data.bags
    done = itertools.count(1)
    steps = len(VARIANCES) + len(splits)
    posterior = fit_by_evidence(X, bags, limits=limits, watch=lambda: watch(next(done), steps))
    log_probs, shares = None, np.empty((len(bags), bags.n_classes))
    for number, (kept, held_out) in enumerate(splits, start=1):
        part = refit(posterior, X[bags.rows(kept)], bags.select(kept), limits)
        draws = part.draws()
        rows = bags.rows(held_out)
        if log_probs is None:
            log_probs = mean_log_probs(X, draws)
            shares[:] = overall_shares(bags.select(kept))
        else:
            log_probs[rows] = mean_log_probs(X[rows], draws)
            shares[held_out] = overall_shares(bags.select(kept))
        watch(len(VARIANCES) + number, steps)
    assert log_probs is not None
    judged = np.sort(np.concatenate([held_out for _, held_out in splits]))
    rows, some = bags.rows(judged), bags.select(judged)
    trust = max(round(_PAIRS * trust_of(log_probs[rows], some, shares[judged])), 1) / _PAIRS
    log_probs = mixed(log_probs, np.log(np.maximum(shares, _TINY))[bags.bag_of_row], trust)
    of_bags = np.full(len(bags), np.nan)
    of_bags[judged] = log_likelihoods(log_probs[rows], some)
    fit = posterior.best.fit
    return arrays_of(fit) | {
        "ridges": np.array([fit.ridge]),
        "scores": np.array([mean_per_instance(of_bags[judged], some)[0]]),
        "of_bags": of_bags[None],
        "chosen": np.array(0),
        "log_probs": log_probs.astype(np.float32),
        "draws": _drawn(posterior, trust, overall_shares(bags)),
        "trust": np.array(trust),
        "dispersion": np.array(posterior.dispersion),
        "path": np.array(posterior.path),
    }


def _drawn(posterior: PosteriorOfPriors, trust: float, shares: FloatArray) -> FloatArray:
    """Coefficients whose mean predictions are the model's with weight `trust`, else the shares."""
    drawn = posterior.draws(round(_PAIRS * trust))
    same = np.zeros((2 * _PAIRS - len(drawn), *drawn.shape[1:]))
    same[:, -1] = np.log(np.maximum(shares, _TINY))
    return np.concatenate([drawn, same])


def effect_trials(data: EncodedBags, splits: Sequence[Split], work: Workspace) -> list[Trial]:
    """The linear model with an effect of each bag, and those without it, for comparison."""
    found = work.once(
        "bag-effects",
        partial(data.apply, _fitted_with_effects, fold_numbers(len(data.bags), splits)),
    )
    own = {name.removeprefix(_OWN): x for name, x in found.items() if name.startswith(_OWN)}
    ridge = float(own["ridge"])
    trial = Trial(
        model="linear",
        bag_loss=-float(own["score"]),
        of_bags=own["of_bags"],
        log_probs=own["log_probs"],
        ridge=ridge,
        fitted=own,
        tau=own["held_out_tau"],
    )
    return [trial, *trials_of(found)]


def joint_trial(
    data: EncodedBags,
    groupings: Groupings,
    splits: Sequence[Split],
    work: Workspace,
    composite: Trial,
) -> Trial:
    """The linear model fitted to all groupings together, with the ridge of `composite`.

    A bag that is held out is left out of its grouping; its rows stay in the others.
    """
    assert composite.fitted is not None
    assert composite.ridge is not None
    ridge = composite.ridge
    start = fit_of(composite.fitted["weights"], composite.fitted["intercept"], ridge)
    found = work.once("joint", partial(_fitted_jointly, data, groupings, splits, start))
    return Trial(
        model="linear",
        bag_loss=-float(found["score"]),
        of_bags=found["of_bags"],
        log_probs=found["log_probs"],
        ridge=ridge,
        fitted=found,
        joint=True,
    )


def _fitted_jointly(
    data: EncodedBags, groupings: Groupings, splits: Sequence[Split], start: LinearFit
) -> Arrays:
    assert data.rows is not None
    Z, bags = data.double(), data.bags
    X = np.empty((groupings.n_instances, data.width))
    X[data.rows] = Z
    of_bags, logits = np.full(len(bags), np.nan), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _, held_out in splits:
            others = groupings.select(np.setdiff1d(np.arange(len(bags)), held_out))
            fit = fit_joint(X, others, start.ridge, tolerance=FOLD_TOLERANCE)
            rows = bags.rows(held_out)
            logits = fit.logits(Z) if logits is None else logits
            logits[rows] = fit.logits(Z[rows])
            of_bags[held_out] = bag_log_likelihoods(fit, Z[rows], bags.select(held_out))
    fit = fit_joint(X, groupings, start.ridge, start=start)
    assert logits is not None
    judged = np.flatnonzero(np.isfinite(of_bags))
    return arrays_of(fit) | {
        "score": np.array(mean_per_instance(of_bags[judged], bags.select(judged))[0]),
        "of_bags": of_bags,
        "log_probs": _log_probs(logits),
    }


def check_bag_effects(
    data: EncodedBags, model: str, by_likelihood: bool, limits: Limits = LIMITS
) -> None:
    """Say why there can be no bag effects, and what to do."""
    if model == "mlp":
        raise InputError(
            "bag effects are those of a linear model; leave ",
            Option("model", "mlp"),
            " or ",
            Option("bag_effects", True),
            " out.",
        )
    if not data.bags.is_sharp.all():
        raise InputError(
            "bag effects need exact counts: noise, ranges or rounding cannot be told from bags "
            "that differ. Leave ",
            Option("bag_effects", True),
            " out.",
        )
    if not data.fits(limits):
        raise InputError(
            f"the table has {len(data):,} rows of {data.width:,} features, too many for bag "
            f"effects, which take up to {limits.linear_cells:,} cells; use fewer columns or bags, "
            "or leave ",
            Option("bag_effects", True),
            " out.",
        )
    if not by_likelihood:
        raise InputError(
            "bag effects are fitted by maximum likelihood; leave out either ",
            Option("bag_effects", True),
            " or the options of training step by step (method, engine, lr, epochs).",
        )
    if len(data.bags) < 3:
        raise InputError(
            f"there are only {len(data.bags)} bags; at least three are needed to say how far bags "
            "differ. Leave ",
            Option("bag_effects", True),
            " out.",
        )


def _facts(trials: Sequence[Trial]) -> LikelihoodFit:
    """What is known of the fit of the first of these, a linear model by maximum likelihood."""
    chosen = trials[0]
    assert chosen.fitted is not None
    assert chosen.ridge is not None
    tried = {trial.ridge: trial.bag_loss for trial in reversed(trials) if trial.ridge is not None}
    history = [{"ridge": r, "val_bag_loss": tried[r]} for r in sorted(tried, reverse=True)]
    if "path" in chosen.fitted:
        names = ("ridge", "log_evidence")
        history = [dict(zip(names, at, strict=True)) for at in chosen.fitted["path"].tolist()]
    return LikelihoodFit(
        ridge=chosen.ridge,
        objective=float(chosen.fitted["objective"]),
        history=history,
        bag_effects=chosen.fitted_tau or 0.0,
    )


def known_bags(chosen: Trial, key: list[str], ids: npt.NDArray[Any]) -> KnownBags | None:
    """The bags with their effects, where the model has such; the first ones are `ids`."""
    tau = chosen.fitted_tau
    if tau is None or chosen.fitted is None:
        return None
    n = len(ids)
    means, spreads = (chosen.fitted[name][:n] for name in ("effects", "spreads"))
    return KnownBags(tuple(key), tuple(ids.tolist()), BagEffects(tau, means, spreads))


def differences(chosen: Trial, data: EncodedBags, limits: Limits = LIMITS) -> BagsDiffer | None:
    """Whether a linear model by maximum likelihood should have bag effects; None of others, and
    where the counts are not exact.
    """
    if chosen.fitted is None or chosen.tau is not None or not data.bags.is_sharp.all():
        return None
    bags, some = data.bags, bags_to_look_at(data.bags)
    if data.fits(limits):
        found = chosen.fitted
        logits = data.select(some).apply(_logits, found["weights"], found["intercept"])
    else:  # log-probabilities of all rows are those of the final model there
        assert chosen.log_probs is not None
        logits = chosen.log_probs[bags.rows(some)].astype(np.float64)
    return BagsDiffer(*bags_differ(logits, bags.select(some)))


def trials_of(found: Arrays) -> list[Trial]:
    """A trial of each ridge from what `fitted` found, the chosen one first."""
    chosen = int(found["chosen"])
    trials = [
        Trial(
            model="linear",
            bag_loss=-score,
            of_bags=found["of_bags"][place],
            log_probs=found["log_probs"] if place == chosen else None,
            ridge=ridge,
            fitted=found if place == chosen else None,
        )
        for place, (ridge, score) in enumerate(
            zip(found["ridges"].tolist(), found["scores"].tolist(), strict=True)
        )
    ]
    return [trials[chosen], *trials[:chosen], *trials[chosen + 1 :]]


def fitted(
    data: EncodedBags, folds: IntArray, watch: Callable[[int, int], None] = _nobody
) -> Arrays:
    """What `choose_ridge` finds."""
    return _arrays(choose_on(data.double(), data.bags, folds, watch))


def _fitted_with_effects(data: EncodedBags, folds: IntArray) -> Arrays:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = choose_bag_effects(data.double(), data.bags, folds=folds)
    assert found.fit.effects is not None
    assert found.fit.spreads is not None
    own = arrays_of(found.fit) | {
        "ridge": np.array(found.fit.ridge),
        "tau": np.array(found.tau),
        "effects": found.fit.effects,
        "spreads": found.fit.spreads,
        "score": np.array(found.score),
        "of_bags": found.of_bags,
        "log_probs": _log_probs(found.held_out_logits),
        "held_out_tau": found.held_out_tau,
    }
    return _arrays(found.without) | {f"{_OWN}{name}": x for name, x in own.items()}


def _arrays(found: ChosenRidge) -> Arrays:
    path = [score.ridge for score in found.path]
    return {
        "ridges": np.array(path, dtype=np.float64),
        "scores": np.array([score.score for score in found.path], dtype=np.float64),
        "of_bags": np.stack([score.of_bags for score in found.path]),
        "chosen": np.array(path.index(found.ridge)),
        "log_probs": _log_probs(found.held_out_logits),
        **arrays_of(found.fit),
    }


def _logits(data: EncodedBags, weights: FloatArray, intercept: FloatArray) -> FloatArray:
    found: FloatArray = data.double() @ weights + intercept
    return found


def _log_probs(logits: FloatArray) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = log_softmax(logits, axis=-1).astype(np.float32)
    return found


def arrays_of(fit: LinearFit) -> Arrays:
    """A model as a `Trial` keeps it."""
    return {
        "weights": fit.weights,
        "intercept": fit.intercept,
        "objective": np.array(objective_of(fit)),
    }


def model_of(trials: Sequence[Trial], classes: npt.NDArray[Any]) -> LinearModel:
    """The model of the first of these, a linear one by maximum likelihood."""
    fitted = trials[0].fitted
    assert fitted is not None
    weights, intercept = fitted["weights"], fitted["intercept"]
    draws = fitted.get("draws")
    return LinearModel(tuple(classes.tolist()), weights, intercept, fit=_facts(trials), draws=draws)
