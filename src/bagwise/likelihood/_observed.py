"""The observed information: minus the second derivative of the log-likelihood, bag by bag."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.likelihood._lattice_spread import lattice_spread
from bagwise.likelihood._pair_spread import pair_spread
from bagwise.likelihood.objective import BagLikelihood, Evaluation
from bagwise.posterior import lattice_states

_ROWS = 8192  # whose products are added up at a time, while they are near
_CHUNK = 8_000_000  # numbers that the kernels fill at a time
_LEAST = 16  # instances from which a bag of two classes is not computed by the lattice
_MOST_STATES = 2.0**18  # of a lattice; wide ranges of counts in large bags have more
_POINTS = 60.0  # steps for each row and column of a bag of two classes


def observed_information(
    likelihood: BagLikelihood, theta: FloatArray, found: Evaluation
) -> FloatArray:
    """(P, P) minus the second derivative of log P(S|X), of exact likelihoods without bag effects.

    In the coordinates of `contrasts`, with T_k the covariance of the label of row k by the model,

        I = sum_k T_k (x) x_k x_k'  -  sum_b Cov(sum_k Y_k (x) x_k | S_b)

    The second covariance is that of labels given the counts. It comes from the characteristic
    function for bags of two classes (`pair_spread`), and for others from one pass over the lattice
    that carries all P sums along (`lattice_spread`). Nothing is a difference quotient.
    """
    bags, basis, X1 = likelihood.bags, likelihood.basis, likelihood.X1
    d, D = X1.shape[1], basis.shape[1]
    z: FloatArray = bags.others_impossible(X1 @ theta @ basis.T)
    p = found.probabilities
    q = p @ basis
    T = np.einsum("kc,ce,cf->kef", p, basis, basis, optimize=True) - q[:, :, None] * q[:, None, :]
    T *= bags.copies[:, None, None]
    total = np.zeros((d, D, d, D))
    several = (bags.max_counts > 0).sum(axis=1) > 1
    pairs = _are_pairs(bags)
    _take_pairs(np.flatnonzero(pairs), X1, z, bags, basis, T, total)
    _take_lattices(np.flatnonzero(several & ~pairs), X1, z, bags, basis, T, total)
    for begin in range(0, len(X1), _ROWS):
        x, t = X1[begin : begin + _ROWS], T[begin : begin + _ROWS]
        for e in range(D):
            for f in range(e + 1):
                of_rows = x.T @ (t[:, e, f, None] * x)
                total[:, e, :, f] += of_rows
                if e != f:
                    total[:, f, :, e] += of_rows
    flat = total.reshape(d * D, d * D)
    return (flat + flat.T) / 2


def is_carried(bags: Bags) -> bool:
    """Whether no bag's lattice is so large that `observed_information` takes too much memory."""
    lattices = np.where(_are_pairs(bags), 0.0, lattice_states(bags))
    return bool(lattices.max() <= _MOST_STATES)


def observed_steps(bags: Bags, n_parameters: int) -> float:
    """Elementary steps that `observed_information` takes, about."""
    pairs = _are_pairs(bags)
    of_bags = np.where(pairs, _POINTS * bags.sizes, lattice_states(bags) * bags.n_classes)
    return float(n_parameters * of_bags.sum())


def _are_pairs(bags: Bags) -> npt.NDArray[np.bool_]:
    """(B,) of two classes, and so many instances that the lattice takes longer."""
    two = (bags.max_counts > 0).sum(axis=1) == 2
    found: npt.NDArray[np.bool_] = two & bags.is_sharp & (bags.totals >= _LEAST)
    return found


def _take_pairs(
    index: IntArray,
    X1: FloatArray,
    z: FloatArray,
    bags: Bags,
    basis: FloatArray,
    T: FloatArray,
    total: FloatArray,
) -> None:
    """Subtract the covariances of bags of two classes, those of the same two at a time."""
    if not len(index):
        return
    here = bags.max_counts[index] > 0
    first = here.argmax(axis=1)
    last = here.shape[1] - 1 - here[:, ::-1].argmax(axis=1)
    names = first * here.shape[1] + last
    d = X1.shape[1]
    for name in np.unique(names):
        one, two = divmod(int(name), here.shape[1])
        apart = np.outer(basis[one] - basis[two], basis[one] - basis[two])
        gram = np.zeros((d, d))
        for part in _parts(index[names == name], 2 * 30 * d * np.ones(len(bags))):
            own, plus, minus = pair_spread(part, one, two, X1, z, bags)
            gram += plus.T @ plus - minus.T @ minus
            rows = bags.rows(part)
            T[rows] -= own[:, None, None] * apart
        total -= gram[:, None, :, None] * apart[None, :, None, :]


def _take_lattices(
    index: IntArray,
    X1: FloatArray,
    z: FloatArray,
    bags: Bags,
    basis: FloatArray,
    T: FloatArray,
    total: FloatArray,
) -> None:
    """Subtract the covariances of bags that the lattice computes."""
    d, D = X1.shape[1], basis.shape[1]
    cross = np.zeros((d, D * D * d))
    for part in _parts(index, bags.sizes * float(D * D * d)):
        own, Y = lattice_spread(part, X1, z, bags, basis)
        rows = bags.rows(part)
        cross += X1[rows].T @ Y.reshape(len(rows), -1)
        T[rows] -= own
    both = cross.reshape(d, D, D, d).transpose(0, 1, 3, 2)
    total -= both + both.transpose(2, 3, 0, 1)


def _parts(index: IntArray, numbers: npt.NDArray[np.floating]) -> list[IntArray]:
    """Bags some at a time, of not many more than `_CHUNK` numbers (B,) together."""
    if not len(index):
        return []
    ends = np.cumsum(numbers[index]) // _CHUNK
    cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(index)]
    return [index[begin:end] for begin, end in pairwise(cuts)]
