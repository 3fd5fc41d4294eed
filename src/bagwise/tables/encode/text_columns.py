"""What is learned about a column of text: categories, ordered or not, or numbers, dates and truth
values that are written in a way of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import InputError, Option, warn_user
from bagwise.limits import LIMITS, Limits
from bagwise.tables.encode.columns import Column, Kind, LeftOut, level_texts
from bagwise.tables.encode.number_columns import SAMPLE, number_column, shown
from bagwise.tables.read.notation import (
    PLAIN,
    Dots,
    Written,
    dates_written,
    is_in_doubt,
    like_dates,
    numbers_written,
    rewritten,
)
from bagwise.tables.read.values import category_texts, cleaned, is_all, numbers_of
from bagwise.wording import column_words, counted

Rows = npt.NDArray[np.int64]

MOST = 50  # categories with a column each,
SHARED = 64  # columns for the others,
ROWS = 20  # rows of each of these, at least
FEW = 10  # different texts, up to which they are categories even if they are numbers


class CategoryLearner:
    """Counts of categories; the frequent ones get a column each."""

    def __init__(self, name: str, wanted: bool, categorical: bool, limits: Limits = LIMITS) -> None:
        self.name, self.wanted, self.categorical = name, wanted, categorical
        self.tally = _Tally(limits.tracked_texts)
        self.n = self.missing = 0

    def update(self, values: pa.Array) -> None:
        """Take more rows into account."""
        texts = category_texts(values)
        self.n += len(texts)
        self.missing += texts.null_count
        self.tally.add(texts.drop_null())

    def merge(self, later: CategoryLearner) -> None:
        """Take the rows into account that another one has seen."""
        self.n += later.n
        self.missing += later.missing
        self.tally.merge(later.tally)

    def finish(self) -> Column | LeftOut:
        """The column, or why it is left out."""
        texts, rows = self.tally.result()
        distinct = len(texts) + self.tally.dropped
        if not len(texts):
            return LeftOut("empty")
        if not self.categorical:
            written = self._written(texts, rows)
            if written is not None:
                return written
            if self.n >= 20 and distinct > 0.5 * self.n and not self.wanted:
                return LeftOut("unique_text")
        if len(texts) == 1 and not self.missing:
            return LeftOut("constant", texts[0].as_py())
        rare = 1 if self.n < 20 else max(2, self.n // 10_000)
        kept = int((rows[:MOST] >= rare).sum())
        if distinct <= MOST + SHARED:
            kept += int((rows[MOST:] >= max(rare, ROWS)).sum())
        rest = int(rows[kept:].sum()) + self.tally.dropped
        shared = min(rest // ROWS, SHARED) if distinct > MOST + SHARED else 0
        shared = shared if shared > 1 else 0
        if shared:
            more = bool(self.tally.dropped)
            self._note(column_words.hashed(len(texts), more, kept, shared))
        return Column(
            self.name,
            "category",
            missing=self.missing > 0,
            categories=tuple(sorted(texts[:kept].to_pylist())),
            other=distinct > kept and not shared,
            shared=shared,
        )

    def _written(self, texts: pa.Array, rows: Rows) -> Column | LeftOut | None:
        """A column of numbers, dates or truth values, where the texts are written as such."""
        plain = cleaned(texts)
        there = plain.is_valid().to_numpy(zero_copy_only=False)
        plain, rows_there = plain.drop_null(), rows[there]
        if not len(plain):
            return None
        if len(plain) > 2 and is_all(plain, "boolean"):
            return self._read(texts, rows, "boolean", PLAIN)
        if 2 * like_dates(plain).sum() > len(plain):
            return self._dates(texts, rows, plain)
        dots = Dots()
        dots.add(plain)
        if not dots.are_thousands and (len(plain) <= FEW or is_all(plain, "numeric")):
            if len(plain) > FEW and _has_decimals(plain):
                return self._read(texts, rows, "numeric", PLAIN)
            # Text on purpose, as zip codes are.
            self._note_spellings(texts)
            return None
        written, good = numbers_written(plain, rows_there)
        n_good, n_bad = int(rows_there[good].sum()), int(rows_there[~good].sum())
        if not n_bad:
            return self._read(texts, rows, "numeric", written)
        if n_bad <= n_good:
            shown = ", ".join(repr(text) for text in plain.filter(pa.array(~good))[:3].to_pylist())
            own = plain.filter(pa.array(good))[0].as_py()
            raise InputError(
                f"the column {self.name!r} holds numbers such as {own!r}, but in "
                f"{counted(n_bad, 'row', 'rows')} text "
                f"({shown}). Fix or empty these cells, or leave the column out with ",
                Option("exclude", self.name),
                "; if its values are categories, say ",
                Option("categorical", self.name),
                ".",
            )
        self._note_spellings(texts)
        return None

    def _dates(self, texts: pa.Array, rows: Rows, plain: pa.Array) -> Column | LeftOut | None:
        """Most of the texts look like dates."""
        written = dates_written(plain) or PLAIN
        if is_all(rewritten(plain, written) if written.style else plain, "date"):
            return self._read(texts, rows, "date", written)
        if is_in_doubt(plain):
            self._note(column_words.day_or_month(plain[0].as_py()))
            return None
        bad = plain.filter(pa.array(~like_dates(plain)))
        bad = bad if len(bad) else plain
        first = next(text for text in bad.to_pylist() if not is_all(pa.array([text]), "date"))
        self._note(column_words.no_date(first))
        return None

    def _read(self, texts: pa.Array, rows: Rows, kind: Kind, written: Written) -> Column | LeftOut:
        """A column of what the texts say."""
        numbers = numbers_of(texts, kind, self.name, written=written)
        known = ~np.isnan(numbers)
        values, weights = numbers[known], rows[known]
        n = int(weights.sum())
        mean = float(np.average(values, weights=weights))
        std = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
        missing = self.missing > 0 or n < int(rows.sum())
        column = Column(self.name, kind, mean, std, missing, style=written.style, unit=written.unit)
        if written.style or kind == "boolean":
            example = int(np.argmax(known * pc.utf8_length(texts).to_numpy()))
            read = bool(numbers[example]) if kind == "boolean" else shown(column, numbers[example])
            self._note(column_words.read_as(kind, texts[example].as_py(), read))
        if n <= 2 * SAMPLE:
            sample = np.repeat(values, weights)
        else:
            sample = np.random.default_rng(0).choice(values, SAMPLE, p=weights / n)
        return number_column(column, sample, n)

    def _note_spellings(self, texts: pa.Array) -> None:
        alike = pc.utf8_lower(pc.utf8_trim_whitespace(texts)).dictionary_encode()
        groups = np.bincount(alike.indices.to_numpy(), minlength=1)
        if groups.max() > 1:
            same = alike.indices.to_numpy() == int(groups.argmax())
            self._note(column_words.spellings(texts.filter(pa.array(same))[:3].to_pylist()))

    def _note(self, text: str) -> None:
        warn_user(f"{self.name}: {text}")


def _has_decimals(texts: pa.Array) -> bool:
    """Whether some of these numbers are not whole: no codes are written so."""
    numbers = numbers_of(texts, "numeric", "")
    return bool((numbers != np.rint(numbers)).any())


class OrderedLearner:
    """Counts of categories whose order is known.

    Args:
        levels: the categories, the lowest first; None where the type of the column says them.
    """

    def __init__(self, name: str, levels: Sequence[str] | None) -> None:
        self.name = name
        self.levels = None if levels is None else list(levels)
        self.declared = levels is not None
        self.rows: Counter[str | None] = Counter()

    def update(self, values: pa.Array) -> None:
        """Take more rows into account."""
        if not self.declared:
            levels = []
            if pa.types.is_dictionary(values.type):
                levels = category_texts(values.dictionary).to_pylist()
            if not levels or self.levels not in (None, levels):
                raise _no_order(self.name)
            self.levels = levels
        assert self.levels is not None
        for entry in pc.value_counts(level_texts(values, self.levels)).to_pylist():
            self.rows[entry["values"]] += entry["counts"]

    def merge(self, later: OrderedLearner) -> None:
        """Take the rows into account that another one has seen."""
        if None not in (self.levels, later.levels) and self.levels != later.levels:
            raise _no_order(self.name)
        self.levels = self.levels or later.levels
        self.rows.update(later.rows)

    def finish(self) -> Column | LeftOut:
        """The column, or why it is left out."""
        levels = self.levels or []
        missing = self.rows.pop(None, 0)
        if not self.rows:
            return LeftOut("empty")
        if unknown := [text for text in self.rows if text not in levels]:
            n = sum(self.rows[text] for text in unknown)
            listed = ", ".join(map(repr, unknown[:5]))
            raise InputError(
                f"the column {self.name!r} has {listed} in {counted(n, 'row', 'rows')}; one of "
                f"{' < '.join(levels)} is expected, or nothing. Add it to ",
                Option("ordered"),
                ", or fix these cells.",
            )
        if len(self.rows) == 1 and not missing:
            return LeftOut("constant", str(next(iter(self.rows))))
        places = {level: place for place, level in enumerate(levels)}
        total = sum(places[str(text)] * n for text, n in self.rows.items())
        mean = total / sum(self.rows.values())
        return Column(self.name, "ordered", mean, missing=missing > 0, categories=tuple(levels))


def _no_order(name: str) -> InputError:
    return InputError(
        f"the column {name!r} is of ordered categories, but not in one order; declare it, for "
        "instance ",
        Option("ordered", {name: ["low", "middle", "high"]}),
        ".",
    )


class _Tally:
    """Rows by text. Where there are more than `most` texts, the rarest are dropped now and then."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.parts: list[pa.Table] = []
        self.size, self.merged = 0, 0
        self.dropped = 0

    def add(self, texts: pa.Array) -> None:
        """Count more texts."""
        values, counts = pc.value_counts(texts).flatten()
        self.parts.append(pa.table({"text": values, "rows": counts}))
        self.size += len(values)
        if self.size > 2 * self.merged + 100_000:
            self._merge()

    def merge(self, other: _Tally) -> None:
        """Count the texts of another one."""
        self.dropped += other.dropped
        self.parts += other.parts
        self.size += other.size

    def _merge(self) -> pa.Table:
        """All parts in one, the most frequent first."""
        table = pa.concat_tables(self.parts).group_by("text").aggregate([("rows", "sum")])
        table = table.select(["text", "rows_sum"]).rename_columns(["text", "rows"])
        table = table.sort_by([("rows", "descending"), ("text", "ascending")])
        if len(table) > self.most:
            self.dropped += len(table) - self.most // 2
            table = table[: self.most // 2]
        self.parts, self.size, self.merged = [table], len(table), len(table)
        return table

    def result(self) -> tuple[pa.Array, Rows]:
        """(n,) the texts, the most frequent first, and how many rows have each."""
        if not self.parts:
            return pa.array([], pa.string()), np.empty(0, dtype=np.int64)
        table = self._merge().combine_chunks()
        texts = table.column("text").combine_chunks()
        return texts, table.column("rows").to_numpy().astype(np.int64)
