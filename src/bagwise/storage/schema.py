"""What a file must hold: small checks that compose, and one line that names the field at fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bagwise.errors import DamagedError, InputError

Check = Callable[[Any, str], None]
"""Looks at a value and where it stands; what is wrong with it is a ValueError that says both."""

LARGE = 1e100  # nothing measured or set is larger; squares and sums of such numbers are finite


def read_json(path: Path) -> Any:
    """The content of a JSON file; what cannot be read as such is a ValueError that names it."""
    try:
        return json.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged or was not written by Bagwise ({error}).") from error


def wrong(value: Any, place: str, expected: str) -> InputError:
    """The error that says what stands where and what should."""
    return InputError(f"{place or 'the content'} is {shown(value)}; {expected} is expected.")


def shown(value: Any) -> str:
    """A value in a few words, however large or deep it is."""
    if isinstance(value, dict | list | tuple):
        kind = "table" if isinstance(value, dict) else "list"
        return f"a {kind} of {len(value)}"
    text = str(value) if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)"


def whole(low: int = 0, high: int = 2**53) -> Check:
    """A whole number; True and False are none."""

    def check(value: Any, place: str) -> None:
        if type(value) is not int or not low <= value <= high:
            raise wrong(value, place, f"a whole number from {low} to {high}")

    return check


def number(low: float = -LARGE, high: float = LARGE, within: bool = False) -> Check:
    """A number from low to high, both included unless it must lie `within`; never NaN.

    What is infinite is allowed only as one of the two.

    >>> number(0, 1)(float("nan"), "history[2].val_accuracy")
    Traceback (most recent call last):
    bagwise.errors.InputError: history[2].val_accuracy is nan; a number from 0 to 1 is expected.
    """
    kind = "a number between {} and {}" if within else "a number from {} to {}"

    def check(value: Any, place: str) -> None:
        there = type(value) in (int, float) and low <= value <= high
        if there and value not in (low, high):
            there = abs(value) <= LARGE  # an integer may be too large for a float
        if not there or (within and value in (low, high)):
            raise wrong(value, place, kind.format(low, high))

    return check


def any_number(value: Any, place: str) -> None:
    """A number of any size, NaN and infinity among them."""
    if type(value) is not float and (type(value) is not int or abs(value) > LARGE):
        raise wrong(value, place, "a number")


def text(value: Any, place: str) -> None:
    """Text that can be written again."""
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise wrong(value, place, "text")


def short_text(value: Any, place: str) -> None:
    """A short text on one line."""
    text(value, place)
    if not value.isprintable() or not 0 < len(value) <= 200:
        raise wrong(value, place, "a short text on one line")


def flag(value: Any, place: str) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise wrong(value, place, "true or false")


def anything(value: Any, place: str) -> None:
    """Whatever it is."""


def maybe(inner: Check) -> Check:
    """What `inner` says, or nothing."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            inner(value, place)

    return check


def list_of(inner: Check, low: int = 0, high: int | None = None) -> Check:
    """A list of so many values, each as `inner` says."""
    size = "a list" if not low else f"a list of at least {low}"

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list) or len(value) < low or (high and len(value) > high):
            raise wrong(value, place, f"{size}{f' and at most {high}' if high else ''}")
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

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise wrong(value, place, "a table of names and values")
        dot = f"{place}." if place else ""
        for key in value:
            text(key, f"a name{' in ' + place if place else ''}")
            if key not in known and others is None:
                raise InputError(f"{dot}{shown(key)} is unknown; known are {', '.join(known)}.")
        for key in needed:
            if key not in value:
                raise InputError(f"{dot}{key} is missing.")
        for key, item in value.items():
            inner = known.get(key, others or anything)
            inner(item, dot + (key if key in known else shown(key)))

    return check
