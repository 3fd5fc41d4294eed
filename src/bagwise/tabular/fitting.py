"""From a table and a label file to a model, without tuning and without instance labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bagwise
from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.data import BagData
from bagwise.estimator import LLPClassifier
from bagwise.estimator.defaults import searched
from bagwise.estimator.parameters import new_method
from bagwise.estimator.targets import NumbersAre
from bagwise.tabular import linear
from bagwise.tabular.assessment import assess, held_out_table, of_label_file, surprising_bags
from bagwise.tabular.bag_table import (
    MatchedRows,
    encode_rows,
    match_rows,
    without_absent_classes,
)
from bagwise.tabular.baseline import overall_shares
from bagwise.tabular.facts import (
    BagSizes,
    CurvePoint,
    DataFacts,
    FitFacts,
    FitSettings,
    Histogram,
    Tried,
)
from bagwise.tabular.intervals import intervals_of
from bagwise.tabular.labels import read_labels
from bagwise.tabular.learning import Ordered, ordered_of
from bagwise.tabular.model import TableModel, log_probs_by
from bagwise.tabular.source import Paths, Source, columns_of
from bagwise.tabular.tails import with_useful_logs
from bagwise.tabular.temperature import divide_logits, fit_temperature, tempered
from bagwise.tabular.threads import threads_for
from bagwise.tabular.trial import Trial, choose
from bagwise.tabular.tuning import (
    RATES,
    Search,
    Split,
    most_epochs,
    patience,
    splits_of,
    variant,
)
from bagwise.tabular.workspace import Tensors, Workspace
from bagwise.training import DivergedError
from bagwise.training.progress import WorkProgress


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
    progress: bool = False,
    ray: AbstractContextManager[object] | None = None,
) -> TableModel:
    """Fit a model to a table with bags; what is not given is chosen on held-out bags.

    The linear model is fitted by maximum likelihood, its ridge chosen on held-out bags, unless
    another method, a learning rate or a number of epochs is given, or the table is too large for
    that. Up to 50,000 rows the bags are held out in five parts in turn, and the model is then
    fitted to all of them; beyond, a tenth of the bags is held out throughout.

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
        progress: show progress bars, on a terminal.
        ray: within it there is Ray, see `bagwise.training.ray_cluster.cluster`, and the candidates
            that are trained step by step are, several at a time, there. The result is the same.
    """
    started = time.perf_counter()
    _check_model(model)
    options = dict(method_options or {})
    made = new_method(method, engine, options)  # contradictions are named before the work
    key, categories, levels = columns_of(bag), columns_of(categorical), ordered_of(ordered)
    known = read_labels(labels, key, columns_of(classes) or None, numbers_are=labels_are)
    of_rows = [] if row_labels is None else [row_labels]
    source = Source(data, as_text=[*key, *of_rows, *categories, *levels])
    rows = match_rows(
        source,
        key,
        known,
        features=columns_of(features),
        exclude=columns_of(exclude),
        categorical=categories,
        ordered=levels,
        row_labels=row_labels,
        skip_unmatched=skip_unmatched,
        progress=progress,
    )
    rows = without_absent_classes(rows, known.source)
    rows = replace(rows, columns=with_useful_logs(source, rows, seed))
    targets = rows.targets
    inputs, _ = encode_rows(source, rows.columns, targets.order, rows.n_rows, progress)
    source.forget()
    if len(targets.bags) < 2:
        raise ValueError("there is only one bag; at least two with different counts are needed.")
    training, names = BagData(torch.from_numpy(inputs), targets.bags), targets.classes
    base = LLPClassifier(
        method=method,
        engine=engine,
        random_state=seed,
        **searched(targets.bags.sizes),
        **{f"method__{name}": value for name, value in options.items()},
    )
    splits = splits_of(targets.bags, seed)
    cross_validated = len(splits) > 1
    # Chosen by hand, rates and epochs are those of gradient descent.
    by_likelihood = (
        made.is_likelihood
        and (engine, options, lr, epochs) == ("auto", {}, None, None)
        and linear.fits(training)
    )
    if bag_effects:
        linear.check_bag_effects(training, model, by_likelihood)
    if rows.counts_are:
        _say_expected(method, engine)
    identity = {
        "versions": [bagwise.__version__, torch.__version__],
        "model": [model, lr, by_likelihood, bag_effects],
        "settings": [method, engine, options, epochs, seed],
        "data": training.fingerprint(),
    }
    with Workspace(out, identity) as work, ray or nullcontext():
        search = Search(base, training, names, splits, work, epochs, progress, ray is not None)
        trials: list[Trial] = []
        if bag_effects:
            with WorkProgress("linear model with bag effects", "", 1, progress):
                trials = linear.effect_trials(training, splits, work)
        for name in () if bag_effects else RATES if model == "auto" else (model,):
            if name == "linear" and by_likelihood:
                trials += linear.linear_trials(training, splits, work, progress)
            else:
                rival = trials[0] if trials else None
                trials += search.trials(name, RATES[name] if lr is None else (lr,), rival)
        trials = trials if bag_effects else choose(trials, targets.bags)
        chosen = trials[0]
        assert chosen.log_probs is not None
        log_probs, held_out = chosen.log_probs, np.arange(len(targets.bags))
        if chosen.weights is not None:
            history = [{"epoch": 1.0, "train_loss": float(chosen.weights["train_loss"])}]
            classifier = variant(base, "linear", base.lr, 1).adopt(
                linear.module_of(chosen.weights), names, training.shape, history
            )
        elif cross_validated:
            assert chosen.lr is not None
            assert chosen.epochs is not None
            classifier = variant(base, chosen.model, chosen.lr, chosen.epochs, verbose=progress)
            with threads_for(base, targets.bags):
                classifier = _trained(classifier, training, names, None, work)
        else:
            with threads_for(base, targets.bags):
                classifier = _fit_most(
                    base, training, names, splits[0], chosen, epochs, work, progress
                )
            log_probs = log_probs_by(classifier.model_, training.inputs)
        if not cross_validated:
            held_out = splits[0][1]
        shares = _shares_of_training(targets.bags, held_out, cross_validated)
        part, ids = targets.bags.select(held_out), targets.ids[held_out]
        tau = None if chosen.tau is None else chosen.tau[held_out]
        rows_held_out = torch.from_numpy(targets.bags.rows(held_out))
        # With bag effects probabilities are means over these, and need no temperature.
        temperature = 1.0 if bag_effects else fit_temperature(log_probs[rows_held_out], part)
        log_probs = tempered(log_probs, temperature)
        divide_logits(classifier.model_, temperature)
        facts = FitFacts(
            command=command,
            bagwise=bagwise.__version__,
            data=_data_facts(source, key, rows),
            settings=FitSettings(
                method=method,
                engine=engine,
                model=chosen.model,
                lr=chosen.lr,
                epochs=None if chosen.lr is None else classifier.best_epoch_,
                ridge=chosen.ridge,
                bag_effects=linear.tau_of(chosen),
                seed=seed,
                temperature=temperature,
            ),
            tried=[Tried(t.model, t.setting, t.bag_loss) for t in trials],
            folds=len(splits),
            curve=_curve(classifier, chosen, cross_validated),
            held_out=assess(log_probs[rows_held_out], part, ids, shares, tau),
            surprising=surprising_bags(log_probs, targets.bags, targets.ids, chosen.tau),
            seconds=round(time.perf_counter() - started, 1),
            bags_differ=linear.differences(chosen, training),
        )
        table = _held_out_file(log_probs[rows_held_out], part, ids, names, tau)
        found: Tensors = {}
        if chosen.weights is not None and chosen.ridge is not None:
            of_model, ridge, spread = chosen.weights, chosen.ridge, linear.tau_of(chosen) or 0.0
            with WorkProgress("intervals", "", 1, progress), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of a fit that is hard to end
                found = work.once(
                    "intervals", lambda: intervals_of(training, of_model, ridge, spread)
                )
        named = targets.ids[: len(targets.ids) - rows.alone]
        known_bags = linear.known_bags(chosen, key, named)
        fitted = TableModel(classifier, rows.columns, facts, found, known_bags, table.encode())
        work.publish(fitted.save)
    return fitted


def _check_model(model: str) -> None:
    if model not in (*RATES, "auto"):
        raise ValueError(f"model is {model!r}; choose one of auto, {', '.join(RATES)}.")


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
    except DivergedError:
        raise
    except (ValueError, KeyError, TypeError, RuntimeError):
        if not work.forget_checkpoint():
            raise
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


def _data_facts(source: Source, key: list[str], rows: MatchedRows) -> DataFacts:
    targets, sizes = rows.targets, rows.targets.bags.sizes
    labels = targets.bags.row_labels
    return DataFacts(
        files=[str(file) for file in source.files],
        bag_columns=key,
        rows=rows.n_rows,
        rows_used=len(targets.order),
        n_bags=len(targets.bags),
        bags_left_out=len(rows.left_out),
        bags_left_out_names=rows.left_out[:20],
        classes=targets.classes.tolist(),
        shares=overall_shares(targets.bags).tolist(),
        sizes=BagSizes(
            smallest=int(sizes.min()),
            median=float(np.median(sizes)),
            largest=int(sizes.max()),
            histogram=_histogram(sizes),
        ),
        rounding=targets.rounding,
        n_features=len(rows.columns.encoded_names),
        counts_are=rows.counts_are,
        inexact_bags=int((~targets.bags.is_sharp).sum()),
        labelled_rows=int((labels >= 0).sum()) if labels is not None else 0,
    )


def _histogram(sizes: IntArray) -> Histogram:
    """Numbers of bags by size: single sizes, or up to twenty ranges, even or growing."""
    low, high = int(sizes.min()), int(sizes.max())
    if high - low < 30:
        edges = np.arange(low - 0.5, high + 1)
    elif high < 20 * low:
        edges = np.linspace(low - 0.5, high + 0.5, 21)
    else:
        edges = np.geomspace(low - 0.5, high + 0.5, 21)
    counts, _ = np.histogram(sizes, edges)
    return Histogram(counts.tolist(), edges.tolist())
