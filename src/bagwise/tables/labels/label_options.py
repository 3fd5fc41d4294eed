"""How the counts of bags are known where they are not exact: as options say it, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from bagwise.bags import (
    DiscreteGaussian,
    DiscreteLaplace,
    FloatArray,
    Gaussian,
    Laplace,
    Noise,
)
from bagwise.errors import InputError, UsageError
from bagwise.labels.kinds import NumbersAre, Rounded, are_percentages

NOISES: dict[str, type[Noise]] = {
    "laplace": Laplace,
    "discrete-laplace": DiscreteLaplace,
    "gaussian": Gaussian,
    "discrete-gaussian": DiscreteGaussian,
}
_EXPECTED = "laplace:4, discrete-laplace:4, gaussian:2.5 or discrete-gaussian:2.5"
# What messages about `Bags` name, and the option that does the same.
_OPTIONS = {
    "give fewer decimals, or use Bags.from_sample if the share is": (
        "it may be no share of these rows at all. Say --labels-are proportions for the nearest "
        "counts, or give counts and say --labels-are sample if it is"
    ),
    "leave clipped=True out": "leave --clipped out",
    **{
        f'numbers_are="{kind}"': f"--labels-are {kind}"
        for kind in ("counts", "relative", "sample", "rounded", "ranges")
    },
    "numbers_are=Laplace(4)": "--noise laplace:4",
    "(Bags.from_noisy_counts, Bags.from_ranges)": "(--labels-are noisy, --labels-are ranges)",
    "say so with Rounded(2), for instance, or that they are proportions": (
        "say --labels-are proportions"
    ),
}


def numbers_are_of(labels_are: str, noise: str | None = None, clipped: bool = False) -> NumbersAre:
    """What numbers are, from the options --labels-are, --noise and --clipped.

    >>> numbers_are_of("noisy", "laplace:4")
    Laplace(width=4.0, clipped=False)
    """
    if noise is None:
        if labels_are == "noisy":
            raise UsageError(f"--labels-are noisy needs --noise, which says how: {_EXPECTED}.")
        if clipped:
            raise UsageError(
                "--clipped is about noisy counts; say with --noise what noise they have."
            )
        return labels_are  # type: ignore[return-value]  # one of the words
    if labels_are not in ("auto", "noisy"):
        raise UsageError(
            f"--noise is given, but --labels-are is {labels_are}; noise is in counts "
            "(--labels-are noisy)."
        )
    kind, _, text = noise.strip().lower().partition(":")
    with suppress(ValueError):
        width = float(text)
        if kind in NOISES and 0 < width < math.inf:
            return NOISES[kind](width, clipped)
    raise UsageError(
        f"--noise is {noise!r}; {_EXPECTED} is expected: the kind, and its scale or standard "
        "deviation, a positive number."
    )


def in_words(numbers_are: NumbersAre, numbers: FloatArray) -> str:
    """How counts are known that are not exact.

    >>> in_words(DiscreteLaplace(4, clipped=True), np.zeros((1, 2)))
    'noisy counts, discrete Laplace noise of width 4, clipped at 0'
    >>> in_words(Rounded(0), np.array([[33., 67.]]))
    'percentages rounded to whole numbers'
    """
    if isinstance(numbers_are, Noise):
        (kind,) = (name for name, made in NOISES.items() if made is type(numbers_are))
        kind = kind.replace("-", " ").replace("laplace", "Laplace").replace("gaussian", "Gaussian")
        widths = np.asarray(numbers_are.width, dtype=np.float64)
        least, most = widths.min(), widths.max()
        of = f"width {least:g}" if least == most else f"widths {least:g} to {most:g}"
        return f"noisy counts, {kind} noise of {of}" + ", clipped at 0" * numbers_are.clipped
    if isinstance(numbers_are, Rounded):
        what = "percentages" if are_percentages(numbers) else "shares"
        decimals = numbers_are.decimals
        to = f"{decimals} decimal{'s' * (decimals > 1)}" if decimals else "whole numbers"
        return f"{what} rounded to {to}"
    if numbers_are == "ranges":
        return "ranges of counts"
    if numbers_are == "sample":
        return "counts of larger groups, of which the rows are a random sample"
    return "counts, some of which are not known"


@contextmanager
def in_option_words() -> Iterator[None]:
    """Have errors name options in place of Python's names."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for name, option in _OPTIONS.items():
            text = text.replace(name, option)
        raise InputError(text) from None
