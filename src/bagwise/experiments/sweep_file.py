"""Sweeps as TOML files: which runs there are, and how learning rates are searched."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bagwise.experiments.settings import RunSettings
from bagwise.methods import METHODS, takes
from bagwise.storage.schema import anything, list_of, record, whole, wrong

_AXES = {
    "datasets": "dataset",
    "models": "model",
    "methods": "method",
    "bag_sizes": "bag_size",
    "seeds": "seed",
    "lrs": "lr",
}
_SINGLE = (
    "epochs",
    "engine",
    "schedule",
    "schedule_options",
    "optimizer",
    "optimizer_options",
    "average",
    "clip",
    "batch_instances",
    "weight_decay",
)
_SELECT = ("accuracy", "bag_loss")


_PILOT = record(
    {"epochs": whole(1)}, {"seeds": list_of(whole(-(2**62), 2**62), 1), "keep": whole(1)}
)
_OVERRIDES = list_of(record({}, others=anything))


@dataclass(frozen=True)
class Pilot:
    """A short first stage that sorts out learning rates.

    Attributes:
        epochs: of a pilot run.
        seeds: of the pilot runs.
        keep: how many learning rates of each dataset, model, method and bag size go on.
    """

    epochs: int
    seeds: tuple[int, ...] = (0,)
    keep: int = 1

    def __post_init__(self) -> None:
        _PILOT({**asdict(self), "seeds": list(self.seeds)}, "pilot")


@dataclass(frozen=True)
class Sweep:
    """What a sweep file says.

    Attributes:
        runs: every run in full, all learning rates.
        pilot: the first stage, or None.
        select: what validation chooses epochs and learning rates by.
    """

    runs: tuple[RunSettings, ...]
    pilot: Pilot | None
    select: str

    def pilot_runs(self) -> list[RunSettings]:
        """The runs of the first stage: none where there is nothing to choose from."""
        if self.pilot is None:
            return []
        rates: dict[RunSettings, set[float]] = {}
        for run in self.runs:
            rates.setdefault(_cell(run), set()).add(run.lr)
        shortened = (
            replace(run, epochs=self.pilot.epochs, seed=seed)
            for run in self.runs
            if len(rates[_cell(run)]) > self.pilot.keep
            for seed in self.pilot.seeds
        )
        return list(dict.fromkeys(shortened))

    def surviving_runs(self, scores: dict[RunSettings, float]) -> list[RunSettings]:
        """The full runs whose learning rate did best in the pilot (scores: the higher the better).

        A rate whose pilot failed has no score and does not survive, unless all failed.
        """
        if self.pilot is None:
            return list(self.runs)
        found: dict[RunSettings, dict[float, list[float]]] = {}
        for run, score in scores.items():
            found.setdefault(_cell(run), {}).setdefault(run.lr, []).append(score)
        survivors: dict[RunSettings, list[float]] = {}
        for cell, by_rate in found.items():
            means = {rate: sum(values) / len(values) for rate, values in by_rate.items()}
            survivors[cell] = sorted(means, key=lambda rate: -means[rate])[: self.pilot.keep]
        return [run for run in self.runs if run.lr in survivors.get(_cell(run), [run.lr])]


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
        epochs = 3

        [[override]]                 # where all conditions hold, other settings
        method = ["rc", "cc"]
        bag_size = [64, 128]
        engine = "bethe"
    """
    try:
        return _parse(tomllib.loads(path.read_bytes().decode()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _parse(content: dict[str, Any]) -> Sweep:
    known = {*_AXES, *_SINGLE, "select", "pilot", "override", "method_options", "method"}
    if unknown := sorted(content.keys() - known):
        raise ValueError(
            f"unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}."
        )
    axes = []
    for name in _AXES:
        values = content.get(name, [0] if name == "seeds" else None)
        if not isinstance(values, list) or not values:
            raise wrong(values, name, "a list of at least one value")
        axes.append(values)
    if "epochs" not in content:
        raise ValueError("epochs is missing; say how long to train.")
    common = {name: content[name] for name in _SINGLE if name in content}
    overrides = content.get("override", [])
    _OVERRIDES(overrides, "override")
    runs: dict[RunSettings, None] = {}
    for *values, options in itertools.product(*axes, _method_options(content)):
        settings = {**common, **dict(zip(_AXES.values(), values, strict=True))}
        for override in overrides:
            settings.update(_applies(override, settings))
        # A sweep compares methods: each of them has those of the options that it knows.
        known_options = {k: v for k, v in options.items() if _has(settings["method"], k)}
        runs[RunSettings.from_dict(settings | {"method_options": known_options})] = None
    pilot = content.get("pilot")
    if pilot is not None:
        _PILOT(pilot, "[pilot]")
        pilot = Pilot(**{**pilot, "seeds": tuple(pilot.get("seeds", (0,)))})
    select = content.get("select", "accuracy")
    if select not in _SELECT:
        raise wrong(select, "select", f"one of {', '.join(_SELECT)}")
    return Sweep(tuple(runs), pilot, select)


def _method_options(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the methods' options: fixed ones, and lists of values to try."""
    fixed, tried = content.get("method_options", {}), content.get("method", {})
    record({}, others=anything)(fixed, "[method_options]")
    record({}, others=list_of(anything, 1))(tried, "method")
    for name in [*fixed, *tried]:
        if not any(_has(method, name) for method in content["methods"]):
            raise ValueError(
                f"no method of this sweep has the option {name!r}: {', '.join(content['methods'])}."
            )
    return [
        fixed | dict(zip(tried, values, strict=True))
        for values in itertools.product(*tried.values())
    ]


def _has(method: Any, option: str) -> bool:
    return method in METHODS and takes(method, option)


def _applies(override: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings an override changes, if all its conditions hold; else none."""
    conditions = set(_AXES.values()) - {"lr"}
    changes = {name: value for name, value in override.items() if name not in conditions}
    if unknown := sorted(changes.keys() - {*_SINGLE, "lr"}):
        raise ValueError(f"[[override]] cannot set {', '.join(unknown)}.")
    for name in conditions & override.keys():
        wanted = override[name] if isinstance(override[name], list) else [override[name]]
        if settings[name] not in wanted:
            return {}
    return changes
