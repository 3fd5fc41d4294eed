"""What a fitted classifier says about rows and bags."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from bagwise.bags import FloatArray, Groupings
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.estimator.given_bags import GivenBags, given_bags
from bagwise.estimator.parameters import MethodOptions
from bagwise.estimator.rows_as_tensors import Rows, pieces, to_tensor
from bagwise.labels.grouping_targets import are_groupings, by_name
from bagwise.labels.label_spec import LabelsAre
from bagwise.labels.mixups import (
    refuse_ids_as_labels,
    refuse_swapped,
    refuse_unknown_labels,
    warn_of_other_rows,
)
from bagwise.labels.proportions import Proportions
from bagwise.labels.targets import ids_or_none
from bagwise.limits import LIMITS, Limits
from bagwise.networks import Standardize
from bagwise.posterior import bag_posterior, log_likelihoods, most_probable_labeling
from bagwise.training.evaluation import predict_logits

# What scikit-learn's validation lets through as rows.
_ROWS: dict[str, Any] = {
    "accept_sparse": "csr",
    "allow_nd": True,
    "dtype": [np.float32, np.float64],
}


class Predictions(ClassifierMixin, MethodOptions):  # type: ignore[misc]
    """Checks rows as scikit-learn does, and predicts with the fitted `model_`.

    Attributes: as of `bagwise.LLPClassifier`.
    """

    standardize: bool
    device: str
    joint: bool | None
    model_: nn.Module
    classes_: npt.NDArray[Any]
    shape_in_: tuple[int, ...]
    _limits: Limits = LIMITS  # no parameter, which scikit-learn would search and clone

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
        warn_of_other_rows(X=X, y=y)
        if getattr(self, "_from_bags", True):
            refuse_ids_as_labels(y, self.classes_)
        return float(super().score(X, y, sample_weight))

    def bag_score(
        self,
        X: Any,
        bags: Any,
        proportions: Proportions | None = None,
        labels_are: LabelsAre | Any = "auto",
    ) -> float:
        """Mean log P(S|X) / K per instance of these bags: the higher, the better.

        Of several groupings, that of the bags of all of them.
        """
        check_is_fitted(self)
        given = self._matched(X, bags, proportions, labels_are)
        order, known = given.order, given.bags
        if isinstance(known, Groupings):
            order, known = known.stacked()
        logits = self._logits(given.rows)[torch.from_numpy(order)]
        return float(log_likelihoods(logits.numpy(), known).sum()) / len(logits)

    def label_bags(
        self,
        X: Any,
        bags: Any,
        proportions: Proportions,
        labels_are: LabelsAre | Any = "auto",
    ) -> tuple[FloatArray, npt.NDArray[Any]]:
        """Label the instances of bags whose counts are known, these counts taken into account.

        Returns:
            ((N, C) the probability of each class given the bag's counts, (N,) the most probable
            labels that have exactly those counts, or given what is known of counts that are not
            exact), in the order of the rows given. With several groupings, probabilities are given
            the counts of all of them, and labels are those that are most probable row by row.
        """
        check_is_fitted(self)
        given = self._matched(X, bags, proportions, labels_are)
        log_probs = self._logits(given.rows).double().log_softmax(-1)
        if isinstance(given.bags, Groupings):
            found = bag_posterior(
                log_probs.numpy(), given.bags, joint=self.joint is not False
            ).weights
            return found, self.classes_[found.argmax(axis=1)]
        order = given.order
        log_probs = log_probs[torch.from_numpy(order)]
        posterior = np.empty(log_probs.shape)
        posterior[order] = bag_posterior(log_probs, given.bags).weights.numpy()
        labels = np.empty(len(log_probs), dtype=self.classes_.dtype)
        labels[order] = self.classes_[most_probable_labeling(log_probs, given.bags).numpy()]
        return posterior, labels

    @property
    def coef_(self) -> FloatArray:
        """Weights of a linear model in the units of X: (C, d), or (1, d) of two classes.

        `decision_function(X)` is X coef_' + intercept_, of images X flattened.
        """
        return self._coefficients()[0]

    @property
    def intercept_(self) -> FloatArray:
        """(C,) intercepts of a linear model in the units of X, or (1,) of two classes."""
        return self._coefficients()[1]

    def _coefficients(self) -> tuple[FloatArray, FloatArray]:
        W, b = self.linear_layer()
        return (W[1:] - W[:1], b[1:] - b[:1]) if len(W) == 2 else (W, b)

    def linear_layer(self) -> tuple[FloatArray, FloatArray]:
        """Weights (C, d) and intercepts (C,) of a linear model, in the units of X."""
        if not (isinstance(self.model, str) and self.model == "linear"):
            raise AttributeError(f"only a linear model has coefficients; model is {self.model!r}.")
        check_is_fitted(self)
        first, layer = self.model_[0], self.model_[1][-1]  # type: ignore[index]
        W, b = (tensor.detach().cpu().double() for tensor in (layer.weight, layer.bias))
        if isinstance(first, Standardize):
            mean, std = (
                tensor.cpu().double().expand(self.shape_in_).flatten()
                for tensor in (first.mean, first.std)
            )
            W = W / std
            b = b - W @ mean
        return W.numpy(), b.numpy()

    def _checked(
        self, X: Any, bags: Any, proportions: Any, fitting: bool = True
    ) -> tuple[Rows, Any]:
        """X as validated rows, and one id for each of them, None where a row may lack one and does;
        of several groupings, their ids by name.
        """
        if are_groupings(bags, proportions):
            rows, ids = validate_data(self, X, reset=fitting, **_ROWS), by_name(bags)
        else:
            refuse_swapped(bags)
            given = bags if proportions is None else ids_or_none(bags)
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
        self, X: Any, bags: Any, proportions: Any, labels_are: LabelsAre | Any = "auto"
    ) -> GivenBags:
        """Rows and bags of the classes that the model knows."""
        warn_of_other_rows(X=X, bags=bags)
        rows, ids = self._checked(X, bags, proportions, fitting=False)
        if proportions is None:
            refuse_unknown_labels(ids, self.classes_)
        return given_bags(rows, ids, proportions, labels_are, classes=self.classes_)

    def _bag_data(self, given: GivenBags) -> BagData:
        inputs = to_tensor(given.rows, self._precision(given.rows), self._limits)
        if isinstance(given.bags, Groupings):
            joint = self.joint is True and len(given.bags) > 1
            return BagData.of_groupings(inputs, given.bags, joint=joint)
        return BagData(inputs[torch.from_numpy(given.order)], given.bags)

    def _logits(self, rows: Rows) -> torch.Tensor:
        parts = pieces(rows, self._precision(rows), self._limits)
        return torch.cat([predict_logits(self.model_, part, self.device) for part in parts])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
