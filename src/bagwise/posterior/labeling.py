"""The most probable labeling of a bag among those that have its counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray, Potentials, check_bags
from bagwise.errors import InputError
from bagwise.posterior._engine import bridge, is_given_tensor, plain
from bagwise.posterior._flow import assign, possible_classes
from bagwise.posterior._kernels import kernel, over_bags
from bagwise.posterior._result import checked, windows_of

if TYPE_CHECKING:
    import torch


@overload
def most_probable_labeling(log_probs: npt.NDArray[np.floating], bags: Bags) -> IntArray: ...
@overload
def most_probable_labeling(log_probs: torch.Tensor, bags: Bags) -> torch.Tensor: ...


def most_probable_labeling(log_probs: Any, bags: Bags) -> Any:
    """The labels Y that maximize sum_k log p[k, Y_k] among those with exactly the bags' counts.

    Where counts are not exact, they maximize sum_k log p[k, Y_k] + sum_c log f_c(N_c): potentials
    decide with the instances.

    A transport problem, solved exactly by successive shortest paths over the classes: about
    K (K + C^2) steps a bag.

    Args:
        log_probs: (N, C) logarithms of class probabilities, an array or a tensor; rows need not be
            normalized.
        bags: sizes and counts of the bags of these N instances.

    Returns:
        (N,) labels: an array, or a tensor on the device of `log_probs`. Of bags with weighted rows,
        (N, C) how many of the instances that a row stands for carry each label.

    >>> log_probs = np.log([[.9, .1], [.8, .2], [.7, .3]])
    >>> most_probable_labeling(log_probs, Bags([3], [[1, 2]]))
    array([0, 1, 1])
    >>> most_probable_labeling(log_probs[:2], Bags([2], [[4, 3]], weights=[5, 2]))
    array([[4, 1],
           [0, 2]])
    """
    check_bags(bags, "most_probable_labeling")
    if is_given_tensor(log_probs):
        return bridge().labeling_of_tensor(log_probs, bags)
    log_p, _ = checked(plain(log_probs, bags), bags)
    labels = np.zeros(log_p.shape, dtype=np.int64)
    if bags.potentials is not None:
        _refuse_bumps(bags.potentials)
    windows = windows_of(bags)

    def run(part: IntArray) -> None:
        _label(part, log_p, bags.offsets, bags.copies, bags.min_counts, *windows, labels)

    over_bags(run, np.arange(len(bags)), bags.sizes * (bags.sizes + bags.n_classes**2.0))
    return labels.argmax(axis=1) if bags.weights is None else labels


def _refuse_bumps(known: Potentials) -> None:
    """Potentials that are not log-concave could have better labelings than are found."""
    finite = np.isfinite(known.log_f)
    log_f = np.where(finite, known.log_f, 0.0)
    rise = np.diff(log_f, prepend=0.0, append=0.0)[1:]  # of entry i + 1 over entry i
    last = np.zeros(len(known.log_f), dtype=np.bool_)
    last[known.begins[1:] - 1] = True
    inner = ~(last | np.roll(last, -1))[:-1]
    steeper = rise[1:] > rise[:-1] + 1e-6 * (1.0 + np.abs(rise[:-1]))
    if (inner & steeper).any() or not finite.all():
        raise InputError(
            "the potentials of some bags are not log-concave (they fall and rise again), and the "
            "most probable labeling is then not found; use the posterior weights of bag_posterior."
        )


@kernel
def _label(
    index: IntArray,
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    labels: IntArray,
) -> None:
    C = low.shape[1]
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        windows = begins[bag * C : (bag + 1) * C + 1]
        classes = possible_classes(low[bag], windows)
        placed = np.empty((offsets[bag + 1] - offsets[bag], len(classes)), np.int64)
        filled = np.empty(len(classes), np.int64)
        moves = np.empty((len(classes), len(classes)))
        log_p, m = log_probs[rows], copies[rows]
        assign(log_p, low[bag], windows, log_f, classes, m, placed, filled, moves)
        for a in range(len(classes)):
            for k in range(len(m)):
                labels[offsets[bag] + k, classes[a]] = placed[k, a]
