"""What `fit` is given, as bags: one grouping or several, labels, and rows that stand for many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from bagwise.bags import Bags, Groupings, IntArray
from bagwise.errors import InputError
from bagwise.estimator.rows_as_tensors import Rows
from bagwise.labels.grouping_targets import frequencies, grouping_targets
from bagwise.labels.mixups import warn_of_ids
from bagwise.labels.targets import bag_targets, label_targets


class GivenBags(NamedTuple):
    """Rows and what is known of their labels.

    Attributes:
        rows: of the user's rows those that are there, in their order.
        bags: of all rows in `order`, or several groupings of the rows as they are.
        order: (N,) the rows in the order of `bags`; None of groupings.
        classes: (C,) class labels.
    """

    rows: Rows
    bags: Bags | Groupings
    order: IntArray | None
    classes: npt.NDArray[Any]


def given_bags(
    rows: Rows,
    ids: Any,
    proportions: Any,
    labels_are: Any = "auto",
    row_labels: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
    classes: npt.NDArray[Any] | None = None,
) -> GivenBags:
    """What is known of rows.

    Args:
        ids: (N,) bag ids, or labels without `proportions`; of several groupings, by name.
        proportions, labels_are, row_labels, sample_weight: as `LLPClassifier.fit` takes them.
        classes: the classes to expect, where a model already knows them.
    """
    several = isinstance(ids, dict)
    copies = frequencies(sample_weight, rows.shape[0])
    if copies is not None and not copies.all():
        there = np.flatnonzero(copies)
        rows, copies = rows[there], copies[there]
        ids = {n: np.asarray(x)[there] for n, x in ids.items()} if several else ids[there]
        row_labels = None if row_labels is None else np.asarray(row_labels)[there]
    if several:
        found, classes = grouping_targets(ids, proportions, classes, labels_are, row_labels, copies)
        return GivenBags(rows, found, None, classes)
    if proportions is not None:
        targets = bag_targets(ids, proportions, classes, labels_are, row_labels, copies)
        return GivenBags(rows, targets.bags, targets.order, targets.classes)
    if row_labels is not None:
        raise InputError(
            "row_labels go with bags and proportions, but y are labels here; leave one out."
        )
    check_classification_targets(ids)
    if copies is not None:  # bags of one, as many as there are instances
        repeated = np.repeat(np.arange(len(copies)), copies)
        rows, ids = (rows.tocsr() if sparse.issparse(rows) else rows)[repeated], ids[repeated]
    warn_of_ids(ids)
    targets = label_targets(ids, classes)
    return GivenBags(rows, targets.bags, targets.order, targets.classes)
