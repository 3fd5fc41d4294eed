"""The most probable labeling of a bag among those that have its counts."""

from __future__ import annotations

import numpy as np
import torch

from bagwise.bags import Bags, FloatArray, IntArray
from bagwise.posterior._kernels import kernel, over_bags
from bagwise.posterior._result import checked_array
from bagwise.posterior._tilt import assign, classes_by_count


def most_probable_labeling(log_probs: torch.Tensor, bags: Bags) -> torch.Tensor:
    """The labels Y that maximise sum_k log p[k, Y_k] among those with exactly the bags' counts.

    A transport problem, solved exactly by successive shortest paths over the classes: about
    K (K + C^2) steps a bag.

    Args:
        log_probs: (N, C) logarithms of class probabilities; rows need not be normalised.
        bags: sizes and counts of the bags of these N instances.

    Returns:
        (N,) labels, integers on the device of `log_probs`.

    >>> log_probs = torch.tensor([[.9, .1], [.8, .2], [.7, .3]]).log()
    >>> most_probable_labeling(log_probs, Bags([3], [[1, 2]]))
    tensor([0, 1, 1])
    """
    log_p, _ = checked_array(log_probs, bags)
    labels = np.empty(len(log_p), dtype=np.int64)

    def run(part: IntArray) -> None:
        _label(part, log_p, bags.offsets, bags.counts, labels)

    over_bags(run, np.arange(len(bags)), bags.sizes * (bags.sizes + bags.n_classes**2.0))
    return torch.from_numpy(labels).to(log_probs.device)


@kernel
def _label(
    index: IntArray, log_probs: FloatArray, offsets: IntArray, counts: IntArray, labels: IntArray
) -> None:
    for bag in index:
        rows = slice(offsets[bag], offsets[bag + 1])
        classes = classes_by_count(counts[bag])
        assigned = np.empty(offsets[bag + 1] - offsets[bag], np.int64)
        moves = np.empty((len(classes), len(classes)))
        assign(log_probs[rows], counts[bag], classes, assigned, moves)
        labels[rows] = classes[assigned]
