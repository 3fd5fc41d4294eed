"""How the numbers of bags are known: exactly, as shares, rounded, with noise, as ranges, ..."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bagwise.bags import Bags, FloatArray, IntArray, Noise
from bagwise.errors import InputError

_MOST_DECIMALS = 6


@dataclass(frozen=True)
class Rounded:
    """Shares (or percentages) that were rounded to so many decimals.

    >>> Rounded(2)
    Rounded(decimals=2)
    """

    decimals: int


Plain = Literal["auto", "counts", "proportions", "relative"]
NumbersAre = Plain | Literal["rounded", "sample", "ranges"] | Noise | Rounded
"""What the numbers of a bag are:

- "counts", which sum to its rows (NaN: nobody counted this class);
- "proportions", which sum to 1 or, in percent, to 100: the nearest counts are taken;
- "relative", counts of another total, of which only the proportions are used;
- "auto" tells counts from proportions by their sums;
- "rounded" or `Rounded(decimals)`: proportions, and every count that rounds to them is possible;
- `Laplace(4)` or another noise: counts that were made noisy;
- "sample": counts of a larger group, of which the rows are a random sample;
- "ranges": a lower and an upper bound of each count.
"""


_KINDS = ("auto", "counts", "proportions", "relative", "rounded", "sample", "ranges")


def check_kind(numbers_are: NumbersAre) -> None:
    """Refuse a kind that there is not."""
    if not (isinstance(numbers_are, Noise | Rounded) or numbers_are in _KINDS):
        raise InputError(
            f"numbers_are is {numbers_are!r}; one of {', '.join(map(repr, _KINDS))}, a noise such "
            "as Laplace(4), or Rounded(2) is expected."
        )


def inexact_bags(
    ids: npt.NDArray[Any],
    sizes: IntArray,
    numbers: FloatArray,
    numbers_are: NumbersAre,
    classes: npt.NDArray[Any] | None = None,
) -> Bags:
    """Bags from numbers that do not give the counts.

    Args:
        ids: (B,) the bags' names, for messages.
        sizes: (B,) how many instances they have.
        numbers: (B, C), or (B, C, 2) lower and upper bounds.
        numbers_are: what these are; "counts" with NaN among them, or one of the last four kinds.
        classes: (C,) the class labels, for messages.

    >>> numbers = np.array([[0.3, 0.7]])
    >>> inexact_bags(np.array(["a"]), np.array([20]), numbers, Rounded(1)).most
    array([[ 7, 15]])
    """
    if isinstance(numbers_are, Noise):
        noise = numbers_are
        _doubt_totals(ids, sizes, numbers, noise)
        return _named(ids, classes, lambda: Bags.from_noisy_counts(numbers, sizes, noise))
    if numbers_are == "ranges":
        low, high = numbers[..., 0], numbers[..., 1]
        return _named(ids, classes, lambda: Bags.from_ranges(low, high, sizes))
    if numbers_are == "sample":
        if np.isnan(numbers).any():
            bag = int(np.argmax(np.isnan(numbers).any(axis=1)))
            raise InputError(
                f"bag {ids.tolist()[bag]!r} is a sample of a group of which one class has no "
                "count; give the counts of every class, so that it is known how many were not "
                "sampled."
            )
        return _named(ids, classes, lambda: Bags.from_sample(numbers, sizes))
    if numbers_are == "counts":
        return _named(ids, classes, lambda: Bags(sizes, numbers))
    decimals = rounding_of(numbers, numbers_are).decimals
    shares = numbers
    if are_percentages(numbers):
        shares, decimals = numbers / 100, decimals + 2
    return _named(ids, classes, lambda: Bags.from_proportions(shares, sizes, decimals=decimals))


def _doubt_totals(
    ids: npt.NDArray[Any], sizes: IntArray, numbers: FloatArray, noise: Noise
) -> None:
    """Say so where counts sum to what noise does not explain: in most bags, by ten deviations."""
    B, C = numbers.shape
    spread = noise.widths((B, C)).mean(axis=1) * C**0.5
    totals, told = np.nansum(numbers, axis=1), ~np.isnan(numbers).any(axis=1)
    # A class that nobody counted may have any rest, but none below 0.
    off = np.where(told, np.abs(totals - sizes), np.maximum(totals - sizes, 0)) / spread
    if len(off) and np.median(off) > 10:
        bag = int(np.argmax(off))
        warnings.warn(
            f"the counts of bag {ids.tolist()[bag]!r} sum to {totals[bag]:g} and it has "
            f"{sizes[bag]} rows, which {type(noise).__name__} noise of width "
            f"{noise.widths((B, C)).mean():g} does not explain, nor in most other bags. If they "
            'are counts of a larger group, they are a "sample", or "relative".',
            UserWarning,
            stacklevel=7,  # whoever called `fit` or `read_bags`
        )


def are_percentages(numbers: FloatArray) -> bool:
    """Whether shares (B, C), some of which may be unknown, are in percent."""
    return bool((numbers > 1 + 1e-9).any())  # no share is, though rounded ones may sum to more


def rounding_of(numbers: FloatArray, numbers_are: NumbersAre) -> Rounded:
    """To how many decimals numbers were rounded: as it is said, or as many as they have.

    >>> rounding_of(np.array([[0.3, 0.7], [0.25, 0.75]]), "rounded")
    Rounded(decimals=2)
    """
    if isinstance(numbers_are, Rounded):
        return numbers_are
    decimals = _decimals(numbers)
    if decimals == 0 and not are_percentages(numbers):
        raise InputError(
            "the shares are all 0 or 1, which does not tell to how many decimals they were "
            "rounded; say so with Rounded(2), for instance, or that they are proportions."
        )
    return Rounded(decimals)


def _decimals(numbers: FloatArray) -> int:
    """The decimals that the numbers have."""
    known = numbers[~np.isnan(numbers)]
    for decimals in range(_MOST_DECIMALS):
        if np.allclose(known, known.round(decimals), rtol=0, atol=1e-9):
            return decimals
    return _MOST_DECIMALS


def _named(
    ids: npt.NDArray[Any], classes: npt.NDArray[Any] | None, make: Callable[[], Bags]
) -> Bags:
    """Bags, or an error that calls them, and classes, by their names."""
    names = {"bag": ids.tolist(), "class": [] if classes is None else classes.tolist()}

    def named(found: re.Match[str]) -> str:
        kind, place = found[1], int(found[2])
        return f"{kind} {names[kind][place]!r}" if names[kind] else found[0]

    try:
        return make()
    except InputError as error:
        raise InputError(re.sub(r"\b(bag|class) (\d+)\b", named, str(error))) from None
