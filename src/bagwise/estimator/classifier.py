"""LLPClassifier: learning from label proportions with scikit-learn's conventions."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from bagwise.augmentations import Augment
from bagwise.bags import FloatArray
from bagwise.checks import DEVICE, RANDOM_STATE, TRUE_OR_FALSE, check_all, real_number
from bagwise.data import BagData
from bagwise.data.inputs import sample
from bagwise.errors import InputError
from bagwise.estimator.defaults import DEFAULTS, share_held_out
from bagwise.estimator.inputs import Rows, pieces, to_tensor
from bagwise.estimator.knowledge import NumbersAre
from bagwise.estimator.mixups import (
    refuse_ids_as_labels,
    refuse_ids_as_targets,
    refuse_swapped,
    refuse_unknown_labels,
    three_parts,
    warn_of_ids,
    warn_of_other_rows,
)
from bagwise.estimator.parameters import MethodOptions, new_method, new_seed, training_options
from bagwise.estimator.proportions import Proportions
from bagwise.estimator.selection import split_bags
from bagwise.estimator.targets import BagTargets, bag_targets, ids_or_none, label_targets
from bagwise.methods import Method
from bagwise.networks import Factory, Standardize, make_model
from bagwise.posterior import bag_posterior, most_probable_labeling
from bagwise.storage import model_folder as archive
from bagwise.training import Callback, train
from bagwise.training.evaluation import log_likelihoods, predict_logits
from bagwise.training.optimizers import OptimizerFactory, ScheduleFactory

# What TrainingOptions does not check; method, model and engine have messages of their own.
_PARAMETERS = {
    "validation_fraction": real_number(0, 1, with_low=True).or_name("auto"),
    "standardize": TRUE_OR_FALSE,
    "device": DEVICE,
    "random_state": RANDOM_STATE,
    "verbose": TRUE_OR_FALSE,
}
# What scikit-learn's validation lets through as rows.
_ROWS: dict[str, Any] = {
    "accept_sparse": "csr",
    "allow_nd": True,
    "dtype": [np.float32, np.float64],
}

_SAMPLE = 10_000  # instances that are looked at where not all are in memory


class LLPClassifier(ClassifierMixin, MethodOptions):  # type: ignore[misc]
    """A classifier of instances, learnt from the label counts or proportions of bags.

    `bagwise.estimator.defaults` says why the defaults are what they are.

    Args:
        method: a name of `bagwise.methods` (rc, cc, dllp, two_views, ...) or a `Method`.
        model: a name of `bagwise.networks` (linear, mlp, lenet5, ...), an `nn.Module` that maps
            (n, ...) inputs to (n, C) logits, or a function of (shape of an instance, C).
        engine: how RC and CC compute the posterior of a bag, see `bagwise.bag_posterior`.
        epochs: passes over the training bags.
        lr: learning rate.
        weight_decay: of the optimizer.
        batch_instances: instances in a batch of whole bags.
        batch_bags: bags in a batch at least, where the model has batch normalisation, also if they
            have more instances than that; see `bagwise.TrainingOptions`.
        schedule: of the learning rate: "one_cycle", "constant" or one of PyTorch's, see
            `bagwise.TrainingOptions`, as of the following.
        average: decay of a moving average of the weights, or None.
        validation_fraction: share of the bags held out to choose the best epoch by their
            likelihood; 0 keeps the last epoch. "auto" is a tenth from 50 bags on and 0 below, where
            the bags are missed in training and are too few to tell one epoch from another. Not used
            if `fit` is given a validation set.
        patience: stop after this many epochs without improvement, or None.
        optimizer: adam, adamw, sgd, or a function of the parameters that makes one.
        optimizer_options: further arguments of a named optimizer.
        schedule_options: arguments of a schedule of PyTorch.
        augment: changes the inputs of each training batch: "weak" or another name of
            `bagwise.augmentations` for images, or a function of (inputs, generator).
        standardize: standardise inputs by column (images by channel); part of the model.
        device: where the model computes.
        random_state: seed of everything random.
        verbose: show a progress bar, on a terminal.
        **method_options: options of the method, `method__epsilon=0.5` for instance; they are
            parameters like the others, for `clone` and for grid searches too.

    Attributes:
        classes_: (C,) class labels.
        model_: the trained `nn.Module`, standardisation included.
        history_: one row an epoch, see `bagwise.training.loop.TrainingResult`.
        best_epoch_: the epoch whose weights the model has.
        n_features_in_: columns of X.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> bags = np.random.default_rng(0).permutation(150) // 10       # 15 bags of 10
    >>> counts = {b: np.bincount(y[bags == b], minlength=3) for b in range(15)}
    >>> model = LLPClassifier(random_state=0).fit(X, bags, counts)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        method: str | Method = "cc",
        model: str | nn.Module | Factory = "mlp",
        engine: str = "auto",
        epochs: int = DEFAULTS.epochs,
        lr: float = DEFAULTS.lr,
        weight_decay: float = DEFAULTS.weight_decay,
        batch_instances: int = DEFAULTS.batch_instances,
        batch_bags: int = DEFAULTS.batch_bags,
        schedule: str | ScheduleFactory = DEFAULTS.schedule,
        average: float | None = DEFAULTS.average,
        validation_fraction: float | Literal["auto"] = "auto",
        patience: int | None = DEFAULTS.patience,
        optimizer: str | OptimizerFactory = DEFAULTS.optimizer,
        optimizer_options: Mapping[str, Any] | None = None,
        schedule_options: Mapping[str, Any] | None = None,
        augment: str | Augment | None = DEFAULTS.augment,
        standardize: bool = True,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
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
        self.standardize = standardize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self._set_method_options(method_options)

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike | None = None,
        proportions: Proportions | None = None,
        validation: Sequence[Any] | None = None,
        *,
        bags: npt.ArrayLike | None = None,
        numbers_are: NumbersAre = "auto",
        labels: npt.ArrayLike | None = None,
    ) -> LLPClassifier:
        """Learn from bags, `fit(X, bags, proportions)`, or from labels, `fit(X, y)`.

        Args:
            X: (N, d), dense or sparse, or (N, channels, height, width). Sparse rows are made dense
                for training, up to 1 GiB of them.
            y: (N,) the bag of each row, in any order. Without `proportions`: the label of each row;
                every row is then a bag of one, which is supervised learning.
            proportions: counts or proportions of each bag's labels, see
                `bagwise.estimator.proportions.Proportions`: a mapping id -> {class: number} or
                id -> [numbers], a data frame indexed by id with a column for each class, or an
                array (B, C) for the ids 0 .. B-1. For two classes also the number of the second
                alone: id -> number, a series, or an array (B,).
            validation: (X, bags, proportions) to choose the best epoch by, not bags held out.
            bags: (N,) the bag of each row, where `y` is taken: scikit-learn's cross-validation
                hands it to `fit` beside a `y` that serves a scorer and is not learnt from.
            numbers_are: what `proportions` holds, where it is not exact: `Laplace(4)` for noisy
                counts, "rounded" shares, "sample", "ranges" (then a pair of bounds), "counts" with
                NaN; see `bagwise.estimator.knowledge.NumbersAre`.
            labels: (N,) labels of rows that are known besides, None or NaN for the others. Rows
                without a bag (None or NaN) need one.
        """
        check_all(_PARAMETERS, self)
        refuse_swapped(y)
        warn_of_other_rows(2, X=X, y=y, bags=bags, labels=labels)
        if bags is not None and proportions is None:
            raise InputError("bags are given without proportions; what is known of them is needed.")
        rows, ids = self._checked(X, y if bags is None else bags, proportions is not None)
        if proportions is None:
            if labels is not None:
                raise InputError("labels of rows go with bags and proportions; here y are labels.")
            check_classification_targets(ids)
            warn_of_ids(ids)
            targets = label_targets(ids)
        else:
            if bags is None:
                refuse_ids_as_targets(ids)
            targets = bag_targets(ids, proportions, None, numbers_are, labels)
        self._set_classes(targets.classes, from_bags=proportions is not None)
        seed = new_seed(self)
        data = self._bag_data(rows, targets)
        held_out = None
        if validation is not None:
            X_, bags_, known = three_parts(validation)
            held_out = self._bag_data(*self._matched(X_, bags_, known, numbers_are))
        elif (share := share_held_out(self.validation_fraction, len(data.bags))) != 0:
            data, held_out = split_bags(data, share, seed)
        return self._train(data, held_out, seed)

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
                `Dataset`; the statistics to standardise by are then those of 10,000 of them.
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
        seed = new_seed(self)
        return self._train(data, validation, seed, checkpoint, callbacks, workers)

    def adopt(
        self,
        model: nn.Module,
        classes: npt.ArrayLike,
        shape: tuple[int, ...],
        history: list[dict[str, float]],
    ) -> LLPClassifier:
        """Take a model that was trained on bags in another way.

        Args:
            model: from inputs (n, *shape) to logits (n, C); without a standardisation before it.
            classes: (C,) the class labels.
            shape: of an instance.
            history: at least one row, the last of which is that of the model.
        """
        self._set_classes(np.asarray(classes), from_bags=True)
        self.shape_in_, self.n_features_in_ = shape, shape[0]
        whole: nn.Module = nn.Sequential(nn.Identity(), model)
        self.model_ = whole.eval()
        self.history_, self.best_epoch_ = history, len(history)
        return self

    def _set_classes(self, classes: npt.NDArray[Any], from_bags: bool) -> None:
        if len(classes) < 2:
            raise InputError(
                f"there is only one class, {classes.tolist()[0]!r}; at least two are needed."
            )
        self.classes_ = classes
        self._from_bags = from_bags

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
            whole = isinstance(data.inputs, torch.Tensor)
            model = self._new_model(data.inputs if whole else sample(data.inputs, _SAMPLE))
        result = train(
            model,
            data,
            new_method(self.method, self.engine, self._method_options()),
            training_options(self, seed, workers),
            validation=held_out,
            checkpoint=checkpoint,
            device=self.device,
            callbacks=callbacks,
            progress=self.verbose,
        )
        self.model_ = result.model
        self.history_ = result.history
        self.best_epoch_ = result.best_epoch
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """(N, C) logits; with two classes (N,), the second's minus the first's."""
        logits: FloatArray = self._logits(self._checked_rows(X)).double().numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> FloatArray:
        """(N, C) probabilities of the classes, in the order of `classes_`."""
        logits = self._logits(self._checked_rows(X))
        probabilities: FloatArray = logits.double().softmax(-1).numpy()
        return probabilities

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(N,) the most probable class of each row."""
        best = self._logits(self._checked_rows(X)).argmax(-1).numpy()
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def score(self, X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Accuracy, where the true labels y of single instances are known; see `bag_score`.

        After learning from bags, a y that has other values than the classes is refused.
        """
        check_is_fitted(self)
        warn_of_other_rows(2, X=X, y=y)
        if getattr(self, "_from_bags", True):
            refuse_ids_as_labels(y, self.classes_)
        return float(super().score(X, y, sample_weight))

    def bag_score(
        self,
        X: Any,
        bags: npt.ArrayLike,
        proportions: Proportions | None = None,
        numbers_are: NumbersAre = "auto",
    ) -> float:
        """Mean log P(S|X) / K per instance of these bags: the higher, the better."""
        check_is_fitted(self)
        rows, targets = self._matched(X, bags, proportions, numbers_are)
        logits = self._logits(rows)[torch.from_numpy(targets.order)]
        return float(log_likelihoods(logits, targets.bags).sum()) / len(logits)

    def label_bags(
        self,
        X: Any,
        bags: npt.ArrayLike,
        proportions: Proportions,
        numbers_are: NumbersAre = "auto",
    ) -> tuple[FloatArray, npt.NDArray[Any]]:
        """Label the instances of bags whose counts are known, these counts taken into account.

        Returns:
            ((N, C) the probability of each class given the bag's counts, (N,) the most probable
            labels that have exactly those counts, or given what is known of counts that are not
            exact), in the order of the rows given.
        """
        check_is_fitted(self)
        rows, targets = self._matched(X, bags, proportions, numbers_are)
        log_probs = self._log_probs(rows, targets)
        posterior = np.empty(log_probs.shape)
        posterior[targets.order] = bag_posterior(log_probs, targets.bags).weights.numpy()
        labels = np.empty(len(log_probs), dtype=self.classes_.dtype)
        labels[targets.order] = self.classes_[
            most_probable_labeling(log_probs, targets.bags).numpy()
        ]
        return posterior, labels

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a folder: safetensors and JSON, nothing that can run."""
        check_is_fitted(self)
        archive.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, model: nn.Module | Factory | None = None) -> LLPClassifier:
        """Read what `save` wrote. `model` is needed where it was not one of Bagwise's own."""
        return archive.load(cls, Path(path), model)

    def _new_model(self, inputs: torch.Tensor) -> nn.Module:
        """An untrained model for these training inputs, preceded by their standardisation."""
        shape, n_classes = tuple(inputs.shape[1:]), len(self.classes_)
        if isinstance(self.model, nn.Module):
            body = copy.deepcopy(self.model)
        else:
            body = make_model(self.model, shape, n_classes)
        if not self.standardize:
            return nn.Sequential(nn.Identity(), body)
        return nn.Sequential(Standardize.of(inputs), body)

    def _checked(
        self, X: Any, bags: npt.ArrayLike | None, may_lack: bool, fitting: bool = True
    ) -> tuple[Rows, npt.NDArray[Any]]:
        """X as validated rows and one id for each of them, None where it may lack one and does."""
        given = ids_or_none(bags) if may_lack else bags
        rows, ids = validate_data(self, X, given, reset=fitting, **_ROWS)
        if fitting:
            self.shape_in_ = tuple(rows.shape[1:])
        self._check_shape(rows)
        return rows, ids

    def _checked_rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **_ROWS)
        self._check_shape(rows)
        return rows

    def _check_shape(self, rows: Rows) -> None:
        if rows.shape[1:] != self.shape_in_:
            raise InputError(
                f"an instance has shape {rows.shape[1:]}; {self.shape_in_} is expected."
            )

    def _precision(self, rows: Rows) -> np.dtype[Any]:
        return np.dtype(rows.dtype) if self.standardize else np.dtype(np.float32)

    def _matched(
        self,
        X: Any,
        bags: npt.ArrayLike,
        proportions: Proportions | None,
        numbers_are: NumbersAre = "auto",
    ) -> tuple[Rows, BagTargets]:
        """Rows and bags of the classes that the model knows."""
        refuse_swapped(bags)
        warn_of_other_rows(3, X=X, bags=bags)
        rows, ids = self._checked(X, bags, proportions is not None, fitting=False)
        if proportions is not None:
            return rows, bag_targets(ids, proportions, self.classes_, numbers_are)
        refuse_unknown_labels(ids, self.classes_)
        return rows, label_targets(ids, self.classes_)

    def _bag_data(self, rows: Rows, targets: BagTargets) -> BagData:
        inputs = to_tensor(rows, self._precision(rows))
        return BagData(inputs[torch.from_numpy(targets.order)], targets.bags)

    def _logits(self, rows: Rows) -> torch.Tensor:
        parts = pieces(rows, self._precision(rows))
        return torch.cat([predict_logits(self.model_, part, self.device) for part in parts])

    def _log_probs(self, rows: Rows, targets: BagTargets) -> torch.Tensor:
        """(N, C) in the order of the targets."""
        logits = self._logits(rows)[torch.from_numpy(targets.order)]
        return logits.double().log_softmax(-1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
