"""A linear model fitted to more rows than memory holds in double precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import logsumexp, softmax

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood._curvature import Curvature, Scale, information_rows
from bagwise.likelihood._information import expected_information, leveraged_scores
from bagwise.likelihood.coefficients import LinearFit
from bagwise.likelihood.coordinates import contrasts
from bagwise.likelihood.linear_fit import TOLERANCE, fit_to, occurring
from bagwise.likelihood.objective import BagLikelihood, Evaluation, evaluation, is_exact

Read = Callable[[int, int], FloatArray]
"""(n, d) features of the rows from one number to another, those of all bags in turn."""

Keep = Callable[[int, Callable[[], tuple[FloatArray, FloatArray]]], tuple[FloatArray, FloatArray]]
"""What a pass over all rows found, by the number of the pass, or what it found before."""


@dataclass(frozen=True)
class Sums:
    """The likelihood at some parameters.

    Attributes:
        theta: (d + 1, C - 1) the parameters.
        log_likelihood: log P(S|X), in parts: (B,) of each bag, or of each place that has some.
        gradient: (d + 1, C - 1) of their sum.
    """

    theta: FloatArray
    log_likelihood: FloatArray
    gradient: FloatArray


class SummedLikelihood(ABC):
    """As `BagLikelihood`, without bag effects, of rows that nobody has all at once.

    Args:
        keep: asked for what a pass finds, so that it can be kept.
    """

    def __init__(self, width: int, bags: Bags, keep: Keep | None = None) -> None:
        self.bags = bags
        self.basis = contrasts(bags.n_classes)
        self.shape: tuple[int, ...] = (bags.n_instances, width + 1)
        self.instances = bags.total
        self.exact = is_exact(bags)
        self.evaluations = 0
        self._keep = keep

    @abstractmethod
    def passed(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The log-likelihood in parts, see `Sums`, and the gradient of their sum."""

    @abstractmethod
    def of_bags(self, theta: FloatArray) -> FloatArray:
        """(B,) the log-likelihood of each bag."""

    @abstractmethod
    def curvature(self, theta: FloatArray, n_rows: int, penalty: FloatArray) -> Curvature:
        """Of all bags; of a bag that is larger than a piece, by its first rows, as if all were
        like these.
        """

    @abstractmethod
    def levels(self, coefficients: FloatArray) -> float:
        """The sum over rows of log sum exp of the logits that (d + 1, C) coefficients give."""

    @abstractmethod
    def information(self, theta: FloatArray) -> FloatArray:
        """(P, P) what all bags say, see `_information.expected_information`."""

    @abstractmethod
    def score_products(self, theta: FloatArray, inverse: FloatArray) -> FloatArray:
        """(P, P) the sum of g_b g_b', see `_information.leveraged_scores`."""

    def evaluate(self, theta: FloatArray, tau: float = 0.0) -> Sums:
        """The likelihood and its gradient, by a pass over all rows."""
        assert tau == 0
        number = self.evaluations
        self.evaluations += 1
        if self._keep is None:
            return Sums(theta, *self.passed(theta))
        return Sums(theta, *self._keep(number, lambda: self.passed(theta)))

    def total(self, found: Sums) -> tuple[float, FloatArray]:
        """The log-likelihood of all bags, and its gradient (d + 1, C - 1)."""
        return float(found.log_likelihood.sum()), found.gradient

    def scale(self, found: Sums, penalty: FloatArray, tau: float = 0.0) -> Scale:
        """Coordinates in which the likelihood with this penalty (P,) is easy to maximize."""
        assert tau == 0
        n_rows = len(self.bags) * self.basis.shape[1]
        return Scale(self.curvature(found.theta, n_rows, penalty))

    def mean_level(self, coefficients: FloatArray) -> float:
        """The mean over rows of log sum exp of the logits that (d + 1, C) coefficients give."""
        return self.levels(coefficients) / self.instances


class LikelihoodInPieces(SummedLikelihood):
    """The likelihood of rows that are read anew in each pass.

    Args:
        most: rows that are read at a time; of a larger bag, some after the other.
    """

    def __init__(
        self, read: Read, width: int, bags: Bags, most: int, keep: Keep | None = None
    ) -> None:
        super().__init__(width, bags, keep)
        self._read, self._most = read, most

    def levels(self, coefficients: FloatArray) -> float:
        """See `SummedLikelihood`, also for the others."""
        total = 0.0
        for begin in range(0, self.shape[0], self._most):
            end = min(begin + self._most, self.shape[0])
            of_rows = logsumexp(_logits(self._read(begin, end), coefficients), axis=1)
            total += float(self.bags.copies[begin:end] @ of_rows)
        return total

    def _groups(self) -> Iterator[tuple[IntArray, int, int]]:
        """Bags that are read together, and their first and last row."""
        offsets = self.bags.offsets
        for index in self.bags.batches(self._most):
            yield index, int(offsets[index[0]]), int(offsets[index[-1] + 1])

    def passed(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By reading all rows once; those of bags larger than a piece, twice."""
        log_likelihood, gradient = np.empty(len(self.bags)), np.zeros(theta.shape)
        for index, first, last in self._groups():
            parts = list(pairwise([*range(first, last, self._most), last]))
            z = np.empty((last - first, self.bags.n_classes))
            X = np.empty((0, 0))
            for begin, end in parts:
                X = self._read(begin, end)
                z[begin - first : end - first] = _logits(X, theta) @ self.basis.T
            found = evaluation(z, self.bags.select(index))
            log_likelihood[index] = found.log_likelihood
            residuals = found.residuals @ self.basis
            for begin, end in parts:
                if len(parts) > 1:  # otherwise they are still there
                    X = self._read(begin, end)
                of_part = residuals[begin - first : end - first]
                gradient[:-1] += X.T @ of_part
                gradient[-1] += of_part.sum(axis=0)
        return log_likelihood, gradient

    def of_bags(self, theta: FloatArray) -> FloatArray:
        """Found together with the gradient."""
        return self.passed(theta)[0]

    def summed(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As `passed`, the log-likelihood of all bags in one part (1,)."""
        log_likelihood, gradient = self.passed(theta)
        return log_likelihood.sum(keepdims=True), gradient

    def curvature(self, theta: FloatArray, n_rows: int, penalty: FloatArray) -> Curvature:
        """By reading all rows once; `n_rows` counts those of other bags, too, where there are."""
        return Curvature(n_rows, penalty).with_rows(self._information_rows(theta))

    def _information_rows(self, theta: FloatArray) -> Iterator[FloatArray]:
        for index, first, last in self._groups():
            used = min(last - first, self._most)
            X = self._read(first, first + used)
            p = softmax(_logits(X, theta) @ self.basis.T, axis=1)
            offsets = np.minimum(self.bags.offsets[index[0] : index[-1] + 2] - first, used)
            X1 = np.concatenate([X, np.ones((used, 1))], axis=1)
            copies = self.bags.copies[first : first + used]
            more = np.sqrt(self.bags.copies[first:last].sum() / copies.sum())
            for _, rows in information_rows(X1, p, offsets, copies, self.basis, 0.0):
                yield rows * more

    def information(self, theta: FloatArray) -> FloatArray:
        """By whole bags, however large they are."""
        total = np.zeros((theta.size, theta.size))
        for likelihood, found in self._whole_bags(theta):
            total += expected_information(likelihood, theta, found, 0.0)
        return total

    def score_products(self, theta: FloatArray, inverse: FloatArray) -> FloatArray:
        """By whole bags, too."""
        total = np.zeros(inverse.shape)
        for likelihood, found in self._whole_bags(theta):
            scores = leveraged_scores(likelihood, theta, found, 0.0, inverse)
            total += scores.T @ scores
        return total

    def _whole_bags(self, theta: FloatArray) -> Iterator[tuple[BagLikelihood, Evaluation]]:
        for index, first, last in self._groups():
            likelihood = BagLikelihood(self._read(first, last), self.bags.select(index))
            yield likelihood, likelihood.evaluate(theta)


def fit_in_pieces(
    read: Read,
    width: int,
    bags: Bags,
    ridge: float = 1.0,
    *,
    most: int,
    start: LinearFit | None = None,
    keep: Keep | None = None,
    tolerance: float = TOLERANCE,
) -> LinearFit:
    """`fit_linear` for rows that are read piece by piece: the same optimum.

    L-BFGS passes over all rows for each evaluation of the likelihood. In coordinates whose unit is
    a standard error, and from a `start` that some of the bags gave, about ten passes are enough.

    Args:
        read: gives the features of rows from one number to another, sorted by bag, (n, d).
        width: d, the number of features.
        ridge: as in `fit_linear`, and so is `tolerance`.
        most: rows that are read at a time.
        keep: called with the number of each pass and what does it; returns what that returns. A fit
            that is given what its passes found before goes the same way.

    >>> X = np.array([[-1.], [1.], [-1.], [-1.], [1.], [1.]])
    >>> bags = Bags([2, 2, 2], [[1, 1], [2, 0], [0, 2]])
    >>> fit = fit_in_pieces(lambda begin, end: X[begin:end], 1, bags, most=3)
    >>> int(fit.probabilities([[2.]]).argmax())
    1
    """
    part, classes = occurring(bags)
    likelihood = LikelihoodInPieces(read, width, part, most, keep)
    return fit_to(likelihood, classes, bags, ridge, start=start, tolerance=tolerance)


def bag_log_likelihoods_in_pieces(fit: LinearFit, read: Read, bags: Bags, most: int) -> FloatArray:
    """`bag_log_likelihoods` of rows that are read piece by piece."""
    likelihood = LikelihoodInPieces(read, len(fit.weights), bags, most)
    return likelihood.of_bags(fit.theta())


def _logits(X: FloatArray, coefficients: FloatArray) -> FloatArray:
    z: FloatArray = X @ coefficients[:-1] + coefficients[-1]
    return z
