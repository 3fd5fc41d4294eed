"""Bag ids taken for labels, and other mix-ups of what `fit` and `score` are given, told apart."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from bagwise.errors import InputError, warn_user


def warn_of_ids(labels: npt.NDArray[Any]) -> None:
    """Warn if what a supervised fit takes for labels looks like bag ids: many, of few rows each.

    Data sets with labels have few classes of many rows: over 5 C rows a class in all but the
    smallest (CIFAR-100: 500, digits: 180), where bags are many and have seldom over 5 B rows.
    """
    n_rows, n_classes = len(labels), len(np.unique(labels))
    if n_classes > 100 or (n_classes > 5 and n_rows < 5 * n_classes**2):
        warn_user(
            f"fit was given no proportions, so the {n_classes} different values of y in {n_rows} "
            "rows are taken for class labels. If they are bag ids, give what is known of the bags: "
            "fit(X, bags, proportions), or pipeline.fit(X, bags, "
            "llpclassifier__proportions=proportions), or params={'proportions': ...} of "
            "scikit-learn's cross-validation. If they are labels, all is well."
        )


def refuse_swapped(y: Any) -> None:
    """The ids and the proportions in each other's place."""
    if isinstance(y, Mapping) or (hasattr(y, "columns") and len(y.columns) > 1):
        raise InputError(
            f"y is a {type(y).__name__}; the bag id of each row is expected second, and the "
            "proportions third: fit(X, bags, proportions)."
        )


def warn_of_other_rows(**given: Any) -> None:
    """Warn where pandas objects with a row for each instance have them in another order.

    They are combined by position, as in scikit-learn. A plain numbering 0, 1, 2, ... beside names
    of rows tells nothing: it is what `reset_index` leaves.

    Args:
        given: what is combined, by name; anything but pandas objects is passed over.
    """
    indexes = {name: x.index for name, x in given.items() if hasattr(x, "iloc")}
    for (one, index), (other, own) in combinations(indexes.items(), 2):
        if len(index) != len(own) or index.equals(own):
            continue
        numbered = any(_is_numbering(x) for x in (index, own))
        if not numbered or index.isin(own).all():
            warn_user(
                f"the rows of {one} and {other} have different indexes ({index[0]!r} and "
                f"{own[0]!r} in the first row), but are combined by position. Put them into the "
                f"same order, {other}.loc[{one}.index] for instance; if they are, use reset_index."
            )
            return


def _is_numbering(index: Any) -> bool:
    return bool(np.array_equal(np.asarray(index), np.arange(len(index))))


def refuse_ids_as_labels(y: npt.ArrayLike, classes: npt.NDArray[Any]) -> None:
    """Accuracy against anything that is not a class is not accuracy."""
    known = set(classes.tolist())
    others = list(dict.fromkeys(v for v in np.asarray(y).ravel().tolist() if v not in known))
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise InputError(
            f"y has {', '.join(map(repr, others[:3]))}{more}, which are not classes of the model; "
            "score compares predictions with the true labels of single instances. If y holds bag "
            "ids, use bag_score(X, bags, proportions), and scoring=bag_scorer(proportions) in "
            "scikit-learn's searches and cross-validation."
        )


def refuse_unknown_labels(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> None:
    """Refuse labels of rows that the model never saw; they may be bag ids."""
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise InputError(
            f"row {row} has the label {labels.tolist()[row]!r}, which the model never saw; if it "
            "is a bag id, give the proportions too."
        )


def three_parts(validation: Any) -> tuple[Any, Any, Any]:
    """Validation data, if they have the parts that they should have."""
    if not isinstance(validation, tuple | list) or len(validation) != 3:
        given = f"{len(validation)} parts" if hasattr(validation, "__len__") else "no parts"
        raise InputError(f"validation has {given}; (X, bags, proportions) are expected.")
    X, bags, proportions = validation
    return X, bags, proportions
