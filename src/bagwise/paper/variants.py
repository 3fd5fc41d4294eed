"""In which settings the runs of a table differ, and what its rows are called for that."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from bagwise.paper.settings import PAIRS, RunSettings

_ELSEWHERE = ("dataset", "model", "method", "bag_size", "lr", "seed", "epochs")
"""The table itself, its rows and columns, and what is chosen or averaged within a cell."""


def row_names(runs: list[RunSettings]) -> dict[RunSettings, str]:
    """The row of each run of one data set and model: its method, and which settings set it apart.

    A setting is named where the runs differ in it and a run does not have its default. The engine
    is chosen by bag size, so that it makes rows of its own only where a method was run with several
    engines on bags of one size.

    >>> from dataclasses import replace
    >>> run = RunSettings("digits", "linear", "cc", 16, 1e-3, 30, 0)
    >>> runs = [run, replace(run, schedule="one_cycle"), replace(run, average=0.99)]
    >>> list(row_names(runs).values())
    ['cc', 'cc, one_cycle', 'cc, average 0.99']
    """
    differing = [
        field
        for field in fields(RunSettings)
        if field.name not in (*_ELSEWHERE, "engine")
        and len({getattr(run, field.name) for run in runs}) > 1
    ]
    engine = next(field for field in fields(RunSettings) if field.name == "engine")
    cells: dict[tuple[Any, ...], set[str]] = {}
    for run in runs:
        others = [getattr(run, field.name) for field in differing]
        cells.setdefault((run.method, run.bag_size, *others), set()).add(run.engine)
    several = {method for (method, *_), engines in cells.items() if len(engines) > 1}
    return {
        run: ", ".join(
            [run.method]
            + [_named(field, run) for field in differing if _set(field, run)]
            + [run.engine for _ in [0] if run.method in several and _set(engine, run)]
        )
        for run in runs
    }


def _set(field: Field[Any], run: RunSettings) -> bool:
    return field.default is MISSING or getattr(run, field.name) != field.default


def _named(field: Field[Any], run: RunSettings) -> str:
    value = getattr(run, field.name)
    if field.name in PAIRS:
        return ", ".join(f"{name} {option}" for name, option in value)
    if value is None or value is False:
        return f"no {field.name}"
    if value is True:
        return field.name
    return value if isinstance(value, str) else f"{field.name} {value}"
