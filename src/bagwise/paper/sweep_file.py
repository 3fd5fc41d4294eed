"""Sweeps as TOML files: which runs there are, and how learning rates are searched."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from bagwise.checks import anything, list_of, record, shown, text, whole, wrong
from bagwise.errors import InputError, warn_user
from bagwise.methods import METHODS, takes
from bagwise.paper.settings import RunSettings

_AXES = {
    "datasets": "dataset",
    "models": "model",
    "methods": "method",
    "bag_sizes": "bag_size",
    "seeds": "seed",
    "lrs": "lr",
}
_SINGLE = tuple(
    field.name
    for field in fields(RunSettings)
    if field.name not in (*_AXES.values(), "method_options")
)
_SELECT = ("accuracy", "bag_loss")


_PILOT = record(
    {},
    {
        "epochs": whole(1),
        "stages": list_of(whole(1), 1),
        "seeds": list_of(whole(0, 2**62), 1),
        "keep": whole(1),
    },
)
_OVERRIDES = list_of(record({}, others=anything))


@dataclass(frozen=True)
class Pilot:
    """Short runs that sort out learning rates, by successive halving.

    All rates of a cell (data set, model, method, bag size, ...) are run for the epochs of the first
    stage, the better half of them for those of the second, and so on; the best after the last stage
    are run in full.

    Attributes:
        stages: epochs of a pilot run at each stage, growing.
        keep: how many learning rates of a cell are run in full.
    """

    stages: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)
    keep: int = 1

    @classmethod
    def from_dict(cls, content: Any) -> Pilot:
        """From the table `[pilot]`; `epochs = 3` is one stage."""
        _PILOT(content, "[pilot]")
        if ("epochs" in content) == ("stages" in content):
            raise InputError("[pilot] needs epochs = 3 for one stage, or stages = [3, 9] for two.")
        stages = content.get("stages", [content.get("epochs")])
        if stages != sorted(set(stages)):
            raise InputError(f"[pilot].stages is {stages}; the later a stage, the longer its runs.")
        return cls(tuple(stages), tuple(content.get("seeds", (0,))), content.get("keep", 1))


Rates = dict[RunSettings, list[float]]
"""The learning rates that are left in each cell."""


@dataclass(frozen=True)
class Sweep:
    """What a sweep file says.

    Attributes:
        runs: every run in full, all learning rates.
        pilot: the stages before the runs in full, or None.
        select: what validation chooses epochs and learning rates by.
    """

    runs: tuple[RunSettings, ...]
    pilot: Pilot | None
    select: str

    def rates(self) -> Rates:
        """All learning rates of each cell."""
        found: Rates = {}
        for run in self.runs:
            if run.lr not in found.setdefault(_cell(run), []):
                found[_cell(run)].append(run.lr)
        return found

    def pilot_runs(self, stage: int, rates: Rates) -> list[RunSettings]:
        """The runs of a stage: none of a cell where there is nothing left to choose from."""
        assert self.pilot is not None
        shortened = (
            replace(run, epochs=self.pilot.stages[stage], seed=seed)
            for run in self.runs
            if run.lr in rates[_cell(run)] and len(rates[_cell(run)]) > self.pilot.keep
            for seed in self.pilot.seeds
        )
        return list(dict.fromkeys(shortened))

    def possible_runs(self) -> set[RunSettings]:
        """All runs that there can be, pilots included, whatever these find."""
        stages = () if self.pilot is None else range(len(self.pilot.stages))
        pilots = (self.pilot_runs(stage, self.rates()) for stage in stages)
        return {*self.runs, *(run for runs in pilots for run in runs)}

    def surviving_rates(self, stage: int, rates: Rates, scores: dict[RunSettings, float]) -> Rates:
        """The rates that did best in a stage (scores: the higher the better).

        Half of them, rounded up; after the last stage `keep`. A rate whose pilot failed has no
        score and does not survive, unless all failed.
        """
        assert self.pilot is not None
        found: dict[RunSettings, dict[float, list[float]]] = {}
        for run, score in scores.items():
            found.setdefault(_cell(run), {}).setdefault(run.lr, []).append(score)
        last = stage == len(self.pilot.stages) - 1
        survivors = dict(rates)
        for cell, by_rate in found.items():
            means = {rate: sum(values) / len(values) for rate, values in by_rate.items()}
            left = self.pilot.keep if last else max(-(-len(rates[cell]) // 2), self.pilot.keep)
            survivors[cell] = sorted(means, key=lambda rate: -means[rate])[:left]
        return survivors

    def full_runs(self, rates: Rates) -> list[RunSettings]:
        """The runs in full of the rates that are left."""
        return [run for run in self.runs if run.lr in rates[_cell(run)]]


def _cell(run: RunSettings) -> RunSettings:
    """The run without what differs between the runs that a learning rate is chosen among."""
    return replace(run, lr=1.0, seed=0, epochs=1)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; mistakes are ValueErrors that name the file and the setting.

    ::

        datasets = ["digits"]
        models = ["mlp"]
        methods = ["cc", "dllp", "ot"]
        bag_sizes = [8, 32]
        seeds = [0, 1, 2]
        lrs = [1e-4, 1e-3, 1e-2]
        epochs = 30
        select = "accuracy"          # or "bag_loss"

        method.epsilon = [0.5, 1]    # options of methods: every value is tried

        [method_options]             # and fixed ones
        iterations = 50

        [optimizer_options]          # with optimizer = "adamw", for instance, above
        betas = [0.9, 0.99]

        [pilot]                      # without it every learning rate is run in full
        stages = [3, 9]              # all rates, then the better half; epochs = 3 is one stage

        [[override]]                 # where all conditions hold, other settings
        method = ["rc", "cc"]
        bag_size = [64, 128]
        engine = "bethe"
    """
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:  # it is not UTF-8, or no TOML
        raise InputError(f"{path}: {error}") from error
    try:
        return _parse(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _parse(content: dict[str, Any]) -> Sweep:
    known = {*_AXES, *_SINGLE, "select", "pilot", "override", "method_options", "method"}
    if unknown := sorted(content.keys() - known):
        raise InputError(
            f"unknown setting {shown(unknown[0])}; known are {', '.join(sorted(known))}."
        )
    axes = []
    for name in _AXES:
        values = content.get(name, [0] if name == "seeds" else None)
        if not isinstance(values, list) or not values:
            raise wrong(values, name, "a list of at least one value")
        axes.append(values)
    for method in content["methods"]:
        text(method, "method")
    if "epochs" not in content:
        raise InputError("epochs is missing; say how long to train.")
    common = {name: content[name] for name in _SINGLE if name in content}
    overrides = content.get("override", [])
    _OVERRIDES(overrides, "override")
    runs: dict[RunSettings, None] = {}
    methods: list[set[str]] = [set() for _ in overrides]  # those that each override is for
    for *values, options in itertools.product(*axes, _method_options(content)):
        settings = {**common, **dict(zip(_AXES.values(), values, strict=True))}
        for override, names in zip(overrides, methods, strict=True):
            changes = _applies(override, settings)
            if changes is None:
                continue
            names.add(settings["method"])
            options = options | changes.pop("method_options", {})
            settings.update(changes)
        # A sweep compares methods: each of them has those of the options that it knows.
        known_options = {k: v for k, v in options.items() if _has(settings["method"], k)}
        runs[RunSettings.from_dict(settings | {"method_options": known_options})] = None
    for override, names in zip(overrides, methods, strict=True):
        _refuse_idle(override, names)
    pilot = content.get("pilot")
    if pilot is not None:
        pilot = Pilot.from_dict(pilot)
    select = content.get("select", "accuracy")
    if select not in _SELECT:
        raise wrong(select, "select", f"one of {', '.join(_SELECT)}")
    sweep = Sweep(tuple(runs), pilot, select)
    if pilot is not None:
        _refuse_long_pilots(sweep, pilot)
    return sweep


def _refuse_long_pilots(sweep: Sweep, pilot: Pilot) -> None:
    """Pilots are shorter than the runs that they are for; a table would show them instead."""
    rates = sweep.rates()
    for run in sweep.runs:
        if pilot.stages[-1] > run.epochs and len(rates[_cell(run)]) > pilot.keep:
            raise InputError(
                f"[pilot] has a stage of {pilot.stages[-1]} epochs, and runs of {run.method} have "
                f"{run.epochs}; pilots are shorter than the runs that they are for."
            )


def _method_options(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the methods' options: fixed ones, and lists of values to try."""
    fixed, tried = content.get("method_options", {}), content.get("method", {})
    record({}, others=anything)(fixed, "[method_options]")
    record({}, others=list_of(anything, 1))(tried, "method")
    for name in [*fixed, *tried]:
        if not any(_has(method, name) for method in content["methods"]):
            raise InputError(
                f"no method of this sweep has the option {name!r}: {', '.join(content['methods'])}."
            )
    return [
        fixed | dict(zip(tried, values, strict=True))
        for values in itertools.product(*tried.values())
    ]


def _has(method: Any, option: str) -> bool:
    return method in METHODS and takes(method, option)


def _refuse_idle(override: dict[str, Any], methods: set[str]) -> None:
    """Refuse settings that none of its methods has: `methods` are those of the runs it is for.

    One that is for no run is noted: lists may be shortened for a while.
    """
    if not methods:
        warn_user(
            f"[[override]] {_conditions(override)} is for no run of this sweep; its conditions are "
            "values of the lists above, numbers without quotation marks."
        )
        return
    wanted = [*override.get("method_options", {}), *(["engine"] if "engine" in override else [])]
    for name in wanted:
        if not any(_has(method, name) for method in methods):
            raise InputError(
                f"[[override]] {_conditions(override)} sets {name!r}, which is not an option of "
                f"{', '.join(sorted(methods))}."
            )


def _conditions(override: dict[str, Any]) -> str:
    names = [name for name in _AXES.values() if name in override and name != "lr"]
    return ", ".join(f"{name} = {override[name]!r}" for name in names) or "without a condition"


def _applies(override: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any] | None:
    """The settings an override changes, if all its conditions hold; else None."""
    conditions = set(_AXES.values()) - {"lr"}
    changes = {name: value for name, value in override.items() if name not in conditions}
    if unknown := sorted(changes.keys() - {*_SINGLE, "lr", "method_options"}):
        raise InputError(f"[[override]] cannot set {', '.join(unknown)}.")
    record({}, others=anything)(changes.get("method_options", {}), "[[override]].method_options")
    for name in conditions & override.keys():
        wanted = override[name] if isinstance(override[name], list) else [override[name]]
        if settings[name] not in wanted:
            return None
    return changes
