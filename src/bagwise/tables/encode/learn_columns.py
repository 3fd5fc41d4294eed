"""What the columns of a table mean, learned from its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from bagwise.errors import InputError, Option
from bagwise.limits import LIMITS, Limits
from bagwise.tables.encode.columns import Columns, Kind, LeftOut
from bagwise.tables.encode.number_columns import NumberLearner
from bagwise.tables.encode.text_columns import CategoryLearner, OrderedLearner
from bagwise.tables.read.values import is_text
from bagwise.wording.table_words import left_out as words

Ordered = Mapping[str, Sequence[str]]


class ColumnLearner:
    """Learns `Columns` from batches of rows.

    Args:
        features: names of the columns to use; all if not given.
        categorical: names of columns of numbers that are categories.
        ordered: names of columns of ordered categories, and these, the lowest first.
        limits: how many texts of a column are counted.
        of_bags: names of columns that have one value in all rows of a bag: one that many rows share
            is not a code for a missing one, and none is cut.
        first_row: of the table, that it will see.
    """

    def __init__(
        self,
        schema: pa.Schema,
        features: Iterable[str] = (),
        exclude: Iterable[str] = (),
        categorical: Iterable[str] = (),
        ordered: Ordered | None = None,
        limits: Limits = LIMITS,
        of_bags: Iterable[str] = (),
        first_row: int = 0,
    ) -> None:
        wanted, unwanted, categorical = list(features), set(exclude), set(categorical)
        ordered, there = ordered or {}, set(schema.names)
        chosen = set(wanted)
        for name in [*wanted, *unwanted, *categorical, *ordered]:
            if name not in there:
                raise InputError(f"there is no column {name!r}; there are {schema.names}.")
            if name in unwanted and (name in chosen or name in categorical or name in ordered):
                raise InputError(f"{name!r} is both a feature and excluded, or the bag itself.")
            if name in categorical and name in ordered:
                raise InputError(f"{name!r} is both categorical and ordered; choose one.")
            if wanted and (name in categorical or name in ordered) and name not in chosen:
                raise InputError(
                    f"{name!r} is said to be of categories, but is not a feature; add it to ",
                    Option("features"),
                    ", or leave it out there.",
                )
        of_bags = set(of_bags)
        self.left_out: dict[str, LeftOut] = {}
        self._learners: dict[str, NumberLearner | CategoryLearner | OrderedLearner] = {}
        for name in wanted or schema.names:
            if name in unwanted:
                continue
            kind = "category" if name in categorical else _kind(schema.field(name).type)
            if kind is None:
                found = schema.field(name).type
                empty = pa.types.is_null(found)
                if (name in chosen or name in ordered) and not empty:
                    raise InputError(
                        f"the column {name!r} is of type {found}, which cannot be a feature."
                    )
                self.left_out[name] = LeftOut("empty") if empty else LeftOut("type", str(found))
            elif name in ordered or kind == "ordered":
                self._learners[name] = OrderedLearner(name, ordered.get(name))
            elif kind == "category":
                self._learners[name] = CategoryLearner(
                    name, name in chosen, name in categorical, limits
                )
            else:
                self._learners[name] = NumberLearner(
                    name, kind, name in chosen, name in of_bags, first_row
                )

    @property
    def names(self) -> list[str]:
        """Names of the columns that are looked at."""
        return list(self._learners)

    def update(self, batch: pa.RecordBatch) -> None:
        """Take more rows into account."""
        for name, learner in self._learners.items():
            learner.update(batch.column(name))

    def merge(self, later: ColumnLearner) -> None:
        """Take the rows into account that another one has seen, which come after these."""
        for name, learner in self._learners.items():
            learner.merge(later._learners[name])  # type: ignore[arg-type]  # of the same kind

    def finish(self) -> Columns:
        """The columns; those that say nothing are left out."""
        columns, left_out = [], dict(self.left_out)
        for name, learner in self._learners.items():
            found = learner.finish()
            if isinstance(found, LeftOut):
                left_out[name] = found
            else:
                columns.append(found)
        if not columns:
            reasons = "; ".join(f"{name}: {words(why)}" for name, why in left_out.items())
            raise InputError(f"no column is left to learn from ({reasons or 'all are excluded'}).")
        return Columns(tuple(columns), left_out)


def _kind(kind: pa.DataType) -> Kind | None:
    if pa.types.is_dictionary(kind):
        if kind.ordered:
            return "ordered"
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


def ordered_of(value: str | Iterable[str] | Ordered | None) -> dict[str, list[str]]:
    """Ordered categories from a mapping, or from texts such as "size=S<M<L".

    >>> ordered_of("size=S<M<L")
    {'size': ['S', 'M', 'L']}
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        pairs = [(name, [str(level) for level in levels]) for name, levels in value.items()]
    else:
        texts = [value] if isinstance(value, str) else list(value)
        parts = [text.partition("=") for text in texts]
        pairs = [(name.strip(), levels.split("<")) for name, _, levels in parts]
    found: dict[str, list[str]] = {}
    for name, levels in pairs:
        trimmed = [level.strip() for level in levels]
        if len(trimmed) < 2 or not all(trimmed) or len(set(trimmed)) < len(trimmed) or not name:
            given = f"{name}={'<'.join(levels)}"
            raise InputError(
                Option("ordered"),
                f" is {given!r}; a column and its values are expected, each once and the "
                "lowest first, size=S<M<L for one.",
            )
        if name in found:
            raise InputError(Option("ordered"), f" names the column {name!r} twice.")
        found[name] = trimmed
    return found
