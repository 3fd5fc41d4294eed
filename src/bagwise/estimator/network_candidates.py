"""Networks of a table: rates and numbers of epochs, tried by the likelihood of held-out bags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import uniform_filter1d
from torch import nn

from bagwise.bags import FloatArray, IntArray
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.estimator.classifier import LLPClassifier
from bagwise.estimator.defaults import searched
from bagwise.estimator.spread_training import train_on_a_worker
from bagwise.likelihood.nonlinearity import may_be_nonlinear
from bagwise.likelihood.ridge import mean_per_instance
from bagwise.likelihood.splits import Split, smaller
from bagwise.posterior import log_likelihoods
from bagwise.progress import WorkProgress
from bagwise.ray_cluster import do_all
from bagwise.storage.array_files import Arrays
from bagwise.storage.journal import Workspace
from bagwise.storage.stored_rows import StoredRows
from bagwise.tables.assess.baseline import baseline_log_likelihoods, overall_shares
from bagwise.tables.cluster.sharded_bags import ShardedBags
from bagwise.tables.search.candidate import Trial, by_loss, scores_of
from bagwise.tables.search.step_by_step import StepByStep
from bagwise.tables.sort.encoded_bags import EncodedBags
from bagwise.training import Callback, DivergedError
from bagwise.training.best import best_index
from bagwise.training.evaluation import predict_logits

RATES = {"linear": (1e-3, 3e-3, 1e-2, 3e-2), "mlp": (3e-4, 1e-3, 3e-3)}
PILOT = 100_000  # instances that rates are tried on
PILOT_EPOCHS = 8
VISITS = 2e6  # instances that training looks at, in all epochs together
RUNG = 30_000  # instances, and
RUNG_VISITS = 60_000  # looks at them, after which hopeless rates and models are left
RUNG_EPOCHS = 16  # but no more epochs than that


def most_epochs(n_instances: int) -> int:
    """Epochs to try at most: many for small tables, few for large ones."""
    return int(np.clip(math.ceil(VISITS / n_instances), 3, 80))


def patience(epochs: int) -> int:
    """Epochs without improvement after which training stops."""
    return min(max(2, epochs // 3), 15)


class Search:
    """Trains candidates on the splits, as far as they are worth it.

    Args:
        steps: how models are trained.
        splits: bags to train on and to hold out.
        work: keeps what each training on a split found.
        on_ray: train on several splits at a time; Ray has to be there, see `ray_cluster.cluster`.
    """

    def __init__(
        self,
        steps: StepByStep,
        data: EncodedBags,
        classes: npt.NDArray[Any],
        splits: Sequence[Split],
        work: Workspace,
        progress: bool = False,
        on_ray: bool = False,
    ) -> None:
        self.steps, self.data, self.classes, self.work = steps, data, classes, work
        self.all_splits, self.progress, self.on_ray = splits, progress, on_ray
        self.base = LLPClassifier(
            method=steps.method,
            engine=steps.engine,
            random_state=steps.seed,
            **searched(data.bags.sizes),
            **{f"method__{name}": value for name, value in steps.options.items()},
        )
        self.spread = data if isinstance(data, ShardedBags) else None
        self.tensors = None if self.spread else as_tensors(data)
        self.epochs = epochs = steps.epochs  # None if it is to be chosen
        self._ahead: dict[str, Arrays] = {}  # what Ray has found, and nobody asked for yet
        self.most = most_epochs(len(data)) if epochs is None else epochs
        self.splits = list(splits)
        if len(splits) == 1:
            self.most = min(self.most, PILOT_EPOCHS) if epochs is None else epochs
            self.splits = [smaller(data.bags, splits[0], PILOT)]

    def trials(self, model: str, rival: Trial | None) -> list[Trial]:
        """Try the learning rates of a model.

        Where there are several, all are trained for a while on a part of the bags, and the best of
        them on all splits. A model that stays behind a rival, another model, is left.
        """
        rates: Sequence[float] = RATES[model] if self.steps.lr is None else (self.steps.lr,)
        left: list[Trial] = []
        several = len(rates) > 1 and self.epochs is None
        long = self.most * len(self.splits) * (1 if several else len(rates))
        with WorkProgress(f"trying {model}", "epochs", long, self.progress) as bar:
            if several:
                short = int(np.clip(RUNG_VISITS // len(self.data), 2, RUNG_EPOCHS))
                bar.plan(len(rates) * short)
                tried = self._rung(model, rates, 0, short, bar)
                best = [trial.lr for trial in tried[:1] if trial.lr is not None]
                if self._is_behind(tried[0], 0, rival):
                    parts = range(1, min(2, len(self.splits)))
                    bar.plan(len(parts) * short)
                    again = [self._rung(model, best, part, short, bar)[0] for part in parts]
                    if all(map(partial(self._is_behind, rival=rival), again, parts)):
                        return tried
                rates, left = best, tried[1:]
            parts_of_all = [(split, str(part)) for part, split in enumerate(self.splits)]
            self._go_ahead(model, rates, self.most, parts_of_all, bar)
            full = [self._on_all_splits(model, lr, rival, bar) for lr in rates]
        return sorted(full, key=by_loss) + left

    def _rung(
        self, model: str, rates: Sequence[float], part: int, epochs: int, bar: WorkProgress
    ) -> list[Trial]:
        """Every rate on a part of the bags, for a few epochs, the best first."""
        found = []
        split = smaller(self.data.bags, self.splits[part], RUNG)
        self._go_ahead(model, rates, epochs, [(split, f"first-{part}")], bar)
        for lr in rates:
            bar.begin(f"rate {lr:g}")
            fold = self._fold(model, lr, epochs, split, f"first-{part}", bar, epochs)
            curve = _smooth(fold["curve"])
            best = best_index(curve.tolist(), "bag_loss")
            of_bags = self._of_bags(fold["log_probs"][best], split[1])
            loss = float(curve[best])
            found.append(Trial(model, loss, of_bags, lr=lr, epochs=epochs, some_bags=True))
        return sorted(found, key=by_loss)

    @cached_property
    def _baseline(self) -> FloatArray:
        """(B,) log P(S) of bags whose rows all have the overall shares."""
        bags = self.data.bags
        return baseline_log_likelihoods(bags, overall_shares(bags))

    def _is_behind(self, trial: Trial, part: int, rival: Trial | None) -> bool:
        """Whether a model is hopeless: a rival that has learned something is ahead here."""
        if rival is None:
            return False
        split = smaller(self.data.bags, self.splits[part], RUNG)
        bags = self.data.bags.select(split[1])
        gains = rival.of_bags - self._baseline
        known = np.flatnonzero(~np.isnan(gains))
        mean, error = mean_per_instance(gains[known], self.data.bags.select(known))
        if mean < 2 * error:
            return False
        nothing = -(rival.of_bags - gains)[split[1]].sum() / bags.n_instances
        ahead = -rival.of_bags[split[1]].sum() / bags.n_instances
        if len(self.splits) > 1:
            return bool(trial.bag_loss > ahead)
        # A long training is behind one that has ended, and may still overtake it, if there is
        # something that a linear model cannot know.
        if nothing - trial.bag_loss < 0.8 * (nothing - ahead):
            return True
        lost = (rival.of_bags - trial.of_bags)[split[1]]
        mean, error = mean_per_instance(lost, bags)
        return mean > error and not may_be_nonlinear(scores_of(rival, self.data))

    def _on_all_splits(
        self, model: str, lr: float, rival: Trial | None, bar: WorkProgress
    ) -> Trial:
        """Train for long on every split; after two of them, only if that is not hopeless."""
        bags, planned = self.data.bags, self.most
        folds: list[Arrays] = []
        for number, split in enumerate(self.splits, start=1):
            bar.begin(f"rate {lr:g}, part {number} of {len(self.splits)}")
            name = str(number - 1)
            folds.append(self._fold(model, lr, self.most, split, name, bar, planned))
            if number == 1:  # the others will end about where the first one did
                ended = len(folds[0]["curve"])
                bar.plan((ended - planned) * (len(self.splits) - 1))
                planned = ended
            held_out = np.concatenate([split[1] for split in self.splits[:number]])
            best, curve = self._best_epoch(folds)
            loss = float(curve[best])
            if 2 <= number < len(self.splits) and rival is not None:
                ahead = -rival.of_bags[held_out].sum() / bags.sizes[held_out].sum()
                if loss > ahead:
                    break
        of_bags = np.full(len(bags), np.nan)
        log_probs = folds[0]["log_probs"][best]
        if len(self.splits) > 1:
            log_probs = self.data.per_row(bags.n_classes, math.nan)
        for fold, (_, part) in zip(folds, self.splits, strict=False):
            found = fold["log_probs"][best]
            if len(self.splits) > 1:
                log_probs[bags.rows(part)] = found
            of_bags[part] = self._of_bags(found, part)[part]
        if len(folds) < len(self.splits):
            return Trial(model, loss, of_bags, lr=lr, epochs=best + 1, folds=len(folds))
        return Trial(model, loss, of_bags, log_probs, lr, best + 1, tuple(curve.tolist()))

    def _of_bags(self, log_probs: FloatArray, part: IntArray) -> FloatArray:
        """(B,) log P(S|X) of some bags by log-probabilities of their rows; NaN of the others, and
        where training diverged.
        """
        of_bags = np.full(len(self.data.bags), np.nan)
        if np.isfinite(log_probs).all():
            of_bags[part] = log_likelihoods(log_probs, self.data.bags.select(part))
        return of_bags

    def _best_epoch(self, folds: list[Arrays]) -> tuple[int, FloatArray]:
        """The epoch with the least loss of all held-out bags, and that loss by epoch."""
        shortest = min(len(fold["curve"]) for fold in folds)
        sizes = [fold["log_probs"].shape[1] for fold in folds]
        curves = [fold["curve"][:shortest] for fold in folds]
        mean: FloatArray = np.average(curves, axis=0, weights=sizes)
        if self.epochs is not None:
            return min(self.epochs, shortest) - 1, mean
        return best_index(_smooth(mean).tolist(), "bag_loss"), mean

    def _fold(
        self,
        model: str,
        lr: float,
        epochs: int,
        split: Split,
        part: str,
        bar: WorkProgress,
        planned: int,
    ) -> Arrays:
        name = _name(model, lr, part)
        if (ready := self._ahead.pop(name, None)) is not None:
            bar.plan(len(ready["curve"]) - planned)
            return ready
        counting = _Counting(bar)
        tried = self._tried(model, lr, epochs)
        if self.spread is not None:
            train = partial(train_on_a_worker, self.spread, tried, split, self.classes)
            found = self.work.once(name, train)
            bar.plan(len(found["curve"]) - planned)
            bar.advance(len(found["curve"]))
            return found
        assert self.tensors is not None
        train = partial(train_fold, tried, self.tensors, split, self.classes, counting)
        found = self.work.once(name, train)
        bar.plan(counting.epochs - planned)  # it may have ended early, or be known already
        return found

    def _tried(self, model: str, lr: float, epochs: int) -> LLPClassifier:
        # On large tables an epoch of the trial is many steps, and held-out bags are many.
        waits = patience(epochs) if len(self.splits) > 1 else 1
        return variant(self.base, model, lr, epochs, waits if self.epochs is None else None)

    def _go_ahead(
        self,
        model: str,
        rates: Sequence[float],
        epochs: int,
        parts: Sequence[tuple[Split, str]],
        bar: WorkProgress,
    ) -> None:
        """With Ray: train at the same time what `_fold` will be asked for in turn, or may be."""
        if not self.on_ray:
            return
        tasks = {
            _name(model, lr, part): (self._tried(model, lr, epochs), split)
            for lr in rates
            for split, part in parts
            if not self.work.has(_name(model, lr, part))
        }
        bar.begin(f"{len(tasks)} trainings on Ray" if tasks else "")
        for name, found, error in do_all(_train_fold_on_ray, tasks, self.tensors, self.classes):
            if error is not None:
                raise InputError(
                    f"a training on Ray failed ({error}). What is done is kept; rerun the "
                    "command to resume, also without Ray."
                )
            self._ahead[name] = self.work.once(name, partial(dict, found))
            bar.advance(len(found["curve"]))


def _name(model: str, lr: float, part: str) -> str:
    """Of what a training on a part found, in the workspace."""
    return f"fold-{model}-{lr!r}-{part}"


class _Counting(Callback):
    """Shows that an epoch is done."""

    def __init__(self, bar: WorkProgress) -> None:
        self.bar, self.epochs = bar, 0

    def on_epoch_end(self, row: Any, model: nn.Module) -> None:
        self.epochs += 1
        self.bar.advance()


class _Keeping(Callback):
    """Keeps what the model says of held-out bags after each epoch."""

    def __init__(self, inputs: torch.Tensor) -> None:
        self.inputs = inputs
        self.log_probs: list[torch.Tensor] = []

    def on_epoch_end(self, row: Any, model: nn.Module) -> None:
        self.log_probs.append(predict_logits(model, self.inputs).log_softmax(-1))


def train_fold(
    tried: LLPClassifier, data: BagData, split: Split, classes: npt.NDArray[Any], counting: Callback
) -> Arrays:
    """`curve` (E,), -log P(S|X) per instance of the held-out bags by epoch, infinite where training
    diverged, and `log_probs` (E, n, C) of their rows.
    """
    kept, held_out = (data.select(index) for index in split)
    keeping = _Keeping(held_out.inputs)
    try:
        tried.fit_bags(kept, classes, held_out, callbacks=[keeping, counting])
        curve = [row["val_bag_loss"] for row in tried.history_]
    except DivergedError:
        curve = [math.inf]
        keeping.log_probs = [torch.full((len(held_out), len(classes)), math.nan)]
    return {
        "curve": np.array(curve, dtype=np.float64),
        "log_probs": torch.stack(keeping.log_probs).numpy(),
    }


def _train_fold_on_ray(
    data: BagData, classes: npt.NDArray[Any], tried: LLPClassifier, split: Split
) -> Arrays:
    return train_fold(tried, data, split, classes, Callback())


def _smooth(curve: FloatArray) -> FloatArray:
    """A dip of a single epoch is chance: of long curves, the mean of a few epochs decides."""
    width = 1 + 2 * min(len(curve) // 20, 2)
    if not np.isfinite(curve).all():
        return curve
    smooth: FloatArray = uniform_filter1d(curve, width, mode="nearest")
    return smooth


def variant(
    base: LLPClassifier,
    model: str,
    lr: float,
    epochs: int,
    patience: int | None = None,
    verbose: bool = False,
) -> LLPClassifier:
    """A classifier that differs from `base` in what is searched."""
    changes = {"model": model, "lr": lr, "epochs": epochs, "patience": patience, "verbose": verbose}
    return LLPClassifier(**base.get_params(deep=False) | changes)


def as_tensors(data: EncodedBags) -> BagData:
    """The same rows as training takes them."""
    inputs = data.inputs
    rows = inputs if isinstance(inputs, StoredRows) else torch.from_numpy(inputs)
    return BagData(rows, data.bags)
