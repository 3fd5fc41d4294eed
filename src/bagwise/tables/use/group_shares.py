"""Shares of classes in groups of encoded rows, by a model of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior import bag_posterior
from bagwise.posterior.auto import AUTO_STATES
from bagwise.tables.encode.columns import Inputs
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use.share_bounds import sums_of_groups

_LEAST = 1e-6  # share whose logit is taken


class SharesOfGroups(NamedTuple):
    """Shares of groups (G, C) and what is known of them, see `likelihood.share_intervals`."""

    shares: FloatArray
    ends: Sequence[FloatArray] = ()
    contrasts: FloatArray | None = None
    misfits: FloatArray | None = None
    approximate: IntArray | None = None


def group_shares(
    model: FittedTable,
    inputs: Inputs,
    bags: Bags | None,
    places: IntArray | None,
    group: IntArray,
    G: int,
    copies: IntArray,
) -> SharesOfGroups:
    """Shares of groups of rows, with intervals where the model has them.

    Args:
        model: a fitted one.
        inputs: (N, d) encoded rows.
        bags: what is known of their counts, if rows are those of one grouping.
        places: (N,) the bag of each row, for a model with bag effects.
        group: (N,) the group of each row.
        G: number of groups.
        copies: (N,) how many identical rows each row stands for.
    """
    known, effects = model.intervals, model.interval_effects
    if known is None:
        log_probs = model.log_probs(inputs)
        p = np.exp(log_probs)
        if model.known_bags is not None and places is not None:
            own = np.minimum(places, len(model.known_bags.names))
            p = model.known_bags.probabilities(log_probs, own)
        elif bags is not None:
            p = bag_posterior(log_probs, bags, max_states=AUTO_STATES).weights
        return SharesOfGroups(_means(p, group, G, copies))
    X = inputs.astype(np.float64)
    if effects is not None:
        assert places is not None
        from bagwise.likelihood import group_shares_with_effects  # compiled, and seldom needed
        from bagwise.likelihood.confounding import contrast_slopes

        shares, errors, slopes = group_shares_with_effects(
            known, effects, X, places, group, G, copies
        )
        contrasts = known.error_of(
            contrast_slopes(shares, slopes, sums_of_groups(copies, group, G))
        )
        return SharesOfGroups(shares, _on_logits(shares, known.quantile() * errors), contrasts)
    from bagwise.likelihood.share_intervals import counted_share_intervals, share_intervals

    if bags is not None:
        found = counted_share_intervals(known, X, bags, group, G)
    else:
        found = share_intervals(known, X, group, G, copies)
    return SharesOfGroups(
        found.shares, [found.low, found.high], found.contrasts, found.misfits, found.approximate
    )


def _on_logits(shares: FloatArray, reach: FloatArray) -> list[FloatArray]:
    """The ends of intervals (G, C) that reach so far by the delta method, on the scale of logits:
    they are within 0 and 1, and longer toward the middle.
    """
    z = logit(np.clip(shares, _LEAST, 1 - _LEAST))
    reach = reach / np.maximum(shares * (1 - shares), _LEAST)
    return [expit(z - reach), expit(z + reach)]


def _means(values: FloatArray, group: IntArray, n_groups: int, copies: IntArray) -> FloatArray:
    """(G, C) means of (N, C) over the rows of each group; 0 of a group without rows."""
    rows = np.maximum(sums_of_groups(copies, group, n_groups), 1)
    sums = np.stack([np.bincount(group, copies * v, n_groups) for v in values.T], axis=1)
    means: FloatArray = sums / rows[:, None]
    return means
