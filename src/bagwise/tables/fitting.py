"""From a table and a label file to a model, without tuning and without instance labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bagwise
from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.checks import whole_number
from bagwise.data import BagData
from bagwise.errors import DamagedError, InputError
from bagwise.estimator import LLPClassifier
from bagwise.estimator.defaults import searched
from bagwise.estimator.parameters import new_method
from bagwise.labels.targets import NumbersAre
from bagwise.likelihood.splits import Split, splits_of
from bagwise.likelihood.temperature import fit_temperature, tempered
from bagwise.limits import LIMITS, Limits
from bagwise.memory_size import bytes_of
from bagwise.progress import WorkProgress
from bagwise.storage.journal import Tensors, Workspace, alone
from bagwise.tables.assess.baseline import overall_shares
from bagwise.tables.assess.data_facts import data_facts
from bagwise.tables.assess.held_out import assess, held_out_table, of_label_file
from bagwise.tables.assess.surprising import all_log_probs, surprising_in_pieces
from bagwise.tables.encode.learn_columns import Ordered, ordered_of
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.model.fit_facts import CurvePoint, FitFacts, FitSettings, Tried
from bagwise.tables.model.stored_covariance import intervals_of
from bagwise.tables.model.table_model import TableModel
from bagwise.tables.read.source import Paths, columns_of
from bagwise.tables.search import linear_candidates as linear
from bagwise.tables.search.candidate import Trial, choose
from bagwise.tables.search.linear_in_pieces import (
    fits_in_pieces,
    intervals_in_pieces,
    trials_in_pieces,
)
from bagwise.tables.search.network_candidates import (
    FEWEST_BAGS,
    RATES,
    Search,
    most_epochs,
    patience,
    variant,
)
from bagwise.tables.sort.sorted_table import refuse_what_needs_memory
from bagwise.tables.sort.store import Store, remove_store
from bagwise.tables.sort.table_rows import Asked, rows_in_memory, rows_in_store
from bagwise.training.run_state import OtherRunError
from bagwise.training.temperature import divide_logits

_SEED = whole_number(0, 2**32 - 1)


@alone
def fit_table(
    data: Paths,
    bag: str | Iterable[str],
    labels: Paths,
    *,
    features: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    ordered: str | Iterable[str] | Ordered | None = None,
    classes: str | Iterable[str] | None = None,
    labels_are: NumbersAre = "auto",
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
) -> TableModel:
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
        ray: within it there is Ray, see `bagwise.training.ray_cluster.cluster`, and the candidates
            that are trained step by step are, several at a time, there. The result is the same.
        limits: sizes that decide how the table is read and fitted.
    """
    started = time.perf_counter()
    _check_model(model)
    _SEED.check("seed", seed)
    options = dict(method_options or {})
    made = new_method(method, engine, options)  # contradictions are named before the work
    key, categories, levels = columns_of(bag), columns_of(categorical), ordered_of(ordered)
    budget = None if memory is None else bytes_of(memory)
    if budget is not None:
        refuse_what_needs_memory(method, row_labels, ray is not None)
    elif store is not None:
        raise InputError("a store is for rows that memory does not hold; give --memory, too.")
    known = read_labels(labels, key, columns_of(classes) or None, numbers_are=labels_are)
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
    if budget is None:
        files, rows, inputs = rows_in_memory(data, known, asked, progress)
    else:
        kept_rows = Store.beside(out, store)
        files, rows, inputs = rows_in_store(data, known, asked, kept_rows, budget, progress)
    targets = rows.targets
    if len(targets.bags) < 2:
        raise InputError("there is only one bag; at least two with different counts are needed.")
    training, names = BagData(inputs, targets.bags), targets.classes
    base = LLPClassifier(
        method=method,
        engine=engine,
        random_state=seed,
        **searched(targets.bags.sizes),
        **{f"method__{name}": value for name, value in options.items()},
    )
    splits = splits_of(targets.bags, seed, limits=limits)
    cross_validated = len(splits) > 1
    # Chosen by hand, rates and epochs are those of gradient descent.
    by_likelihood = (
        made.is_likelihood
        and (engine, options, lr, epochs) == ("auto", {}, None, None)
        and (linear.fits(training, limits) or fits_in_pieces(training, splits, limits))
    )
    if bag_effects:
        linear.check_bag_effects(training, model, by_likelihood, limits)
    if rows.counts_are:
        _say_expected(method, engine)
    identity = {
        "versions": [bagwise.__version__, torch.__version__],
        "model": [model, lr, by_likelihood, bag_effects],
        "settings": [method, engine, options, epochs, seed],
        "data": training.fingerprint(),
        "limits": asdict(limits),
    }
    with Workspace(out, identity) as work, ray or nullcontext():
        search = Search(base, training, names, splits, work, epochs, progress, ray is not None)
        trials: list[Trial] = []
        if bag_effects:
            with WorkProgress("linear model with bag effects", "", 1, progress):
                trials = linear.effect_trials(training, splits, work)
        models = [model]
        if model == "auto":  # of few bags, not even held-out ones tell which model is better
            models = [*RATES] if len(targets.bags) >= FEWEST_BAGS else ["linear"]
        for name in () if bag_effects else models:
            if name == "linear" and by_likelihood:
                if linear.fits(training, limits):
                    trials += linear.linear_trials(training, splits, work, progress)
                else:
                    trials += trials_in_pieces(training, splits, work, progress, limits)
            else:
                rival = trials[0] if trials else None
                trials += search.trials(name, RATES[name] if lr is None else (lr,), rival)
        trials = trials if bag_effects else choose(trials, targets.bags)
        chosen = trials[0]
        assert chosen.log_probs is not None
        log_probs, held_out = chosen.log_probs, np.arange(len(targets.bags))
        if chosen.weights is not None:
            classifier = LLPClassifier(model="linear", standardize=False, random_state=seed).adopt(
                linear.module_of(chosen.weights), names, training.shape, linear.facts_of(trials)
            )
        elif cross_validated:
            assert chosen.lr is not None
            assert chosen.epochs is not None
            classifier = variant(base, chosen.model, chosen.lr, chosen.epochs, verbose=progress)
            classifier = _trained(classifier, training, names, None, work)
        else:
            classifier = _fit_most(base, training, names, splits[0], chosen, epochs, work, progress)
            log_probs = all_log_probs(classifier.model_, training.inputs)
        if not cross_validated:
            held_out = splits[0][1]
        shares = _shares_of_training(targets.bags, held_out, cross_validated)
        part, ids = targets.bags.select(held_out), targets.ids[held_out]
        tau = None if chosen.tau is None else chosen.tau[held_out]
        log_probs_held_out = log_probs[torch.from_numpy(targets.bags.rows(held_out))].numpy()
        # With bag effects probabilities are means over these, and need no temperature.
        temperature = 1.0 if bag_effects else fit_temperature(log_probs_held_out, part)
        own = torch.from_numpy(tempered(log_probs_held_out, temperature))
        divide_logits(classifier.model_, temperature)
        classifier.temperature_ *= temperature
        facts = FitFacts(
            command=command,
            bagwise=bagwise.__version__,
            data=data_facts(files, key, rows),
            settings=FitSettings(
                method=method,
                engine=engine,
                model=chosen.model,
                lr=chosen.lr,
                epochs=classifier.best_epoch_,
                ridge=chosen.ridge,
                bag_effects=linear.tau_of(chosen),
                seed=seed,
                temperature=classifier.temperature_,
            ),
            tried=[Tried(t.model, t.setting, t.bag_loss) for t in trials],
            folds=len(splits),
            curve=_curve(classifier, chosen, cross_validated),
            held_out=assess(own, part, ids, shares, tau),
            surprising=surprising_in_pieces(
                log_probs, temperature, targets.bags, targets.ids, chosen.tau
            ),
            seconds=round(time.perf_counter() - started, 1),
            bags_differ=linear.differences(chosen, training, limits),
        )
        table = _held_out_file(own, part, ids, names, tau)
        found = _intervals(chosen, training, splits, work, progress, limits)
        named = targets.ids[: len(targets.ids) - rows.alone]
        known_bags = linear.known_bags(chosen, key, named)
        fitted = TableModel(classifier, rows.columns, facts, found, known_bags, table.encode())
        work.publish(fitted.save)
    remove_store(out) if kept_rows is None else kept_rows.done()
    return fitted


def _intervals(
    chosen: Trial,
    data: BagData,
    splits: Sequence[Split],
    work: Workspace,
    progress: bool,
    limits: Limits,
) -> Tensors:
    """What intervals of a linear model by maximum likelihood are made of."""
    model, ridge = chosen.weights, chosen.ridge
    if model is None or ridge is None:
        return {}
    if not linear.fits(data, limits):
        kept = splits[0][0]
        return work.once(
            "intervals",
            lambda: intervals_in_pieces(data, kept, model, ridge, work, progress, limits),
        )
    with WorkProgress("intervals", "", 1, progress), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a fit that is hard to end
        tau = linear.tau_of(chosen) or 0.0
        return work.once("intervals", lambda: intervals_of(data, model, ridge, tau, limits))


def _check_model(model: str) -> None:
    if model not in (*RATES, "auto"):
        raise InputError(f"model is {model!r}; choose one of auto, {', '.join(RATES)}.")


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
    log_probs: torch.Tensor,
    bags: Bags,
    ids: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    tau: FloatArray | None,
) -> str:
    """The table of held-out bags, without labelled rows of no bag."""
    ours = of_label_file(bags)
    rows = torch.from_numpy(bags.rows(ours))
    own = None if tau is None else tau[ours]
    return held_out_table(log_probs[rows], bags.select(ours), ids[ours], classes.tolist(), own)


def _fit_most(
    base: LLPClassifier,
    data: BagData,
    classes: npt.NDArray[Any],
    split: Split,
    chosen: Trial,
    epochs: int | None,
    work: Workspace,
    progress: bool,
) -> LLPClassifier:
    """The model of all but the held-out bags, stopped where these are most probable."""
    assert chosen.lr is not None
    most = most_epochs(len(data)) if epochs is None else epochs
    waits = patience(most) if epochs is None else None
    classifier = variant(base, chosen.model, chosen.lr, most, waits, verbose=progress)
    kept, held_out = (data.select(index) for index in split)
    return _trained(classifier, kept, classes, held_out, work)


def _trained(
    classifier: LLPClassifier,
    data: BagData,
    classes: npt.NDArray[Any],
    held_out: BagData | None,
    work: Workspace,
) -> LLPClassifier:
    """Go on from the last epoch that was kept; from the beginning if that is damaged."""
    try:
        return classifier.fit_bags(data, classes, held_out, work.checkpoint)
    except (DamagedError, OtherRunError):
        work.forget_checkpoint()
        return classifier.fit_bags(data, classes, held_out, work.checkpoint)


def _shares_of_training(bags: Bags, held_out: IntArray, cross_validated: bool) -> FloatArray:
    """The baseline: the overall share of each class; cross-validated of all bags, else of those
    that are not held out.
    """
    kept = np.arange(len(bags)) if cross_validated else np.setdiff1d(np.arange(len(bags)), held_out)
    return overall_shares(bags.select(kept))


def _curve(classifier: LLPClassifier, chosen: Trial, cross_validated: bool) -> list[CurvePoint]:
    """Training and held-out loss by epoch; cross-validated, the latter is the folds' mean.

    None where there are no epochs.
    """
    if chosen.lr is None:
        return []
    history = classifier.history_
    train = [row["train_loss"] for row in history]
    held_out = chosen.curve if cross_validated else [row["val_bag_loss"] for row in history]
    losses = zip_longest(train, held_out)
    return [CurvePoint(epoch, *known) for epoch, known in enumerate(losses, start=1)]
