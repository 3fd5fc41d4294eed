"""The linear model of a table that is too large to be in memory in double precision."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bagwise.bags import FloatArray, IntArray
from bagwise.likelihood import LinearFit
from bagwise.likelihood.coefficient_intervals import covariance_of_sums, interval_ridge
from bagwise.likelihood.linear_fit import fit_to
from bagwise.likelihood.linear_predictions import linear_log_probs
from bagwise.likelihood.splits import Split, smaller
from bagwise.limits import LIMITS, Limits
from bagwise.progress import WorkProgress
from bagwise.storage.array_files import Arrays
from bagwise.storage.journal import Workspace
from bagwise.tables.cluster.sharded_bags import log_probs_of
from bagwise.tables.model.stored_covariance import arrays_of as of_intervals
from bagwise.tables.model.stored_covariance import fit_of, too_many
from bagwise.tables.search.candidate import Trial
from bagwise.tables.search.linear_candidates import arrays_of, fitted, trials_of
from bagwise.tables.sort.encoded_bags import EncodedBags

_PIECES = 6  # the part of the cells that may be in memory that is read at a time, at most
_FIRST = 3_000_000  # of the bags that a fit begins with
_PASSES = 20  # over all rows, about
_SHARES = (8, 1)  # one of so many bags is fitted to, the one after the other
_TOLERANCE = 0.3  # standard errors, which are small in large tables


def fits_in_pieces(data: EncodedBags, splits: Sequence[Split], limits: Limits = LIMITS) -> bool:
    """Whether some bags, with which a fit can begin, are small enough."""
    if len(splits) > 1:
        return False
    some, _ = _some(data, splits[0], limits)
    return int(data.bags.sizes[some].sum()) * (data.width + 1) <= data.most_numbers(limits)


def trials_in_pieces(
    data: EncodedBags,
    splits: Sequence[Split],
    work: Workspace,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> list[Trial]:
    """As `linear_trials`: the ridge is chosen on some of the bags, and their model is where the fit
    to all but the bags held out begins, which reads them piece by piece. It is the final one.
    """
    ((kept, held_out),) = splits
    bags = data.bags
    with WorkProgress("linear model", "passes", _PASSES, progress) as bar:
        bar.begin("some of the bags")
        some, folds = _some(data, splits[0], limits)
        tried = work.once("linear", lambda: data.select(some).apply(fitted, folds))
        ridge = float(tried["ridges"][int(tried["chosen"])])
        begin = fit_of(tried["weights"], tried["intercept"], ridge)
        for share in _SHARES:
            index = kept[::share]
            bar.begin(f"1 of {share} bags" if share > 1 else "all bags")
            begin = _fit(data, index, begin, f"{share}", work, bar, limits)
    of_bags = np.full(len(bags), np.nan)
    unseen, classes = data.in_pieces(held_out, _most(data, limits))
    of_bags[held_out] = unseen.of_bags(begin.theta(classes))
    trial = Trial(
        model="linear",
        bag_loss=-float(of_bags[held_out].sum() / bags.sizes[held_out].sum()),
        of_bags=of_bags,
        log_probs=_log_probs(data, begin),
        ridge=ridge,
        fitted=arrays_of(begin),
    )
    return [trial, *(_left(other, len(bags)) for other in trials_of(tried)[1:])]


def intervals_in_pieces(
    data: EncodedBags,
    kept: IntArray,
    model: LinearFit,
    work: Workspace,
    progress: bool,
    limits: Limits = LIMITS,
) -> Arrays:
    """As `intervals_of`, of the bags that the model was fitted to; empty too where a single bag is
    too large.
    """
    bags = data.bags.select(kept)
    largest = int(bags.sizes.max()) * (data.width + 1)
    if too_many(model) or largest > data.most_numbers(limits):
        return {}
    start = replace(model, ridge=interval_ridge(model.ridge))
    with WorkProgress("intervals", "passes", _PASSES, progress) as bar:
        bar.begin("all bags")
        fit = _fit(data, kept, start, "intervals", work, bar, limits)
        found = covariance_of_sums(*data.in_pieces(kept, _most(data, limits)), fit)
    return of_intervals(found)


def _some(data: EncodedBags, split: Split, limits: Limits) -> tuple[IntArray, IntArray]:
    """Some bags of a split, in order, and (n,) 0 for those of them that are held out, else -1."""
    numbers = min(_FIRST, data.most_numbers(limits) // 2)  # and half as many of bags held out
    kept, held_out = smaller(data.bags, split, numbers // (data.width + 1))
    some = np.sort(np.concatenate([kept, held_out]))
    return some, np.where(np.isin(some, held_out), 0, -1)


def _fit(
    data: EncodedBags,
    index: IntArray,
    start: LinearFit,
    name: str,
    work: Workspace,
    bar: WorkProgress,
    limits: Limits,
) -> LinearFit:
    """To some bags. Every pass over them is kept, so that a fit that was stopped goes on."""

    def keep(
        number: int, do: Callable[[], tuple[FloatArray, FloatArray]]
    ) -> tuple[FloatArray, FloatArray]:
        names = "log_likelihood", "gradient"
        found = work.once(f"linear-{name}-{number}", lambda: dict(zip(names, do(), strict=True)))
        bar.plan(1 if number >= _PASSES // 2 else 0)
        bar.advance()
        return found["log_likelihood"], found["gradient"]

    with warnings.catch_warnings():
        # A fit that ends before its optimum is judged by held-out bags like any other.
        warnings.simplefilter("ignore", RuntimeWarning)
        likelihood, classes = data.in_pieces(index, _most(data, limits), keep)
        bags = data.bags.select(index)
        return fit_to(likelihood, classes, bags, start.ridge, start=start, tolerance=_TOLERANCE)


def _log_probs(data: EncodedBags, fit: LinearFit) -> Any:
    """(N, C) of all rows; where these are spread over workers, what gives those of some."""
    return log_probs_of(
        partial(linear_log_probs, weights=fit.weights, intercept=fit.intercept), data
    )


def _most(data: EncodedBags, limits: Limits) -> int:
    """Rows that are read at a time."""
    each = data.width + 4 * data.bags.n_classes
    cells = min(limits.linear_cells_at_once, data.most_numbers(limits) // _PIECES)
    return max(cells // each, 1)


def _left(trial: Trial, n_bags: int) -> Trial:
    """What is known of a ridge that was tried on some bags."""
    nothing = np.full(n_bags, np.nan)
    return replace(trial, some_bags=True, of_bags=nothing, log_probs=None, fitted=None)
