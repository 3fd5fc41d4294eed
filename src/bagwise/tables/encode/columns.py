"""The columns of a table and their values as numbers for a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.checks import Check, Where, flag, list_of, maybe, number, record, text, whole, wrong
from bagwise.errors import InputError
from bagwise.tables.encode.hashing import hashed
from bagwise.tables.read.notation import DATE_STYLES, STYLES, UNITS, Style, Written
from bagwise.tables.read.values import category_texts, cleaned, numbers_of

FORMAT = 3
OLDEST = 1  # that is still read: without what `_NEW` lists; until 2, with sentences in `left_out`
_FAR = 1e4  # standard deviations: farther values are taken to be so far
Kind = Literal["numeric", "boolean", "date", "category", "ordered"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Role = Literal["value", "log", "category", "other", "shared", "level", "missing"]
Inputs = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Log:
    """A signed logarithm: s(x) = sign(x - centre) log(1 + |x - centre| / scale), standardized.

    Attributes:
        centre: the median of the training rows.
        scale: their spread.
        mean: of s(x) over the training rows.
        std: of the same.
    """

    centre: float
    scale: float
    mean: float = 0.0
    std: float = 1.0

    def __call__(self, x: Floats) -> Floats:
        """(s(x) - mean) / std.

        >>> Log(centre=1.0, scale=2.0)(np.array([1.0, 3.0, -1.0])).round(3)
        array([ 0.   ,  0.693, -0.693])
        """
        off = (x - self.centre) / self.scale
        found: Floats = (np.sign(off) * np.log1p(np.abs(off)) - self.mean) / self.std
        return found


@dataclass(frozen=True)
class Column:
    """A column of the table and how it is encoded.

    Numbers, booleans and dates (as days) become (value - mean) / std, 0 where they are missing.
    Categories become one column of 0 and 1 for each; with `other`, one more for all rare and new
    ones, with `shared`, several, of which the text's hash says one. Ordered categories become a
    column for each but the first, 1 where the value is this one or a later one. With `missing`, a
    column of 0 and 1 says where there is no value.

    Attributes:
        name: in the table.
        kind: numeric, boolean, date, category or ordered.
        mean: of the training rows; 0 for categories, of ordered ones the mean place.
        std: of the training rows; 1 for categories.
        missing: whether training rows had no value.
        categories: in the order of their columns, or as they were declared.
        other: whether rare categories share a column.
        shared: columns that rare categories share by their hash; 0 or at least 2.
        low: smaller numbers are taken for this one.
        high: larger numbers are taken for this one.
        codes: numbers that stand for a missing value.
        log: of a second column for a heavy tail.
        style: how numbers or dates are written, see `bagwise.tables.read.notation`.
        unit: the sign that all numbers have.
    """

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    missing: bool = False
    categories: tuple[str, ...] = ()
    other: bool = False
    shared: int = 0
    low: float | None = None
    high: float | None = None
    codes: tuple[float, ...] = ()
    log: Log | None = None
    style: Style = ""
    unit: str = ""

    @property
    def encoded(self) -> list[tuple[str, Role]]:
        """Names of the columns it becomes, and what they are."""
        found: list[tuple[str, Role]] = []
        if self.kind == "category":
            found += [(f"{self.name}={category}", "category") for category in self.categories]
            found += [(f"{self.name}=(other)", "other")] if self.other else []
            shared = range(1, self.shared + 1)
            found += [(f"{self.name}=(shared {i} of {self.shared})", "shared") for i in shared]
        elif self.kind == "ordered":
            found += [(f"{self.name}>={level}", "level") for level in self.categories[1:]]
        elif self.std > 0:
            found.append((self.name, "value"))
            found += [(f"log {self.name}", "log")] if self.log else []
        return found + ([(f"{self.name}=(missing)", "missing")] if self.missing else [])

    @property
    def encoded_names(self) -> list[str]:
        """Names of the columns it becomes."""
        return [name for name, _ in self.encoded]


@dataclass
class Surprises:
    """What rows had that the training rows had not, by column."""

    unseen: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    infinite: Counter[str] = field(default_factory=Counter)
    far: Counter[str] = field(default_factory=Counter)

    def update(self, other: Surprises) -> None:
        """Add those of other rows."""
        for field_ in fields(self):
            getattr(self, field_.name).update(getattr(other, field_.name))


@dataclass(frozen=True)
class LeftOut:
    """Why a column is left out.

    Attributes:
        reason: "as_written" in files of earlier formats, which have a sentence.
        value: the only one of a constant column, the type of one of another type, or the sentence.
    """

    reason: Literal["empty", "constant", "row_number", "unique_text", "type", "as_written"]
    value: str = ""


@dataclass(frozen=True)
class Columns:
    """The feature columns of a table, learned from training rows.

    Attributes:
        columns: those that are used.
        left_out: why a column is not, by its name.

    >>> from bagwise.tables.encode.learn_columns import ColumnLearner
    >>> batch = pa.RecordBatch.from_pydict({"age": [30, 50, None], "sex": ["f", "m", None]})
    >>> learner = ColumnLearner(batch.schema)
    >>> learner.update(batch)
    >>> columns = learner.finish()
    >>> columns.encoded_names
    ['age', 'age=(missing)', 'sex=f', 'sex=m', 'sex=(missing)']
    >>> columns.encode(batch)[0]
    array([-1.,  0.,  1.,  0.,  0.], dtype=float32)
    """

    columns: tuple[Column, ...]
    left_out: dict[str, LeftOut] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names in the table."""
        return [column.name for column in self.columns]

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns, in order."""
        return [name for column in self.columns for name in column.encoded_names]

    def without_logs(self) -> Columns:
        """The same without second columns for heavy tails."""
        return replace(self, columns=tuple(replace(c, log=None) for c in self.columns))

    def encode(
        self, batch: pa.RecordBatch, first_row: int = 0, surprises: Surprises | None = None
    ) -> Inputs:
        """(n, width) numbers for the rows of a batch; `first_row` is its place, for messages."""
        surprises = surprises if surprises is not None else Surprises()
        inputs = np.zeros((batch.num_rows, len(self.encoded_names)), dtype=np.float32)
        place = 0
        for column in self.columns:
            width = len(column.encoded)
            part = inputs[:, place : place + width]
            values = batch.column(column.name)
            if column.kind == "category":
                missing = _encode_categories(column, values, part, surprises)
            elif column.kind == "ordered":
                missing = _encode_ordered(column, values, part, first_row)
            else:
                missing = _encode_numbers(column, values, part, first_row, surprises)
            if column.missing:
                part[:, -1] = missing
            else:
                surprises.missing[column.name] += int(missing.sum())
            place += width
        return inputs

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        columns = [asdict(column) for column in self.columns]
        left_out = {name: asdict(why) for name, why in self.left_out.items()}
        return {"format": FORMAT, "columns": columns, "left_out": left_out}

    @classmethod
    def from_json(cls, content: Any) -> Columns:
        """What `to_json` made, also in earlier versions; anything else is a ValueError."""
        record({"format": whole(OLDEST, FORMAT)}, others=_unseen)(content, "")
        known = _OLD if content["format"] == OLDEST else _OLD | _NEW
        why = (
            text if content["format"] < 3 else record({"reason": _one_of(_REASONS), "value": text})
        )
        left_out = record({}, others=why)
        columns = list_of(record(known), 1)
        record({"format": _unseen, "columns": columns, "left_out": left_out})(content, "")
        made = tuple(_made(item, f"columns[{i}]") for i, item in enumerate(content["columns"]))
        if len({column.name for column in made}) < len(made):
            raise InputError("columns has a name more than once")
        return cls(made, {name: _reason(why) for name, why in content["left_out"].items()})


def _encode_numbers(
    column: Column, values: pa.Array, part: Inputs, first_row: int, surprises: Surprises
) -> npt.NDArray[np.bool_]:
    written = Written(column.style, column.unit)
    infinite = surprises.infinite
    numbers = numbers_of(values, column.kind, column.name, first_row, infinite, written)
    if column.codes:
        numbers = np.where(np.isin(numbers, column.codes), np.nan, numbers)
    missing = np.isnan(numbers)
    if column.std > 0:
        if column.low is not None and column.high is not None:
            near = np.clip(numbers, column.low, column.high)
            surprises.far[column.name] += int((near != numbers)[~missing].sum())
        else:
            near = numbers
        standard = np.clip((near - column.mean) / column.std, -_FAR, _FAR)
        part[:, 0] = np.where(missing, 0, standard)
        if column.log:
            part[:, 1] = np.where(missing, 0, np.clip(column.log(numbers), -_FAR, _FAR))
    return missing


def _encode_categories(
    column: Column, values: pa.Array, part: Inputs, surprises: Surprises
) -> npt.NDArray[np.bool_]:
    texts = category_texts(values)
    index, missing = _places(texts, column)
    known = index >= 0
    part[np.flatnonzero(known), index[known]] = 1
    rest = ~known & ~missing
    if column.other:
        part[rest, len(column.categories)] = 1
    elif column.shared:
        places = hashed(texts.filter(pa.array(rest)), column.shared)
        part[np.flatnonzero(rest), len(column.categories) + places] = 1
    else:
        surprises.unseen[column.name] += int(rest.sum())
    return missing


def _encode_ordered(
    column: Column, values: pa.Array, part: Inputs, first_row: int
) -> npt.NDArray[np.bool_]:
    texts = level_texts(values, column.categories)
    index, missing = _places(texts, column)
    unknown = np.flatnonzero((index < 0) & ~missing)
    if len(unknown):
        row = int(unknown[0])
        raise InputError(
            f"the column {column.name!r} has {texts[row].as_py()!r} in row {first_row + row + 1}; "
            f"one of {' < '.join(column.categories)} is expected, or nothing."
        )
    level = np.where(missing, round(column.mean), index)
    part[:, : len(column.categories) - 1] = level[:, None] > np.arange(len(column.categories) - 1)
    return missing


def level_texts(values: pa.Array, levels: Iterable[str]) -> pa.Array:
    """Values as text without spaces around, null for a word of `MISSING` that is not a level."""
    texts = pc.utf8_trim_whitespace(category_texts(values))
    return pc.if_else(
        pc.is_in(texts, value_set=pa.array(levels, pa.string())), texts, cleaned(texts)
    )


def _places(texts: pa.Array, column: Column) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(n,) each text's place among the categories, -1 if it has none, and where there is none."""
    places = pc.index_in(texts, value_set=pa.array(column.categories, pa.string()))
    index: npt.NDArray[np.int64] = places.fill_null(-1).to_numpy(zero_copy_only=False)
    return index, texts.is_null().to_numpy(zero_copy_only=False)


def _unseen(value: Any, place: Where) -> None:
    """Checked elsewhere."""


def _one_of(names: Iterable[str]) -> Check:
    known = tuple(names)

    def check(value: Any, place: Where) -> None:
        if not isinstance(value, str) or value not in known:
            raise wrong(value, place, f"one of {', '.join(map(repr, known))}")

    return check


_OLD: dict[str, Check] = {
    "name": text,
    "kind": _one_of(KINDS),
    "mean": number(),
    "std": number(0),
    "missing": flag,
    "categories": list_of(text),
    "other": flag,
}
_REASONS = ("empty", "constant", "row_number", "unique_text", "type", "as_written")
_SPREAD = number(above=0)
_LOG = {"centre": number(), "scale": _SPREAD, "mean": number(), "std": _SPREAD}
_NEW: dict[str, Check] = {
    "shared": whole(0, 1 << 20),
    "low": maybe(number()),
    "high": maybe(number()),
    "codes": list_of(number()),
    "log": maybe(record(_LOG)),
    "style": _one_of(STYLES),
    "unit": _one_of(UNITS),
}


def _reason(why: str | dict[str, str]) -> LeftOut:
    """Why a column is left out, as a file says it."""
    return LeftOut("as_written", why) if isinstance(why, str) else LeftOut(**why)  # type: ignore[arg-type]


def _made(item: dict[str, Any], place: Where) -> Column:
    """A column of a file whose fields are each what they should be, if they also go together."""
    log = item.get("log")
    parts = {
        "categories": tuple(item["categories"]),
        "codes": tuple(item.get("codes", ())),
        "log": None if log is None else Log(**log),
    }
    column = Column(**{**item, **parts})
    numbers = column.kind in ("numeric", "boolean", "date")
    limits = column.low is not None, column.high is not None
    styles = {"numeric": STYLES[:3], "date": ("", *DATE_STYLES)}.get(column.kind, ("",))
    good = (
        len(set(column.categories)) == len(column.categories)
        and bool(column.categories) <= (not numbers)
        and (column.kind != "ordered" or 0 <= column.mean <= len(column.categories) - 1)
        and not (column.other and column.shared)
        and column.shared != 1
        and (column.kind == "category" or not (column.other or column.shared))
        and (numbers or not (any(limits) or column.codes or column.log))
        and limits[0] == limits[1]
        and (column.low is None or column.high is None or column.low <= column.high)
        and (not column.codes or column.missing)
        and column.style in styles
        and (not column.unit or column.style in STYLES[1:3])
    )
    if not good:
        raise InputError(f"{place} has parts that do not go together")
    return column
