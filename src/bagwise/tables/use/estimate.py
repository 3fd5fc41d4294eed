"""The share of each class in groups of rows, with intervals, and bounds by counts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bagwise.bags import IntArray
from bagwise.errors import InputError, Option
from bagwise.tables.encode.columns import Surprises
from bagwise.tables.labels.bag_names import bag_ids
from bagwise.tables.labels.counts import Counts
from bagwise.tables.labels.row_count_column import row_counts
from bagwise.tables.match.bag_table import encode_rows
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.row_source import RowSource
from bagwise.tables.read.source import Table, open_rows
from bagwise.tables.use.counted_rows import matched_rows, weight_column
from bagwise.tables.use.group_shares import group_shares
from bagwise.tables.use.row_groups import row_groups
from bagwise.tables.use.sensitivity import (
    contradicted,
    hardly_told,
    robustness_of,
    strongest_columns,
)
from bagwise.tables.use.share_bounds import share_bounds, sums_of_groups

if TYPE_CHECKING:
    from bagwise.tables.model.known_bags import KnownBags

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
    progress: bool = False,
    surprises: Surprises | None = None,
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
        progress: show a bar, on a terminal.
        surprises: to which is added what rows have that those of `fit` had not.
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
    source = model.with_context(open_rows(data, as_text=list(by)), key)
    source.require([*by, *model.columns.names])
    codes, names = row_groups(source, by, model.columns)
    found, order = None, np.arange(len(codes))
    weights = weight_column(model, source, weights or (None if counts is None else counts.weights))
    if counts is not None:
        found = matched_rows(model, source, replace(counts, weights=weights), progress)
        order = found.targets.order if found.groupings is None else np.unique(found.targets.order)
    copies = np.ones(len(codes), np.int64) if weights is None else row_counts(source, weights)
    copies = copies[order]
    places = None
    if model.known_bags is not None:
        places = _bags_of_rows(model.known_bags, source, _bag_columns(model, source, key))[order]
    inputs, found_there = encode_rows(source, model.columns, order, len(codes), progress)
    if surprises is not None:
        surprises.update(found_there)
    group, G = codes[order], len(names)
    rows = sums_of_groups(copies, group, G)
    in_known = None
    if model.known_bags is not None and places is not None:
        in_known = sums_of_groups(copies * (places < len(model.known_bags.names)), group, G)
    bags = found.targets.bags if found is not None and found.groupings is None else None
    of_groups = group_shares(model, inputs, bags, places, group, G, copies)
    shares, ends = of_groups.shares, of_groups.ends
    bounds = None if found is None else share_bounds(found, codes, G)
    if bounds is not None:
        shares, *ends = (np.clip(x, bounds[..., 0], bounds[..., 1]) for x in (shares, *ends))
    robust, strongest, untold = None, {}, np.zeros(G, dtype=np.bool_)
    if known is not None and of_groups.contrasts is not None and G > 1:
        X = inputs.astype(np.float64)
        robust = robustness_of(shares, of_groups.contrasts, rows, bounds, known.n_bags)
        strongest = strongest_columns(known, model.columns, by, X, group, rows, copies)
        if found is None:
            untold = hardly_told(known, X, group, rows, copies)
    misfits, approximate = of_groups.misfits, of_groups.approximate
    wrong = np.zeros(shares.shape, dtype=np.bool_)
    if misfits is not None:
        wrong = contradicted(misfits, rows)
        if bounds is not None:
            wrong &= bounds[..., 0] < bounds[..., 1]
    return [
        GroupShare(
            group=names[g],
            label=label,
            rows=int(rows[g]),
            share=float(shares[g, c]),
            interval=(float(ends[0][g, c]), float(ends[1][g, c])) if ends else None,
            bounds=None if bounds is None else (float(bounds[g, c, 0]), float(bounds[g, c, 1])),
            robustness=None if robust is None else float(robust[g, c]),
            strongest=strongest.get((g, c)),
            hardly_told=bool(untold[g]),
            misfit=None if misfits is None else float(misfits[g, c]),
            is_contradicted=bool(wrong[g, c]),
            of_known_bags=None if in_known is None else int(in_known[g]),
            approximate=None if approximate is None else int(approximate[g]),
        )
        for g in np.flatnonzero(rows).tolist()
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


def _bags_of_rows(known: KnownBags, source: RowSource, names: Sequence[str]) -> IntArray:
    """(N,) the number of each row's bag: that of a known one, and beyond of new ones, each with a
    number of its own. A row without a bag is alone in a new one.
    """
    numbers: dict[str, int] = {}
    parts, after = [], len(known.names)
    for batch in source.batches(list(names)):
        ids = bag_ids(batch, names)
        places, encoded = known.places(ids), ids.dictionary_encode()
        new = np.array(
            [numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()],
            dtype=np.int64,
        )
        local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        part = np.where(places < after, places, after + np.append(new, -1)[local])
        parts.append(np.where(local < 0, -1, part))
    places = np.concatenate(parts)
    alone = np.flatnonzero(places < 0)
    places[alone] = after + len(numbers) + np.arange(len(alone))
    return places
