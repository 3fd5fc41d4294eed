"""From a table and a label file to a model, without tuning and without instance labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bagwise
from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import whole
from bagwise.errors import InputError, Option, UsageError
from bagwise.labels.label_spec import LabelsAre
from bagwise.likelihood.splits import Split, splits_of
from bagwise.likelihood.temperature import fit_temperature, tempered
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import bytes_of
from bagwise.progress import WorkProgress
from bagwise.storage.array_files import Arrays
from bagwise.storage.journal import Workspace, alone
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.assess.baseline import overall_shares
from bagwise.tables.assess.data_facts import data_facts
from bagwise.tables.assess.held_out import assess, held_out_table, of_label_file
from bagwise.tables.assess.surprising import all_log_probs, surprising_in_pieces
from bagwise.tables.encode.columns import Inputs
from bagwise.tables.encode.learn_columns import Ordered, ordered_of
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.model.fit_facts import CurvePoint, FitFacts, FitSettings
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.model.network_room import REMEDY, network_room, there_is_torch
from bagwise.tables.model.stored_covariance import fit_of, intervals_of
from bagwise.tables.read.paths import columns_of
from bagwise.tables.read.source import Table
from bagwise.tables.search import linear_candidates as linear
from bagwise.tables.search.candidate import Trial, choose
from bagwise.tables.search.linear_in_pieces import (
    fits_in_pieces,
    intervals_in_pieces,
    trials_in_pieces,
)
from bagwise.tables.search.step_by_step import StepByStep, Trained
from bagwise.tables.sort.encoded_bags import EncodedBags
from bagwise.tables.sort.sorted_table import refuse_what_needs_memory
from bagwise.tables.sort.store import Store, remove_store
from bagwise.tables.sort.table_rows import Asked, rows_in_memory, rows_in_store

MODELS = ("linear", "mlp")
FEWEST_BAGS = 10  # of which it can be told whether another than a linear model is better
_SEED = whole(0, 2**32 - 1)


@alone
def fit_table(
    data: Table,
    bag: str | Iterable[str],
    labels: Table,
    *,
    features: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    ordered: str | Iterable[str] | Ordered | None = None,
    classes: str | Iterable[str] | None = None,
    labels_are: LabelsAre = "auto",
    row_labels: str | None = None,
    skip_unmatched: bool = False,
    method: str = "cc",
    engine: str = "auto",
    method_options: Mapping[str, Any] | None = None,
    model: str = "auto",
    lr: float | None = None,
    epochs: int | None = None,
    bag_effects: bool = False,
    seed: int = 0,
    command: str = "",
    out: Path | None = None,
    memory: str | int | None = None,
    store: Path | None = None,
    progress: bool = False,
    ray: AbstractContextManager[object] | None = None,
    limits: Limits = LIMITS,
) -> FittedTable:
    """Fit a model to a table with bags; what is not given is chosen on held-out bags.

    The linear model is fitted by maximum likelihood, its ridge chosen on held-out bags, unless
    another method, a learning rate or a number of epochs is given; of more than 20 million cells in
    passes over the rows, or by gradient descent, without intervals, if bags are too large for that.
    Up to 50,000 rows the bags are held out in five parts in turn, and the model is then fitted to
    all of them; beyond, a tenth of the bags is held out throughout.

    Args:
        data: see `bagwise.read_bags`, also for the next eight.
        bag: the bag's columns.
        labels: the label file.
        features: the columns to learn from.
        exclude: columns not to learn from.
        categorical: columns of numbers that are categories.
        ordered: columns of ordered categories.
        classes: class columns of the label file.
        labels_are: what the numbers in the label file are.
        row_labels: a column with labels of some rows, empty where they are not known. A labelled
            row without a bag is a bag of its own. They are no feature.
        skip_unmatched: leave out bags that only one of the files has.
        method: one of Bagwise's methods, supervised excepted.
        engine: how rc and cc compute posteriors.
        method_options: other options of the method.
        model: "linear", "mlp", or "auto", the better one.
        lr: learning rate.
        epochs: passes over the bags.
        bag_effects: fit a linear model with an intercept of each bag, whose variance is fitted too,
            see `bagwise.likelihood.choose_bag_effects`.
        seed: of everything random.
        command: how this was called, for the report.
        out: where the model is saved. Beside it, a hidden folder keeps all work that is done until
            then: a fit that was stopped, however, goes on from there. Without `out` nothing is
            written.
        memory: how much memory may be used for the table, "2GB" for one: its rows are then sorted
            by bag into a file, a few at a time, and learnt from there. What Bagwise itself takes,
            and what is known of the bags, comes on top.
        store: the folder for that file, which is kept for another fit to the same table; if not
            given, a hidden one beside `out`, which is removed when the model has been saved.
        progress: show progress bars, on a terminal, and say where rows are sorted into.
        ray: within it there is Ray, see `bagwise.ray_cluster.cluster`, and the candidates
            that are trained step by step are, several at a time, there. The result is the same.
        limits: sizes that decide how the table is read and fitted.
    """
    started = time.perf_counter()
    _check_model(model)
    _SEED(seed, "seed")
    steps = StepByStep(method, engine, dict(method_options or {}), lr, epochs, seed)
    room = None
    if steps.is_asked_for:
        room = network_room("training step by step")
        room.is_likelihood(steps)  # contradictions are named before the work
    elif model == "mlp":
        room = network_room("a perceptron")
    key, categories, levels = columns_of(bag), columns_of(categorical), ordered_of(ordered)
    budget = None if memory is None else bytes_of(memory)
    if budget is not None:
        refuse_what_needs_memory(method, row_labels, ray is not None)
    elif store is not None:
        raise InputError(
            Option("store"), " is for rows beyond memory; give ", Option("memory"), ", too."
        )
    known = read_labels(labels, key, columns_of(classes) or None, labels_are=labels_are)
    asked = Asked(
        key=key,
        features=columns_of(features),
        exclude=columns_of(exclude),
        categorical=categories,
        ordered=levels,
        row_labels=row_labels,
        skip_unmatched=skip_unmatched,
        seed=seed,
        limits=limits,
    )
    kept_rows = None
    inputs: Inputs | StoredRows
    if budget is None:
        files, rows, inputs = rows_in_memory(data, known, asked, progress)
    else:
        kept_rows = Store.beside(out, store)
        files, rows, inputs = rows_in_store(data, known, asked, kept_rows, budget, progress)
    targets = rows.targets
    if len(targets.bags) < 2:
        raise InputError("there is only one bag; at least two with different counts are needed.")
    encoded, names = EncodedBags(inputs, targets.bags), targets.classes
    splits = splits_of(targets.bags, seed, limits=limits)
    cross_validated = len(splits) > 1
    by_likelihood = (
        (room is None or room.is_likelihood(steps))
        # Chosen by hand, rates and epochs are those of gradient descent.
        and not replace(steps, method="cc").is_asked_for
        and (encoded.fits(limits) or fits_in_pieces(encoded, splits, limits))
    )
    if bag_effects:
        linear.check_bag_effects(encoded, model, by_likelihood, limits)
    models = ["linear"] if bag_effects else _models(model, len(targets.bags))
    if room is None and (models != ["linear"] or not by_likelihood):
        room = network_room("a table of so many rows, which is learnt from step by step,")
    if not targets.bags.is_sharp.all():
        _say_expected(method, engine)
    identity = {
        "versions": [bagwise.__version__, "" if room is None else room.VERSION],
        "model": [model, lr, by_likelihood, bag_effects],
        "settings": [method, engine, steps.options, epochs, seed],
        "data": encoded.fingerprint(),
        "limits": asdict(limits),
    }
    with Workspace(out, identity) as work, ray or nullcontext():
        trials: list[Trial] = []
        networks = None
        if room is not None:
            networks = room.Networks(steps, encoded, names, splits, work, progress, ray is not None)
        for name in models:
            if name == "linear" and by_likelihood:
                trials += _linear_trials(encoded, splits, work, bag_effects, progress, limits)
            else:
                assert networks is not None
                trials += networks.trials(name, trials[0] if trials else None)
        trials = trials if bag_effects else choose(trials, targets.bags)
        chosen = trials[0]
        assert chosen.log_probs is not None
        log_probs, held_out = chosen.log_probs, np.arange(len(targets.bags))
        trained: Trained | None = None
        if chosen.fitted is None:
            assert networks is not None
            trained = networks.fit(chosen)
            if not cross_validated:
                log_probs = all_log_probs(trained.model.log_probs, encoded)
        fitted_model = linear.model_of(trials, names) if trained is None else trained.model
        if not cross_validated:
            held_out = splits[0][1]
        shares = _shares_of_training(targets.bags, held_out, cross_validated)
        part, ids = targets.bags.select(held_out), targets.ids[held_out]
        tau = None if chosen.tau is None else chosen.tau[held_out]
        rows_held_out = targets.bags.rows(held_out)
        # With bag effects probabilities are means over these, and need no temperature.
        temperature = 1.0 if bag_effects else fit_temperature(log_probs[rows_held_out], part)
        own = tempered(log_probs[rows_held_out], temperature)
        fitted_model = fitted_model.divided(temperature)
        facts = FitFacts(
            command=command,
            bagwise=bagwise.__version__,
            data=data_facts(files, key, rows),
            settings=FitSettings(
                method=method,
                engine=engine,
                model=chosen.model,
                lr=chosen.lr,
                epochs=None if trained is None else trained.epochs,
                ridge=chosen.ridge,
                bag_effects=chosen.fitted_tau,
                seed=seed,
                temperature=fitted_model.temperature,
            ),
            tried=[trial.facts for trial in trials],
            folds=len(splits),
            curve=_curve(trained, chosen, cross_validated),
            held_out=assess(own, part, ids, shares, tau),
            surprising=surprising_in_pieces(
                log_probs, temperature, targets.bags, targets.ids, chosen.tau
            ),
            seconds=round(time.perf_counter() - started, 1),
            bags_differ=linear.differences(chosen, encoded, limits),
        )
        table = _held_out_file(own, part, ids, names, tau)
        found = _intervals(chosen, encoded, splits, work, progress, limits)
        named = targets.ids[: len(targets.ids) - rows.alone]
        known_bags = linear.known_bags(chosen, key, named)
        fitted = FittedTable(fitted_model, rows.columns, facts, found, known_bags, table.encode())
        work.publish(fitted.save)
    remove_store(out) if kept_rows is None else kept_rows.done()
    return fitted


def _linear_trials(
    data: EncodedBags,
    splits: Sequence[Split],
    work: Workspace,
    bag_effects: bool,
    progress: bool,
    limits: Limits,
) -> list[Trial]:
    """The linear model by maximum likelihood, with each ridge that was tried."""
    if bag_effects:
        with WorkProgress("linear model with bag effects", "", 1, progress):
            return linear.effect_trials(data, splits, work)
    if data.fits(limits):
        return linear.linear_trials(data, splits, work, progress)
    return trials_in_pieces(data, splits, work, progress, limits)


def _intervals(
    chosen: Trial,
    data: EncodedBags,
    splits: Sequence[Split],
    work: Workspace,
    progress: bool,
    limits: Limits,
) -> Arrays:
    """What intervals of a linear model by maximum likelihood are made of."""
    if chosen.fitted is None or chosen.ridge is None:
        return {}
    tau = chosen.fitted_tau or 0.0
    model = fit_of(chosen.fitted["weights"], chosen.fitted["intercept"], chosen.ridge, tau)
    if not data.fits(limits):
        kept = splits[0][0]
        return work.once(
            "intervals", lambda: intervals_in_pieces(data, kept, model, work, progress, limits)
        )
    with WorkProgress("intervals", "", 1, progress), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a fit that is hard to end
        return work.once("intervals", lambda: intervals_of(data, model, limits))


def _check_model(model: str) -> None:
    if model not in (*MODELS, "auto"):
        raise UsageError(f"model is {model!r}; choose one of auto, {', '.join(MODELS)}.")


def _models(model: str, n_bags: int) -> list[str]:
    """The models to try."""
    if model != "auto":
        return [model]
    if n_bags < FEWEST_BAGS:  # not even held-out ones tell which model is better
        return ["linear"]
    if not there_is_torch():
        warnings.warn(
            f"only the linear model was tried: perceptrons need PyTorch, {REMEDY} brings it.",
            UserWarning,
            stacklevel=3,
        )
        return ["linear"]
    return list(MODELS)


def _say_expected(method: str, engine: str) -> None:
    """Only the likelihood knows what to do with counts that are not exact."""
    by_likelihood = method in ("rc", "cc") and engine in ("auto", "exact", "bethe")
    if not by_likelihood:
        what = f"the engine {engine}" if method in ("rc", "cc") else f"the method {method}"
        warnings.warn(
            f"{what} learns from the counts to be expected, and takes them for exact; cc with the "
            "engine auto uses all that is known of them.",
            UserWarning,
            stacklevel=3,
        )


def _held_out_file(
    log_probs: FloatArray,
    bags: Bags,
    ids: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    tau: FloatArray | None,
) -> str:
    """The table of held-out bags, without labelled rows of no bag."""
    ours = of_label_file(bags)
    rows = bags.rows(ours)
    own = None if tau is None else tau[ours]
    return held_out_table(log_probs[rows], bags.select(ours), ids[ours], classes.tolist(), own)


def _shares_of_training(bags: Bags, held_out: IntArray, cross_validated: bool) -> FloatArray:
    """The baseline: the overall share of each class; cross-validated of all bags, else of those
    that are not held out.
    """
    kept = np.arange(len(bags)) if cross_validated else np.setdiff1d(np.arange(len(bags)), held_out)
    return overall_shares(bags.select(kept))


def _curve(trained: Trained | None, chosen: Trial, cross_validated: bool) -> list[CurvePoint]:
    """Training and held-out loss by epoch; cross-validated, the latter is the folds' mean.

    None where there are no epochs.
    """
    if trained is None:
        return []
    train = [row["train_loss"] for row in trained.history]
    held_out = chosen.curve if cross_validated else [row["val_bag_loss"] for row in trained.history]
    losses = zip_longest(train, held_out)
    return [CurvePoint(epoch, *known) for epoch, known in enumerate(losses, start=1)]
