"""Counts of groups and of votes in units, from arrays or frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.bags import FloatArray
from bagwise.bags.arrays import first
from bagwise.errors import InputError, InputTypeError

_OFF = 1e-6  # share of a unit's people that is taken for rounding


@dataclass(frozen=True)
class UnitCounts:
    """What is known of units.

    Attributes:
        groups: (B, R) people of each group.
        votes: (B, C) of each party, with the same sums.
        units: (B,) names of the units.
        group_names: of the R groups.
        party_names: of the C parties.
    """

    groups: FloatArray
    votes: FloatArray
    units: list[Any]
    group_names: list[str]
    party_names: list[str]


def read_counts(groups: Any, votes: Any, unit: str | None) -> UnitCounts:
    """Groups and votes of the same units, checked."""
    group_names, n, of_groups = _table(groups, "groups", unit)
    party_names, m, of_votes = _table(votes, "votes", unit)
    if of_groups is not None and of_votes is not None:
        places = {name: place for place, name in enumerate(of_votes)}
        for mine, others, what in ((of_groups, places, "votes"), (of_votes, of_groups, "groups")):
            known = set(others)
            if (lost := next((name for name in mine if name not in known), None)) is not None:
                raise InputError(
                    f"unit {lost!r} is not in {what}; give both tables the same units."
                )
        m = m[[places[name] for name in of_groups]]
    if len(n) != len(m):
        raise InputError(
            f"groups has {len(n)} units and votes {len(m)}; give both tables the same units."
        )
    units = of_groups or list(range(len(n)))
    if len(n) < 2 or n.shape[1] < 1 or m.shape[1] < 2:
        raise InputError(
            f"there are {len(n)} units, {n.shape[1]} groups and {m.shape[1]} parties; at least 2 "
            "units, 1 group and 2 parties are needed."
        )
    if (bad := first(np.abs(n.sum(1) - m.sum(1)) > _OFF * (1 + n.sum(1)))) is not None:
        raise InputError(
            f"unit {units[bad]!r} has {n[bad].sum():g} people in groups and {m[bad].sum():g} votes;"
            " both must be the same. Give those who did not vote a column of their own."
        )
    if (empty := first(n.sum(axis=0) == 0)) is not None:
        raise InputError(f"group {group_names[empty]!r} has no people; leave it out.")
    return UnitCounts(n, m, units, group_names, party_names)


def looks_like_a_frame(given: Any) -> bool:
    """Whether this has columns with names."""
    return hasattr(given, "columns") or hasattr(given, "__arrow_c_stream__")


def _table(
    given: Any, what: str, unit: str | None
) -> tuple[list[str], FloatArray, list[Any] | None]:
    """Names of the columns, numbers (B, columns), and names of the units if there are any."""
    if looks_like_a_frame(given):
        from bagwise.tables.read.frames import to_arrow  # needs pyarrow

        table = to_arrow(given, what, () if unit is None else (unit,))
        names = [name for name in table.column_names if name != unit]
        if unit is not None and unit not in table.column_names:
            raise InputError(
                f"{what} has no column {unit!r}, which names the units; its columns are "
                f"{table.column_names}."
            )
        units = None if unit is None else table.column(unit).to_pylist()
        if units is not None and len(set(units)) < len(units):
            twice = next(name for place, name in enumerate(units) if name in units[:place])
            raise InputError(f"{what} has more than one row for unit {twice!r}; one is expected.")
        columns = [_numbers(table.column(name).to_numpy(), what, name) for name in names]
        return names, np.stack(columns, axis=1), units
    if unit is not None:
        raise InputTypeError(f"{what} is not a frame and has no column {unit!r}; leave unit out.")
    array = np.asarray(given)
    if array.ndim != 2:
        raise InputError(
            f"{what} has shape {array.shape}; a row for each unit and a column for each "
            f"{what.rstrip('s')} are expected."
        )
    names = [str(place) for place in range(array.shape[1])]
    columns = [_numbers(array[:, place], what, name) for place, name in enumerate(names)]
    return names, np.stack(columns, axis=1) if columns else np.zeros(array.shape), None


def _numbers(column: npt.NDArray[Any], what: str, name: str) -> FloatArray:
    try:
        found: FloatArray = column.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"column {name!r} of {what} does not hold numbers; if it names the units, say unit="
            f"{name!r}."
        ) from None
    if (bad := first(~((found >= 0) & np.isfinite(found)))) is not None:
        raise InputError(
            f"column {name!r} of {what} has {found[bad]:g} in row {bad}; counts of 0 or more are "
            "expected."
        )
    return found
