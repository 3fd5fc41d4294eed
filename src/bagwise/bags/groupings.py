"""Several groupings of the same rows, each with bags of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from bagwise.bags.arrays import FloatArray, IntArray, first, whole_numbers
from bagwise.bags.bags import Bags
from bagwise.bags.contradictions import refuse_joint_contradictions
from bagwise.bags.potentials import of_counts
from bagwise.bags.row_labels import others_impossible, weighted_bincount
from bagwise.errors import InputError, InputTypeError, Place, naming

_SHOWN = 5  # bags that an error names


class Grouping(NamedTuple):
    """One way in which rows are counted.

    Attributes:
        name: what people call it.
        bag_of_row: (N,) the bag of each row, -1 for rows that are in none.
        bags: what is known of the bags.
        rows: (n,) the rows that are in a bag, in the order in which `bags` has them.
    """

    name: str
    bag_of_row: IntArray
    bags: Bags
    rows: IntArray


class Unnested(NamedTuple):
    """Groupings without nested bags.

    Attributes:
        groupings: those in which bags are left, each with its place among the original ones.
        constant: logarithm of what is known of the probability of the others' noise.
        degrees: (N,) in how many of them each row is in a bag.
    """

    groupings: list[tuple[int, Grouping]]
    constant: float
    degrees: IntArray


class Groupings:
    """The same N rows counted several times: by district and by age group, by ward within county.

    Rows stay in the user's order. A grouping says in which of its bags each row is, and what is
    known of these bags: exact counts, noisy ones, ranges, each grouping in its own way. Groupings
    may be nested, and may leave rows out.

    What they say must agree. Bags of two groupings that share rows cannot have counts that no
    labeling gives: that is an error which names them. (Noisy counts hardly ever contradict.) Up to
    5,000 cells (rows that share all bags) times classes, a linear program also looks for counts
    that contradict only all together. It knows no whole numbers, and so does not find every
    contradiction.

    Args:
        groupings: by name, (bag of each row, bags): (N,) integers 0 .. B-1, and -1 for rows that
            are in none of the bags, and `Bags` whose sizes are the numbers of rows with 0, 1, ...
            The rows of a bag are in ascending order; weights and known labels, if there are any,
            are in that order too. Weights must be the same in all groupings; a label that one of
            them has is known in all.
        bag_names: what bags are called in messages, by the grouping's name; numbers if not given.

    >>> ward, age = [0, 0, 1, 1], [0, 1, 0, 1]
    >>> Groupings({
    ...     "ward": (ward, Bags([2, 2], [[1, 1], [2, 0]])),
    ...     "age": (age, Bags([2, 2], [[1, 1], [2, 0]])),
    ... })
    Groupings(4 rows, 2 classes, 'ward' 2 bags, 'age' 2 bags)
    """

    n_instances: int
    """N, the number of rows."""
    n_classes: int
    """C, the number of classes."""
    weights: IntArray | None
    """(N,) how many identical rows each row stands for; None if each stands for itself."""
    row_labels: IntArray | None
    """(N,) labels of rows that are known, -1 for the others; None if none is."""

    def __init__(
        self,
        groupings: Mapping[str, tuple[ArrayLike, Bags]],
        *,
        bag_names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if not groupings:
            raise InputError("there is no grouping; give at least one.")
        self.groupings = [_grouping(name, *given) for name, given in groupings.items()]
        one = self.groupings[0]
        self.n_instances, self.n_classes = len(one.bag_of_row), one.bags.n_classes
        for other in self.groupings[1:]:
            for what, mine, its in (
                ("rows", self.n_instances, len(other.bag_of_row)),
                ("classes", self.n_classes, other.bags.n_classes),
            ):
                if mine != its:
                    raise InputError(
                        f"grouping {one.name!r} has {mine} {what} and {other.name!r} {its}; all "
                        "must have the same."
                    )
        self.weights = self._of_rows([g.bags.weights for g in self.groupings], "weight", 1)
        self.row_labels = self._of_rows([g.bags.row_labels for g in self.groupings], "label", -1)
        if self.row_labels is not None:
            self.groupings = [_labeled(g, self.row_labels) for g in self.groupings]
        for pair in combinations(self.groupings, 2):
            _refuse_contradictions(*pair, self.copies, bag_names or {})
        refuse_joint_contradictions(self.groupings, self.copies, self.row_labels)

    def _of_rows(self, of_bags: list[IntArray | None], what: str, default: int) -> IntArray | None:
        """(N,) what bags know of their rows, in the order of rows; groupings must agree."""
        if all(values is None for values in of_bags):
            return None
        found = np.full(self.n_instances, default)
        is_known = np.zeros(self.n_instances, np.bool_)
        for grouping, values in zip(self.groupings, of_bags, strict=True):
            mine = np.full(len(grouping.rows), default) if values is None else values
            says = (mine >= 0) if what == "label" else np.ones(len(mine), np.bool_)
            differs = is_known[grouping.rows] & says & (found[grouping.rows] != mine)
            if (bad := first(differs)) is not None:
                row = grouping.rows[bad]
                raise InputError(
                    f"the {what} of row {row} is {mine[bad]} in grouping {grouping.name!r} and "
                    f"{found[row]} in another; give the same in all groupings."
                )
            rows = grouping.rows[says]
            found[rows], is_known[rows] = mine[says], True
        return found

    def __len__(self) -> int:
        return len(self.groupings)

    def __iter__(self) -> Iterator[Grouping]:
        return iter(self.groupings)

    def __repr__(self) -> str:
        each = ", ".join(f"{g.name!r} {len(g.bags)} bag{'s' * (len(g.bags) > 1)}" for g in self)
        return f"Groupings({self.n_instances} rows, {self.n_classes} classes, {each})"

    @cached_property
    def copies(self) -> IntArray:
        """(N,) the weights, ones where there are none."""
        return np.ones(self.n_instances, np.int64) if self.weights is None else self.weights

    def stacked(self) -> tuple[IntArray, Bags]:
        """The rows written out once for each grouping: (M,) the row of each, and all the bags.

        The bags of the first grouping come first. `X[rows]` and `bags` make the composite
        likelihood that of one partition; exact, noisy and other counts may be mixed.

        >>> ward, age = [0, 0, 1, 1], [0, 1, 0, -1]
        >>> rows, bags = Groupings({
        ...     "ward": (ward, Bags([2, 2], [[1, 1], [2, 0]])),
        ...     "age": (age, Bags([2, 1], [[1, 1], [1, 0]])),
        ... }).stacked()
        >>> rows
        array([0, 1, 2, 3, 0, 2, 1])
        >>> bags
        Bags(4 bags, 7 instances, 2 classes, sizes 1 to 2)
        """
        return np.concatenate([g.rows for g in self]), Bags.join(g.bags for g in self)

    def select(self, index: ArrayLike) -> Groupings:
        """Only these bags, numbered as in `stacked`; all rows stay, also those in none of them.

        Bags keep their order. A grouping of which no bag is left is left out.

        >>> ward, age = [0, 0, 1, 1], [0, 1, 0, 1]
        >>> Groupings({
        ...     "ward": (ward, Bags([2, 2], [[1, 1], [2, 0]])),
        ...     "age": (age, Bags([2, 2], [[1, 1], [2, 0]])),
        ... }).select([1, 2, 3])
        Groupings(4 rows, 2 classes, 'ward' 1 bag, 'age' 2 bags)
        """
        index_ = np.unique(whole_numbers(index, "index", ndim=1))
        found, begin = [], 0
        for g in self:
            end = begin + len(g.bags)
            some = index_[(index_ >= begin) & (index_ < end)] - begin
            number = np.full(len(g.bags) + 1, -1)  # the last one for rows without a bag
            number[some] = np.arange(len(some))
            if len(some):
                found.append(_grouping(g.name, number[g.bag_of_row], g.bags.select(some)))
            begin = end
        if (bad := first((index_ < 0) | (index_ >= begin))) is not None:
            raise IndexError(f"there is no bag {index_[bad]}; there are {begin} bags.")
        if not found:
            raise InputError("there is no bag; select at least one.")
        part = object.__new__(Groupings)  # not looked through for contradictions once more
        part.groupings, part.n_classes = found, self.n_classes
        part.n_instances, part.weights = self.n_instances, self.weights
        part.row_labels = self.row_labels
        return part

    @cached_property
    def degrees(self) -> IntArray:
        """(N,) in how many groupings each row is in a bag."""
        return _degrees(self.groupings)

    @cached_property
    def unnested(self) -> Unnested:
        """The same knowledge, but of bags that hold others only what is outside of these.

        If the counts of an inner bag are exact, those of the outer bag say something of its other
        rows alone, namely what is left of them. So the total of a county and the counts of all its
        wards but one are the counts of that ward.
        """
        of_rows = [g.bag_of_row.copy() for g in self]
        inside = [np.zeros_like(g.bags.min_counts) for g in self]  # counts of the inner bags
        changed = True
        while changed:
            changed = False
            for inner, outer in permutations(range(len(self)), 2):
                bags = self.groupings[inner].bags
                around = _bag_around(of_rows[inner], of_rows[outer], len(bags))
                which = np.flatnonzero((around >= 0) & bags.is_sharp)
                if len(which):
                    counts = bags.min_counts[which] - inside[inner][which]
                    np.add.at(inside[outer], around[which], counts)
                    of_rows[outer][np.isin(of_rows[inner], which)] = -1
                    changed = True
        left, constant = [], 0.0
        for place, (g, of_row, counts) in enumerate(zip(self, of_rows, inside, strict=True)):
            if not counts.any():
                left.append((place, g))
                continue
            known = (g.bags.potentials or of_counts(g.bags.min_counts, g.bags.totals)).less(counts)
            constant += known.log_f[np.repeat(known.is_sharp, known.widths.sum(axis=1))].sum()
            sizes = np.bincount(of_row[of_row >= 0], minlength=len(g.bags))
            some = np.flatnonzero(sizes)
            if len(some):
                rows = np.argsort(of_row, kind="stable")[np.count_nonzero(of_row < 0) :]
                weights = None if self.weights is None else self.weights[rows]
                bags = Bags.of_potentials(known.select(some), sizes[some], weights)
                number = np.append(np.cumsum(sizes > 0) - 1, -1)
                left.append((place, Grouping(g.name, number[of_row], bags, rows)))
        return Unnested(left, constant, _degrees([g for _, g in left]))

    @cached_property
    def possible(self) -> npt.NDArray[np.bool_]:
        """(N, C) labels that bounds of the counts leave possible, see `possible_labels`."""
        from bagwise.bags.possible_labels import possible_labels  # which imports this file

        return possible_labels(self, by_program=False)

    def others_impossible(self, log_probs: FloatArray) -> FloatArray:
        """log_probs (N, C) with -inf for what known labels rule out."""
        return others_impossible(log_probs, self.row_labels)


def check_bags(bags: object, of_one: str = "") -> None:
    """Refuse what is neither bags nor groupings, and groupings where only one can be used.

    Args:
        bags: what was given.
        of_one: what takes one grouping alone, for the message; empty for what takes several.

    >>> check_bags("ward")
    Traceback (most recent call last):
    bagwise.errors.InputTypeError: bags is a str; Bags(sizes, counts) is expected.
    """
    if isinstance(bags, Groupings) and of_one:
        raise InputTypeError(
            f"{of_one} takes one grouping of the rows, and bags is a Groupings. Use cc_loss or "
            "bag_posterior, which take several, or `rows, bags = groupings.stacked()`, which has "
            "each row once for each grouping."
        )
    if not isinstance(bags, (Bags, Groupings)):
        raise InputTypeError(f"bags is a {type(bags).__name__}; Bags(sizes, counts) is expected.")


def _degrees(groupings: list[Grouping]) -> IntArray:
    degrees: IntArray = np.sum([g.bag_of_row >= 0 for g in groupings], axis=0, dtype=np.int64)
    return degrees


def _bag_around(inner: IntArray, outer: IntArray, n_bags: int) -> IntArray:
    """(n_bags,) for each inner bag the outer bag that has all its rows; -1 if there is none."""
    rows = np.flatnonzero(inner >= 0)
    low, high = np.full(n_bags, len(outer)), np.full(n_bags, -1)
    np.minimum.at(low, inner[rows], outer[rows])
    np.maximum.at(high, inner[rows], outer[rows])
    return np.where(low == high, low, -1)


def _grouping(name: str, bag_of_row: ArrayLike, bags: Bags) -> Grouping:
    if not isinstance(bags, Bags):
        raise InputTypeError(
            f"the bags of grouping {name!r} are a {type(bags).__name__}; bagwise.Bags is expected."
        )
    of_row = whole_numbers(bag_of_row, f"bag_of_row of {name!r}", ndim=1)
    if (bad := first((of_row < -1) | (of_row >= len(bags)))) is not None:
        raise InputError(
            f"row {bad} is in bag {of_row[bad]} of grouping {name!r}, which has bags 0 to "
            f"{len(bags) - 1}; -1 says that a row is in none."
        )
    sizes = np.bincount(of_row[of_row >= 0], minlength=len(bags))
    if (bad := first(sizes != bags.sizes)) is not None:
        raise InputError(
            f"bag {bad} of grouping {name!r} has {bags.sizes[bad]} rows, but {sizes[bad]} rows are "
            "said to be in it; correct the sizes or the bags of the rows."
        )
    rows = np.argsort(of_row, kind="stable")[np.count_nonzero(of_row < 0) :]
    return Grouping(name, of_row, bags, rows)


def _labeled(grouping: Grouping, labels: IntArray) -> Grouping:
    """The same with labels (N,) that other groupings may have told."""
    try:
        with naming(row=grouping.rows.tolist()):
            return grouping._replace(bags=grouping.bags.with_labels(labels[grouping.rows]))
    except InputError as error:
        raise InputError(f"grouping {grouping.name!r}: {error}") from None


def _refuse_contradictions(
    one: Grouping, two: Grouping, copies: IntArray, names: Mapping[str, Sequence[str]]
) -> None:
    """Refuse counts of bags that share rows where no labels of these rows give both.

    If bags of `one` have a instances that those of `two` have not, then no class can have more than
    a instances more in them. That is looked at for bags within bags, and for all bags that are
    connected by shared rows.
    """
    from scipy.sparse import coo_array  # takes long to import, and is seldom needed
    from scipy.sparse.csgraph import connected_components

    both = (one.bag_of_row >= 0) & (two.bag_of_row >= 0)
    pairs, place = np.unique(
        np.stack([one.bag_of_row[both], two.bag_of_row[both]]), axis=1, return_inverse=True
    )
    if pairs.shape[1] == 0:
        return
    shared = weighted_bincount(place.ravel(), copies[both], pairs.shape[1])
    which = (one.bags.totals[pairs[0]] == shared) | (two.bags.totals[pairs[1]] == shared)
    mine, its = (
        [known[bags[which]] for known in (g.bags.min_counts, g.bags.max_counts, g.bags.totals)]
        for g, bags in ((one, pairs[0]), (two, pairs[1]))
    )
    if (found := _contradiction(mine, its, shared[which])) is not None:
        b, d = pairs[:, which][:, [found[0]]]
        _refuse(_named(one, b, names), _named(two, d, names), *found[1:])
    B, D = len(one.bags), len(two.bags)
    graph = coo_array((np.ones(len(shared)), (pairs[0], B + pairs[1])), shape=(B + D, B + D))
    n_parts, part = connected_components(graph, directed=False)
    mine, its = (
        [_sums(x, of, n_parts) for x in (g.bags.min_counts, g.bags.max_counts, g.bags.totals)]
        for g, of in ((one, part[:B]), (two, part[B:]))
    )
    of_part = weighted_bincount(part[pairs[0]], shared, n_parts)
    if (found := _contradiction(mine, its, of_part)) is not None:
        of_one, of_two = np.flatnonzero(part[:B] == found[0]), np.flatnonzero(part[B:] == found[0])
        _refuse(_named(one, of_one, names), _named(two, of_two, names), *found[1:])


def _sums(of_bags: IntArray, part: npt.NDArray[np.int32], n_parts: int) -> IntArray:
    """Sums over the bags of each part."""
    sums = np.zeros((n_parts, *of_bags.shape[1:]), np.int64)
    np.add.at(sums, part, of_bags)
    return sums


def _contradiction(
    mine: list[IntArray], its: list[IntArray], shared: IntArray
) -> tuple[int, int, int, int] | None:
    """Where, in which class, and between which counts of the one and the other."""
    for a, b in ((mine, its), (its, mine)):
        excess = a[0] - b[1] > (a[2] - shared)[:, None]
        if (p := first(excess.any(axis=1))) is not None:
            c = int(np.argmax(excess[p]))
            n, m = a[0][p, c], b[1][p, c]
            return (p, c, n, m) if a is mine else (p, c, m, n)
    return None


def _refuse(one: str, two: str, c: int, n: int, m: int) -> None:
    raise InputError(
        f"{one} and {two} contradict each other: their counts of ",
        Place("class", c),
        f" are {n} and {m}, which no labels of the rows that they share allow. Correct the counts, "
        "or say that they are not exact (noise, ranges).",
    )


def _named(grouping: Grouping, bags: IntArray, names: Mapping[str, Sequence[str]]) -> str:
    known = names.get(grouping.name)
    shown = ", ".join(str(b) if known is None else repr(known[b]) for b in bags[:_SHOWN])
    more = ", ..." if len(bags) > _SHOWN else ""
    return f"bag{'s' * (len(bags) > 1)} {shown}{more} of {grouping.name!r}"
