"""The covariance of a linear model's coefficients: standard errors, and shares of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.special import softmax, stdtrit  # scipy.stats takes a second to import

from bagwise.bags import FloatArray
from bagwise.checks import number
from bagwise.errors import InputError
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts, normal_nodes, orthogonal_normals

MAX_PARAMETERS = 2000  # for whose covariance there is room
_ROWS = 16_384  # whose derivatives are held at a time


@dataclass(frozen=True)
class Covariance:
    """The covariance of a fit's coefficients: over samples of bags, and given these bags.

    They answer different questions, and a standard error is the larger one: how much bags disagree
    (`matrix`), and how much they leave open (`posterior`).

    Attributes:
        matrix: (d + 1, C, d + 1, C) of the weights and, last, the intercept: the sandwich.
        posterior: likewise, the inverse of the information; None of a model that was stored
            without it.
        information: "observed" or "expected", what it was computed from.
        absent: (C,) the classes that no bag has; nothing is known of their coefficients.
    """

    fit: LinearFit
    matrix: FloatArray
    n_bags: int
    information: str
    absent: npt.NDArray[np.bool_]
    posterior: FloatArray | None = None

    def standard_errors(self) -> tuple[FloatArray, FloatArray]:
        """Of the weights (d, C) and of the intercept (C,)."""
        d, C = self.matrix.shape[:2]
        matrices = [self.matrix] if self.posterior is None else [self.matrix, self.posterior]
        variances = [np.diagonal(m.reshape(d * C, d * C)).reshape(d, C) for m in matrices]
        largest = np.max(variances, axis=0)
        errors = np.where(self.absent, np.nan, np.sqrt(np.maximum(largest, 0.0)))
        return errors[:-1], errors[-1]

    def error_of(self, gradient: npt.ArrayLike) -> FloatArray:
        """(...) the standard error of a function, by its derivative (..., d + 1, C).

        For a linear function of the coefficients that is the function itself: +1 and -1 in two
        places for a difference.
        """
        d, C = self.matrix.shape[:2]
        slopes = np.asarray(gradient, dtype=np.float64)
        if slopes.shape[-2:] != (d, C):
            raise InputError(
                f"gradient has shape {slopes.shape}; (..., {d}, {C}) is expected, one number for "
                "each coefficient, the intercept's last."
            )
        variances = _variances(slopes, self.matrix)
        if self.posterior is not None:
            variances = np.maximum(variances, _variances(slopes, self.posterior))
        errors: FloatArray = np.sqrt(variances)
        return errors

    def draws(self, pairs: int = 128, seed: int = 0) -> FloatArray:
        """(2 pairs, d + 1, C) coefficients given these bags, in pairs on opposite sides of the
        fit.
        """
        d, C = self.matrix.shape[:2]
        matrix = self.matrix if self.posterior is None else self.posterior
        values, vectors = np.linalg.eigh(matrix.reshape(d * C, d * C))
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T  # signs are chance
        normal = orthogonal_normals(np.random.default_rng(seed), pairs, d * C)
        shift = (normal @ root.T).reshape(pairs, d, C)
        center = np.vstack([self.fit.weights, self.fit.intercept])
        found: FloatArray = center + np.concatenate([shift, -shift])
        return found

    def stretch_of(self, gradient: FloatArray) -> FloatArray:
        """(...) by how much bags disagree more about a function than `posterior` says: the ratio of
        its standard error to that of `draws`, 1 or more.
        """
        if self.posterior is None:
            return np.ones(gradient.shape[:-2])
        drawn = np.sqrt(_variances(gradient, self.posterior))
        found: FloatArray = np.maximum(self.error_of(gradient), 1e-12) / np.maximum(drawn, 1e-12)
        return found

    def quantile(self, level: float = 0.95) -> float:
        """How many standard errors an interval reaches to either side: Student's t, B - 1."""
        number(above=0, below=1)(level, "level")
        return float(stdtrit(max(self.n_bags - 1, 1), 0.5 + level / 2))

    def group_shares(
        self,
        X: npt.ArrayLike,
        groups: npt.ArrayLike,
        n_groups: int | None = None,
        copies: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """The share of each class in groups of rows, and its standard error: (G, C) each.

            share[g, c] = mean over rows k of the group of p[k, c]

        by the delta method. It is the share to be expected of such rows; that of the very rows
        varies around it by sqrt(sum_k p (1 - p)) / n more. With bag effects, rows are taken to be
        of new bags. A group without rows gets NaN.

        Args:
            X: (N, d) features, standardized as those of the fit.
            groups: (N,) the group of each row, 0 .. G - 1.
            n_groups: G; the largest group plus one if not given.
            copies: (N,) how many identical rows each row stands for; one if not given.
        """
        shares, gradient = self.group_slopes(X, groups, n_groups, copies)
        return shares, self.error_of(gradient)

    def group_slopes(
        self,
        X: npt.ArrayLike,
        groups: npt.ArrayLike,
        n_groups: int | None = None,
        copies: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """The share of each class in groups of rows (G, C), and its derivative by the coefficients
        (G, C, d + 1, C); see `group_shares`.
        """
        features, group = np.asarray(X), np.asarray(groups)
        if features.ndim != 2 or group.shape != features.shape[:1] or group.dtype.kind not in "iu":
            raise InputError(
                f"X has shape {features.shape} and groups {group.shape} of {group.dtype}; give the "
                "number of a group for each row."
            )
        G = int(group.max()) + 1 if n_groups is None else n_groups
        sums = SlopeSums(self, G)
        sums.add(features, group, np.ones(len(group)) if copies is None else np.asarray(copies))
        return sums.shares, sums.gradient


class SlopeSums:
    """Shares of groups and their derivatives, see `Covariance.group_slopes`, from rows that come in
    parts.

    Attributes:
        rows: (G,) instances of each group.
    """

    def __init__(self, covariance: Covariance, n_groups: int) -> None:
        self._fit = covariance.fit
        size, C = covariance.matrix.shape[:2]
        self.rows = np.zeros(n_groups)
        self._shares = np.zeros((n_groups, C))
        self._gradient = np.zeros((n_groups, C, size, C))

    def add(self, X: npt.NDArray[Any], groups: npt.NDArray[Any], copies: npt.NDArray[Any]) -> None:
        """Take more rows (N, d) into account."""
        for first in range(0, len(X), _ROWS):
            some = slice(first, first + _ROWS)
            self._add(X[some].astype(np.float64), groups[some], copies[some].astype(np.float64))

    def _add(self, X: FloatArray, groups: npt.NDArray[Any], times: FloatArray) -> None:
        G, C = self._shares.shape
        p, slopes = mean_and_slopes(self._fit.logits(X), np.full(len(X), self._fit.bag_effects))
        X1 = np.concatenate([X, np.ones((len(X), 1))], axis=1)
        order = np.argsort(groups, kind="stable")
        ends = np.searchsorted(groups, np.arange(G + 1), sorter=order)

        def sums(values: FloatArray, of: FloatArray) -> FloatArray:
            """(G, m) sums over the rows of each group of values (N,) times rows (N, m)."""
            found: FloatArray = csr_matrix((values[order], order, ends), (G, len(X))) @ of
            return found

        self.rows += np.bincount(groups, times, minlength=G)
        self._shares += sums(times, p)
        for c in range(C):
            for a in range(c + 1):  # they are symmetric
                found = sums(times * slopes[:, c, a], X1)
                self._gradient[:, c, :, a] += found
                if a != c:
                    self._gradient[:, a, :, c] += found

    @property
    def shares(self) -> FloatArray:
        """(G, C), NaN of a group without rows."""
        found: FloatArray = self._shares / self._rows_or_nan[:, None]
        return found

    @property
    def gradient(self) -> FloatArray:
        """(G, C, d + 1, C) the derivative of shares by the coefficients."""
        found: FloatArray = self._gradient / self._rows_or_nan[:, None, None, None]
        return found

    @property
    def _rows_or_nan(self) -> FloatArray:
        return np.where(self.rows == 0, np.nan, self.rows)


def mean_and_slopes(z: FloatArray, spreads: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means (N, C) of softmax(z + u) over u of spreads (N,), and derivatives (N, C, C) by z."""
    C = z.shape[1]
    nodes, weights = np.zeros((1, C - 1)), np.ones(1)
    if C > 1 and spreads.any():
        nodes, weights = normal_nodes(C - 1)
    p, slopes = np.zeros(z.shape), np.zeros((len(z), C, C))
    for shift, weight in zip(nodes @ contrasts(C).T, weights, strict=True):
        q = softmax(z + spreads[:, None] * shift, axis=1)
        p += weight * q
        slopes -= weight * q[:, :, None] * q[:, None, :]
    slopes[:, range(C), range(C)] += p
    return p, slopes


def _variances(slopes: FloatArray, matrix: FloatArray) -> FloatArray:
    """(...) the variance of functions with derivatives (..., d, C), 0 or more."""
    d, C = matrix.shape[:2]
    flat = slopes.reshape(*slopes.shape[:-2], d * C)
    found: FloatArray = ((flat @ matrix.reshape(d * C, d * C)) * flat).sum(axis=-1)
    return np.maximum(found, 0.0)
