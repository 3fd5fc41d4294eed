"""Whether columns of bags make held-out bags more likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bagwise.likelihood.ridge import mean_per_instance
from bagwise.likelihood.splits import Split
from bagwise.limits import LIMITS, Limits
from bagwise.storage.journal import Workspace
from bagwise.tables.encode.columns import Columns
from bagwise.tables.labels.bag_context import BagContext
from bagwise.tables.model.fit_facts import ContextFacts
from bagwise.tables.search.candidate import Trial
from bagwise.tables.search.linear_search import linear_search
from bagwise.tables.sort.encoded_bags import EncodedBags


def context_facts(
    trials: Sequence[Trial],
    data: EncodedBags,
    splits: Sequence[Split],
    columns: Columns,
    context: BagContext | None,
    bag_effects: bool = False,
    progress: bool = False,
    limits: Limits = LIMITS,
) -> ContextFacts | None:
    """What the linear model gains by the columns of bags, against a fit without them.

    Args:
        trials: the candidates.
        data: rows with all columns.
        splits: which bags are held out.
        columns: of the model.
        context: columns of bags; None without any.
        bag_effects: whether the model has such.
        progress: show a bar, on a terminal.
        limits: sizes at which a fit works otherwise.
    """
    if context is None:
        return None
    linear = next((trial for trial in trials if trial.fitted is not None), None)
    names = [column.name for column in columns.columns for _ in column.encoded]
    keep = [place for place, name in enumerate(names) if name not in context.names]
    if linear is None or not keep or not data.fits(limits):
        return ContextFacts(context.names)
    assert isinstance(data.inputs, np.ndarray)
    without = linear_search(
        replace(data, inputs=np.ascontiguousarray(data.inputs[:, keep])),
        splits,
        Workspace(None, {}),
        bag_effects,
        progress,
        limits,
    )[0]
    gains = linear.of_bags - without.of_bags
    judged = np.flatnonzero(np.isfinite(gains))
    gain, error = mean_per_instance(gains[judged], data.bags.select(judged))
    return ContextFacts(context.names, gain, error)
