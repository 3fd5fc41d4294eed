"""From a table and a label file to a model, without tuning and without instance labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

import bagwise
from bagwise.bags import Bags, FloatArray, Groupings, IntArray
from bagwise.errors import InputError, Option
from bagwise.likelihood.splits import Split, splits_of
from bagwise.likelihood.temperature import fit_temperature, tempered
from bagwise.limits import Limits
from bagwise.progress import WorkProgress
from bagwise.storage.array_files import Arrays
from bagwise.storage.journal import Workspace, alone
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.assess.baseline import overall_shares
from bagwise.tables.assess.data_facts import data_facts
from bagwise.tables.assess.held_out import assess, held_out_table, of_label_file
from bagwise.tables.assess.surprising import all_log_probs, surprising_in_pieces
from bagwise.tables.encode.columns import Inputs
from bagwise.tables.fit_options import (
    MODELS,
    ColumnOptions,
    ModelOptions,
    WorkOptions,
    refuse_together,
)
from bagwise.tables.labels.counts import Counts
from bagwise.tables.labels.label_file import read_labels
from bagwise.tables.match.grouped_rows import held_out_together
from bagwise.tables.model.fit_facts import CurvePoint, FitFacts, FitSettings
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.model.network_room import REMEDY, network_room, there_is_torch
from bagwise.tables.model.stored_covariance import fit_of, intervals_of
from bagwise.tables.read.frames import is_frame
from bagwise.tables.read.source import Table
from bagwise.tables.search import linear_candidates as linear
from bagwise.tables.search.candidate import Trial, choose
from bagwise.tables.search.linear_in_pieces import (
    fits_in_pieces,
    intervals_in_pieces,
    trials_in_pieces,
)
from bagwise.tables.search.step_by_step import Trained
from bagwise.tables.sort.encoded_bags import EncodedBags
from bagwise.tables.sort.sorted_table import refuse_what_needs_memory
from bagwise.tables.sort.store import Store, remove_store
from bagwise.tables.sort.table_rows import Asked, rows_in_memory, rows_in_store

FEWEST_BAGS = 10  # of which it can be told whether another than a linear model is better


def fit_table(
    data: Table,
    counts: Counts,
    columns: ColumnOptions | None = None,
    model: ModelOptions | None = None,
    work: WorkOptions | None = None,
) -> FittedTable:
    """Fit a model to a table with bags; what is not given is chosen on held-out bags.

    The linear model is fitted by maximum likelihood, its ridge chosen on held-out bags, unless
    another method, a learning rate or a number of epochs is given. Tables of more than 20 million
    cells are fitted in passes over the rows, or, if bags are too large for that, by gradient
    descent and without intervals. Up to 50,000 rows, the bags are held out in five parts in turn,
    and the model is then fitted to all of them; beyond, a tenth of the bags is held out throughout.

    Args:
        data: a frame or files with a row for each instance.
        counts: the bag's columns, and what is known of the bags.
        columns: which columns are learned from.
        model: which models are tried.
        work: where the work is done.
    """
    columns, model, work = (
        columns or ColumnOptions(),
        model or ModelOptions(),
        work or WorkOptions(),
    )
    with alone(work.out):
        return _Fit(counts, columns, model, work).run(data)


class _Fit:
    """The stages of a fit: read the rows, search for a model, assess it, save it."""

    def __init__(
        self, counts: Counts, columns: ColumnOptions, model: ModelOptions, work: WorkOptions
    ) -> None:
        self.started = time.perf_counter()
        self.counts, self.columns, self.model, self.work = counts, columns, model, work
        self.limits, self.steps = work.limits, model.training
        refuse_together(counts, model, work)
        self.room = None  # where models are trained step by step, if that is needed
        if self.steps.is_asked_for:
            self.room = network_room("training step by step")
            self.room.is_likelihood(self.steps)  # contradictions are named before the work
        elif model.model == "mlp":
            self.room = network_room("a perceptron")

    def run(self, data: Table) -> FittedTable:
        """All stages."""
        store = self._read(data)
        with Workspace(self.work.out, self._identity()) as kept, self.work.ray or nullcontext():
            fitted = self._fitted(kept)
            if not self.work.keep_counts:
                fitted = fitted.without_counts()
            kept.publish(fitted.save)
        remove_store(self.work.out) if store is None else store.done()
        return fitted

    def _read(self, data: Table) -> Store | None:
        """Read the rows, and decide what is tried on them; the store that has them, if one does."""
        work, counts, columns = self.work, self.counts, self.columns
        if work.memory is not None and is_frame(data):
            raise InputError(
                Option("memory"),
                f" is for files, and the rows are a {type(data).__name__}, which is in memory as a "
                "whole. Leave it out, or write the rows to a Parquet file and give its path.",
            )
        if work.memory is not None:
            refuse_what_needs_memory(self.steps.method, columns.row_labels, work.ray is not None)
        elif work.store is not None:
            raise InputError(
                Option("store"), " is for rows beyond memory; give ", Option("memory"), ", too."
            )
        labels = [
            read_labels(part.labels, part.key, part.classes, labels_are=part.labels_are)
            for part in counts.groupings
        ]
        asked = Asked(
            key=counts.keys,
            features=columns.features,
            exclude=columns.exclude,
            categorical=columns.categorical,
            ordered=columns.ordered,
            row_labels=columns.row_labels,
            weights=counts.weights,
            skip_unmatched=counts.skip_unmatched,
            seed=self.steps.seed,
            limits=self.limits,
        )
        store = None
        inputs: Inputs | StoredRows
        if work.memory is None:
            self.files, self.rows, inputs = rows_in_memory(data, labels, asked, work.progress)
        else:
            store = Store.beside(work.out, work.store)
            self.files, self.rows, inputs = rows_in_store(
                data, labels[0], asked, store, work.memory, work.progress
            )
        self.targets, self.groupings = self.rows.targets, self.rows.groupings
        if len(self.targets.bags) < 2:
            raise InputError(
                "there is only one bag; at least two with different counts are needed."
            )
        instances = None if self.groupings is None else self.groupings.stacked()[0]
        self.encoded = EncodedBags(inputs, self.targets.bags, instances)
        self.compact = self.encoded.compact()
        self.splits = _splits(self.encoded, self.groupings, self.steps.seed, self.limits)
        self.by_likelihood = (
            (self.room is None or self.room.is_likelihood(self.steps))
            # Chosen by hand, rates and epochs are those of gradient descent.
            and not replace(self.steps, method="cc").is_asked_for
            and (
                self.compact.fits(self.limits)
                or (counts.is_plain and fits_in_pieces(self.encoded, self.splits, self.limits))
            )
        )
        if not (counts.is_plain or self.by_likelihood):
            raise InputError(
                f"the table has {len(self.encoded):,} rows of {self.encoded.width:,} features, "
                "those of several groupings counted for each; with several groupings or weights up "
                f"to {self.limits.linear_cells:,} cells are possible. Use fewer rows or columns."
            )
        if self.model.bag_effects:
            linear.check_bag_effects(
                self.compact, self.model.model, self.by_likelihood, self.limits
            )
        self.models = _models(self.model, len(self.targets.bags), counts)
        if self.room is None and (self.models != ["linear"] or not self.by_likelihood):
            self.room = network_room("a table of so many rows, which is learnt from step by step,")
        if not self.targets.bags.is_sharp.all():
            _say_expected(self.steps.method, self.steps.engine)
        return store

    def _identity(self) -> dict[str, Any]:
        """What must be the same for an interrupted fit to resume."""
        steps = self.steps
        return {
            "versions": [bagwise.__version__, "" if self.room is None else self.room.VERSION],
            "model": [self.model.model, steps.lr, self.by_likelihood, self.model.bag_effects],
            "joint": self.model.joint,
            "settings": [steps.method, steps.engine, steps.options, steps.epochs, steps.seed],
            "data": self.encoded.fingerprint(),
            "limits": asdict(self.limits),
        }

    def _fitted(self, kept: Workspace) -> FittedTable:
        """The best of the models that are tried, and what its fit found."""
        cross_validated = len(self.splits) > 1
        trials, networks = self._trials(kept)
        chosen = trials[0]
        bags = (self.encoded if chosen.fitted is None else self.compact).bags
        assert chosen.log_probs is not None
        log_probs, trained = chosen.log_probs, None
        if chosen.fitted is None:
            assert networks is not None
            trained = networks.fit(chosen)
            if not cross_validated:
                log_probs = all_log_probs(trained.model.log_probs, self.encoded)
        classes = self.targets.classes
        fitted = linear.model_of(trials, classes) if trained is None else trained.model
        held_out = np.arange(len(bags)) if cross_validated else self.splits[0][1]
        part, ids = bags.select(held_out), self.targets.ids[held_out]
        tau = None if chosen.tau is None else chosen.tau[held_out]
        of_rows = log_probs[bags.rows(held_out)]
        # With bag effects, probabilities are means over these, and need no temperature.
        temperature = 1.0 if self.model.bag_effects else fit_temperature(of_rows, part)
        of_rows, fitted = tempered(of_rows, temperature), fitted.divided(temperature)
        facts = FitFacts(
            command=self.work.command,
            bagwise=bagwise.__version__,
            data=data_facts(self.files, self.counts, self.rows),
            settings=FitSettings(
                method=self.steps.method,
                engine=self.steps.engine,
                model=chosen.model,
                lr=chosen.lr,
                epochs=None if trained is None else trained.epochs,
                ridge=chosen.ridge,
                bag_effects=chosen.fitted_tau,
                seed=self.steps.seed,
                temperature=fitted.temperature,
                joint=chosen.joint,
            ),
            tried=[trial.facts for trial in trials],
            folds=len(self.splits),
            curve=_curve(trained, chosen, cross_validated),
            held_out=assess(
                of_rows,
                part,
                ids,
                _shares_of_training(bags, held_out, cross_validated),
                tau,
                self.rows.degree,
            ),
            surprising=surprising_in_pieces(
                log_probs, temperature, bags, self.targets.ids, chosen.tau
            ),
            seconds=round(time.perf_counter() - self.started, 1),
            bags_differ=(
                linear.differences(chosen, self.compact, self.limits)
                if self.groupings is None
                else None
            ),
        )
        table = _held_out_file(of_rows, part, ids, classes, tau)
        intervals = _intervals(chosen, self.compact, self.splits, kept, self.work)
        named = self.targets.ids[: len(self.targets.ids) - self.rows.alone]
        known = linear.known_bags(chosen, list(self.counts.key), named)
        return FittedTable(fitted, self.rows.columns, facts, intervals, known, table.encode())

    def _trials(self, kept: Workspace) -> tuple[list[Trial], Any]:
        """The candidates, the one to take first; and what trains networks, where it was needed."""
        trials: list[Trial] = []
        networks = None
        if self.room is not None:
            networks = self.room.Networks(
                self.steps,
                self.encoded,
                self.targets.classes,
                self.splits,
                kept,
                self.work.progress,
                self.work.ray is not None,
            )
        for name in self.models:
            if name == "linear" and self.by_likelihood:
                effects = self.model.bag_effects
                trials += _linear_trials(self.compact, self.splits, kept, effects, self.work)
                trials = self._with_joint(trials, kept)
            else:
                assert networks is not None
                trials += networks.trials(name, trials[0] if trials else None)
        return trials if self.model.bag_effects else choose(trials, self.encoded), networks

    def _with_joint(self, trials: list[Trial], kept: Workspace) -> list[Trial]:
        """With the linear model of all groupings together: where it is asked for instead of the
        others, else where each bag is held out once, which tells whether it is better.
        """
        joint, groupings = self.model.joint, self.groupings
        if groupings is None or joint is False or (joint is None and len(self.splits) == 1):
            return trials
        with WorkProgress("all groupings together", "", 1, self.work.progress):
            found = linear.joint_trial(self.encoded, groupings, self.splits, kept, trials[0])
        if joint:
            trials = [replace(trial, log_probs=None) for trial in trials]
        return [found, *trials]


def _splits(
    data: EncodedBags, groupings: Groupings | None, seed: int, limits: Limits
) -> list[Split]:
    """Which bags are held out in turn; bags within others together with these, see
    `held_out_together`, unless that leaves too few to hold out.
    """
    bags = data.bags
    together = np.arange(len(bags)) if groupings is None else held_out_together(groupings)
    n = int(together.max()) + 1
    if n == len(bags) or n < FEWEST_BAGS:
        return splits_of(bags, seed, limits=limits, rows=data.rows)
    sizes = np.bincount(together, bags.totals).astype(np.int64)
    splits = splits_of(Bags(sizes, sizes[:, None]), seed, limits=limits)
    return [
        (np.flatnonzero(np.isin(together, kept)), np.flatnonzero(np.isin(together, held_out)))
        for kept, held_out in splits
    ]


def _linear_trials(
    data: EncodedBags,
    splits: Sequence[Split],
    kept: Workspace,
    bag_effects: bool,
    work: WorkOptions,
) -> list[Trial]:
    """The linear model by maximum likelihood, with each ridge that was tried."""
    if bag_effects:
        with WorkProgress("linear model with bag effects", "", 1, work.progress):
            return linear.effect_trials(data, splits, kept)
    if data.fits(work.limits):
        return linear.linear_trials(data, splits, kept, work.progress)
    return trials_in_pieces(data, splits, kept, work.progress, work.limits)


def _intervals(
    chosen: Trial,
    data: EncodedBags,
    splits: Sequence[Split],
    kept: Workspace,
    work: WorkOptions,
) -> Arrays:
    """What intervals of a linear model by maximum likelihood are made of."""
    if chosen.fitted is None or chosen.ridge is None:
        return {}
    tau = chosen.fitted_tau or 0.0
    model = fit_of(chosen.fitted["weights"], chosen.fitted["intercept"], chosen.ridge, tau)
    limits, progress = work.limits, work.progress
    if not data.fits(limits):
        bags = splits[0][0]
        return kept.once(
            "intervals", lambda: intervals_in_pieces(data, bags, model, kept, progress, limits)
        )
    with WorkProgress("intervals", "", 1, progress), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a fit that is hard to end
        return kept.once("intervals", lambda: intervals_of(data, model, limits))


def _models(asked: ModelOptions, n_bags: int, counts: Counts) -> list[str]:
    """The models to try."""
    if asked.bag_effects:
        return ["linear"]
    if not counts.is_plain:
        if asked.model == "auto":
            warnings.warn(
                "only the linear model is tried: perceptrons do not take several groupings or rows "
                "with weights yet.",
                UserWarning,
                stacklevel=3,
            )
        return ["linear"]
    if asked.model != "auto":
        return [asked.model]
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
