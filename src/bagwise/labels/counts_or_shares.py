"""Whether the numbers of bags are counts or shares, in which unit, and which class has the rest."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray, Laplace, bags_of_other_rows, rounding_slack
from bagwise.bags.arrays import first, totals_of
from bagwise.errors import BagwiseWarning, InputError, Option, Place, naming, warn_user
from bagwise.labels.label_spec import LabelSpec

UNKNOWN_TOTAL = 1000.0  # rows that shares are taken to be of, where nothing says how many


def shares_unit(numbers: FloatArray) -> float | None:
    """1 or 100 if the numbers (B, C) of every bag sum to that, but for rounding; else None.

    >>> shares_unit(np.array([[33., 67.], [0., 100.]])), shares_unit(np.array([[3., 4.]]))
    (100.0, None)
    """
    totals, slack = numbers.sum(axis=1), rounding_slack(numbers)
    units = (unit for unit in (1.0, 100.0) if (np.abs(totals / unit - 1) <= slack).all())
    return next(units, None)


def with_rest(
    numbers: FloatArray,
    spec: LabelSpec,
    sizes: IntArray | None = None,
    known: FloatArray | None = None,
    percent: bool = True,
) -> FloatArray:
    """The numbers; of two classes one of which has none (NaN), that one gets the rest of each bag.

    It stays unknown in noisy counts, rounded shares and ranges.

    Args:
        numbers: (B, C).
        spec: what they are.
        sizes: (B,) the rows of each bag, 0 for bags that are not used; None if the rows that were
            counted are others.
        known: numbers of the one class in these and further bags, which tell counts from shares.
        percent: whether "auto" takes numbers above 1 that are not whole for percentages.

    >>> with_rest(np.array([[np.nan, 3.], [np.nan, 1.]]), LabelSpec(), np.array([4, 4]))
    array([[1., 3.],
           [3., 1.]])
    """
    if not (spec.is_plain or spec.kind == "sample") or numbers.shape[1] != 2:
        return numbers
    lacking = np.isnan(numbers).all(axis=0)
    if not lacking.any():
        return numbers
    own = numbers[:, int(np.argmin(lacking))]
    unit = _unit_of_one_class(own if known is None else known, spec.kind, percent)
    if unit is None and sizes is not None and spec.kind == "auto":
        if (bad := first((own == 1) & (sizes > 1))) is not None:
            raise InputError(
                Place("bag", bad),
                f" of {sizes[bad]} rows has 1 of a class, and no other bag tells whether that is a "
                "count or a share. Give both classes, or say which it is with ",
                Option("labels_are"),
                ".",
            )
        unit = "counts"  # 0 rows are a share of 0, too, and so is 1 of 1
    if unit is None or (unit == "counts" and sizes is None):
        raise InputError(
            "there are numbers of one class alone, which is enough for shares only. Give those of "
            "the other class or a total, or say ",
            Option("labels_are", "proportions"),
            " if they are shares.",
        )
    used = np.ones(len(own), dtype=np.bool_) if sizes is None else sizes > 0
    totals = np.full(len(own), unit) if sizes is None or unit != "counts" else 1.0 * sizes
    if (own == np.rint(own))[used].all():
        _refuse_no_numbers(np.where(used[:, None], numbers, np.nan), spec.kind, gaps=True)
    if (bad := first(used & ((own < 0) | (own > totals)))) is not None:
        of = "" if sizes is None else f" of {sizes[bad]} rows"
        remedy: tuple[Any, ...] = ("noisy counts are ", Option("labels_are", Laplace(4)))
        if spec.kind == "auto" and not ((own < 0) | (own > 100))[used].any():
            remedy = ("percentages are ", Option("labels_are", "proportions"), ", ", *remedy)
        raise InputError(
            Place("bag", bad),
            f"{of} has {own[bad]:g}, which is neither a count of these rows nor a share of them. "
            "Means and other numbers that count no rows cannot be used; ",
            *remedy,
            ".",
        )
    return np.where(lacking, np.maximum(totals - own, 0)[:, None], numbers)


def if_they_are_counts(numbers: FloatArray, sizes: IntArray) -> list[Any]:
    """What to say to someone who gave numbers (B,) of a class as shares, if they may be counts."""
    if (numbers != np.rint(numbers)).any() or (numbers > sizes).any():
        return []
    return [" If they are counts of the rows, say ", Option("labels_are", "counts"), "."]


def _unit_of_one_class(
    known: FloatArray, kind: str, percent: bool
) -> float | Literal["counts"] | None:
    """What numbers of one of two classes are: "counts", or shares of 1 or 100; None if unknown."""
    known = known[np.isfinite(known)]
    whole, above_one = bool((known == np.rint(known)).all()), bool((known > 1).any())
    if kind == "counts" or (kind == "auto" and whole and above_one):
        return "counts"
    if kind == "proportions" or (kind == "auto" and not whole):
        return 100.0 if above_one and (percent or kind == "proportions") else 1.0
    return None


def to_bags(
    ids: npt.NDArray[Any],
    sizes: IntArray,
    numbers: FloatArray,
    spec: LabelSpec,
    classes: npt.NDArray[Any] | None = None,
    weights: IntArray | None = None,
) -> tuple[Bags, float]:
    """Bags, and the largest difference that rounding shares to counts has made.

    Args:
        ids: (B,) the bags' names, for messages.
        sizes: (B,) how many rows they have.
        numbers: (B, C); (B, C, 2) lower and upper bounds of ranges.
        spec: what they are. "auto" tells counts, which sum to the bag's size, from shares, which
            sum to 1 or 100 in every bag.
        classes: (C,) the class labels, for messages.
        weights: (N,) how many identical rows each row stands for; None if each stands for itself.

    >>> to_bags(np.array(["a"]), np.array([4]), np.array([[0.25, 0.75]]), LabelSpec())[0].counts
    array([[1, 3]])
    >>> rounded = LabelSpec("rounded", decimals=1)
    >>> to_bags(np.array(["a"]), np.array([20]), np.array([[0.3, 0.7]]), rounded)[0].max_counts
    array([[ 7, 15]])
    """
    names = {"bag": ids.tolist(), "class_": None if classes is None else classes.tolist()}
    with naming(**names):
        bags, rounding, doubt = _to_bags(sizes, numbers, spec, weights)
    if doubt is not None:
        warn_user(doubt.with_names(**names))
    return bags, rounding


def _to_bags(
    sizes: IntArray, numbers: FloatArray, spec: LabelSpec, weights: IntArray | None
) -> tuple[Bags, float, BagwiseWarning | None]:
    """What `to_bags` returns, and a doubt about it."""
    totals = totals_of(sizes, weights)
    if spec.noise is not None:
        bags = Bags.from_noisy_counts(numbers, sizes, spec.noise, weights)
        return bags, 0.0, _doubt_of_noise(totals, numbers, spec)
    if not spec.is_plain or (spec.kind == "counts" and np.isnan(numbers).any()):
        return _inexact(sizes, numbers, spec, weights), 0.0, None
    _refuse_no_numbers(numbers, spec.kind)
    shares = _shares(totals, numbers, spec.kind)
    if shares is None:
        return Bags(sizes, numbers, weights), 0.0, None
    bags = Bags.from_proportions(shares, sizes, rounding="nearest", weights=weights)
    off = np.abs(bags.proportions - shares / shares.sum(axis=1, keepdims=True)).max(axis=1)
    doubt = None
    if spec.kind == "relative":
        doubt = _doubt_of_total(totals, numbers)
    elif spec.kind == "auto":
        doubt = _doubt_of_shares(bags, shares, off)
    return bags, float(off.max()), doubt


def _inexact(
    sizes: IntArray, numbers: FloatArray, spec: LabelSpec, weights: IntArray | None
) -> Bags:
    """Bags from numbers that do not give the counts."""
    if spec.kind == "ranges":
        return Bags.from_ranges(numbers[..., 0], numbers[..., 1], sizes, weights)
    _refuse_no_numbers(numbers, spec.kind, gaps=True)
    if spec.kind == "counts":
        return Bags(sizes, numbers, weights)
    if spec.kind == "sample":
        if (bad := first(np.isnan(numbers).any(axis=1))) is not None:
            raise InputError(
                Place("bag", bad),
                " is a sample, but a class has no count in its larger group. ",
                "Give the counts of every class, so that the size of the group is known.",
            )
        return Bags.from_sample(numbers, sizes, weights)
    spec = spec.with_rounding(numbers)
    shares, decimals = numbers, spec.decimals or 0
    if spec.percent:
        shares, decimals = numbers / 100, decimals + 2
    try:
        return Bags.from_proportions(shares, sizes, decimals=decimals, weights=weights)
    except InputError as error:
        remedy = (" Say ", Option("labels_are", "proportions"), " for the nearest counts.")
        raise InputError(*error.args, *remedy) from None


def _refuse_no_numbers(numbers: FloatArray, kind: str, gaps: bool = False) -> None:
    """Refuse numbers that are negative, infinite or, without `gaps`, missing."""
    bad = (numbers < 0) | np.isinf(numbers) | (np.isnan(numbers) & (not gaps))
    if (bag := first(bad.any(axis=1))) is None:
        return
    c = int(np.argmax(bad[bag]))
    value = numbers[bag, c]
    lonely = value < 0 and np.isnan(numbers[bag]).any()  # nothing else is known of the bag
    counted = kind in ("auto", "counts")
    remedy: list[Any] = ["Give a number of 0 or more for each class."]
    if counted and np.isnan(value):
        remedy = ["If nobody knows the count, say ", Option("labels_are", "counts"), "."]
    elif counted and value < 0:
        remedy = ["If it stands for a count that nobody knows, "]
        if lonely:
            remedy += ["leave the bag and its rows out"]
        else:
            remedy += [
                "leave its cell empty (or give NaN) and say ",
                Option("labels_are", "counts"),
            ]
        remedy += ["; if noise made it negative, say ", Option("labels_are", Laplace(4))]
        remedy += [", with the noise that was added."]
    has = " has no number for " if np.isnan(value) else f" has {value:g} for "
    of = "" if lonely else f": {numbers[bag].tolist()}"
    raise InputError(Place("bag", bag), has, Place("class", c), f"{of}. ", *remedy)


def _shares(sizes: IntArray, numbers: FloatArray, kind: str) -> FloatArray | None:
    """(B, C) shares that sum to 1 but for rounding; None if the numbers are counts of the rows."""
    with np.errstate(over="ignore"):
        totals = numbers.sum(axis=1)
    if (huge := first(np.isinf(totals))) is not None:
        raise InputError(
            "the numbers of ",
            Place("bag", huge),
            f" are too large to be added up: {numbers[huge].tolist()}; correct them.",
        )
    if kind == "relative":
        return numbers / _not_zero(totals)[:, None]
    are_counts = (numbers == np.rint(numbers)).all(axis=1) & (totals == sizes)
    if are_counts.all() and kind != "proportions":
        return None
    unit = shares_unit(numbers)
    # In doubt, counts of bags of 100, a few of which have lost a row, are a mistake.
    few = kind == "proportions" or 2 * are_counts.sum() <= len(numbers)
    if kind != "counts" and (unit == 1 or (unit == 100 and few)):
        return numbers / unit
    no_shares = (np.abs(totals - 1) > rounding_slack(numbers)) | (kind == "counts")
    neither = no_shares & ~are_counts
    bag = int(np.argmax(neither if neither.any() else no_shares))
    counts, shares = f"counts must sum to its {sizes[bag]} rows", "shares to 1 (or all to 100)"
    expected = {"counts": counts, "proportions": "shares must sum to 1 (or all to 100)"}
    raise InputError(
        "the numbers of ",
        Place("bag", bag),
        f" sum to {totals[bag]:g}: {numbers[bag].tolist()}; ",
        f"{expected.get(kind, f'{counts}, {shares}')}. ",
        *_remedy_of_sums(numbers, kind, bool(are_counts.all()), unit),
    )


def _remedy_of_sums(
    numbers: FloatArray, kind: str, are_counts: bool, unit: float | None
) -> list[Any]:
    """What to say of numbers whose sums are not what `kind` asks for: only what will be taken."""
    if are_counts:
        return [
            "These are counts of the rows in every bag: say ",
            Option("labels_are", "counts"),
            ".",
        ]
    if unit is not None and kind == "counts":
        return ["These are shares in every bag: say ", Option("labels_are", "proportions"), "."]
    totals, whole = numbers.sum(axis=1), bool((numbers == np.rint(numbers)).all())
    remedy: list[Any] = ["Leave out totals and other columns that are not classes. Say "]
    remedy += [Option("labels_are", "relative")]
    remedy += [" if they are of another group with the same shares"]
    if whole:
        remedy += [", ", Option("labels_are", "sample"), " if the rows are a random sample of it"]
    if kind != "proportions":
        remedy += [", ", Option("labels_are", Laplace(4)), " if they are noisy"]
    if any((np.abs(totals / unit - 1) < 0.1).all() for unit in (1, 100)):
        remedy += [", ", Option("labels_are", "rounded"), " if they were rounded"]
    return [*remedy, "."]


def _not_zero(totals: FloatArray) -> FloatArray:
    if (bag := first(totals == 0)) is not None:
        raise InputError(Place("bag", bag), " has 0 for every class; one must be above 0.")
    return totals


def _doubt_of_noise(sizes: IntArray, numbers: FloatArray, spec: LabelSpec) -> BagwiseWarning | None:
    """Where counts sum to what noise does not explain: in most bags, by ten deviations."""
    B, C = numbers.shape
    widths = spec.noise.widths((B, C))  # type: ignore[union-attr]  # noisy counts have noise
    totals, known = np.nansum(numbers, axis=1), ~np.isnan(numbers).any(axis=1)
    # A class that nobody counted may have any rest, but none below 0.
    off = np.where(known, np.abs(totals - sizes), np.maximum(totals - sizes, 0))
    off = off / (widths.mean(axis=1) * C**0.5)
    if np.median(off) <= 10:
        return None
    bag = int(np.argmax(off))
    return BagwiseWarning(
        "the counts of ",
        Place("bag", bag),
        f" sum to {totals[bag]:g}, but it has {sizes[bag]} ",
        f"rows; {type(spec.noise).__name__} noise of width {widths.mean():g} does not explain "
        "that, nor in most other bags. Say ",
        Option("labels_are", "sample"),
        " or ",
        Option("labels_are", "relative"),
        " if they are counts of a larger group.",
    )


def _doubt_of_total(sizes: IntArray, numbers: FloatArray) -> BagwiseWarning | None:
    c = first((numbers == sizes[:, None]).all(axis=0)) if len(sizes) > 2 else None
    if c is None:
        return None
    return BagwiseWarning(
        "every bag has as many of ", Place("class", c), " as rows. Leave it out if it is a total."
    )


def _doubt_of_shares(bags: Bags, shares: FloatArray, off: FloatArray) -> BagwiseWarning | None:
    """Where shares are not those of the rows: by more than two decimals, or in many bags."""
    odd, bag = bags_of_other_rows(shares, bags.totals), int(np.argmax(off))
    if off[bag] <= 0.011 and not len(odd):
        return None
    others = f", and so in {len(odd)} of {len(bags)} bags" if len(odd) > 1 else ""
    return BagwiseWarning(
        f"the proportions {[round(x, 6) for x in shares[bag].tolist()]} of ",
        Place("bag", bag),
        f" are not those of its {bags.totals[bag]} rows{others}; the nearest ",
        f"counts are taken, {bags.counts[bag].tolist()}. They should be shares of classes in a "
        "larger group, not means or the like.",
    )


def refuse_inexact(spec: LabelSpec) -> None:
    """Refuse noise and ranges, which `shares_of` would take for exact."""
    if spec.kind in ("noisy", "ranges"):
        raise InputError(
            "predict takes counts and shares of bags as they stand, and cannot allow for noise or "
            "ranges. Leave ",
            Option("labels"),
            " out, or label the rows that were counted.",
        )


def shares_of(numbers: FloatArray, spec: LabelSpec) -> tuple[FloatArray, FloatArray]:
    """The shares (B, C) of classes in bags, and how many rows (B,) they are of.

    The rows that were counted need not be those of the table, so that counts may have any total.
    Shares and percentages do not say what they are of; they are taken to be of 1000 rows, beside
    which rounding does not matter.

    >>> shares_of(np.array([[3., 1.], [0., 5.]]), LabelSpec())
    (array([[0.75, 0.25],
           [0.  , 1.  ]]), array([4., 5.]))
    """
    refuse_inexact(spec)
    plain = {"sample": LabelSpec("relative"), "rounded": LabelSpec("proportions")}
    spec = plain.get(spec.kind, spec)
    numbers = with_rest(numbers, spec)
    _refuse_no_numbers(numbers, spec.kind)
    totals = _not_zero(numbers.sum(axis=1))
    shares: FloatArray = numbers / totals[:, None]
    whole = (numbers == np.rint(numbers)).all(axis=1)
    told = spec.kind == "counts" or (spec.kind == "auto" and totals.max() > 1)
    if spec.kind == "relative" or (whole.all() and told):
        return shares, totals
    if spec.kind != "counts" and shares_unit(numbers) is not None:
        return shares, np.full(len(totals), UNKNOWN_TOTAL)
    off = np.minimum(np.abs(totals - 1), np.abs(totals / 100 - 1))
    bag = int(np.argmin(whole) if spec.kind == "counts" else np.argmax(off))
    remedy: list[Any] = [
        Option("labels_are", "relative"),
        " if they are counts that are not whole.",
    ]
    if whole.all():
        remedy = [Option("labels_are", "counts"), ", for they are whole numbers in every bag."]
    elif spec.kind == "counts" and shares_unit(numbers) is not None:
        remedy = [Option("labels_are", "proportions"), ", for they are shares in every bag."]
    raise InputError(
        "the numbers of ",
        Place("bag", bag),
        f" sum to {totals[bag]:g}: {numbers[bag].tolist()}",
        "; shares must sum to 1 (or all to 100), and counts must be whole numbers. Say ",
        *remedy,
    )
