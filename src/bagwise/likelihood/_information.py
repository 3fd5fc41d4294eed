"""The information that bags hold about a linear model, where counts are not exact too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood._curvature import information_rows
from bagwise.likelihood._quadratic import MOST_CLASSES, quadratic_rows
from bagwise.likelihood.objective import BagLikelihood, Evaluation
from bagwise.posterior._kernels import kernel, over_bags
from bagwise.posterior.auto import AUTO_STATES, fill_auto

_STEP = 3e-3  # of logits, in differences of expected counts
_MOST_LEVERAGE = 0.9


def expected_information(
    likelihood: BagLikelihood, theta: FloatArray, found: Evaluation, tau: float
) -> FloatArray:
    """(P, P) what all bags say, by `bag_information`, and labels that are known."""
    total = label_information(likelihood, found)
    P = len(total)
    for _, rows in bag_information(likelihood, theta, found, tau):
        A = rows.reshape(-1, P)
        total += A.T @ A
    return total


def leveraged_scores(
    likelihood: BagLikelihood, theta: FloatArray, found: Evaluation, tau: float, inverse: FloatArray
) -> FloatArray:
    """(B, P) the scores of bags, with the factor that makes up for their pull.

    For a bag's information A'A it is g + A' (1 - A H^-1 A')^-1 A H^-1 g.
    """
    scores = bag_scores(likelihood.X1, found.residuals @ likelihood.basis, likelihood.bags)
    for part, A in bag_information(likelihood, theta, found, tau):
        AH = A @ inverse
        leverage = AH @ A.transpose(0, 2, 1)
        values, vectors = np.linalg.eigh(leverage)
        kept = 1.0 / (1.0 - np.clip(values, 0.0, _MOST_LEVERAGE))
        pull = (AH @ scores[part][:, :, None])[:, :, 0]
        turned = (vectors.transpose(0, 2, 1) @ pull[:, :, None])[:, :, 0] * kept
        scores[part] += ((vectors @ turned[:, :, None]).transpose(0, 2, 1) @ A)[:, 0]
    return scores


def bag_scores(h: FloatArray, residuals: FloatArray, bags: Bags) -> FloatArray:
    """(B, d D) sums over the rows of each bag of h (N, d) times residuals (N, D), D in turn."""
    scores = np.zeros((len(bags), h.shape[1] * residuals.shape[1]))

    def run(index: IntArray) -> None:
        _bag_scores(index, h, residuals, bags.offsets, scores)

    over_bags(run, np.arange(len(bags)), bags.sizes * float(scores.shape[1]))
    return scores


@kernel
def _bag_scores(
    index: IntArray, h: FloatArray, residuals: FloatArray, offsets: IntArray, scores: FloatArray
) -> None:
    d, D = h.shape[1], residuals.shape[1]
    for bag in index:
        for k in range(offsets[bag], offsets[bag + 1]):
            for j in range(d):
                for e in range(D):
                    scores[bag, j * D + e] += h[k, j] * residuals[k, e]


def bag_information(
    likelihood: BagLikelihood, theta: FloatArray, found: Evaluation, tau: float
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Rows A of the information A'A of bags, some at a time: those of `information_rows` and, of
    exact counts of few classes without bag effects, of `quadratic_rows`.

    Where counts N are not exact, their covariance given what is known, W, is not 0, and the best
    linear score is that of their expectation:

        (dm / d theta)' V^-1 (V - W) V^-1 (dm / d theta)

    W is the derivative of the expected counts by an intercept of the bag. Rows whose label is known
    are not part of the sums m and V, see `label_information`.
    """
    bags, D = likelihood.bags, likelihood.basis.shape[1]
    p = found.probabilities
    labeled = _labeled_rows(likelihood)
    if len(labeled):
        assert bags.row_labels is not None
        p = p.copy()
        p[labeled] = np.eye(bags.n_classes)[bags.row_labels[labeled]]
    spread = None if bags.potentials is None else count_covariances(likelihood, theta)
    of_bags = likelihood.X1, p, bags.offsets, bags.copies, likelihood.basis
    for part, rows in information_rows(*of_bags, tau):
        if spread is not None:
            soft = np.flatnonzero(~bags.is_sharp[part])
            if len(soft):
                V = prior_covariances(likelihood, p, part[soft]) + 1e-12 * np.eye(D)
                inverse = np.linalg.inv(np.linalg.cholesky(V))
                kept = np.eye(D) - inverse @ spread[part[soft]] @ inverse.transpose(0, 2, 1)
                values, vectors = np.linalg.eigh((kept + kept.transpose(0, 2, 1)) / 2)
                root = vectors * np.sqrt(np.clip(values, 0.0, 1.0))[:, None, :]
                rows[soft] = root.transpose(0, 2, 1) @ rows[soft]
        sharp = bags.is_sharp[part]
        if tau == 0 and bags.n_classes <= MOST_CLASSES and sharp.any():
            more = quadratic_rows(*of_bags, part)
            more[~sharp] = 0.0
            rows = np.concatenate([rows, more], axis=1)
        yield part, rows


def label_information(likelihood: BagLikelihood, found: Evaluation) -> FloatArray:
    """(P, P) the information of labels of rows that are known, in bags of several instances; those
    in bags of one are counts, too.
    """
    X1, basis = likelihood.X1, likelihood.basis
    d, D = X1.shape[1], basis.shape[1]
    labeled = _labeled_rows(likelihood)
    total = np.zeros((d, D, d, D))
    X, p, copies = X1[labeled], found.probabilities[labeled], likelihood.bags.copies[labeled]
    q = p @ basis
    for e in range(D):
        for f in range(D):
            T = p @ (basis[:, e] * basis[:, f]) - q[:, e] * q[:, f]
            total[:, e, :, f] = X.T @ ((copies * T)[:, None] * X)
    return total.reshape(d * D, d * D)


def _labeled_rows(likelihood: BagLikelihood) -> IntArray:
    """Rows with a label in bags of several instances."""
    bags = likelihood.bags
    if bags.row_labels is None:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero((bags.row_labels >= 0) & (bags.totals[bags.bag_of_row] > 1))


def count_covariances(likelihood: BagLikelihood, theta: FloatArray) -> FloatArray:
    """(B, D, D) the covariance of counts given what is known of the bags, by differences."""
    bags, basis = likelihood.bags, likelihood.basis
    z: FloatArray = likelihood.X1 @ theta @ basis.T
    value, weights = np.empty(len(bags)), np.empty(z.shape)
    found = np.empty((len(bags), basis.shape[1], basis.shape[1]))
    for e in range(basis.shape[1]):
        counts = []
        for sign in (1, -1):
            possible = bags.others_impossible(z + sign * _STEP * basis[:, e])
            fill_auto(possible, bags, value, weights, AUTO_STATES)
            counts.append(np.add.reduceat(bags.copies[:, None] * weights, bags.offsets[:-1]))
        found[:, e] = (counts[0] - counts[1]) @ basis / (2 * _STEP)
    symmetric: FloatArray = (found + found.transpose(0, 2, 1)) / 2
    return symmetric


def prior_covariances(likelihood: BagLikelihood, p: FloatArray, index: IntArray) -> FloatArray:
    """(n, D, D) the covariance of counts by the model alone."""
    bags, basis = likelihood.bags, likelihood.basis
    rows, offsets = bags.rows(index), bags.select(index).offsets[:-1]
    of_rows = bags.copies[rows, None, None] * label_covariances(p[rows], basis)
    return np.add.reduceat(of_rows, offsets)


def label_covariances(p: FloatArray, basis: FloatArray) -> FloatArray:
    """(n, D, D) the covariance of single labels with probabilities (n, C)."""
    q = p @ basis
    square: FloatArray = np.einsum("kc,ce,cf->kef", p, basis, basis, optimize=True)
    return square - q[:, :, None] * q[:, None, :]
