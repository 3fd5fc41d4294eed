"""From a table and a label file to a model, without tuning and without instance labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

import bagwise
from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.errors import InputError, Option, warn_user
from bagwise.likelihood.temperature import fit_temperature, tempered
from bagwise.progress import WorkProgress
from bagwise.storage.journal import Workspace, alone
from bagwise.tables.assess.baseline import overall_shares
from bagwise.tables.assess.data_facts import data_facts
from bagwise.tables.assess.held_out import assess, held_out_table, of_label_file
from bagwise.tables.assess.surprising import surprising_in_pieces
from bagwise.tables.cluster.sharded_bags import ShardedBags, ShardedLogProbs, log_probs_of
from bagwise.tables.fit_options import (
    MODELS,
    ColumnOptions,
    ModelOptions,
    WorkOptions,
    refuse_together,
)
from bagwise.tables.labels.counts import Counts
from bagwise.tables.model.fit_facts import CurvePoint, FitFacts, FitSettings, SurprisingBag
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.model.network_room import REMEDY, network_room, there_is_torch
from bagwise.tables.read.source import Table
from bagwise.tables.rows_to_fit import read_rows
from bagwise.tables.search import linear_candidates as linear
from bagwise.tables.search.candidate import Trial, choose
from bagwise.tables.search.context_gain import context_facts
from bagwise.tables.search.linear_in_pieces import fits_in_pieces
from bagwise.tables.search.linear_search import (
    FEWEST_BAGS,
    found_intervals,
    linear_search,
    table_splits,
)
from bagwise.tables.search.step_by_step import Trained
from bagwise.tables.sort.store import Store, remove_store


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
        refuse_together(counts, columns, model, work)
        self.room = None  # where models are trained step by step, if that is needed
        if self.steps.is_asked_for:
            self.room = network_room("training step by step")
            self.room.is_likelihood(self.steps)  # contradictions are named before the work
        elif model.model == "mlp":
            self.room = network_room("a perceptron")

    def run(self, data: Table) -> FittedTable:
        """All stages."""
        with ExitStack() as stack:
            store = self._read(data, stack.enter_context)
            kept = stack.enter_context(Workspace(self.work.out, self._identity()))
            if self.work.ray is not None and not isinstance(self.encoded, ShardedBags):
                stack.enter_context(self.work.ray)
            fitted = self._fitted(kept)
            if not self.work.keep_counts:
                fitted = fitted.without_counts()
            kept.publish(fitted.save)
        remove_store(self.work.out) if store is None else store.done()
        return fitted

    def _read(
        self, data: Table, enter: Callable[[AbstractContextManager[Any]], Any]
    ) -> Store | None:
        """Read the rows, and decide what is tried on them; the store that has them, if one does."""
        counts = self.counts
        found = read_rows(data, counts, self.columns, self.model, self.work, enter)
        self.files, self.rows = found.files, found.rows
        self.targets, self.groupings = self.rows.targets, self.rows.groupings
        if len(self.targets.bags) < 2:
            raise InputError(
                "there is only one bag; at least two with different counts are needed."
            )
        self.encoded = found.encoded
        self.compact = self.encoded.compact()
        self.splits = table_splits(self.encoded, self.groupings, self.steps.seed, self.limits)
        if not (counts.is_plain or self.compact.fits(self.limits)):
            raise InputError(
                f"the table has {len(self.encoded):,} rows of {self.encoded.width:,} features, "
                "those of several groupings counted for each; with several groupings or weights up "
                f"to {self.limits.linear_cells:,} cells are possible. Use fewer rows or columns."
            )
        pieces = self.compact.fits(self.limits) or fits_in_pieces(
            self.encoded, self.splits, self.limits
        )
        self.by_likelihood = (
            (self.room is None or self.room.is_likelihood(self.steps))
            # Chosen by hand, rates and epochs are those of gradient descent.
            and not replace(self.steps, method="cc").is_asked_for
            and pieces
        )
        if isinstance(self.encoded, ShardedBags) and not pieces:
            raise InputError(
                "the bags are too few or too large for workers that share the rows: some of them, "
                "with which a fit begins, have to fit into one. Leave out ",
                Option("ray"),
                ", or use fewer columns.",
            )
        if self.model.bag_effects:
            linear.check_bag_effects(
                self.compact, self.model.model, self.by_likelihood, self.limits
            )
        self.models = _models(self.model, len(self.targets.bags), self._why_linear())
        if self.room is None and (self.models != ["linear"] or not self.by_likelihood):
            self.room = network_room("a table of so many rows, which is learned from step by step,")
        self.single = self.encoded if self.room is None else self.encoded.written_out()
        if not self.targets.bags.is_sharp.all():
            _say_expected(self.steps.method, self.steps.engine)
        return found.store

    def _why_linear(self) -> str:
        """Why a perceptron cannot be trained; empty if it can."""
        if self.groupings is not None:
            return "perceptrons do not take several groupings yet"
        bags, most = self.targets.bags, self.limits.linear_cells
        if bags.weights is None or bags.total * (self.encoded.width + 1) <= most:
            return ""
        why = f"the rows, written out, have more than {most:,} cells"
        if self.room is not None:
            raise InputError(
                f"{why}, too many for training step by step, which does not take weights; leave "
                "out its options, and say ",
                Option("model", "linear"),
                ".",
            )
        return f"{why}, too many for a perceptron, which does not take weights"

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
        bags = (self.single if chosen.fitted is None else self.compact).bags
        assert chosen.log_probs is not None
        log_probs, trained = chosen.log_probs, None
        if chosen.fitted is None:
            assert networks is not None
            trained = networks.fit(chosen)
            if not cross_validated:
                log_probs = log_probs_of(trained.model.log_probs, self.single)
        classes = self.targets.classes
        fitted = linear.model_of(trials, classes) if trained is None else trained.model
        held_out = np.sort(np.concatenate([part for _, part in self.splits]))
        part, ids = bags.select(held_out), self.targets.ids[held_out]
        tau = None if chosen.tau is None else chosen.tau[held_out]
        of_rows = log_probs[bags.rows(held_out)]
        # Means over bag effects or coefficients need no temperature.
        is_mean = chosen.fitted is not None and (chosen.tau is not None or "draws" in chosen.fitted)
        temperature = 1.0 if is_mean else fit_temperature(of_rows, part)
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
                averaged=chosen.fitted is not None and "draws" in chosen.fitted,
                trust=float((chosen.fitted or {}).get("trust", 1.0)),
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
            surprising=_surprising(log_probs, temperature, bags, self.targets.ids, chosen.tau),
            seconds=round(time.perf_counter() - self.started, 1),
            bags_differ=(
                linear.differences(chosen, self.compact, self.limits)
                if self.groupings is None
                else None
            ),
            context=context_facts(
                trials,
                self.compact,
                self.splits,
                self.rows.columns,
                self.rows.context,
                self.model.bag_effects,
                self.work.progress,
                self.limits,
            ),
        )
        table = _held_out_file(of_rows, part, ids, classes, tau)
        intervals = found_intervals(
            chosen, self.compact, self.splits, kept, self.work.progress, self.limits
        )
        named = self.targets.ids[: len(self.targets.ids) - self.rows.alone]
        known = linear.known_bags(chosen, list(self.counts.key), named)
        return FittedTable(
            fitted,
            self.rows.columns,
            facts,
            intervals,
            known,
            table.encode(),
            context=self.rows.context,
        )

    def _trials(self, kept: Workspace) -> tuple[list[Trial], Any]:
        """The candidates, the one to take first; and what trains networks, where it was needed."""
        trials: list[Trial] = []
        networks = None
        if self.room is not None:
            networks = self.room.Networks(
                self.steps,
                self.single,
                self.targets.classes,
                self.splits,
                kept,
                self.work.progress,
                self.work.ray is not None and not isinstance(self.encoded, ShardedBags),
            )
        for name in self.models:
            if name == "linear" and self.by_likelihood:
                effects, work = self.model.bag_effects, self.work
                trials += linear_search(
                    self.compact, self.splits, kept, effects, work.progress, work.limits
                )
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


def _surprising(
    log_probs: Any, temperature: float, bags: Bags, ids: npt.NDArray[Any], tau: FloatArray | None
) -> list[SurprisingBag]:
    if isinstance(log_probs, ShardedLogProbs):
        return log_probs.surprising(temperature, ids)
    return surprising_in_pieces(lambda i, j: log_probs[i:j], temperature, bags, ids, tau)


def _models(asked: ModelOptions, n_bags: int, why_linear: str) -> list[str]:
    """The models to try; where perceptrons cannot be trained, `why_linear` says it."""
    if asked.bag_effects:
        return ["linear"]
    if asked.model != "auto":
        return [asked.model]
    if n_bags < FEWEST_BAGS:  # not even held-out ones tell which model is better
        return ["linear"]
    if not why_linear and not there_is_torch():
        why_linear = f"perceptrons need PyTorch, {REMEDY} brings it"
    if why_linear:
        warn_user(f"only the linear model was tried: {why_linear}.")
        return ["linear"]
    return list(MODELS)


def _say_expected(method: str, engine: str) -> None:
    """Only the likelihood knows what to do with counts that are not exact."""
    by_likelihood = method in ("rc", "cc") and engine in ("auto", "exact", "bethe")
    if not by_likelihood:
        what = f"the engine {engine}" if method in ("rc", "cc") else f"the method {method}"
        warn_user(
            f"{what} learns from the counts to be expected, and takes them for exact; cc with the "
            "engine auto uses all that is known of them."
        )


def _held_out_file(
    log_probs: FloatArray,
    bags: Bags,
    ids: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    tau: FloatArray | None,
) -> str:
    """The table of held-out bags, without labeled rows of no bag."""
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
