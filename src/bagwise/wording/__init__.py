"""Numbers of things in words, and names where there is little room for them."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable

_DIGITS = re.compile(r"(\d{1,18})")
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]*)?")


def counted(n: float, one: str, many: str) -> str:
    """So many things, with the words for one of them or for several.

    >>> counted(1, "row has", "rows have"), counted(2000, "row has", "rows have")
    ('1 row has', '2,000 rows have')
    """
    number = f"{n:,.0f}"
    return f"{number} {one if number == '1' else many}"


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names in quotes, with commas between; of many, the first.

    >>> listed(["age", "sex", "ward"], most=2)
    "'age', 'sex' and 1 more"
    """
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(repr(name) for name in found[:most]) + more


def one_line(text: str, most: int) -> str:
    """A name that fits: without line breaks, and of so many letters, the middle left out.

    >>> one_line("a very long name of a class", 11)
    'a ver…class'
    """
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[-(most - 1 - most // 2) :]}"


def wrapped(text: str, width: int) -> str:
    r"""A title of at most two lines of so many letters.

    >>> wrapped("share of the very long name of a class", 14)
    'share of the\nvery lo… class'
    """
    lines = textwrap.wrap(" ".join(text.split()), width)
    if len(lines) <= 2:
        return "\n".join(lines)
    return f"{lines[0]}\n{one_line(' '.join(lines[1:]), width)}"


def in_order(name: str) -> tuple[float, tuple[tuple[int, str], ...]]:
    """A key for sorting: numbers first, by their value, and numbers in other names by their size.

    >>> sorted(["ward 10", "ward 9", "100+", "18-29"], key=in_order)
    ['18-29', '100+', 'ward 9', 'ward 10']
    >>> sorted(["0.7", "-1.5", "10", "0.08", "(missing)", "-20"], key=in_order)
    ['-20', '-1.5', '0.08', '0.7', '10', '(missing)']
    """
    parts = _DIGITS.split(name)
    in_name = tuple((int(p), p) if n % 2 else (-1, p) for n, p in enumerate(parts))
    return float(name) if _NUMBER.fullmatch(name) else math.inf, in_name
