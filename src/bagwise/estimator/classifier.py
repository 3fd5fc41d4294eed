"""LLPClassifier: learning from label proportions with scikit-learn's conventions."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from bagwise.augmentations import Augment
from bagwise.checks import check_all, flag, number, or_else, whole
from bagwise.data import BagData
from bagwise.data.inputs import sample
from bagwise.errors import InputError
from bagwise.estimator.bag_folds import split_bags
from bagwise.estimator.calibration import calibrate
from bagwise.estimator.defaults import share_held_out
from bagwise.estimator.given_bags import given_bags
from bagwise.estimator.initial_weights import placed_by_content
from bagwise.estimator.maximum_likelihood import fit_by_likelihood, fits_by_likelihood
from bagwise.estimator.parameters import fold_seed, new_method, new_seed, training_options
from bagwise.estimator.prediction import Predictions
from bagwise.estimator.saving import files_of, load, refuse_table
from bagwise.labels.label_spec import LabelsAre
from bagwise.labels.mixups import three_parts, warn_of_other_rows
from bagwise.labels.proportions import Proportions
from bagwise.likelihood.fit_summary import LikelihoodFit
from bagwise.methods import Method
from bagwise.networks import Factory, Standardize, make_model
from bagwise.storage.model_folder import check_files, save_folder
from bagwise.training import Callback, train
from bagwise.training.devices import DEVICE
from bagwise.training.optimizers import OptimizerFactory, ScheduleFactory
from bagwise.training.threads import threads_for
from bagwise.training_options import Precision

# What TrainingOptions does not check; method, model and engine have messages of their own.
_PARAMETERS = {
    "validation_fraction": or_else(
        number(0, below=1), '"auto"', lambda value: isinstance(value, str) and value == "auto"
    ),
    "standardize": flag,
    "device": DEVICE,
    "random_state": or_else(
        whole(0, 2**32 - 1),
        "a numpy RandomState or None",
        lambda value: value is None or isinstance(value, np.random.RandomState),
    ),
    "verbose": flag,
    "joint": or_else(flag, "None", lambda value: value is None),
}
SAMPLE = 10_000  # instances that are looked at where not all are in memory


class LLPClassifier(Predictions):
    """A classifier of instances, trained on the label counts or proportions of bags.

    A linear model with the method cc and the engine auto is fitted by maximum likelihood: the ridge
    is chosen on held-out bags, and there are no rate, no epochs and no chance.
    (`BagLogisticRegression` and `bagwise.fit` average over it, which is better with few bags.) It
    is trained step by step like all other models if any of the parameters from `epochs`
    to `compile` is given, if `fit` is given a validation set (`fit_bags` also a checkpoint or
    callbacks), or if the rows are not in memory or have over 20 million numbers.

    None stands for a value that `bagwise.estimator.defaults` chooses, and says why.

    Args:
        method: a name of `bagwise.methods` (rc, cc, dllp, two_views, ...) or a `Method`.
        model: a name of `bagwise.networks` (linear, mlp, lenet5, ...), an `nn.Module` that maps
            (n, ...) inputs to (n, C) logits, or a function of (shape of an instance, C).
        engine: how RC and CC compute the posterior of a bag, see `bagwise.bag_posterior`.
        epochs, lr, weight_decay, batch_instances, batch_bags, schedule, average, patience: how to
            train step by step; `bagwise.TrainingOptions` explains each.
        optimizer, optimizer_options, schedule_options, augment: likewise.
        precision, accumulate_batches, compile: likewise.
        validation_fraction: share of the bags held out to choose the best epoch and a temperature
            by their likelihood; 0 keeps the last epoch and the temperature 1. "auto" is a tenth
            from 50 bags on and 0 below, where the bags are missed in training and are too few to
            tell one epoch from another; the temperature then comes from three more models, each
            trained without a third of the bags, unless `epochs` is given. Not used if `fit` is
            given a validation set.
        standardize: standardize inputs by column (images by channel); part of the model.
        device: where the model computes.
        random_state: random seed. Maximum likelihood draws nothing but the folds in which bags are
            held out, always the same ones unless this is a number.
        verbose: show a progress bar, on a terminal.
        joint: with several groupings, learn from all counts of a row together, with cc or rc;
            False learns from the bags of all groupings one by one, with any method. None is
            jointly by maximum likelihood, and one by one step by step.
        **method_options: options of the method, `method__epsilon=0.5` for instance; they are
            parameters like the others, for `clone` and for grid searches too.

    Attributes:
        classes_: (C,) class labels.
        model_: the trained `nn.Module`, standardization included.
        temperature_: what the logits of `model_` are divided by, because held-out bags showed that
            it was too sure, or not sure enough; 1 if they did not clearly show it. Of models that
            are trained step by step, the difference to the logits of the overall shares is divided,
            by 1 or more: the hotter, the nearer to predicting these shares. `fit_bags` fits none.
        history_: one row an epoch, see `bagwise.training.loop.TrainingResult`; of maximum
            likelihood, one row for each ridge that was tried, with `ridge` and `val_bag_loss`.
        best_epoch_: the epoch whose weights the model has; None of maximum likelihood.
        likelihood_: ridge and objective of maximum likelihood, see
            `bagwise.likelihood.fit_summary.LikelihoodFit`; None of other fits.
        coef_: coefficients of a linear model, in the units of X.
        intercept_: its intercepts.
        n_features_in_: columns of X.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> bags = np.random.default_rng(0).permutation(150) // 10       # 15 bags of 10
    >>> counts = {b: np.bincount(y[bags == b], minlength=3) for b in range(15)}
    >>> model = LLPClassifier(random_state=0).fit(X, bags, counts)
    >>> model.score(X, y) > 0.9
    True
    """

    # With scikit-learn's metadata routing, `fit` is handed these without being asked to.
    __metadata_request__fit = {  # noqa: RUF012
        "bags": True,
        "proportions": True,
        "labels_are": True,
        "row_labels": True,
        "sample_weight": True,
    }

    def __init__(
        self,
        method: str | Method = "cc",
        model: str | nn.Module | Factory = "mlp",
        engine: str = "auto",
        epochs: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        batch_instances: int | None = None,
        batch_bags: int | None = None,
        schedule: str | ScheduleFactory | None = None,
        average: float | None = None,
        validation_fraction: float | Literal["auto"] = "auto",
        patience: int | None = None,
        optimizer: str | OptimizerFactory | None = None,
        optimizer_options: Mapping[str, Any] | None = None,
        schedule_options: Mapping[str, Any] | None = None,
        augment: str | Augment | None = None,
        precision: Precision | None = None,
        accumulate_batches: int | None = None,
        compile: bool | None = None,
        standardize: bool = True,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        joint: bool | None = None,
        **method_options: Any,
    ) -> None:
        self.method = method
        self.model = model
        self.engine = engine
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_instances = batch_instances
        self.batch_bags = batch_bags
        self.schedule = schedule
        self.average = average
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.optimizer = optimizer
        self.optimizer_options = optimizer_options
        self.schedule_options = schedule_options
        self.augment = augment
        self.precision = precision
        self.accumulate_batches = accumulate_batches
        self.compile = compile
        self.standardize = standardize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.joint = joint
        self._set_method_options(method_options)

    def fit(
        self,
        X: Any,
        y: Any = None,
        proportions: Proportions | None = None,
        validation: Sequence[Any] | None = None,
        *,
        bags: Any = None,
        labels_are: LabelsAre | Any = "auto",
        row_labels: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> LLPClassifier:
        """Learn from bags, `fit(X, bags, proportions)`, or from labels, `fit(X, y)`.

        Where the same rows were counted several times, `bags` and `proportions` are lists with an
        entry for each grouping, `fit(X, [ward, age], [by_ward, by_age])`, or mappings by name.
        Rows may then be in no bag of a grouping: None, NaN, or -1 where no bag has that id.

        Args:
            X: (N, d), dense or sparse, or (N, channels, height, width). Sparse rows are made dense
                for training, up to 1 GiB of them.
            y: (N,) the bag of each row, in any order. Without `proportions`: the label of each row;
                every row is then a bag of one, which is supervised learning.
            proportions: counts or proportions of each bag's labels, see
                `bagwise.labels.proportions.Proportions`: a mapping id -> {class: number} or
                id -> [numbers], a data frame indexed by id with a column for each class, or an
                array (B, C) for the ids 0 .. B-1. For two classes also the number of the second
                alone: id -> number, a series, or an array (B,).
            validation: (X, bags, proportions) to choose the best epoch by, not bags held out.
            bags: (N,) the bag of each row, where `y` is taken: scikit-learn's cross-validation
                hands it to `fit` beside a `y` that serves a scorer and is not learned from.
            labels_are: what `proportions` holds, where it is not exact: `Laplace(4)` for noisy
                counts, "rounded" shares, "sample", "ranges" (then a pair of bounds), "counts" with
                NaN; see `bagwise.labels.label_spec.LabelsAre`.
            row_labels: (N,) labels of rows that are known, None or NaN for the others. Rows
                without a bag (None or NaN) need one.
            sample_weight: (N,) how many identical rows each row stands for, whole numbers; a row
                of 0 is left out. Counts are then of all these rows. Survey weights are refused.
        """
        check_all(_PARAMETERS, self)
        warn_of_other_rows(X=X, y=y, bags=bags, row_labels=row_labels)
        if bags is not None and proportions is None:
            raise InputError("bags are given without proportions; what is known of them is needed.")
        rows, ids = self._checked(X, y if bags is None else bags, proportions)
        given = given_bags(rows, ids, proportions, labels_are, row_labels, sample_weight)
        self._set_classes(given.classes, from_bags=proportions is not None)
        data = self._bag_data(given)
        if validation is None and fits_by_likelihood(self, data):
            return self._maximize(data)
        seed = new_seed(self)
        held_out = None
        if validation is not None:
            held_out = self._bag_data(self._matched(*three_parts(validation), labels_are))
        elif (share := share_held_out(self.validation_fraction, len(data.bags))) != 0:
            data, held_out = split_bags(data, share, seed)
        self._train(data, held_out, seed)
        calibrate(self, data, held_out, seed)
        return self

    def fit_bags(
        self,
        data: BagData,
        classes: npt.ArrayLike,
        validation: BagData | None = None,
        checkpoint: Path | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        workers: int = 0,
    ) -> LLPClassifier:
        """Learn from instances that lie sorted by bag already; nothing is copied or held out.

        Args:
            data: instances and their bags. The instances may lie in a memory-mapped file or be a
                `Dataset`; the statistics to standardize by are then those of 10,000 of them.
            classes: (C,) the class labels, in the order of the counts.
            validation: bags to choose the best epoch by; without them it is the last.
            checkpoint: a folder for the state of training, from which the same call goes on.
            callbacks: see `bagwise.training.Callback`.
            workers: processes that fetch the instances of a `Dataset`.
        """
        check_all(_PARAMETERS, self)
        self._set_classes(np.asarray(classes), from_bags=True)
        self.shape_in_ = data.shape
        self.n_features_in_ = self.shape_in_[0]
        by_steps = validation is not None or checkpoint is not None or len(callbacks) > 0
        if not by_steps and fits_by_likelihood(self, data):
            return self._maximize(data)
        return self._train(data, validation, new_seed(self), checkpoint, callbacks, workers)

    def _set_classes(self, classes: npt.NDArray[Any], from_bags: bool) -> None:
        if len(classes) < 2:
            raise InputError(
                f"there is only one class, {classes.tolist()[0]!r}; at least two are needed."
            )
        self.classes_ = classes
        self._from_bags = from_bags

    def _fitted(
        self,
        model: nn.Module,
        history: list[dict[str, float]],
        best_epoch: int | None,
        likelihood: LikelihoodFit | None = None,
        temperature: float = 1.0,
    ) -> LLPClassifier:
        self.model_ = model.eval()
        self.history_, self.best_epoch_ = history, best_epoch
        self.likelihood_, self.temperature_ = likelihood, temperature
        return self

    def _maximize(self, data: BagData) -> LLPClassifier:
        """Fit the linear model by maximum likelihood."""
        several = data.groupings is not None and len(data.groupings) > 1
        data = replace(data, joint=several and self.joint is not False)
        model = self._new_model(data, plain=True)
        fit, temperature = fit_by_likelihood(model, data, fold_seed(self), self._limits)
        return self._fitted(model.to(self.device), fit.history, None, fit, temperature)

    def _train(
        self,
        data: BagData,
        held_out: BagData | None,
        seed: int,
        checkpoint: Path | None = None,
        callbacks: Sequence[Callback] = (),
        workers: int = 0,
    ) -> LLPClassifier:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self._new_model(data)
        options = training_options(self, data.bags, seed, workers)
        with threads_for(options, data.bags):
            result = train(
                model,
                data,
                new_method(self.method, self.engine, self._method_options()),
                options,
                validation=held_out,
                checkpoint=checkpoint,
                device=self.device,
                callbacks=callbacks,
                progress=self.verbose,
                limits=self._limits,
            )
        self._fitted(result.model, result.history, result.best_epoch)
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a folder: safetensors and JSON, nothing that can run."""
        check_is_fitted(self)
        save_folder(Path(path), files_of(self))

    @classmethod
    def load(
        cls, path: str | Path, model: nn.Module | Factory | None = None, device: str | None = None
    ) -> LLPClassifier:
        """Read what `save` wrote.

        A folder that has lost, gained or changed a file is refused, and so is that of a table's
        model (`bagwise fit`), which takes the columns of the table.

        Args:
            model: the architecture, needed where it was not one of Bagwise's own.
            device: where the model is to compute; if not given, where it did.
        """
        refuse_table(Path(path))
        loaded = load(cls, Path(path), model, device)
        check_files(Path(path))
        return loaded

    def _new_model(self, data: BagData, plain: bool = False) -> nn.Sequential:
        """An untrained model for these training data, preceded by their standardization.

        Steps of one size for all weights need columns without huge values, see `Standardize`;
        maximum likelihood does not, and is `plain`, as `bagwise fit` is.
        """
        inputs, weights = data.distinct()
        copies = None if weights is None else torch.tensor(weights)
        if not isinstance(inputs, torch.Tensor):
            inputs, copies = sample(data.inputs, SAMPLE), None
        shape, n_classes = tuple(inputs.shape[1:]), len(self.classes_)
        if isinstance(self.model, nn.Module):
            body = copy.deepcopy(self.model)
        else:
            body = make_model(self.model, shape, n_classes)
            if self.model in ("linear", "mlp") and len(shape) == 1 and not plain:
                placed_by_content(body, inputs, data.bags.expected_counts.sum(axis=0))
        if not self.standardize:
            return nn.Sequential(nn.Identity(), body)
        return nn.Sequential(Standardize.of(inputs, plain, copies), body)
