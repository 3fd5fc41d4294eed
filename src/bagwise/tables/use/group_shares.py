"""Shares of classes in groups of encoded rows, by a model of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from bagwise.bags import FloatArray, IntArray
from bagwise.posterior import bag_posterior
from bagwise.posterior.auto import AUTO_STATES
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.use.estimated_rows import EstimatedRows

_LEAST = 1e-6  # share whose logit is taken
_ROWS = 65_536  # of bags whose counts are known that are taken at a time


class SharesOfGroups(NamedTuple):
    """Shares of groups (G, C) and what is known of them, see `likelihood.share_intervals`."""

    shares: FloatArray
    ends: Sequence[FloatArray] = ()
    contrasts: FloatArray | None = None
    misfits: FloatArray | None = None
    approximate: IntArray | None = None


def group_shares(model: FittedTable, rows: EstimatedRows) -> SharesOfGroups:
    """Shares of groups of rows, with intervals where the model has them."""
    known, effects, G = model.intervals, model.interval_effects, len(rows.n)
    if known is None:
        return SharesOfGroups(_means(model, rows))
    if effects is not None:
        from bagwise.likelihood.confounding import contrast_slopes  # compiled, and seldom needed
        from bagwise.likelihood.effect_shares import EffectSums

        sums = EffectSums(known, effects, G)
        for part in rows.parts():
            assert part.bag is not None
            sums.add(part.inputs, part.bag, part.group, part.copies)
        shares, errors, slopes = sums.shares()
        contrasts = known.error_of(contrast_slopes(shares, slopes, rows.n))
        return SharesOfGroups(shares, _on_logits(shares, known.quantile() * errors), contrasts)
    from bagwise.likelihood.counted_shares import counted_share_intervals
    from bagwise.likelihood.share_intervals import share_intervals_in_parts

    if rows.counted is not None:
        X, bags = rows.counted
        found = counted_share_intervals(known, X, bags, rows.groups, G)
    else:
        found = share_intervals_in_parts(known, lambda: (part[:3] for part in rows.parts()), G)
    return SharesOfGroups(
        found.shares, [found.low, found.high], found.contrasts, found.misfits, found.approximate
    )


def _means(model: FittedTable, rows: EstimatedRows) -> FloatArray:
    """(G, C) mean probabilities of the rows of each group; 0 of a group without rows."""
    sums = np.zeros((len(rows.n), len(model.classes)))
    if rows.counted is not None and model.known_bags is None:
        X, bags = rows.counted
        for index in bags.batches(_ROWS):
            own, some = bags.rows(index), bags.select(index)
            p = bag_posterior(model.log_probs(X[own]), some, max_states=AUTO_STATES).weights
            np.add.at(sums, rows.groups[own], some.copies[:, None] * p)
    else:
        for part in rows.parts():
            log_probs = model.log_probs(part.inputs)
            p = np.exp(log_probs)
            if model.known_bags is not None and part.bag is not None:
                new = len(model.known_bags.names)
                place = np.where((part.bag < 0) | (part.bag > new), new, part.bag)
                p = model.known_bags.probabilities(log_probs, place)
            np.add.at(sums, part.group, part.copies[:, None] * p)
    means: FloatArray = sums / np.maximum(rows.n, 1)[:, None]
    return means


def _on_logits(shares: FloatArray, reach: FloatArray) -> list[FloatArray]:
    """The ends of intervals (G, C) that reach so far by the delta method, on the scale of logits:
    they are within 0 and 1, and longer toward the middle.
    """
    z = logit(np.clip(shares, _LEAST, 1 - _LEAST))
    reach = reach / np.maximum(shares * (1 - shares), _LEAST)
    return [expit(z - reach), expit(z + reach)]
