"""Errors and warnings that a user can act on; their parts are worded where they are shown."""

from __future__ import annotations

import errno
import json
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self


@dataclass(frozen=True)
class Option:
    """An option in a message, by its keyword in Python; the command line words it its own way.

    >>> str(Option("labels_are", "counts")), str(Option("skip_unmatched", True)), str(Option("bag"))
    ('labels_are="counts"', 'skip_unmatched=True', 'bag')
    """

    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        plain = isinstance(self.value, str | list | dict)
        value = json.dumps(self.value, ensure_ascii=False) if plain else repr(self.value)
        return f"{self.name}={value}"


@dataclass(frozen=True)
class Place:
    """A bag, a row or a class in a message, by its position; `with_names` replaces it by a name."""

    kind: Literal["bag", "row", "class"]
    index: int

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


_JOINERS = "\u200c\u200d"  # of Persian names, and of emojis


def harmless(text: str, line_breaks: bool = False) -> str:
    r"""Text with its control characters escaped: names from files must not steer a terminal, nor
    turn the direction of what is written around them.

    Args:
        line_breaks: whether line breaks stay.

    >>> print(harmless("\x1b[31mred"))
    \x1b[31mred
    """
    kept = _JOINERS + "\n" * line_breaks

    def is_shown(letter: str) -> bool:
        return letter.isprintable() or letter in kept or unicodedata.category(letter) == "Zs"

    return "".join(c if is_shown(c) else c.encode("unicode_escape").decode() for c in text)


class _InParts:
    """A message made of text, options and places, which are the exception's `args`."""

    args: tuple[Any, ...]

    def __str__(self) -> str:
        return harmless("".join(map(str, self.args)), line_breaks=True)

    def worded(self, word_option: Callable[[Option], str]) -> str:
        """The message with options as `word_option` words them."""
        return harmless(
            "".join(
                word_option(part) if isinstance(part, Option) else str(part) for part in self.args
            ),
            line_breaks=True,
        )

    def with_names(
        self,
        bag: Sequence[Any] | None = None,
        row: Sequence[Any] | None = None,
        class_: Sequence[Any] | None = None,
    ) -> Self:
        """The same message with names in place of positions.

        >>> str(InputError(Place("bag", 1), " is empty.").with_names(bag=["ward 6", "ward 7"]))
        "bag 'ward 7' is empty."
        """
        names = {"bag": bag, "row": row, "class": class_}

        def named(part: Any) -> Any:
            known = names[part.kind] if isinstance(part, Place) else None
            return part if known is None else f"{part.kind} {known[part.index]!r}"

        return type(self)(*map(named, self.args))


class BagwiseError(_InParts, Exception):
    """An error that a user can fix; the message says what is wrong and what to do.

    The command line shows only the message. Any other exception is a bug of Bagwise, or of a
    function that was passed to it, and is shown with its traceback.

    >>> error = InputError("there are no bags; give ", Option("labels"), ".")
    >>> print(error, "|", error.worded(lambda option: f"--{option.name}"))
    there are no bags; give labels. | there are no bags; give --labels.
    """


class BagwiseWarning(_InParts, UserWarning):
    """A warning about data or options; the message may name options."""


@contextmanager
def naming(
    bag: Sequence[Any] | None = None,
    row: Sequence[Any] | None = None,
    class_: Sequence[Any] | None = None,
) -> Iterator[None]:
    """Have errors that arise here name bags, rows and classes, see `BagwiseError.with_names`."""
    try:
        yield
    except BagwiseError as error:
        raise error.with_names(bag, row, class_) from None


class InputError(BagwiseError, ValueError):
    """A value, a file or a combination of options cannot be used."""


class UsageError(InputError):
    """An argument or an option cannot be used, whatever the data are."""


class InputTypeError(InputError, TypeError):
    """Something that was given is of another type than is expected."""


class DamagedError(InputError):
    """A file that Bagwise wrote is not as it was written."""


_NO_MEMORY = (
    "allocate memory",
    "not enough memory",
    "out of memory",
    "failed to map segment",  # of a library that is imported
    "launch worker thread",  # whose stack has no room
    "can't start new thread",
)


def is_lack_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, says that memory is used up; libraries have
    words of their own for it.
    """
    if isinstance(error, BagwiseError):
        return is_lack_of_memory(error.__cause__)
    if isinstance(error, MemoryError):  # of Python, numpy and Arrow
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    is_of_library = isinstance(error, RuntimeError | ImportError) or (
        type(error).__module__.startswith("pyarrow")
    )
    return is_of_library and any(word in str(error) for word in _NO_MEMORY)


def warn_user(message: str | Warning) -> None:
    """Warn of something that the user gave, and name their line, not one of Bagwise."""
    level = 2
    while sys._getframe(level - 1).f_globals["__name__"].startswith("bagwise."):
        level += 1
    text = harmless(message, line_breaks=True) if isinstance(message, str) else message
    warnings.warn(text, stacklevel=level)
