"""From a table and a label file to a model, without tuning and without instance labels."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bagwise
from bagwise.bags import IntArray
from bagwise.data import BagData
from bagwise.estimator import LLPClassifier
from bagwise.estimator.parameters import new_method
from bagwise.estimator.targets import NumbersAre
from bagwise.tabular.assessment import assess, surprising_bags
from bagwise.tabular.bag_table import GatheredBags, gather
from bagwise.tabular.labels import read_labels
from bagwise.tabular.model import FORMAT, TableModel, class_array
from bagwise.tabular.source import Paths, Source, columns_of
from bagwise.tabular.tuning import (
    RATES,
    Split,
    Trial,
    choose,
    held_out_log_probs,
    most_epochs,
    patience,
    splits_of,
)
from bagwise.tabular.workspace import Workspace
from bagwise.training import DivergedError


def fit_table(
    data: Paths,
    bag: str | Iterable[str],
    labels: Paths,
    *,
    features: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    classes: str | Iterable[str] | None = None,
    labels_are: NumbersAre = "auto",
    skip_unmatched: bool = False,
    method: str = "cc",
    engine: str = "auto",
    method_options: Mapping[str, Any] | None = None,
    model: str = "auto",
    lr: float | None = None,
    epochs: int | None = None,
    seed: int = 0,
    command: str = "",
    out: Path | None = None,
    progress: bool = False,
) -> TableModel:
    """Fit a model to a table with bags; what is not given is chosen on held-out bags.

    Up to 50,000 rows the bags are held out in five parts in turn, and the model is then fitted to
    all of them; beyond, a tenth of the bags is held out throughout.

    Args:
        data: see `bagwise.read_bags`, also for the next seven.
        bag: the bag's columns.
        labels: the label file.
        features: the columns to learn from.
        exclude: columns not to learn from.
        categorical: columns of numbers that are categories.
        classes: class columns of the label file.
        labels_are: what the numbers in the label file are.
        skip_unmatched: leave out bags that only one of the files has.
        method: one of Bagwise's methods, supervised excepted.
        engine: how rc and cc compute posteriors.
        method_options: other options of the method.
        model: "linear", "mlp", or "auto", the better one.
        lr: learning rate.
        epochs: passes over the bags.
        seed: of everything random.
        command: how this was called, for the report.
        out: where the model is saved. Beside it, a hidden folder keeps all work that is done until
            then: a fit that was stopped, however, goes on from there. Without `out` nothing is
            written.
        progress: show progress bars, on a terminal.
    """
    started = time.perf_counter()
    candidates = _candidates(model, lr)
    options = dict(method_options or {})
    new_method(method, engine, options)  # what does not fit together is named before the work
    key, categories = columns_of(bag), columns_of(categorical)
    known = read_labels(labels, key, columns_of(classes) or None)
    source = Source(data, as_text=[*key, *categories])
    table = gather(
        source,
        key,
        known,
        features=columns_of(features),
        exclude=columns_of(exclude),
        categorical=categories,
        labels_are=labels_are,
        skip_unmatched=skip_unmatched,
        progress=progress,
    )
    source.forget()
    if len(table.bags) < 2:
        raise ValueError("there is only one bag; at least two with different counts are needed.")
    base = LLPClassifier(
        method=method,
        engine=engine,
        # The loss is a mean over N instances: 1 / N is a Gaussian prior of variance 1 on weights.
        weight_decay=1 / len(table.inputs),
        schedule="constant",
        standardize=False,
        random_state=seed,
        **{f"method__{name}": value for name, value in options.items()},
    )
    splits = splits_of(table.bags, seed)
    names = class_array(table.classes)
    cross_validated = len(splits) > 1
    identity = {
        "versions": [bagwise.__version__, torch.__version__],
        "candidates": candidates,
        "settings": [method, engine, options, epochs, seed],
        "data": table.data.fingerprint(),
    }
    with Workspace(out, identity) as work:
        trials = choose(base, table.data, names, splits, candidates, work, epochs, progress)
        chosen = trials[0]
        if cross_validated:
            classifier, log_probs = _fit_all(base, table, splits, chosen, work, progress)
            held_out = np.arange(len(table.bags))
        else:
            classifier = _fit_most(base, table, splits[0], chosen, epochs, work, progress)
            log_probs = TableModel(classifier, table.columns, {}).log_probs(table.inputs)
            held_out = splits[0][1]
        shares = _shares_of_training(table, held_out, cross_validated)
        part = table.bags.select(held_out)
        rows = torch.from_numpy(table.bags.rows(held_out))
        facts = {
            "format": FORMAT,
            "command": command,
            "bagwise": bagwise.__version__,
            "data": _data_facts(source, key, table),
            "settings": {
                "method": method,
                "engine": engine,
                "model": chosen.model,
                "lr": chosen.lr,
                "epochs": classifier.best_epoch_,
                "seed": seed,
            },
            "tried": [[t.model, t.lr, t.epochs, t.bag_loss] for t in trials],
            "folds": len(splits),
            "curve": _curve(classifier, chosen, cross_validated),
            "held_out": assess(log_probs[rows], part, table.ids[held_out], shares),
            "surprising": surprising_bags(log_probs, table.bags, table.ids),
        }
        facts["seconds"] = round(time.perf_counter() - started, 1)
        fitted = TableModel(classifier, table.columns, facts)
        work.publish(fitted.save)
    return fitted


def _candidates(model: str, lr: float | None) -> list[tuple[str, float]]:
    if model not in (*RATES, "auto"):
        raise ValueError(f"model is {model!r}; choose one of auto, {', '.join(RATES)}.")
    models = list(RATES) if model == "auto" else [model]
    return [(name, rate) for name in models for rate in (RATES[name] if lr is None else (lr,))]


def _fit_all(
    base: LLPClassifier,
    table: GatheredBags,
    splits: list[Split],
    chosen: Trial,
    work: Workspace,
    progress: bool,
) -> tuple[LLPClassifier, torch.Tensor]:
    """The model of all bags, and log-probabilities by models that did not see the bag."""
    names = class_array(table.classes)
    log_probs = held_out_log_probs(base, table.data, names, splits, chosen, work, progress)
    settings = {"model": chosen.model, "lr": chosen.lr, "epochs": chosen.epochs}
    classifier = LLPClassifier(**base.get_params() | settings | {"verbose": progress})
    return _trained(classifier, table.data, names, None, work), log_probs


def _fit_most(
    base: LLPClassifier,
    table: GatheredBags,
    split: Split,
    chosen: Trial,
    epochs: int | None,
    work: Workspace,
    progress: bool,
) -> LLPClassifier:
    """The model of all but the held-out bags, stopped where these are most probable."""
    most = most_epochs(len(table.inputs)) if epochs is None else epochs
    settings = {"model": chosen.model, "lr": chosen.lr, "epochs": most, "verbose": progress}
    settings["patience"] = patience(most) if epochs is None else None
    classifier = LLPClassifier(**base.get_params() | settings)
    kept, held_out = (table.data.select(index) for index in split)
    return _trained(classifier, kept, class_array(table.classes), held_out, work)


def _trained(
    classifier: LLPClassifier,
    data: BagData,
    names: npt.NDArray[Any],
    held_out: BagData | None,
    work: Workspace,
) -> LLPClassifier:
    """Go on from the last epoch that was kept; from the beginning if that is damaged."""
    try:
        return classifier.fit_bags(data, names, held_out, work.checkpoint)
    except DivergedError:
        raise
    except (ValueError, KeyError, TypeError, RuntimeError):
        if not work.forget_checkpoint():
            raise
        return classifier.fit_bags(data, names, held_out, work.checkpoint)


def _shares_of_training(table: GatheredBags, held_out: IntArray, cross_validated: bool) -> Any:
    """The baseline: the overall share of each class; cross-validated of all bags, else of those
    that are not held out.
    """
    counts = table.bags.counts.sum(axis=0)
    if not cross_validated:
        counts = counts - table.bags.counts[held_out].sum(axis=0)
    return counts / counts.sum()


def _curve(
    classifier: LLPClassifier, chosen: Trial, cross_validated: bool
) -> list[dict[str, float]]:
    """Training and held-out loss by epoch; cross-validated, the latter is the folds' mean."""
    rows = [{"epoch": row["epoch"], "train": row["train_loss"]} for row in classifier.history_]
    if not cross_validated:
        held_out = [row["val_bag_loss"] for row in classifier.history_]
    else:
        held_out = list(chosen.curve)
        rows += [{"epoch": float(e + 1)} for e in range(len(rows), len(held_out))]
    for row, value in zip(rows, held_out, strict=False):
        row["held_out"] = value
    return rows


def _data_facts(source: Source, key: list[str], table: GatheredBags) -> dict[str, Any]:
    sizes = table.bags.sizes
    return {
        "files": [str(file) for file in source.files],
        "bag_columns": key,
        "rows": len(table.place),
        "rows_used": len(table.inputs),
        "n_bags": len(table.bags),
        "bags_left_out": len(table.left_out),
        "bags_left_out_names": table.left_out[:20],
        "classes": table.classes,
        "shares": (table.bags.counts.sum(axis=0) / len(table.inputs)).tolist(),
        "sizes": {
            "smallest": int(sizes.min()),
            "median": float(np.median(sizes)),
            "largest": int(sizes.max()),
            "histogram": _histogram(sizes),
        },
        "rounding": table.rounding,
        "n_features": len(table.columns.encoded_names),
    }


def _histogram(sizes: IntArray) -> dict[str, list[float]]:
    """Numbers of bags by size: single sizes, or up to twenty ranges, even or growing."""
    low, high = int(sizes.min()), int(sizes.max())
    if high - low < 30:
        edges = np.arange(low - 0.5, high + 1)
    elif high < 20 * low:
        edges = np.linspace(low - 0.5, high + 0.5, 21)
    else:
        edges = np.geomspace(low - 0.5, high + 0.5, 21)
    counts, _ = np.histogram(sizes, edges)
    return {"counts": counts.tolist(), "edges": edges.tolist()}
