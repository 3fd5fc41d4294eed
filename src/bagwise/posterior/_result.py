"""What every engine takes and returns."""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, Groupings, IntArray, check_bags
from bagwise.bags.potentials import of_counts
from bagwise.errors import InputError
from bagwise.posterior._flow import assign, possible_classes
from bagwise.posterior._kernels import kernel

_LARGEST = 1e13

Values = TypeVar("Values")
"""Arrays of numpy, or tensors of PyTorch: what is given, and what comes back."""


class Posterior(NamedTuple, Generic[Values]):
    """What the label counts say about each instance: arrays, or tensors if a tensor was given.

    Attributes:
        log_likelihood: (B,) log P(S|X); a tensor can be differentiated by the log-probabilities.
        weights: (N, C) P(Y_k = c | S, X), without a gradient.
        bound: (B,) what is proved of each bag's answer, but for rounding: P(S|X) is no smaller than
            the value found and at most 1 + bound times as large, and the weights of its instances
            are off by at most 2 bound in L1 distance. 0 where all labelings were counted, inf where
            nothing is proved. None of engines that do not say. As a tensor it is on the CPU, in
            double precision, wherever the others are: training does not use it.
        asked: the engine that was asked for.

    >>> from bagwise import Bags, bag_posterior
    >>> labels = np.arange(64) % 10
    >>> bags = Bags.join([Bags([1], [[1] + [0] * 9]), Bags.from_labels(labels, [64])])
    >>> certain = 30 * np.eye(10)[[0, *labels]]
    >>> bag_posterior(certain, bags).engine
    ['exact', 'pruned']
    >>> bag_posterior(certain, bags).bound < 5e-7
    array([ True,  True])
    >>> bag_posterior(certain / 30, bags).engine
    ['exact', 'bethe']
    """

    log_likelihood: Values
    weights: Values
    bound: Values | None = None
    asked: str = ""

    @property
    def engine(self) -> list[str]:
        """The engine that computed each bag.

        "exact", "pruned" (the lattice of `exact` without states that carry next to no mass), or one
        that approximates.
        """
        if self.bound is None:
            return [self.asked] * len(cast(Sized, self.log_likelihood))
        other = "bethe" if self.asked == "auto" else self.asked
        found = cast(Any, self.bound).tolist()
        return [other if b == math.inf else "pruned" if b > 0 else "exact" for b in found]


def check_shapes(log_probs: Any, bags: Bags | Groupings, name: str = "log_probs") -> None:
    """Refuse an array or a tensor that cannot be log-probabilities of these bags' instances."""
    check_bags(bags)
    is_array = isinstance(log_probs, np.ndarray)
    if not (log_probs.dtype.kind == "f" if is_array else log_probs.is_floating_point()):
        raise InputError(f"{name} has dtype {log_probs.dtype}; a floating type is expected.")
    if log_probs.shape != (bags.n_instances, bags.n_classes):
        raise InputError(
            f"{name} has shape {tuple(log_probs.shape)}, but these bags have "
            f"{bags.n_instances} instances and {bags.n_classes} classes; "
            f"({bags.n_instances}, {bags.n_classes}) is expected."
        )


def checked(log_p: FloatArray, bags: Bags) -> tuple[FloatArray, FloatArray | None]:
    """log_p (N, C) after all checks of its values.

    Where entries are so large that their differences would drown in rounding errors, each row is
    shifted to a largest entry of 0, and finite entries below -1e13 become -1e13.

    Returns:
        ((N, C) the array, (B,) what the shifts took from each bag's log-likelihood, or None).
    """
    lowest, highest = log_p.min(), log_p.max()
    if not highest < np.inf:  # true for NaN too
        _refuse_nan(log_p, bags)
    if lowest == -np.inf:
        _refuse_impossible(log_p, bags)
        lowest = log_p.min(where=log_p > -np.inf, initial=0.0)
    if lowest >= -_LARGEST and highest <= _LARGEST:
        return log_p, None
    tops = log_p.max(axis=1)
    shifted = log_p - tops[:, None]
    log_p = np.where(shifted > -np.inf, np.maximum(shifted, -_LARGEST), -np.inf)
    return log_p, np.add.reduceat(tops * bags.copies, bags.offsets[:-1])


def windows_of(bags: Bags) -> tuple[IntArray, FloatArray]:
    """Where the windows of possible counts begin, and the logarithms of their potentials; a sharp
    count is a window of one.
    """
    known = bags.potentials or of_counts(bags.min_counts, bags.totals)
    for array in (known.begins, known.log_f):
        array.setflags(write=False)  # as those of bags are: a kernel is compiled for one kind
    return known.begins, known.log_f


def _refuse_nan(log_p: FloatArray, bags: Bags) -> None:
    row, column = np.argwhere(~(log_p < np.inf))[0]
    raise InputError(
        f"log_probs[{row}, {column}] is {log_p[row, column]} (bag {bags.bag_of_row[row]}); every "
        "entry must be a number or -inf. Logits of NaN or infinity give such log-probabilities; if "
        "the model diverged, lower the learning rate or standardize its inputs."
    )


def _refuse_impossible(log_p: FloatArray, bags: Bags) -> None:
    possible = np.ones(len(bags), dtype=np.bool_)
    begins, log_f = windows_of(bags)
    flat = np.zeros(len(log_f))  # whether counts within the windows can be reached
    _find_possible(log_p, bags.offsets, bags.copies, bags.min_counts, begins, flat, possible)
    if not possible.all():
        bag, n_bags = int(np.argmin(possible)), int((~possible).sum())
        others = f" ({n_bags} bags in all)" if n_bags > 1 else ""
        least, most = bags.min_counts[bag].tolist(), bags.max_counts[bag].tolist()
        counts = f"{least}" if least == most else f"from {least} to {most}"
        raise InputError(
            f"no labeling of bag {bag}{others} has its counts {counts}: too "
            "many log-probabilities are -inf. Use finite log-probabilities (log_softmax gives "
            "them), or check the counts."
        )


@kernel
def _find_possible(
    log_probs: FloatArray,
    offsets: IntArray,
    copies: IntArray,
    low: IntArray,
    begins: IntArray,
    log_f: FloatArray,
    possible: npt.NDArray[np.bool_],
) -> None:
    C = low.shape[1]
    for bag in range(len(low)):
        log_p = log_probs[offsets[bag] : offsets[bag + 1]]
        if log_p.min() == -np.inf:
            windows = begins[bag * C : (bag + 1) * C + 1]
            classes = possible_classes(low[bag], windows)
            placed = np.empty((len(log_p), len(classes)), np.int64)
            filled = np.empty(len(classes), np.int64)
            moves = np.empty((len(classes), len(classes)))
            m = copies[offsets[bag] : offsets[bag + 1]]
            possible[bag] = assign(
                log_p, low[bag], windows, log_f, classes, m, placed, filled, moves
            )
