"""How sure the coefficients of a linear model are that was fitted to rows read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bagwise.bags import Bags
from bagwise.likelihood._information import expected_information, leveraged_scores
from bagwise.likelihood.coefficient_intervals import Covariance, of_contrasts, penalised, sandwich
from bagwise.likelihood.in_pieces import Read
from bagwise.likelihood.linear_fit import LinearFit, occurring
from bagwise.likelihood.objective import BagLikelihood, Evaluation, contrasts


def covariance_in_pieces(read: Read, bags: Bags, fit: LinearFit, *, most: int) -> Covariance:
    """What `covariance` says, of rows that are read piece by piece, in two passes.

    The information is the expected one. With a weaker ridge than predictions have intervals are
    better: see `fit_for_intervals`, and let `fit_in_pieces` begin at the fit of predictions.

    Args:
        read: called with two numbers of rows, gives the features of those between, (n, d).
        bags: sizes and counts of the bags.
        fit: to these bags, without bag effects.
        most: rows that are read at a time, or those of the largest bag.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 1))
    >>> bags = Bags.from_labels((X[:, 0] + rng.logistic(size=600) > 0).astype(int), [6] * 100)
    >>> from bagwise.likelihood import fit_linear
    >>> fit = fit_linear(X, bags, ridge=0.1)
    >>> found = covariance_in_pieces(lambda begin, end: X[begin:end], bags, fit, most=50)
    >>> slope = fit.weights[0, 1] - fit.weights[0, 0]
    >>> bool(abs(slope - 1) < found.quantile() * found.error_of([[-1., 1.], [0., 0.]]))
    True
    """
    part, classes = occurring(bags)
    basis = contrasts(len(classes))
    theta = np.vstack([fit.weights, fit.intercept])[:, classes] @ basis
    penalty = np.full(theta.shape, fit.ridge)
    penalty[-1] = 0.0  # of intercepts

    def pieces() -> Iterator[tuple[BagLikelihood, Evaluation]]:
        for index in part.batches(most):
            X = read(int(part.offsets[index[0]]), int(part.offsets[index[-1] + 1]))
            likelihood = BagLikelihood(X, part.select(index))
            yield likelihood, likelihood.evaluate(theta)

    information = np.zeros((theta.size, theta.size))
    for likelihood, found in pieces():
        information += expected_information(likelihood, theta, found, 0.0)
    inverse = cho_solve(cho_factor(penalised(information, penalty)), np.eye(theta.size))
    outer = np.zeros(inverse.shape)
    for likelihood, found in pieces():
        scores = leveraged_scores(likelihood, theta, found, 0.0, inverse)
        outer += scores.T @ scores
    small = sandwich(inverse, outer, len(bags))
    return of_contrasts(fit, small, basis, classes, len(bags), "expected")
