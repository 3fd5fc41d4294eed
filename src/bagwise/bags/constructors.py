"""The ways in which bags are made from what is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from bagwise.bags import make_potentials as known
from bagwise.bags.arrays import (
    IntArray,
    bag_sizes,
    bag_table,
    check_table,
    first,
    refuse_fractions,
    row_weights,
    shown_row,
    totals_of,
    whole_numbers,
    without_torch,
)
from bagwise.bags.bag_arrays import BagArrays
from bagwise.bags.noise import Noise
from bagwise.bags.rounding import counts_of_shares
from bagwise.bags.row_labels import counts_of_labels
from bagwise.errors import InputError, InputTypeError, Place

if TYPE_CHECKING:
    from bagwise.bags.bags import Bags
    from bagwise.labels.label_spec import LabelsAre
    from bagwise.labels.proportions import Proportions


class SortedRows(NamedTuple):
    """Bags of rows that had bag ids, and the order of these rows that they need.

    Attributes:
        bags: sizes and counts of the bags.
        order: (N,) the rows sorted by bag: `inputs[order]` goes with `bags`.
        ids: (B,) the ids of the bags.
        classes: (C,) the classes, in the order of the columns of the counts.
    """

    bags: Bags
    order: IntArray
    ids: npt.NDArray[Any]
    classes: npt.NDArray[Any]


class Constructors(BagArrays):
    """What `Bags` can be made from, besides sizes and counts.

    Each takes `weights`, (N,): how many identical rows each row stands for, as `Bags` does.
    """

    def __init__(
        self, sizes: ArrayLike, counts: ArrayLike, weights: ArrayLike | None = None
    ) -> None:
        raise NotImplementedError

    @staticmethod
    def from_ids(
        ids: Any,
        counts: Proportions,
        *,
        labels_are: LabelsAre = "counts",
        classes: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> SortedRows:
        """Bags of rows that come in any order, each with the id of its bag.

        Args:
            ids: (N,) the bag of each row: integers or strings, a list, an array or a tensor.
            counts: of each bag, by its id: a mapping id -> [number of each class] or
                id -> {class: number}, or a data frame indexed by id with a column for each class.
                Ids without rows are passed over. An array (B, C), in the order of the sorted ids,
                will do where these are numbers without a gap. With two classes, the number of the
                second one is enough.
            labels_are: what the numbers are, if they are not counts; as `LLPClassifier.fit` takes
                it.
            classes: (C,) all classes, in the order of the model's outputs. If not given, they are
                the classes that `counts` has, sorted, or 0 .. C-1.
            weights: (N,) in the order of the ids.

        >>> from bagwise import Bags
        >>> found = Bags.from_ids(["b", "a", "b"], {"a": [1, 0], "b": [1, 1]})
        >>> found.bags.counts
        array([[1, 0],
               [1, 1]])
        >>> found.order, found.ids
        (array([1, 0, 2]), array(['a', 'b'], dtype='<U1'))
        """
        from bagwise.labels.targets import bag_targets  # the forms in which people have counts

        ids = without_torch(ids)
        weights_ = None if weights is None else row_weights(weights, np.array([np.size(ids)]))
        try:
            found = bag_targets(ids, counts, classes, labels_are, weights=weights_)
        except InputError as error:
            names = {"proportions": "counts", "bags": "ids"}
            text = error.worded(lambda option: names.get(option.name, str(option)))
            raise type(error)(text) from None
        return SortedRows(found.bags, found.order, found.ids, found.classes)

    @classmethod
    def from_labels(
        cls,
        labels: ArrayLike,
        sizes: ArrayLike,
        n_classes: int | None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Count the labels of each bag.

        Args:
            labels: (N,) labels 0 .. C-1 of the instances, sorted by bag.
            sizes: (B,) instances per bag; they sum to N.
            n_classes: C; the largest label plus one if not given.

        >>> from bagwise import Bags
        >>> Bags.from_labels([0, 0, 1, 1, 1], sizes=[3, 2]).counts
        array([[2, 1],
               [0, 2]])
        """
        sizes_ = bag_sizes(sizes)
        labels_ = whole_numbers(labels, "labels", ndim=1)
        weights_ = row_weights(weights, sizes_)
        return cls(sizes_, counts_of_labels(labels_, sizes_, n_classes, weights_), weights_)

    @classmethod
    def from_noisy_counts(
        cls,
        counts: ArrayLike,
        sizes: ArrayLike,
        noise: Noise,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Bags whose counts were made noisy, for privacy say.

            f_c(m) = P(noise = counts_c - m), or its density over the largest one

        Args:
            counts: (B, C) the noisy counts. They may be negative, fractional (unless the noise is
                whole) and need not sum to the size; NaN where nothing is known of a class.
            sizes: (B,) instances per bag, which are known.
            noise: `Laplace(scale)`, `DiscreteLaplace(scale)`, `Gaussian(std)` or
                `DiscreteGaussian(std)`, whose width may differ by bag and class; with
                `clipped=True` where noisy counts below 0 were published as 0.

        >>> from bagwise import Bags, Laplace
        >>> bags = Bags.from_noisy_counts([[2.4, -0.7]], sizes=[3], noise=Laplace(1.0))
        >>> bags
        Bags(1 bag, 3 instances, 2 classes, all of size 3, counts not exact)
        >>> bags.expected_counts.round(2)
        array([[2.28, 0.72]])
        """
        sizes_ = bag_sizes(sizes)
        observed = bag_table(counts, sizes_, "counts", gaps=True)
        if not isinstance(noise, Noise):
            raise InputTypeError(
                f"noise is {noise!r}; one of bagwise's is expected, for instance Laplace(4)."
            )
        fractions = (observed != np.rint(observed)) & ~np.isnan(observed)
        if noise.whole and (bad := first(fractions.any(axis=1))) is not None:
            raise InputError(
                Place("bag", bad),
                f" has counts {shown_row(observed[bad])}, but discrete noise leaves whole numbers; "
                "Laplace or Gaussian noise does not.",
            )
        weights_ = row_weights(weights, sizes_)
        found = known.of_noisy_counts(observed, totals_of(sizes_, weights_), noise)
        return cls.of_potentials(found, sizes_, weights_)

    @classmethod
    def from_ranges(
        cls,
        min_counts: ArrayLike,
        max_counts: ArrayLike,
        sizes: ArrayLike,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Bags of whose counts bounds are known, as where small cells are suppressed.

        Args:
            min_counts: (B, C) the least count of each label; NaN for none but 0.
            max_counts: (B, C) the largest count; NaN for none but the size.
            sizes: (B,) instances per bag.

        >>> from bagwise import Bags
        >>> bags = Bags.from_ranges([[1, 0, 0]], [[4, 4, 20]], sizes=[20])
        >>> bags.min_counts, bags.max_counts      # with what the other classes leave
        (array([[ 1,  0, 12]]), array([[ 4,  4, 19]]))
        """
        sizes_ = bag_sizes(sizes)
        bounds = []
        for bound, name in ((min_counts, "min_counts"), (max_counts, "max_counts")):
            bounds.append(bag_table(bound, sizes_, name, gaps=True))
            refuse_fractions(bounds[-1], name)
        if bounds[0].shape != bounds[1].shape:
            raise InputError(
                f"min_counts has shape {bounds[0].shape} and max_counts {bounds[1].shape}; "
                "both need a row for each bag and a column for each class."
            )
        weights_ = row_weights(weights, sizes_)
        found = known.of_ranges(bounds[0], bounds[1], totals_of(sizes_, weights_))
        return cls.of_potentials(found, sizes_, weights_)

    @classmethod
    def from_sample(
        cls,
        population_counts: ArrayLike,
        sizes: ArrayLike,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Bags that are random samples of larger groups, whose counts are known.

            f_c(m) = binomial(population_counts_c, m), with one factor for all classes that makes
                     their product the probability of a random sample

        Args:
            population_counts: (B, C) persons of each label in the whole group.
            sizes: (B,) instances per bag, at most as many as the group has.

        >>> from bagwise import Bags
        >>> bags = Bags.from_sample([[300, 100]], sizes=[8])
        >>> bags.expected_counts
        array([[6., 2.]])
        """
        sizes_ = bag_sizes(sizes)
        population = whole_numbers(population_counts, "population_counts", ndim=2)
        check_table(population, sizes_, "population_counts")
        if (bad := first((population < 0).any(axis=1))) is not None:
            raise InputError(
                Place("bag", bad),
                f" has a negative count: {shown_row(population[bad])}; counts must be 0 or more.",
            )
        weights_ = row_weights(weights, sizes_)
        found = known.of_population(population, totals_of(sizes_, weights_))
        return cls.of_potentials(found, sizes_, weights_)

    @classmethod
    def from_proportions(
        cls,
        proportions: ArrayLike,
        sizes: ArrayLike,
        rounding: Literal["exact", "nearest"] = "exact",
        decimals: int | None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Turn each bag's label proportions into counts.

        Args:
            proportions: (B, C), each row summing to 1.
            sizes: (B,) instances per bag.
            rounding: "exact" wants size * proportion to be whole numbers; "nearest" rounds by
                largest remainder, for proportions that were themselves rounded: each count is
                rounded down, and the instances left over go to the largest fractions (ties to the
                class that comes first).
            decimals: to how many decimals the proportions were rounded: every count that rounds to
                the proportion is then possible (both at a tie), rather than one guessed. NaN where
                a class's proportion is not known.

        >>> from bagwise import Bags
        >>> bags = Bags.from_proportions([[.33, .67]], sizes=[300], decimals=2)
        >>> bags.min_counts, bags.max_counts
        (array([[ 98, 200]]), array([[100, 202]]))
        >>> Bags.from_proportions([[.25, .75]], sizes=[4]).counts
        array([[1, 3]])
        >>> Bags.from_proportions([[.33, .33, .34]], sizes=[10], rounding="nearest").counts
        array([[3, 3, 4]])
        """
        if rounding not in ("exact", "nearest"):
            raise InputError(f'rounding is {rounding!r}; choose "exact" or "nearest".')
        sizes_ = bag_sizes(sizes)
        shares = bag_table(proportions, sizes_, "proportions", gaps=decimals is not None)
        if (bad := first((shares < 0).any(axis=1))) is not None:
            raise InputError(
                Place("bag", bad),
                f" has a negative proportion: {shown_row(shares[bad])}; proportions must be 0 or "
                "more.",
            )
        weights_ = row_weights(weights, sizes_)
        totals = totals_of(sizes_, weights_)
        if decimals is not None:
            found = known.of_rounded_shares(shares, totals, decimals)
            return cls.of_potentials(found, sizes_, weights_)
        return cls(sizes_, counts_of_shares(shares, totals, rounding), weights_)
