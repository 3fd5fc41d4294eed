"""What a value may be: a parameter of a call, or a field of a file. Small checks that compose.

A check is called with a value and its place, which is the name of a parameter or where a field
stands in its file: `number(0, 1)(share, "share")`. What is wrong is an `InputError` that says what
was given and what is expected. Numbers may be numpy's, which is not imported for that: the help of
the command line is made of this.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bagwise.errors import InputError, Option

Where: TypeAlias = str | Option
"""Where a value stands; an option is named as the reader names it."""
Check = Callable[[Any, Where], None]
"""Looks at a value and where it stands; what is wrong with it is a ValueError that says both."""

LARGE = 1e100  # nothing measured or set is larger; squares and sums of such numbers are finite
_LONGEST = 60  # letters of a value in a message
_NUMBERS = (int, float)  # torch.compile, which looks into engines, does not know the union of types


def wrong(value: Any, place: Where, expected: str) -> InputError:
    """The error that says what stands where and what should."""
    return InputError(place or "the content", f" is {shown(value)}; {expected} is expected.")


def shown(value: Any) -> str:
    """A value in a few words, however large or deep it is.

    >>> shown([8, 16]), shown(list(range(300)))
    ('[8, 16]', 'a list of 300')
    """
    if isinstance(value, dict | list | tuple):
        text = reprlib.repr(value)
        if len(text) <= _LONGEST and "..." not in text:
            return text
        return f"a {'table' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:40]}... ({len(text)} characters)"


@dataclass(frozen=True)
class Rule:
    """A check of single values.

    Attributes:
        expected: the values in words.
        accepts: whether a value is one of them.

    >>> Rule("an even number", lambda value: value % 2 == 0)(3, "pairs")
    Traceback (most recent call last):
    bagwise.errors.InputError: pairs is 3; an even number is expected.
    """

    expected: str
    accepts: Callable[[Any], bool]

    def __call__(self, value: Any, place: Where) -> None:
        """Raise an InputError unless the value is accepted."""
        if not self.accepts(value):
            raise wrong(value, place, self.expected)


def check_all(checks: Mapping[str, Check], owner: object) -> None:
    """Check those attributes of `owner` that have a check."""
    for name, check in checks.items():
        check(getattr(owner, name), name)


def plain(value: Any) -> Any:
    """A single value of numpy's as one of Python's, which JSON knows; anything else as it is."""
    of_numpy = type(value).__module__ == "numpy" and hasattr(value, "item")
    return value.item() if of_numpy and value.shape == () else value


# --- single values


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def whole(low: int = 0, high: int = 2**53) -> Check:
    """Integers low .. high; True and False are none."""

    def accepts(value: Any) -> bool:
        value = plain(value)
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Rule(f"a whole number from {low} to {high}", accepts)


def number(
    low: float = -LARGE,
    high: float = LARGE,
    *,
    above: float | None = None,
    below: float | None = None,
) -> Check:
    """Numbers from low to high, or above and below others; never NaN.

    What is infinite is allowed only as low or high.

    >>> number(0, 1)(float("nan"), "history[2].val_accuracy")
    Traceback (most recent call last):
    bagwise.errors.InputError: history[2].val_accuracy is nan; a number from 0 to 1 is expected.
    """

    def accepts(value: Any) -> bool:
        value = plain(value)
        return (
            _is_number(value)
            and low <= value <= high
            and (above is None or value > above)
            and (below is None or value < below)
            and (abs(value) <= LARGE or value in (low, high))
        )

    least = f"{low:g} or more" if low > -LARGE else ""
    most = f"{high:g} or less" if high < LARGE else ""
    if least and most:
        return Rule(f"a number from {low:g} to {high:g}", accepts)
    least = least if above is None else f"more than {above:g}"
    most = most if below is None else f"less than {below:g}"
    bounds = " and ".join(filter(None, (least, most)))
    return Rule(f"a number of {bounds}" if bounds else "a number", accepts)


def one_of(*names: str) -> Check:
    """One of these names."""
    return Rule(
        f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names
    )


def _is_any_number(value: Any) -> bool:
    value = plain(value)
    return isinstance(value, float) or (_is_number(value) and abs(value) <= LARGE)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


any_number: Check = Rule("a number", _is_any_number)  # NaN and infinity among them
text: Check = Rule("text", _is_text)  # that can be written again
short_text: Check = Rule(
    "a short text on one line",
    lambda value: _is_text(value) and value.isprintable() and 0 < len(value) <= 200,
)
flag: Check = Rule("True or False", lambda value: isinstance(plain(value), bool))


def anything(value: Any, place: Where) -> None:
    """Whatever it is."""


# --- of other checks


def or_else(inner: Check, expected: str, accepts: Callable[[Any], bool]) -> Check:
    """What `inner` says, or these values.

    >>> or_else(number(0), "a function", callable)("x", "rate")
    Traceback (most recent call last):
    bagwise.errors.InputError: rate is 'x'; a number of 0 or more or a function is expected.
    """
    if isinstance(inner, Rule):
        accepts_too = inner.accepts
        return Rule(
            f"{inner.expected} or {expected}", lambda value: accepts(value) or accepts_too(value)
        )

    def check(value: Any, place: Where) -> None:
        if not accepts(value):
            inner(value, place)

    return check


def maybe(inner: Check) -> Check:
    """What `inner` says, or nothing."""
    return or_else(inner, "None", lambda value: value is None)


def list_of(inner: Check, low: int = 0, high: int | None = None) -> Check:
    """A list of so many values, each as `inner` says."""
    sizes = [f"at least {low}"] * (low > 0) + [f"at most {high}"] * (high is not None)
    size = str(low) if low == high else " and ".join(sizes)

    def check(value: Any, place: Where) -> None:
        if not isinstance(value, list) or len(value) < low or (high and len(value) > high):
            raise wrong(value, place, f"a list of {size}" if size else "a list")
        for index, item in enumerate(value):
            inner(item, f"{place}[{index}]")

    return check


def record(
    needed: Mapping[str, Check],
    optional: Mapping[str, Check] | None = None,
    others: Check | None = None,
) -> Check:
    """A table with these keys; further ones are refused unless `others` says what they hold.

    >>> record({"lr": number(0, 1)})({"lr": 0.5, "rate": 1}, "")
    Traceback (most recent call last):
    bagwise.errors.InputError: 'rate' is unknown; known are lr.
    """
    known = {**needed, **(optional or {})}

    def check(value: Any, place: Where) -> None:
        if not isinstance(value, dict):
            raise wrong(value, place, "a table of names and values")
        dot = f"{place}." if place else ""
        for key in value:
            text(key, f"a name in {place}" if place else "a name")
            if key not in known and others is None:
                raise InputError(f"{dot}{shown(key)} is unknown; known are {', '.join(known)}.")
        for key in needed:
            if key not in value:
                raise InputError(f"{dot}{key} is missing.")
        for key, item in value.items():
            inner = known.get(key, others or anything)
            inner(item, dot + (key if key in known else shown(key)))

    return check
