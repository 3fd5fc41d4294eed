"""Training options are declared once; all that has them agrees with the declaration."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from bagwise import LLPClassifier, TrainingOptions
from bagwise.cli.paper_commands import train
from bagwise.errors import InputError
from bagwise.estimator.parameters import STEP_BY_STEP
from bagwise.paper.settings import LATER, PAIRS, TRAINING, RunSettings
from bagwise.paper.sweep_file import read_sweep
from bagwise.training_options import OPTIMIZERS, OPTIONS, SCHEDULES

ROOT = Path(__file__).parent.parent
DEFAULTS = TrainingOptions()
RUN = RunSettings("digits", "linear", "cc", 8, 1e-2, 2, 0)
ON_THE_COMMAND_LINE = {
    "optimizer_options": "optimizer_set",
    "schedule_options": "schedule_set",
    "method_options": "set_",
}


def test_the_classifier_has_the_declared_parameters() -> None:
    parameters = inspect.signature(LLPClassifier).parameters
    own = {"method", "model", "engine", "validation_fraction", "standardize", "device"}
    own |= {"random_state", "verbose", "joint", "method_options"}
    assert [name for name in parameters if name not in own] == list(STEP_BY_STEP)
    assert all(parameters[name].default is None for name in STEP_BY_STEP)
    assert "clip" not in STEP_BY_STEP


def test_runs_have_the_declared_settings_with_the_same_defaults() -> None:
    own = {"dataset", "model", "method", "bag_size", "engine", "method_options"}
    settings = {field.name: field for field in fields(RunSettings) if field.name not in own}
    assert settings.keys() == set(TRAINING)
    for name in settings.keys() - {"lr", "epochs", "seed"}:  # which a run is always given
        default = () if name in PAIRS else getattr(DEFAULTS, name)
        assert settings[name].default == default
    given = RUN.options()
    same = replace(DEFAULTS, lr=given.lr, epochs=given.epochs, seed=given.seed)
    assert given == same


def test_the_command_line_has_all_settings_with_the_declared_defaults_and_help() -> None:
    parameters = inspect.signature(train, eval_str=True).parameters
    for field in fields(RunSettings):
        parameter = parameters[ON_THE_COMMAND_LINE.get(field.name, field.name)]
        if field.name in TRAINING:
            (about,) = parameter.annotation.__metadata__
            assert about.help == OPTIONS[field.name].help
            default = None if field.name in PAIRS else getattr(DEFAULTS, field.name)
            assert parameter.default == default


@pytest.mark.parametrize("name", sorted({*TRAINING} - {"lr", "seed"}))
def test_a_sweep_file_sets_every_setting(name: str, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "epochs": "7",
        "weight_decay": "0.5",
        "batch_instances": "64",
        "schedule": '"cosine"',
        "average": "0.5",
        "clip": "2.0",
        "optimizer": '"adamw"',
        "optimizer_options": "{eps = 0.5}",
        "schedule_options": '{gamma = 0.5}\nschedule = "exponential"',
        "augment": '"weak"',
        "drop_last": "true",
        "precision": '"bf16"',
        "accumulate_batches": "4",
        "compile": "true",
    }
    epochs = "" if name == "epochs" else "epochs = 3"
    path = tmp_path / "sweep.toml"
    path.write_text(
        'datasets = ["digits"]\nmodels = ["linear"]\nmethods = ["cc"]\nbag_sizes = [8]\n'
        f"lrs = [0.1]\n{epochs}\n{name} = {values[name]}\n"
    )
    (run,) = read_sweep(path).runs
    assert getattr(run, name) != getattr(RUN, name)
    assert getattr(run.options(), name) != getattr(DEFAULTS, name)


def test_a_run_refuses_functions_which_no_file_can_hold() -> None:
    for name in ("schedule", "optimizer", "augment"):
        with pytest.raises(InputError, match=f"{name} is .*; a short text on one line"):
            replace(RUN, **{name: len})


def test_settings_that_came_later_do_not_rename_runs() -> None:
    first = [field.name for field in fields(RunSettings) if field.name not in LATER]
    assert first == [
        *("dataset", "model", "method", "bag_size", "lr", "epochs", "seed", "engine"),
        *("schedule", "average", "batch_instances", "weight_decay"),
    ]
    assert RUN.name == "digits-linear-cc-K8-lr0.01-e2-s0-3b90f646"
    other = RunSettings(
        *("digits", "linear", "two_views", 8, 1, 2, 0),
        schedule="step",
        weight_decay=0,
        method_options={"start": 2},  # type: ignore[arg-type]
        optimizer_options={"betas": [0.5, 0.6]},  # type: ignore[arg-type]
        schedule_options={"step_size": 2},  # type: ignore[arg-type]
        clip=3,
        augment="weak",
    )
    assert other.name == "digits-linear-two_views-K8-lr1-e2-s0-48ef32ab"


def test_optimizers_and_schedules_are_pytorchs() -> None:
    for name in OPTIMIZERS.values():
        assert issubclass(getattr(torch.optim, name), torch.optim.Optimizer)
    for name in SCHEDULES.values():
        assert issubclass(getattr(lr_scheduler, name), lr_scheduler.LRScheduler)


def test_the_documents_name_all_of_them() -> None:
    sweeps, estimator = (
        (ROOT / "docs" / f"{page}.md").read_text() for page in ("sweeps", "understand/classifier")
    )
    assert not [name for name in TRAINING if name not in sweeps]
    assert not [name for name in STEP_BY_STEP if f"`{name}`" not in estimator]
    about = inspect.getdoc(TrainingOptions)
    assert about
    assert not [name for name in OPTIONS if f"\n    {name}: " not in about]
