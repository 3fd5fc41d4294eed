"""Model selection on whole bags, without instance labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import GroupKFold

from bagwise.bags import Groupings, IntArray
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.labels.label_spec import LabelsAre
from bagwise.labels.mixups import warn_of_other_rows
from bagwise.labels.proportions import Proportions
from bagwise.labels.targets import bag_targets
from bagwise.likelihood._overlap import Overlap
from bagwise.posterior import log_likelihoods


class BagKFold(GroupKFold):  # type: ignore[misc]
    """K-fold cross-validation over whole bags: no bag is ever split.

    The bag ids are `groups`, or, where these are not given, the second argument of `split`, as they
    are of `LLPClassifier.fit`. So it serves as `cv` of scikit-learn's search and validation
    functions. Give them a `bag_scorer` too: their default is accuracy, which has no meaning for bag
    ids. `cross_val_predict` encodes its second argument; give it the ids by name:
    `cross_val_predict(model, X, groups=bags, cv=BagKFold(), method="predict_proba",
    params={"bags": bags, "proportions": proportions})`.

    Args:
        n_splits: number of folds.
        shuffle: put bags into folds at random; otherwise folds are balanced by rows.
        random_state: seed of the shuffling.

    >>> bags = ["a", "a", "b", "b", "c"]
    >>> for train, test in BagKFold(3).split(np.zeros((5, 1)), bags):
    ...     print([bags[row] for row in test])
    ['b', 'b']
    ['a', 'a']
    ['c']
    """

    def __init__(
        self, n_splits: int = 5, shuffle: bool = False, random_state: int | None = None
    ) -> None:
        super().__init__(n_splits, shuffle=shuffle, random_state=random_state)

    def split(
        self, X: Any, y: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
        """Rows to train on and rows to test on, fold by fold."""
        bags = y if groups is None else groups
        if bags is None:
            raise InputError("BagKFold needs the bag of each row: split(X, bags).")
        yield from super().split(X, groups=np.asarray(bags))


def bag_scorer(
    proportions: Proportions, labels_are: LabelsAre = "auto"
) -> Callable[[Any, Any, npt.ArrayLike], float]:
    """A scorer that needs no instance label: the mean log P(S|X) / K of held-out bags.

    It scores anything that has `predict_proba` and `classes_`, a pipeline for instance.

    Args:
        proportions: a mapping or data frame with what is known of every bag.
        labels_are: what its numbers are, as for `LLPClassifier.fit`.

    >>> scorer = bag_scorer({"a": [1, 1]})        # GridSearchCV(..., scoring=scorer)
    """

    def score(estimator: Any, X: Any, bags: npt.ArrayLike) -> float:
        warn_of_other_rows(X=X, bags=bags)
        targets = bag_targets(bags, proportions, estimator.classes_, labels_are)
        probabilities = np.asarray(estimator.predict_proba(X), dtype=np.float64)[targets.order]
        log_probs = np.log(np.maximum(probabilities, 1e-300))
        return float(log_likelihoods(log_probs, targets.bags).sum()) / len(log_probs)

    return score


def split_bags(data: BagData, fraction: float, seed: int) -> tuple[BagData, BagData | None]:
    """Hold out this share of the bags, at random; None where that would be no bag, or all.

    Of several groupings, this share of each, and their rows stay in the bags of other groupings. If
    there are at least 20 groups of connected bags, such groups are held out instead.

    >>> from bagwise import Bags
    >>> data = BagData(torch.zeros(20, 2), Bags([2] * 10, [[1, 1]] * 10))
    >>> train_part, held_out = split_bags(data, 0.3, seed=0)
    >>> len(train_part), len(held_out)
    (14, 6)
    """
    if not (isinstance(fraction, int | float | np.number) and 0 < fraction < 1):
        raise InputError(
            f"the share of bags to hold out is {fraction!r}; a number between 0 and 1 is expected."
        )
    generator = torch.Generator().manual_seed(seed)

    def some(n: int) -> IntArray:
        """Numbers of this share of n things."""
        return torch.randperm(n, generator=generator)[: round(fraction * n)].numpy()

    B = len(data.bags)
    held_out = some(B) if data.groupings is None else _of_groupings(data.groupings, some)
    if not 0 < len(held_out) < B:
        return data, None
    held_out = np.sort(held_out)
    return data.select(np.setdiff1d(np.arange(B), held_out)), data.select(held_out)


def _of_groupings(groupings: Groupings, some: Callable[[int], IntArray]) -> IntArray:
    """Bags of all groupings to hold out: connected ones together, or some of each grouping."""
    rows, bags = groupings.stacked()
    clusters = Overlap.of(rows, bags).clusters
    if clusters is not None:
        return np.flatnonzero(np.isin(clusters, some(int(clusters.max()) + 1)))
    sizes = [len(g.bags) for g in groupings]
    begins = np.cumsum([0, *sizes[:-1]])
    return np.concatenate([begin + some(n) for begin, n in zip(begins, sizes, strict=True)])
