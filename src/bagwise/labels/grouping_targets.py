"""Several groupings of the same rows, in the forms people have them, into `Groupings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, Groupings, IntArray
from bagwise.bags.arrays import first
from bagwise.errors import InputError
from bagwise.labels.label_spec import LabelsAre
from bagwise.labels.proportions import Proportions
from bagwise.labels.targets import BagTargets, bag_targets, label_codes, missing


def frequencies(sample_weight: npt.ArrayLike | None, n_rows: int) -> IntArray | None:
    """(N,) how many identical rows each row stands for, 0 or more; None if each stands for itself.

    >>> frequencies([1, 3], 2)
    array([1, 3])
    """
    if sample_weight is None:
        return None
    found = np.asarray(sample_weight, dtype=np.float64)
    if found.ndim == 0:
        found = np.full(n_rows, float(found))
    if found.shape != (n_rows,):
        raise InputError(
            f"sample_weight has shape {found.shape}; one number for each of the {n_rows} rows is "
            "expected."
        )
    if (bad := first(~((found >= 0) & (found == np.rint(found)) & (found < 2**53)))) is not None:
        raise InputError(
            f"sample_weight[{bad}] is {found[bad]:g}; it must be a whole number, how many identical"
            " rows the row stands for. Survey weights are not supported: the row was counted once."
        )
    if not found.any():
        raise InputError("every sample_weight is zero; at least one row must be there.")
    return None if (found == 1).all() else found.astype(np.int64)


def are_groupings(bags: Any, proportions: Any) -> bool:
    """Whether these are of several groupings: mappings by name, or lists of arrays.

    >>> are_groupings([["a", "b"], [0, 1]], [{}, {}]), are_groupings(["a", "b"], {})
    (True, False)
    """
    return _are_parts(bags) and _are_parts(proportions)


def _are_parts(given: Any) -> bool:
    """Whether this is a mapping, or a list of something that is not a single number or text."""
    if isinstance(given, list | tuple) and len(given):
        return hasattr(given[0], "__len__") and not isinstance(given[0], str | bytes)
    return isinstance(given, Mapping)


def grouping_targets(
    bags: Any,
    proportions: Any,
    classes: npt.ArrayLike | None = None,
    labels_are: Any = "auto",
    row_labels: npt.ArrayLike | None = None,
    weights: IntArray | None = None,
) -> tuple[Groupings, npt.NDArray[Any]]:
    """Match the rows' bag ids in each grouping with what is known of its bags.

    Args:
        bags: (N,) bag ids for each grouping, in a list or by name; None or NaN for rows that are in
            no bag of it, or -1 where no bag has that id.
        proportions: what is known of the bags of each grouping, in a list or by name; see
            `bagwise.labels.targets.bag_targets`.
        classes: the classes to expect, where a model already knows them.
        labels_are: what the numbers are, for all groupings or, in a list or by name, for each.
        row_labels: (N,) labels of rows that are known, None or NaN for the others.
        weights: (N,) how many identical rows each stands for; None if each stands for itself.

    Returns:
        The groupings and the (C,) class labels.

    >>> ward, age = ["a", "a", "b", "b"], ["old", "young", "old", None]
    >>> by_ward = {"a": {"no": 1, "yes": 1}, "b": {"no": 2}}
    >>> grouping_targets([ward, age], [by_ward, {"old": {"no": 2}, "young": {"yes": 1}}])
    (Groupings(4 rows, 2 classes, '0' 2 bags, '1' 2 bags), array(['no', 'yes'], dtype='<U3'))
    """
    ids = {name: np.asarray(given) for name, given in by_name(bags).items()}
    known = _matching(proportions, ids, "proportions")
    ids = {name: _none_for_minus_one(given, known[name]) for name, given in ids.items()}
    kinds = dict.fromkeys(ids, labels_are)
    if isinstance(labels_are, Mapping | list | tuple):
        kinds = _matching(labels_are, ids, "labels_are")
    lengths = {name: len(np.atleast_1d(given)) for name, given in ids.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the groupings have different numbers of rows: {lengths}.")
    read = {
        name: _read(name, ids[name], known[name], classes, kinds[name], weights) for name in ids
    }
    found = [own.classes for own in read.values()]
    every = found[0]
    if any(own.tolist() != every.tolist() for own in found):
        every = np.unique(np.concatenate(found))
        read = {n: _read(n, ids[n], known[n], every, kinds[n], weights) for n in ids}
    n_rows = next(iter(lengths.values()))
    of_row = {name: np.full(n_rows, -1) for name in ids}
    for name, own in read.items():
        of_row[name][np.flatnonzero(~missing(ids[name]))[own.order]] = own.bags.bag_of_row
    if row_labels is None:
        return Groupings({n: (of_row[n], own.bags) for n, own in read.items()}), every
    codes = label_codes(np.asarray(row_labels), every, n_rows)
    parts = {
        n: (of_row[n], own.bags.with_labels(codes[np.flatnonzero(~missing(ids[n]))[own.order]]))
        for n, own in read.items()
    }
    alone = np.flatnonzero((np.stack(list(of_row.values())) < 0).all(axis=0) & (codes >= 0))
    if len(alone):
        number = np.full(n_rows, -1)
        number[alone] = np.arange(len(alone))
        ones, own_weights = np.ones(len(alone), int), None if weights is None else weights[alone]
        single = Bags.from_labels(codes[alone], ones, n_classes=len(every), weights=own_weights)
        parts["labels"] = (number, single)
    return Groupings(parts), every


def _none_for_minus_one(ids: npt.NDArray[Any], proportions: Any) -> npt.NDArray[Any]:
    """Bag ids with None for -1, unless that is a bag that something is known of."""
    if ids.dtype.kind != "i" or (ids != -1).all():
        return ids
    known = proportions.index if hasattr(proportions, "iloc") else proportions
    if (isinstance(known, Mapping) or known is not proportions) and -1 in known:
        return ids
    found = ids.astype(object)
    found[ids == -1] = None
    return found


def _read(
    name: str,
    ids: npt.NDArray[Any],
    proportions: Proportions,
    classes: npt.ArrayLike | None,
    labels_are: LabelsAre,
    weights: IntArray | None,
) -> BagTargets:
    """The rows that are in a bag of a grouping, and what is known of the bags."""
    there = ~missing(ids) if ids.ndim == 1 else slice(None)
    own_weights = None if weights is None else weights[there]
    try:
        return bag_targets(ids[there], proportions, classes, labels_are, None, own_weights)
    except InputError as error:
        raise InputError(f"grouping {name!r}: {error}") from None


def by_name(given: Any) -> dict[str, Any]:
    """What is given for each grouping, by its name or, in a list, by its place."""
    if isinstance(given, Mapping):
        return {str(name): one for name, one in given.items()}
    return {str(place): one for place, one in enumerate(given)}


def _matching(given: Any, ids: dict[str, Any], what: str) -> dict[str, Any]:
    """By name, what belongs to each grouping."""
    found = by_name(given) if isinstance(given, Mapping | list | tuple) else {}
    if list(ids) == [str(place) for place in range(len(ids))] and isinstance(given, Mapping):
        found = {}  # a mapping by bag, not by grouping
    if not isinstance(given, Mapping) and len(found) == len(ids):
        found = dict(zip(ids, found.values(), strict=True))
    if set(found) != set(ids):
        raise InputError(
            f"bags has the groupings {list(ids)}, and {what} is not a list of {len(ids)} or "
            f"mapping with these names; give {what} for each grouping, in the same form as bags."
        )
    return found
