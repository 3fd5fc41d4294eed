"""What the columns of a table mean, and their values as numbers for a model."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.tabular.values import MISSING, category_texts, is_date, is_number, is_text, numbers_of

FORMAT = 1
_FAR = 1e4  # standard deviations: farther values are taken to be so far
_LIKE_A_DATE = re.compile(
    r"\s*(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{4}|\d{1,2}/\d{1,2}/\d{2})\b(?![-./])"
)
Kind = Literal["numeric", "boolean", "date", "category"]
KINDS: tuple[Kind, ...] = ("numeric", "boolean", "date", "category")
Inputs = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Column:
    """A column of the table and how it is encoded.

    Numbers, booleans and dates (as days) become (value - mean) / std, 0 where they are missing.
    Categories become one column of 0 and 1 for each; with `other`, one more for all rare and new
    ones. With `missing`, a column of 0 and 1 says where there is no value.

    Attributes:
        name: in the table.
        kind: numeric, boolean, date or category.
        mean: of the training rows; 0 for categories.
        std: of the training rows; 1 for categories.
        missing: whether training rows had no value.
        categories: in the order of their columns.
        other: whether rare categories share a column.
    """

    name: str
    kind: Kind
    mean: float = 0.0
    std: float = 1.0
    missing: bool = False
    categories: tuple[str, ...] = ()
    other: bool = False

    @property
    def encoded_names(self) -> list[str]:
        """Names of the columns it becomes."""
        if self.kind == "category":
            names = [f"{self.name}={category}" for category in self.categories]
            names += [f"{self.name}=(other)"] if self.other else []
        else:
            names = [self.name] if self.std > 0 else []
        return names + ([f"{self.name}=(missing)"] if self.missing else [])


@dataclass
class Surprises:
    """What rows had that the training rows had not, by column."""

    unseen: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    infinite: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """One sentence for each column."""
        return [
            *(f"{name}: {n} rows have a category not seen in fit." for name, n in _by(self.unseen)),
            *(f"{name}: {n} rows have no value; in fit all had." for name, n in _by(self.missing)),
            *(_infinite(name, n) for name, n in _by(self.infinite)),
        ]


def _infinite(name: str, n: int) -> str:
    return f"{name}: {n} rows have an infinite value, which is taken for missing."


def _by(counter: Counter[str]) -> Iterable[tuple[str, int]]:
    return ((name, n) for name, n in counter.items() if n)


@dataclass(frozen=True)
class Columns:
    """The feature columns of a table, learnt from training rows.

    Attributes:
        columns: those that are used.
        left_out: name -> why.

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
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names in the table."""
        return [column.name for column in self.columns]

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns, in order."""
        return [name for column in self.columns for name in column.encoded_names]

    def encode(
        self, batch: pa.RecordBatch, first_row: int = 0, surprises: Surprises | None = None
    ) -> Inputs:
        """(n, width) numbers for the rows of a batch; `first_row` is its place, for messages."""
        surprises = surprises if surprises is not None else Surprises()
        inputs = np.zeros((batch.num_rows, len(self.encoded_names)), dtype=np.float32)
        place = 0
        for column in self.columns:
            width = len(column.encoded_names)
            part = inputs[:, place : place + width]
            values = batch.column(column.name)
            if column.kind == "category":
                missing = _encode_categories(column, values, part, surprises)
            else:
                numbers = numbers_of(
                    values, column.kind, column.name, first_row, surprises.infinite
                )
                missing = np.isnan(numbers)
                if column.std > 0:
                    standard = np.clip((numbers - column.mean) / column.std, -_FAR, _FAR)
                    part[:, 0] = np.where(missing, 0, standard)
            if column.missing:
                part[:, -1] = missing
            else:
                surprises.missing[column.name] += int(missing.sum())
            place += width
        return inputs

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        columns = [asdict(column) for column in self.columns]
        return {"format": FORMAT, "columns": columns, "left_out": self.left_out}

    @classmethod
    def from_json(cls, content: Any) -> Columns:
        """What `to_json` made; anything else is a ValueError."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"format {FORMAT} is expected")
        columns = tuple(_checked(item) for item in content["columns"])
        names = [column.name for column in columns]
        if not columns or len(set(names)) < len(names):
            raise ValueError("columns must be there, each once")
        left_out = content["left_out"]
        if not isinstance(left_out, dict):
            raise ValueError("left_out is not a mapping")
        return cls(columns, {str(name): str(why) for name, why in left_out.items()})


def _encode_categories(
    column: Column, values: pa.Array, part: Inputs, surprises: Surprises
) -> npt.NDArray[np.bool_]:
    texts = category_texts(values)
    places = pc.index_in(texts, value_set=pa.array(column.categories, pa.string()))
    missing: npt.NDArray[np.bool_] = texts.is_null().to_numpy(zero_copy_only=False)
    index = places.fill_null(-1).to_numpy(zero_copy_only=False)
    known = index >= 0
    part[np.flatnonzero(known), index[known]] = 1
    rest = ~known & ~missing
    if column.other:
        part[rest, len(column.categories)] = 1
    else:
        surprises.unseen[column.name] += int(rest.sum())
    return missing


def _checked(item: Any) -> Column:
    """A column from a file."""
    column = Column(**{**item, "categories": tuple(item["categories"])})
    good = (
        isinstance(column.name, str)
        and column.kind in KINDS
        and all(isinstance(x, float | int) and math.isfinite(x) for x in (column.mean, column.std))
        and column.std >= 0
        and all(isinstance(x, bool) for x in (column.missing, column.other))
        and all(isinstance(text, str) for text in column.categories)
        and len(set(column.categories)) == len(column.categories)
    )
    if not good:
        raise ValueError(f"the column {item!r} is not one")
    return column


class ColumnLearner:
    """Learns `Columns` from batches of rows.

    Args:
        schema: of the rows.
        features: names of the columns to use; all if not given.
        exclude: names of columns not to use.
        categorical: names of columns of numbers that are categories.
    """

    def __init__(
        self,
        schema: pa.Schema,
        features: Iterable[str] = (),
        exclude: Iterable[str] = (),
        categorical: Iterable[str] = (),
    ) -> None:
        wanted, unwanted, categorical = list(features), set(exclude), set(categorical)
        for name in [*wanted, *unwanted, *categorical]:
            if name not in schema.names:
                raise ValueError(f"there is no column {name!r}; there are {schema.names}.")
            if name in unwanted and name in {*wanted, *categorical}:
                raise ValueError(f"{name!r} is both a feature and excluded, or the bag itself.")
        self.left_out: dict[str, str] = {}
        self._learners: dict[str, _Numbers | _Categories] = {}
        for name in wanted or schema.names:
            if name in unwanted:
                continue
            kind = "category" if name in categorical else _kind(schema.field(name).type)
            if kind is None:
                empty = pa.types.is_null(schema.field(name).type)
                why = "no row has a value" if empty else f"of type {schema.field(name).type}"
                if name in wanted and not empty:
                    raise ValueError(f"the column {name!r} is {why}, which cannot be a feature.")
                self.left_out[name] = why
            elif kind == "category":
                self._learners[name] = _Categories(name, name in wanted, name in categorical)
            else:
                self._learners[name] = _Numbers(name, kind, name in wanted)

    @property
    def names(self) -> list[str]:
        """Names of the columns that are looked at."""
        return list(self._learners)

    def update(self, batch: pa.RecordBatch) -> None:
        """Take more rows into account."""
        for name, learner in self._learners.items():
            learner.update(batch.column(name))

    def finish(self) -> Columns:
        """The columns; those that say nothing are left out."""
        columns, left_out = [], dict(self.left_out)
        for name, learner in self._learners.items():
            found = learner.finish()
            if isinstance(found, str):
                left_out[name] = found
            else:
                columns.append(found)
        if not columns:
            reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
            raise ValueError(f"no column is left to learn from ({reasons or 'all are excluded'}).")
        return Columns(tuple(columns), left_out)


def _kind(kind: pa.DataType) -> Kind | None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numeric"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if is_text(kind):
        return "category"
    return None


class _Numbers:
    """Running mean and spread (the pairwise update of Chan, Golub and LeVeque).

    `networks.Standardize` wants all inputs at once and every value known; here rows come batch by
    batch, and cells may be empty. What is rare in a column is limited by `_FAR`.
    """

    def __init__(self, name: str, kind: Kind, wanted: bool) -> None:
        self.name, self.kind = name, kind
        self.numbering = None if wanted or kind != "numeric" else _Numbering()
        self.infinite: Counter[str] = Counter()
        self.n = self.missing = 0
        self.mean = self.squares = 0.0

    def update(self, values: pa.Array) -> None:
        numbers = numbers_of(values, self.kind, self.name, infinite=self.infinite)
        known = numbers[~np.isnan(numbers)]
        self.missing += len(numbers) - len(known)
        if not len(known):
            return
        if self.numbering is not None and not self.numbering.goes_on(known):
            self.numbering = None
        n = self.n + len(known)
        with np.errstate(over="ignore", invalid="ignore"):
            step = float(known.mean()) - self.mean
            self.squares += float(((known - known.mean()) ** 2).sum())
            self.squares += step * step * self.n * len(known) / n
            self.mean += step * len(known) / n
        self.n = n

    def finish(self) -> Column | str:
        for name, n in self.infinite.items():
            warnings.warn(_infinite(name, n), UserWarning, stacklevel=2)
        if not self.n:
            return "no row has a value"
        if self.n >= 20 and not self.missing and self.numbering and self.numbering.numbers_rows():
            return "it numbers the rows; name it in --features if it is more than that"
        if not math.isfinite(self.squares):
            raise ValueError(
                f"the column {self.name!r} has values too large to compute with; empty them."
            )
        std = math.sqrt(self.squares / self.n)
        if std <= 1e-13 * abs(self.mean):  # rounding errors
            std = 0.0
        if std == 0 and not self.missing:
            return f"always {self.mean:g}"
        return Column(self.name, self.kind, self.mean, std, missing=self.missing > 0)


class _Numbering:
    """Whether whole numbers that all differ come in order or without a gap: an id, no feature.

    The values are kept only as long as no two of a batch are the same.
    """

    def __init__(self) -> None:
        self.parts: list[npt.NDArray[np.float64]] = []

    def goes_on(self, known: npt.NDArray[np.float64]) -> bool:
        """Take more values; whether it may still be such a column."""
        self.parts.append(known)
        return bool((known == np.rint(known)).all()) and len(np.unique(known)) == len(known)

    def numbers_rows(self) -> bool:
        """Whether it is one."""
        values = np.concatenate(self.parts)
        ordered = np.sort(values)
        if not (np.diff(ordered) > 0).all():
            return False
        gapless = ordered[-1] - ordered[0] == len(ordered) - 1
        return bool(gapless or (values == ordered).all() or (values[::-1] == ordered).all())


class _Categories:
    """Counts of categories; the frequent ones get a column each."""

    MOST = 50  # columns for one column
    TRACKED = 20_000  # different values counted

    def __init__(self, name: str, wanted: bool, categorical: bool) -> None:
        self.name, self.wanted, self.categorical = name, wanted, categorical
        self.counts: Counter[str] = Counter()
        self.n = self.missing = 0
        self.overflow = False

    def update(self, values: pa.Array) -> None:
        texts = category_texts(values)
        self.n += len(texts)
        self.missing += texts.null_count
        for entry in pc.value_counts(texts.drop_null()).to_pylist():
            if entry["values"] in self.counts or len(self.counts) < self.TRACKED:
                self.counts[entry["values"]] += entry["counts"]
            else:
                self.overflow = True

    def finish(self) -> Column | str:
        if not self.counts:
            return "no row has a value"
        if not self.categorical:
            self._refuse_numbers()
            self._note_dates()
            many = self.overflow or (self.n >= 20 and len(self.counts) > 0.5 * self.n)
            if many and not self.wanted:
                return "almost every row has another text"
        if len(self.counts) == 1 and not self.missing:
            return f"always {next(iter(self.counts))!r}"
        rare = 1 if self.n < 20 else max(2, self.n // 10_000)
        kept = [text for text, n in self.counts.most_common(self.MOST) if n >= rare]
        other = self.overflow or len(kept) < len(self.counts)
        return Column(
            self.name,
            "category",
            missing=self.missing > 0,
            categories=tuple(sorted(kept)),
            other=other,
        )

    def _note_dates(self) -> None:
        """Most look like dates, but not all are, or the order of day and month is not known."""
        like_dates = sum(bool(_LIKE_A_DATE.match(text)) for text in self.counts)
        if 2 * like_dates > len(self.counts):
            bad = next((text for text in self.counts if not is_date(text)), None)
            because = f", as {bad!r} is none" if bad else ""
            warnings.warn(
                f"the column {self.name!r} is taken for categories, not for dates{because}; write "
                "2020-12-31 or 31.12.2020, in every row.",
                UserWarning,
                stacklevel=2,
            )

    def _refuse_numbers(self) -> None:
        """A column of numbers with some texts in it is a mistake, not fifty categories."""
        if len(self.counts) <= 10:
            return
        rows = sum(self.counts.values())
        texts = {text: n for text, n in self.counts.items() if not is_number(text)}
        commas = [text for text in texts if is_number(text.replace(",", ".", 1))]
        if sum(texts[text] for text in commas) >= 0.5 * rows:
            raise ValueError(
                f"the column {self.name!r} holds numbers with decimal commas ({commas[0]!r}); "
                f"write them with points, or leave the column out with --exclude {self.name}."
            )
        if texts and sum(texts.values()) <= 0.5 * rows:
            telling = sorted(texts, key=lambda text: text.strip().lower() in MISSING)
            shown = ", ".join(repr(text) for text in telling[:3])
            raise ValueError(
                f"the column {self.name!r} holds numbers, but in {sum(texts.values())} rows text "
                f"({shown}). Mend or empty these cells, or leave the column out with --exclude "
                f"{self.name}; if its values are categories, say --categorical {self.name}."
            )
