"""What a parameter may be, declared once, and what to say of any other value."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.errors import InputError

# As tuples: torch.compile, which looks into engines, does not know the union of types.
_NUMPY = (np.integer, np.floating)
_NUMBERS = (int, float)
_BOOLEANS = (bool, np.bool_)


@dataclass(frozen=True)
class Rule:
    """The values that a parameter may have.

    Attributes:
        expected: them in words.
        accepts: whether a value is one of them.

    >>> Rule("an even number", lambda value: value % 2 == 0).check("pairs", 3)
    Traceback (most recent call last):
    bagwise.errors.InputError: pairs is 3; an even number is expected.
    """

    expected: str
    accepts: Callable[[Any], bool]

    def check(self, name: str, value: object) -> None:
        """Raise a ValueError unless the value is accepted."""
        if not self.accepts(value):
            raise InputError(f"{name} is {value!r}; {self.expected} is expected.")

    def or_none(self) -> Rule:
        """The same values, and None."""
        return Rule(f"{self.expected} or None", lambda value: value is None or self.accepts(value))

    def or_name(self, name: str) -> Rule:
        """The same values, and a name."""
        return Rule(
            f'{self.expected} or "{name}"',
            lambda value: (isinstance(value, str) and value == name) or self.accepts(value),
        )


def whole_number(low: int, high: int) -> Rule:
    """Integers low .. high, Python's or numpy's; True and False are none."""

    def accepts(value: object) -> bool:
        if isinstance(value, np.integer):
            value = value.item()
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Rule(f"a whole number from {low} to {high}", accepts)


def real_number(low: float, high: float = sys.float_info.max, *, with_low: bool = False) -> Rule:
    """Finite numbers above low (or from it on) and below high."""

    def accepts(value: object) -> bool:
        if isinstance(value, _NUMPY):
            value = value.item()  # in single precision the largest float would be infinite
        return (
            isinstance(value, _NUMBERS)
            and not isinstance(value, bool)
            and (low < value < high or (with_low and value == low))
        )

    bounds = f"{low:g} or more" if with_low else f"more than {low:g}"
    if high < sys.float_info.max:
        bounds += f" and less than {high:g}"
    return Rule(f"a number of {bounds}", accepts)


def one_of(*names: str) -> Rule:
    """One of these names."""
    return Rule(
        f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names
    )


TRUE_OR_FALSE = Rule("True or False", lambda value: isinstance(value, _BOOLEANS))

RANDOM_STATE = Rule(
    "a whole number from 0 to 2**32 - 1, a numpy RandomState or None",
    lambda value: (
        value is None
        or isinstance(value, np.random.RandomState)
        or whole_number(0, 2**32 - 1).accepts(value)
    ),
)


def check_all(rules: Mapping[str, Rule], owner: object) -> None:
    """Check those attributes of `owner` that have a rule."""
    for name, rule in rules.items():
        rule.check(name, getattr(owner, name))
