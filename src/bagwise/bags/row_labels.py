"""Labels of single instances, and whether they agree with what is known of their bags."""

from __future__ import annotations

import numpy as np

from bagwise.bags.arrays import FloatArray, IntArray, first, shown_row
from bagwise.errors import InputError, Place


def refuse_wrong_labels(
    labels: IntArray,
    offsets: IntArray,
    least: IntArray,
    most: IntArray,
    weights: IntArray,
) -> IntArray:
    """Refuse labels (N,) that there are not, or that the counts of a bag rule out.

    Returns (B, C), how many instances of each bag are labeled so.
    """
    n_classes = least.shape[1]
    if len(labels) != offsets[-1]:
        raise InputError(
            f"there are {len(labels)} labels, but the bags have {offsets[-1]} instances; give one "
            "for each, and -1 where it is not known."
        )
    if (bad := first((labels < -1) | (labels >= n_classes))) is not None:
        raise InputError(
            "the label of ",
            Place("row", bad),
            f" is {labels[bad]}; labels lie in 0 .. {n_classes - 1}, and -1 says that one is not "
            "known.",
        )
    rows = np.flatnonzero(labels >= 0)
    bag_of_row = np.searchsorted(offsets, np.arange(len(labels)), side="right") - 1
    cells = bag_of_row[rows] * n_classes + labels[rows]
    known = weighted_bincount(cells, weights[rows], least.size).reshape(least.shape)
    bags = (known > most).any(axis=1)
    if (bad := first(bags)) is not None:
        c = int(np.argmax(known[bad] > most[bad]))
        labeled = rows[cells == bad * n_classes + c]
        row = labeled[np.argmax(np.cumsum(weights[labeled]) > most[bad, c])]  # one too many
        raise InputError(
            Place("row", row),
            " is labeled ",
            Place("class", c),
            ", but ",
            Place("bag", bad),
            f" has at most {most[bad, c]} instances of that class and {known[bad, c]} are labeled "
            f"so; its counts are at most {shown_row(most[bad])}. Correct the label or the counts, "
            "or give the counts as noisy or as ranges.",
        )
    unknown = np.add.reduceat(weights, offsets[:-1]) - known.sum(axis=1)
    missing = np.maximum(least - known, 0).sum(axis=1)
    if (bad := first(missing > unknown)) is not None:
        row = int(offsets[bad] + np.argmax(labels[offsets[bad] : offsets[bad + 1]] >= 0))
        raise InputError(
            "the labels of ",
            Place("bag", bad),
            " (",
            Place("row", row),
            f" is its first) leave {unknown[bad]} instances without one, but its counts of at "
            f"least {shown_row(least[bad])} need {missing[bad]} more; correct the labels or the "
            "counts.",
        )
    return known


def others_impossible(log_probs: FloatArray, labels: IntArray | None) -> FloatArray:
    """log_probs (N, C) with -inf for what known labels (N,) rule out."""
    if labels is None:
        return log_probs
    is_other = (labels[:, None] >= 0) & (labels[:, None] != np.arange(log_probs.shape[1]))
    return np.where(is_other, -np.inf, log_probs)


def weighted_bincount(places: IntArray, weights: IntArray, n: int) -> IntArray:
    """(n,) the sum of the weights at each place."""
    return np.bincount(places, weights, minlength=n).astype(np.int64)


def counts_of_labels(
    labels: IntArray, sizes: IntArray, n_classes: int | None, weights: IntArray | None
) -> IntArray:
    """(B, C) counts of labels that are all known."""
    if sizes.sum() != len(labels):
        raise InputError(
            f"sizes sum to {sizes.sum()}, but there are {len(labels)} labels; "
            "give one label for each instance."
        )
    if n_classes is None:
        n_classes = int(labels.max()) + 1 if len(labels) else 0
    if (bad := first((labels < 0) | (labels >= n_classes))) is not None:
        raise InputError(
            f"the label of row {bad} is {labels[bad]}; "
            f"labels must lie in 0 .. {n_classes - 1} (n_classes={n_classes})."
        )
    cells = np.repeat(np.arange(len(sizes)), sizes) * n_classes + labels
    weights = np.ones_like(labels) if weights is None else weights
    return weighted_bincount(cells, weights, len(sizes) * n_classes).reshape(len(sizes), n_classes)
