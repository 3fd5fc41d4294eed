"""Content of JSON files as data classes, checked by the types of their fields."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from bagwise.checks import wrong
from bagwise.errors import InputError

Made = TypeVar("Made")
_TYPES = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of names and values",
    "null": "null",
}


def typed(content: Any, kind: type[Made]) -> Made:
    """Content of a JSON file as a data class; what is of another type is an InputError.

    It names the field. Fields that the class does not have are ignored.

    >>> from bagwise.tables.model.fit_facts import Coverage
    >>> typed({"level": 0.95, "share": 1, "color": "red"}, Coverage)
    Coverage(level=0.95, share=1.0)
    >>> typed({"level": 95, "share": 1}, Coverage)
    Traceback (most recent call last):
    bagwise.errors.InputError: level is 95; a number <= 1.0 is expected.
    """
    import msgspec  # where it is needed: it takes a hundredth of a second

    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise _named(str(error), content) from None
    except UnicodeEncodeError as error:
        raise InputError(f"{error.object[:40]!r} is not a text that can be written.") from None


def _named(message: str, content: Any) -> InputError:
    """An error that says what stands in which field."""
    message, _, path = message.partition(" - at `$")
    path = path.removesuffix("`")
    place = path.removeprefix(".")
    if missing := re.search("missing required field `(.*)`", message):
        return InputError(f"{place}{'.' if place else ''}{missing[1]} is missing.")
    message = message.replace("Number out of range", "Expected `float`")
    expected = re.fullmatch(r"Expected (.*?)(, got .*)?", message)
    if expected is None or "..." in path:
        return InputError(f"{place or 'the content'}: {message}.")
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        content = content[name] if name else content[int(index)]
    words = re.sub(
        r"\w+", lambda word: _TYPES.get(word[0], word[0]), expected[1].partition(" match")[0]
    )
    return wrong(content, place, words.replace("`", "").replace(" | ", " or "))
