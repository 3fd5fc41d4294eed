"""How numbers and dates may be written besides the plain way: 1,234.5, 1.234,5, 12%, 31/12/2020.

A column is written in one way. Which one is learned from all its values, kept with the model, and
the same for new rows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Style = Literal["", "1,234.5", "1.234,5", "31/12/2020", "12/31/2020", "2020/12/31"]
STYLES: tuple[Style, ...] = ("", "1,234.5", "1.234,5", "31/12/2020", "12/31/2020", "2020/12/31")
DATE_STYLES = STYLES[3:]
UNITS = ("", "%", "€", "$", "£", "¥", "₹")

_BLANKS = " \u00a0\u202f"
_GAP = f"[{_BLANKS}'\u2019]"  # between thousands in France, Sweden, Switzerland
_BODY = {
    "1,234.5": rf"(([1-9]\d{{0,2}}((,\d{{3}})+|({_GAP}\d{{3}})+)|\d+)(\.\d*)?|\.\d+)(e[+-]?\d+)?",
    "1.234,5": rf"([1-9]\d{{0,2}}((\.\d{{3}})+|({_GAP}\d{{3}})+)|\d+)(,\d*)?",
}
_PARTS = r"^(?P<a>\d{1,2})[/-](?P<b>\d{1,2})[/-](?P<c>\d{4})(?P<rest>$|[T ].*)"
_YEAR_FIRST = r"^(?P<c>\d{4})[/.](?P<b>\d{1,2})[/.](?P<a>\d{1,2})(?P<rest>$|[T ].*)"
_LIKE_A_DATE = r"^\s*(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./](\d{4}|\d{2}))(\D|$)"


GROUPED, _BARE = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$", r"^[+-]?\d{1,3}$"


class Dots:
    """Whether the dots in numbers are those of thousands, judged by texts that come in parts.

    They are where some numbers are like 1.260 and some like 870, and none like 0.25, 12.5 or 1260:
    decimals would not always have three digits, or none.

    Args:
        least: different texts of either kind that are needed.

    >>> dots = Dots(least=1)
    >>> dots.add(pa.array(["1.260", "870", None]))
    >>> dots.are_thousands
    True
    >>> dots.add(pa.array(["2.5"]))
    >>> dots.are_thousands
    False
    """

    def __init__(self, least: int = 3) -> None:
        self._least = least
        self._others = False
        self._seen: tuple[set[str], set[str]] = (set(), set())

    def add(self, texts: pa.Array) -> None:
        """Take more texts, without spaces around them, into account."""
        known = texts.drop_null()
        kinds = [pc.match_substring_regex(known, kind) for kind in (GROUPED, _BARE)]
        self._others |= not pc.all(pc.or_(*kinds), min_count=0).as_py()
        for seen, kind in zip(self._seen, kinds, strict=True):
            if len(seen) < self._least and self.may_be_thousands:
                seen |= set(known.filter(kind).unique().to_pylist()) - {"0"}

    @property
    def may_be_thousands(self) -> bool:
        """Whether no text so far speaks against it."""
        return not self._others

    @property
    def are_thousands(self) -> bool:
        """What all texts so far say."""
        return self.may_be_thousands and all(len(seen) >= self._least for seen in self._seen)

    @property
    def examples(self) -> tuple[str, str]:
        """A text with a dot and one without."""
        grouped, bare = self._seen
        return min(grouped), min(bare)


class Written(NamedTuple):
    """A way to write.

    Attributes:
        style: an example of it; empty for what `values.parsed` takes as it stands.
        unit: a sign that every number has, before or behind it.
    """

    style: Style = ""
    unit: str = ""


PLAIN = Written()


def rewritten(texts: pa.Array, written: Written) -> pa.Array:
    """Texts without spaces around them as `values.parsed` takes them, "?" for another way.

    >>> rewritten(pa.array(["$1,234.50", "-$7", "7"]), Written("1,234.5", "$")).to_pylist()
    ['1234.50', '-7', '?']
    >>> rewritten(pa.array(["12/31/2020 9:00"]), Written("12/31/2020")).to_pylist()
    ['31.12.2020 9:00']
    """
    if written.style in DATE_STYLES:
        order = r"\2.\1.\3\4" if written.style == "12/31/2020" else r"\1.\2.\3\4"
        pattern = _PARTS
        if written.style == "2020/12/31":
            pattern, order = _YEAR_FIRST, r"\3.\2.\1\4"
        return pc.replace_substring_regex(texts, pattern, order)
    good = pc.match_substring_regex(texts, _number(written))
    thousands = "," if written.style == "1,234.5" else r"\."
    bare = pc.replace_substring_regex(texts, rf"{_GAP}|{thousands}|[{''.join(UNITS)}]", "")
    return pc.if_else(good, pc.replace_substring(bare, ",", "."), "?")


def _number(written: Written) -> str:
    """What a number looks like: sign, unit, digits; or sign, digits, unit."""
    body, unit = _BODY[written.style], f"\\{written.unit}" if written.unit == "$" else written.unit
    if not unit:
        return rf"(?i)^[+-]?{body}$"
    before = rf"[+-]?{unit}[{_BLANKS}]*|{unit}[{_BLANKS}]*[+-]"
    return rf"(?i)^(({before}){body}|[+-]?{body}[{_BLANKS}]*{unit})$"


def numbers_written(
    texts: pa.Array, rows: npt.NDArray[np.int64]
) -> tuple[Written, npt.NDArray[np.bool_]]:
    """The way in which most rows write numbers, and which of the texts (n,) are written so.

    Commas before three digits, where all could be so, are those of thousands; dots where `Dots`
    says so.

    Args:
        texts: all different, without spaces around them.
        rows: how many rows have each.
    """
    dots = Dots()
    dots.add(texts)
    if dots.are_thousands:
        return Written("1.234,5"), np.ones(len(texts), dtype=np.bool_)
    best, most = (PLAIN, np.zeros(len(texts), dtype=np.bool_)), -1
    for unit in UNITS:
        for style in STYLES[1:3]:
            written = Written(style, unit)
            fits = _mask(pc.match_substring_regex(texts, _number(written)))
            if (n := int(rows[fits].sum())) > most:
                best, most = (written, fits), n
    return best


def dates_written(texts: pa.Array) -> Written | None:
    """The way in which all texts write dates; None where they do not, or where it is in doubt.

    >>> dates_written(pa.array(["1/2/2021", "31/12/2020"]))
    Written(style='31/12/2020', unit='')
    >>> dates_written(pa.array(["1/2/2021", "3/12/2020"])) is None
    True
    """
    if pc.all(pc.match_substring_regex(texts, _YEAR_FIRST)).as_py():
        return Written("2020/12/31")
    found = pc.extract_regex(texts, _PARTS)
    if found.null_count:
        return None
    first, second = (_numbers(pc.struct_field(found, name)) for name in ("a", "b"))
    if (first > 12).any() == (second > 12).any():
        return None
    return Written("31/12/2020" if (first > 12).any() else "12/31/2020")


def is_in_doubt(texts: pa.Array) -> bool:
    """Whether texts are dates of which nothing tells the day from the month."""
    found = pc.extract_regex(texts, _PARTS)
    if found.null_count:
        return False
    return all((_numbers(pc.struct_field(found, name)) <= 12).all() for name in ("a", "b"))


def like_dates(texts: pa.Array) -> npt.NDArray[np.bool_]:
    """(n,) which texts look like dates, years of two digits included."""
    return _mask(pc.match_substring_regex(texts, _LIKE_A_DATE))


def _mask(found: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return mask


def _numbers(digits: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
