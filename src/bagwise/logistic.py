"""Logistic regression from the label counts of bags, for arrays, in scikit-learn's manner."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.bags import FloatArray, IntArray
from bagwise.checks import check_all, flag, number, or_else
from bagwise.errors import InputError
from bagwise.labels.grouping_targets import are_groupings, by_name, frequencies, grouping_targets
from bagwise.labels.label_spec import LabelsAre
from bagwise.labels.mixups import (
    refuse_ids_as_labels,
    refuse_swapped,
    refuse_unknown_labels,
    warn_of_ids,
    warn_of_other_rows,
)
from bagwise.labels.proportions import Proportions
from bagwise.labels.targets import BagTargets, bag_targets, ids_or_none, label_targets
from bagwise.likelihood import (
    Covariance,
    covariance,
    fit_by_evidence,
    fit_for_intervals,
    fit_joint,
    fit_linear,
)
from bagwise.likelihood.choose_linear import ChosenLinear, choose_linear
from bagwise.likelihood.evidence import MOST_AVERAGED
from bagwise.likelihood.linear_predictions import mean_log_probs
from bagwise.posterior import bag_posterior, log_likelihoods, most_probable_labeling
from bagwise.posterior.auto import AUTO_STATES

_PARAMETERS = {
    "ridge": or_else(number(0), '"auto"', lambda value: isinstance(value, str) and value == "auto"),
    "standardize": flag,
    "joint": flag,
}


class BagLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multinomial logistic regression, fitted to the label counts or proportions of bags.

    The likelihood is that of the bags' counts: the model of `bagwise.fit` with `model="linear"`,
    for features that are numbers already. Probabilities are means over the coefficients and over
    the strength of their prior (`bagwise.likelihood.fit_by_evidence`), so that they do not rest on
    coefficients that the bags do not determine.

    Args:
        ridge: strength of the penalty on standardized columns; the likelihood is then maximized.
            "auto" averages over it. With several groupings, or more than 1000 coefficients, "auto"
            chooses it, and a temperature for the probabilities, on held-out bags.
        standardize: standardize the columns of X before the fit.
        joint: with several groupings, fit to all counts together (`bagwise.likelihood.fit_joint`);
            False sums the log-likelihoods of the groupings. Ridge, temperature and intervals are
            those of the sum in either case.
        random_state: random seed of the folds in which bags are held out.

    Attributes:
        classes_: (C,) class labels.
        coef_: (C, d) coefficients in the units of X, the most probable ones; (1, d) for two
            classes.
        intercept_: (C,) intercepts; (1,) for two classes.
        covariance_: covariance of the coefficients over samples of bags, see
            `bagwise.likelihood.Covariance`; it is computed when it is first used, for standardized
            columns and a weaker penalty than that of the predictions.
        ridge_: the penalty that was used, the most probable one of "auto".
        temperature_: what logits were divided by.
        n_features_in_: columns of X.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X, bags = X[:, :3], np.arange(len(y)) // 10
    >>> counts = {b: np.bincount(y[bags == b], minlength=2) for b in range(57)}
    >>> model = BagLogisticRegression().fit(X, bags, counts)
    >>> model.score(X, y) > 0.85
    True
    >>> model.conf_int().shape
    (1, 3, 2)
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
        ridge: float | Literal["auto"] = "auto",
        *,
        standardize: bool = True,
        joint: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.ridge = ridge
        self.standardize = standardize
        self.joint = joint
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike | None = None,
        proportions: Proportions | None = None,
        *,
        bags: Any = None,
        labels_are: LabelsAre | Any = "auto",
        row_labels: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> BagLogisticRegression:
        """Learn from bags, `fit(X, bags, proportions)`, or from labels, `fit(X, y)`.

        Where the same rows were counted several times, `bags` and `proportions` are lists with an
        entry for each grouping, `fit(X, [ward, age], [by_ward, by_age])`, or mappings by name.
        Rows may then be in no bag of a grouping (None or NaN).

        Args:
            X: (N, d) features.
            y: (N,) the bag of each row, in any order; without `proportions`, the label of each row.
            proportions: counts or proportions of each bag's labels: a mapping id -> {class: number}
                or id -> [numbers], a data frame indexed by id with a column for each class, or an
                array (B, C) for the ids 0 .. B-1.
            bags: (N,) the bag of each row, where scikit-learn needs `y` for a scorer.
            labels_are: what `proportions` holds where it is not exact, see
                `bagwise.labels.label_spec.LabelsAre`.
            row_labels: (N,) labels of rows that are known, None or NaN for the others.
            sample_weight: (N,) how many identical rows each row stands for, whole numbers. Survey
                weights are refused.
        """
        check_all(_PARAMETERS, self)
        given = y if bags is None else bags
        several = are_groupings(given, proportions)
        if not several:
            refuse_swapped(y)
        warn_of_other_rows(X=X, y=y, bags=bags, row_labels=row_labels)
        if bags is not None and proportions is None:
            raise InputError("bags are given without proportions; what is known of them is needed.")
        ids: Any
        if several:
            rows, ids = validate_data(self, X, dtype=np.float64), by_name(given)
        else:
            rows, ids = validate_data(
                self, X, given if proportions is None else ids_or_none(given), dtype=np.float64
            )
        copies = frequencies(sample_weight, len(rows))
        if copies is not None and not copies.all():
            kept = np.flatnonzero(copies)
            ids = {n: _taken(x, kept) for n, x in ids.items()} if several else _taken(ids, kept)
            rows, copies, row_labels = rows[kept], copies[kept], _taken(row_labels, kept)
        groupings = None
        if several:
            groupings, classes = grouping_targets(
                ids, proportions, None, labels_are, row_labels, copies
            )
            order, stacked = groupings.stacked()
        elif proportions is not None:
            targets = bag_targets(ids, proportions, None, labels_are, row_labels, copies)
            order, stacked, classes = targets.order, targets.bags, targets.classes
        else:
            if row_labels is not None:
                raise InputError(
                    "row_labels go with bags and proportions, but y are labels here; leave one out."
                )
            check_classification_targets(ids)
            if copies is not None:  # bags of one, as many as there are rows
                rows, ids = np.repeat(rows, copies, axis=0), np.repeat(ids, copies)
                copies = None
            warn_of_ids(ids)
            targets = label_targets(ids)
            order, stacked, classes = targets.order, targets.bags, targets.classes
        if len(classes) < 2:
            raise InputError(
                f"there is one class, {classes.tolist()[0]!r}; at least two are needed."
            )
        self.classes_, self._from_bags = classes, proportions is not None
        self._mean: FloatArray = np.zeros(rows.shape[1])
        self._std: FloatArray = np.ones(rows.shape[1])
        if self.standardize:
            self._mean, self._std = _scales(rows, copies)
        rows = (rows - self._mean) / self._std
        self._X, self._bags = rows[order], stacked
        self._shared = order if groupings is not None and len(groupings) > 1 else None
        self.__dict__.pop("covariance_", None)
        self._draws: FloatArray | None = None
        self._composite = self._chosen = self._fitted()
        if groupings is not None and self._shared is not None and self.joint:
            start = self._composite.fit
            self._chosen = replace(
                self._composite, fit=fit_joint(rows, groupings, start.ridge, start=start)
            )
        self.ridge_, self.temperature_ = self._chosen.fit.ridge, self._chosen.temperature
        return self

    def _fitted(self) -> ChosenLinear:
        """The model of one grouping, or of the sum of the log-likelihoods of several."""
        if self.ridge != "auto":
            return ChosenLinear(fit_linear(self._X, self._bags, float(self.ridge)))
        free = (self._X.shape[1] + 1) * (len(self.classes_) - 1)
        if self._shared is None and free <= MOST_AVERAGED:
            posterior = fit_by_evidence(self._X, self._bags)
            self._draws = posterior.draws()
            # Where bags differ, intervals show it by how bags disagree, not by a stronger ridge.
            self._dispersion = posterior.dispersion
            return ChosenLinear(posterior.best.fit)
        seed = 0
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(2**31))
        return choose_linear(self._X, self._bags, seed, rows=self._shared)

    @cached_property
    def covariance_(self) -> Covariance:
        """Covariance of the coefficients over samples of bags."""
        check_is_fitted(self, "classes_")
        fit = self._composite.fit
        if self._draws is not None:
            fit = replace(fit, ridge=fit.ridge / self._dispersion)
        fit = fit_for_intervals(self._X, self._bags, fit)
        return covariance(self._X, self._bags, fit, rows=self._shared)

    @property
    def coef_(self) -> FloatArray:
        """(C, d) coefficients in the units of X; (1, d) for two classes."""
        check_is_fitted(self, "classes_")
        W = self._chosen.fit.weights / self.temperature_
        return _shown((W / self._std[:, None]).T)

    @property
    def intercept_(self) -> FloatArray:
        """(C,) intercepts in the units of X; (1,) for two classes."""
        check_is_fitted(self, "classes_")
        fit = self._chosen.fit
        shift = (self._mean / self._std) @ fit.weights
        return _shown((fit.intercept - shift) / self.temperature_)

    def conf_int(self, level: float = 0.95) -> FloatArray:
        """(C, d, 2) ends of each coefficient's interval; (1, d, 2) for two classes.

        Bags are what is sampled (sandwich estimate, Student's t). The penalty of the predictions
        would make intervals too short, so they lie around coefficients with a weaker one. With
        several groupings they are those of the composite likelihood, and allow for shared rows.
        """
        found = self.covariance_
        W, (errors, _) = found.fit.weights, found.standard_errors()
        scale = self._std[:, None]
        middle, reach = _shown((W / scale).T), found.quantile(level) * (errors / scale).T
        if len(self.classes_) == 2:
            reach = 2 * reach[1:]  # of a difference of two weights that sum to 0
        return np.stack([middle - reach, middle + reach], axis=-1)

    def decision_function(self, X: Any) -> FloatArray:
        """(N, C) logits; with two classes (N,), the second's minus the first's.

        Where probabilities are means over coefficients, they are their logarithms.
        """
        logits = self._logits(self._rows(X))
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_log_proba(self, X: Any) -> FloatArray:
        """(N, C) log-probabilities of the classes, in the order of `classes_`."""
        found: FloatArray = log_softmax(self._logits(self._rows(X)), axis=-1)
        return found

    def predict_proba(self, X: Any) -> FloatArray:
        """(N, C) probabilities of the classes, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(N,) the most probable class of each row."""
        best = self._logits(self._rows(X)).argmax(axis=-1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def score(self, X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Accuracy, where the true labels y of single rows are known; see `bag_score`."""
        check_is_fitted(self, "classes_")
        warn_of_other_rows(X=X, y=y)
        if self._from_bags:
            refuse_ids_as_labels(y, self.classes_)
        return float(super().score(X, y, sample_weight))

    def bag_score(
        self,
        X: Any,
        bags: Any,
        proportions: Proportions | None = None,
        labels_are: LabelsAre = "auto",
    ) -> float:
        """Mean log P(S|X) / K per row of these bags: the higher, the better.

        Of several groupings, that of the bags of all of them.
        """
        if are_groupings(bags, proportions):
            rows = self._rows(X)
            groupings, _ = grouping_targets(bags, proportions, self.classes_, labels_are)
            order, stacked = groupings.stacked()
        else:
            rows, targets = self._matched(X, bags, proportions, labels_are)
            order, stacked = targets.order, targets.bags
        logits = self._logits(rows)[order]
        return float(log_likelihoods(logits, stacked).sum()) / len(logits)

    def label_bags(
        self,
        X: Any,
        bags: Any,
        proportions: Proportions,
        labels_are: LabelsAre = "auto",
    ) -> tuple[FloatArray, npt.NDArray[Any]]:
        """Label the rows of bags whose counts are known, with these counts taken into account.

        Returns:
            ((N, C) the probability of each class given the bag's counts, (N,) the most probable
            labels with exactly those counts), in the order of the rows given. With several
            groupings, probabilities are given the counts of all of them, and labels are those that
            are most probable row by row.
        """
        if are_groupings(bags, proportions):
            groupings, _ = grouping_targets(bags, proportions, self.classes_, labels_are)
            log_p = log_softmax(self._logits(self._rows(X)), axis=-1)
            found = bag_posterior(log_p, groupings, joint=self.joint, max_states=AUTO_STATES)
            return found.weights, self.classes_[found.weights.argmax(axis=-1)]
        rows, targets = self._matched(X, bags, proportions, labels_are)
        log_probs = log_softmax(self._logits(rows)[targets.order], axis=-1)
        posterior = np.empty(log_probs.shape)
        given_counts = bag_posterior(log_probs, targets.bags, max_states=AUTO_STATES)
        posterior[targets.order] = given_counts.weights
        labels = np.empty(len(log_probs), dtype=self.classes_.dtype)
        labels[targets.order] = self.classes_[most_probable_labeling(log_probs, targets.bags)]
        return posterior, labels

    def _rows(self, X: Any) -> FloatArray:
        check_is_fitted(self, "classes_")
        found: FloatArray = validate_data(self, X, reset=False, dtype=np.float64)
        return found

    def _logits(self, rows: FloatArray) -> FloatArray:
        if self._draws is not None:
            return mean_log_probs((rows - self._mean) / self._std, self._draws)
        fit = self._chosen.fit
        logits = ((rows - self._mean) / self._std) @ fit.weights + fit.intercept
        found: FloatArray = logits / self.temperature_
        return found

    def _matched(
        self, X: Any, bags: npt.ArrayLike, proportions: Proportions | None, labels_are: LabelsAre
    ) -> tuple[FloatArray, BagTargets]:
        """Rows and bags of the classes that the model knows."""
        check_is_fitted(self, "classes_")
        refuse_swapped(bags)
        warn_of_other_rows(X=X, bags=bags)
        given = bags if proportions is None else ids_or_none(bags)
        rows, ids = validate_data(self, X, given, reset=False, dtype=np.float64)
        if proportions is not None:
            return rows, bag_targets(ids, proportions, self.classes_, labels_are)
        refuse_unknown_labels(ids, self.classes_)
        return rows, label_targets(ids, self.classes_)


def _taken(values: Any, kept: IntArray) -> Any:
    return None if values is None else np.asarray(values)[kept]


def _scales(rows: FloatArray, copies: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """(d,) mean and spread of each column, as `bagwise.networks.Standardize` has them."""
    mean = np.average(rows, axis=0, weights=copies)
    std = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=copies))
    varies = std > np.maximum(1e-13 * np.abs(mean), np.finfo(np.float32).tiny)
    deviation = np.maximum(np.average(np.abs(rows - mean), axis=0, weights=copies), 1e-300)
    return mean, np.where(varies, np.maximum(std, math.sqrt(2 / math.pi) * std**2 / deviation), 1.0)


def _shown(values: FloatArray) -> FloatArray:
    """Of C classes all; of two, the second's against the first's."""
    return values[1:] - values[:1] if len(values) == 2 else values
