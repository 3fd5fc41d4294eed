"""The linear model of a table: which bags are held out, its candidates and its intervals."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from bagwise.bags import Bags, Groupings
from bagwise.likelihood.splits import Split, splits_of
from bagwise.limits import LIMITS, Limits
from bagwise.progress import WorkProgress
from bagwise.storage.array_files import Arrays
from bagwise.storage.journal import Workspace
from bagwise.tables.match.grouped_rows import are_large, held_out_together
from bagwise.tables.model.stored_covariance import fit_of, intervals_of
from bagwise.tables.search.candidate import Trial
from bagwise.tables.search.linear_candidates import effect_trials, linear_trials
from bagwise.tables.search.linear_in_pieces import intervals_in_pieces, trials_in_pieces
from bagwise.tables.sort.encoded_bags import EncodedBags

FEWEST_BAGS = 10  # of which it can be told whether another than a linear model is better


def table_splits(
    data: EncodedBags, groupings: Groupings | None, seed: int, limits: Limits = LIMITS
) -> list[Split]:
    """Which bags are held out in turn, of several groupings too.

    Bags within others are held out together with these, see `held_out_together`, unless that leaves
    too few to hold out. A bag with more than half of the rows never is: what it says is known from
    the other groupings, and it would outweigh all other bags.
    """
    bags = data.bags
    if groupings is None:
        return splits_of(bags, seed, limits=limits)
    small, together = np.flatnonzero(~are_large(groupings)), held_out_together(groupings)
    if len(small) < 2:
        return splits_of(bags, seed, limits=limits, rows=data.rows)
    assert data.rows is not None
    rows, part = data.rows[bags.rows(small)], bags.select(small)
    names, together = np.unique(together[small], return_inverse=True)
    if FEWEST_BAGS <= len(names) < len(small):
        sizes = np.bincount(together, part.totals).astype(np.int64)
        of_groups = splits_of(Bags(sizes, sizes[:, None]), seed, limits=limits)
        parts = [np.flatnonzero(np.isin(together, held_out)) for _, held_out in of_groups]
    else:
        parts = [held_out for _, held_out in splits_of(part, seed, limits=limits, rows=rows)]
    everything = np.arange(len(bags))
    return [(np.setdiff1d(everything, small[held_out]), small[held_out]) for held_out in parts]


def linear_search(
    data: EncodedBags,
    splits: Sequence[Split],
    kept: Workspace,
    bag_effects: bool,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> list[Trial]:
    """The linear model by maximum likelihood, with each ridge that was tried."""
    if bag_effects:
        with WorkProgress("linear model with bag effects", "", 1, progress):
            return effect_trials(data, splits, kept)
    if data.fits(limits):
        return linear_trials(data, splits, kept, progress, limits)
    return trials_in_pieces(data, splits, kept, progress, limits)


def found_intervals(
    chosen: Trial,
    data: EncodedBags,
    splits: Sequence[Split],
    kept: Workspace,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> Arrays:
    """What intervals of a linear model by maximum likelihood are made of."""
    if chosen.fitted is None or chosen.ridge is None:
        return {}
    tau = chosen.fitted_tau or 0.0
    # Where bags differ, intervals say so by how much they disagree, not by a stronger ridge.
    ridge = chosen.ridge / float(chosen.fitted.get("dispersion", 1.0))
    model = fit_of(chosen.fitted["weights"], chosen.fitted["intercept"], ridge, tau)
    if not data.fits(limits):
        bags = splits[0][0]
        return kept.once(
            "intervals", lambda: intervals_in_pieces(data, bags, model, kept, progress, limits)
        )
    with WorkProgress("intervals", "", 1, progress), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a fit that is hard to end
        return kept.once("intervals", lambda: data.apply(intervals_of, model, limits))
