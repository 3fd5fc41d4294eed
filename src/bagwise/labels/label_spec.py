"""What the numbers of bags are: exact counts, shares, noisy counts, ranges, ..."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from bagwise.bags import DiscreteGaussian, DiscreteLaplace, FloatArray, Gaussian, Laplace, Noise
from bagwise.checks import Check, flag, number, one_of, or_else, record, whole
from bagwise.errors import InputError, Option

NOISES: dict[str, type[Noise]] = {
    "laplace": Laplace,
    "discrete-laplace": DiscreteLaplace,
    "gaussian": Gaussian,
    "discrete-gaussian": DiscreteGaussian,
}
_MOST_DECIMALS = 6


@dataclass(frozen=True)
class Rounded:
    """Shares (or percentages) that were rounded to so many decimals.

    >>> Rounded(2)
    Rounded(decimals=2)
    """

    decimals: int


_Word = Literal["auto", "counts", "proportions", "relative", "rounded", "sample", "ranges"]
LabelsAre: TypeAlias = "_Word | Noise | Rounded | LabelSpec"
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

SPEC_CHECK: Check = record(
    {"kind": one_of(*get_args(_Word), "noisy")},
    {
        "noise": one_of(*NOISES),
        "width": or_else(number(above=0), "a list", lambda width: isinstance(width, list)),
        "clipped": flag,
        "decimals": whole(0, 15),
        "percent": flag,
    },
)
"""What `LabelSpec.to_json` returns."""


@dataclass(frozen=True)
class LabelSpec:
    """What the numbers of bags are.

    Attributes:
        kind: one of the words of `LabelsAre`, or "noisy".
        noise: of noisy counts.
        decimals: of rounded shares; None until `with_rounding` has looked at them.
        percent: whether rounded shares are percentages.
    """

    kind: Literal[_Word, "noisy"] = "auto"
    noise: Noise | None = None
    decimals: int | None = None
    percent: bool = False

    @classmethod
    def of(cls, labels_are: LabelsAre) -> LabelSpec:
        """What a user says.

        >>> [LabelSpec.of(given).kind for given in ("counts", Laplace(4), Rounded(2))]
        ['counts', 'noisy', 'rounded']
        """
        if isinstance(labels_are, LabelSpec):
            return labels_are
        if isinstance(labels_are, Noise):
            return cls("noisy", noise=labels_are)
        if isinstance(labels_are, Rounded):
            return cls("rounded", decimals=labels_are.decimals)
        if not isinstance(labels_are, str) or labels_are not in get_args(_Word):
            words = ", ".join(f'"{word}"' for word in get_args(_Word))
            raise InputError(
                Option("labels_are"),
                f" is {labels_are!r}; one of {words}, a noise such as Laplace(4), or Rounded(2) is "
                "expected.",
            )
        return cls(labels_are)

    @property
    def is_plain(self) -> bool:
        """Whether the numbers are counts or shares, and give the counts unless some are missing."""
        return self.kind in ("auto", "counts", "proportions", "relative")

    def with_rounding(self, numbers: FloatArray) -> LabelSpec:
        """The same; of rounded shares with the decimals that they have, if it is not said.

        >>> LabelSpec("rounded").with_rounding(np.array([[0.3, 0.7], [0.25, 0.75]])).decimals
        2
        """
        if self.kind != "rounded":
            return self
        percent, decimals = are_percentages(numbers), self.decimals
        if decimals is None:
            decimals = _decimals(numbers)
            if decimals == 0 and not percent:
                raise InputError(
                    "the shares are all 0 or 1, so their number of decimals is unknown. Say ",
                    Option("labels_are", "proportions"),
                    ".",
                )
        return replace(self, decimals=decimals, percent=percent)

    def to_json(self) -> dict[str, Any]:
        """As codes and numbers.

        >>> LabelSpec.of(Laplace(4)).to_json()
        {'kind': 'noisy', 'noise': 'laplace', 'width': 4.0, 'clipped': False}
        """
        found: dict[str, Any] = {"kind": self.kind}
        if self.noise is not None:
            codes = {made: code for code, made in NOISES.items()}
            found["noise"] = codes.get(type(self.noise), type(self.noise).__name__)
            found["width"] = np.asarray(self.noise.width, dtype=np.float64).tolist()
            found["clipped"] = self.noise.clipped
        if self.decimals is not None:
            found |= {"decimals": self.decimals, "percent": self.percent}
        return found

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> LabelSpec:
        """What `to_json` returned; anything else is an InputError.

        >>> LabelSpec.from_json({"kind": "rounded", "decimals": 0, "percent": True})
        LabelSpec(kind='rounded', noise=None, decimals=0, percent=True)
        """
        SPEC_CHECK(found, "")
        if (found["kind"] == "noisy") != ("noise" in found) or ("noise" in found) != (
            "width" in found
        ):
            raise InputError(f"kind is {found['kind']!r}; noisy counts have a noise and a width.")
        if "noise" not in found:
            return cls(**found)
        return cls("noisy", NOISES[found["noise"]](found["width"], found.get("clipped", False)))


def are_percentages(numbers: FloatArray) -> bool:
    """Whether shares (B, C), some of which may be unknown, are in percent."""
    return bool((numbers > 1 + 1e-9).any())  # no share is, though rounded ones may sum to more


def _decimals(numbers: FloatArray) -> int:
    """The decimals that the numbers have."""
    known = numbers[~np.isnan(numbers)]
    for decimals in range(_MOST_DECIMALS):
        if np.allclose(known, known.round(decimals), rtol=0, atol=1e-9):
            return decimals
    return _MOST_DECIMALS
