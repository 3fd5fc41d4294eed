"""The share of each class in groups of rows, with intervals, and bounds by counts alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from bagwise.errors import InputError, Option
from bagwise.limits import LIMITS, Limits
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.counts import Counts
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.use.counted_rows import matched_rows, stored_rows, weight_column
from bagwise.tables.use.estimated_rows import (
    BagNumbers,
    EstimatedRows,
    Part,
    RowNumbers,
    new_rows,
    rows_in_memory,
    rows_in_store,
)
from bagwise.tables.use.group_shares import group_shares
from bagwise.tables.use.row_groups import row_groups
from bagwise.tables.use.sensitivity import (
    Sensitivity,
    contradicted,
    robustness_of,
)
from bagwise.tables.use.share_bounds import share_bounds

ANSWER = ("class", "rows", "share", "low", "high", "least", "most", "robustness")
"""The columns of the answer beside those of groups."""


@dataclass(frozen=True)
class GroupShare:
    """The share of a class among the rows of a group.

    Attributes:
        group: values of the columns that make it.
        label: the class.
        rows: how many the group has.
        share: of the class.
        interval: of 95%; None of a model that is not known so well.
        bounds: least and largest share that the bags' counts allow, whatever the model says; None
            where the counts were not given.
        robustness: how strong a hidden difference between bags must be, from 0 to 1, to make the
            share that of all rows, see `likelihood.confounding`; None without an interval, and of a
            single group.
        strongest: the column, of those that do not make the groups, that would be the strongest
            such difference if it were hidden, and how strong; None of other than the largest
            groups.
        hardly_told: whether the interval rests on the prior rather than on the bags, where their
            counts are not given.
        misfit: how far the counts contradict the model about the group, see
            `likelihood.share_intervals`; None where they were not given.
        is_contradicted: whether that is more than chance explains.
        of_known_bags: how many of the rows are of bags that the model knows; None of a model
            without bag effects.
        approximate: how many of the rows have a posterior, given the counts, that is not proved;
            None where that is not known.
    """

    group: tuple[str, ...]
    label: str
    rows: int
    share: float
    interval: tuple[float, float] | None = None
    bounds: tuple[float, float] | None = None
    robustness: float | None = None
    strongest: tuple[str, float] | None = None
    hardly_told: bool = False
    misfit: float | None = None
    is_contradicted: bool = False
    of_known_bags: int | None = None
    approximate: int | None = None


def estimate_shares(
    model: FittedTable,
    data: Table,
    by: Sequence[str],
    counts: Counts | None = None,
    *,
    bag: Sequence[str] = (),
    weights: str | None = None,
    memory: int | None = None,
    progress: bool = False,
    surprises: Surprises | None = None,
    limits: Limits = LIMITS,
) -> list[GroupShare]:
    """The share of each class among the rows of each group, with a 95% interval.

    The interval allows for the coefficients, of which there are draws, for bags that disagree, and
    for the labels of the very rows: a group of three rows has no share of .4. With `counts`, shares
    and intervals are those given the counts (of one grouping), and within the bounds that follow
    from these alone. With bag effects it allows for these too, by the delta method, and rows of
    bags that the model knows have their effect. Only of a linear model with intervals; of another,
    shares and bounds alone.

    Args:
        model: a fitted one.
        data: rows with the model's feature columns and those of `by`.
        by: columns whose values make the groups.
        counts: the rows' bags and their counts, which shares then are given.
        bag: columns that name the rows' bags, for a model with bag effects; if not given, those of
            `counts`, or those that it was fitted with.
        weights: the column that says how many identical rows each row stands for; that of the fit
            if not given, where the table has it.
        memory: bytes that may be used for the rows: batches are as small as that asks for, and
            counted rows are sorted by bag into a temporary file. None holds counted rows in memory,
            encoded; new ones are read batch by batch in any case.
        progress: show a bar, on a terminal.
        surprises: to which is added what rows have that those of `fit` had not.
        limits: sizes of what is read at a time.
    """
    known = model.intervals
    no_effects = model.known_bags is not None and model.interval_effects is None
    if known is not None and no_effects:
        raise InputError(
            "this model has bag effects, but its folder does not say how sure they are: it was "
            "written by an earlier version. Fit it again."
        )
    if not by:
        raise InputError(Option("by"), " is empty; name the columns whose values make the groups.")
    if taken := [name for name in by if name in ANSWER]:
        raise InputError(
            f"the column {taken[0]!r} of ",
            Option("by"),
            " has the name of a column of the answer; rename it.",
        )
    by = list(dict.fromkeys(by))
    key = bag if counts is None else counts.key
    opened = open_rows(data, as_text=by, limits=limits, budget=memory)
    source = model.with_context(opened, key)
    source.require([*by, *model.columns.names])
    weights = weight_column(model, source, weights or (None if counts is None else counts.weights))
    source.require([] if weights is None else [weights])
    bags = None
    if model.known_bags is not None:
        bags = BagNumbers(model.known_bags, _bag_columns(model, source, key))
    numbers = RowNumbers(row_groups(source, by, model.columns, weights), weights, bags)
    with ExitStack() as stack:
        found = None
        if counts is None:
            rows = new_rows(model, source, numbers, surprises, progress)
        elif memory is None:
            found = matched_rows(model, source, replace(counts, weights=weights), progress)
            rows = rows_in_memory(model, source, numbers, found, surprises, progress)
        else:
            counts = replace(counts, weights=weights)
            store = stack.enter_context(stored_rows(model, source, counts, memory, progress))
            found = store.rows
            rows = rows_in_store(model, numbers, store, surprises)
        bounds = None if found is None else share_bounds(found, rows.groups, len(rows.n))
        watch = _Watch(model, rows, by)
        of_groups = group_shares(model, watch.rows)
        watch.finish()
    names, n, G = numbers.groups.names, rows.n, len(rows.n)
    shares, ends = of_groups.shares, of_groups.ends
    if bounds is not None:
        shares, *ends = (np.clip(x, bounds[..., 0], bounds[..., 1]) for x in (shares, *ends))
    robust, strongest, untold = None, {}, np.zeros(G, dtype=np.bool_)
    if known is not None and watch.sensitivity is not None and of_groups.contrasts is not None:
        robust = robustness_of(shares, of_groups.contrasts, n, bounds, known.n_bags)
        strongest = watch.sensitivity.strongest_columns()
        if found is None:
            untold = watch.sensitivity.hardly_told()
    misfits, approximate = of_groups.misfits, of_groups.approximate
    wrong = np.zeros(shares.shape, dtype=np.bool_)
    if misfits is not None:
        wrong = contradicted(misfits, n)
        if bounds is not None:
            wrong &= bounds[..., 0] < bounds[..., 1]
    return [
        GroupShare(
            group=names[g],
            label=label,
            rows=int(n[g]),
            share=float(shares[g, c]),
            interval=(float(ends[0][g, c]), float(ends[1][g, c])) if ends else None,
            bounds=None if bounds is None else (float(bounds[g, c, 0]), float(bounds[g, c, 1])),
            robustness=None if robust is None else float(robust[g, c]),
            strongest=strongest.get((g, c)),
            hardly_told=bool(untold[g]),
            misfit=None if misfits is None else float(misfits[g, c]),
            is_contradicted=bool(wrong[g, c]),
            of_known_bags=None if watch.in_known is None else int(watch.in_known[g]),
            approximate=None if approximate is None else int(approximate[g]),
        )
        for g in np.flatnonzero(n).tolist()
        for c, label in enumerate(model.classes)
    ]


def _bag_columns(model: FittedTable, source: RowSource, given: Sequence[str]) -> list[str]:
    """The columns that name the bags of rows, for a model with bag effects."""
    source.require(given)
    names = model.bag_columns(source.schema.names, given)
    if not names:
        assert model.known_bags is not None
        raise InputError(
            "this model has bag effects, which the rows of a bag share: the table must say which "
            f"bag a row is in. It has no column {', '.join(model.known_bags.columns)}; name the "
            "columns that say it with ",
            Option("bag"),
            ".",
        )
    return names


class _Watch:
    """Looks on when rows are gone through for the first time.

    Attributes:
        rows: the same, looked at.
        sensitivity: of their shares; None where the model has no intervals, and of one group.
        in_known: (G,) instances of bags that the model knows; None without bag effects.
    """

    def __init__(self, model: FittedTable, rows: EstimatedRows, by: Sequence[str]) -> None:
        self.rows = replace(rows, parts=self._parts)
        self._given, self._is_done = rows, False
        self.sensitivity, self.in_known = None, None
        if model.intervals is not None and len(rows.n) > 1:
            self.sensitivity = Sensitivity(model.intervals, model.columns, by, rows.n)
        if model.known_bags is not None:
            self._known = len(model.known_bags.names)
            self.in_known = np.zeros(len(rows.n), dtype=np.int64)

    def _parts(self) -> Iterator[Part]:
        for part in self._given.parts():
            if not self._is_done:
                self._look(part)
            yield part
        self._is_done = True

    def _look(self, part: Part) -> None:
        if self.sensitivity is not None:
            self.sensitivity.add(part.inputs, part.group, part.copies)
        if self.in_known is not None and part.bag is not None:
            is_known = (part.bag >= 0) & (part.bag < self._known)
            np.add.at(self.in_known, part.group, part.copies * is_known)

    def finish(self) -> None:
        """Go through the rows where nobody did."""
        if not self._is_done and (self.sensitivity is not None or self.in_known is not None):
            for _ in self._parts():
                pass
