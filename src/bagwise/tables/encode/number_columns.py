"""What is learned about a column of numbers, truth values or dates: its middle, its spread, values
that lie far from all others, and whether it has a heavy tail.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bagwise.bags import IntArray
from bagwise.errors import InputError, warn_user
from bagwise.tables.encode.columns import Column, Floats, Kind, LeftOut, Log
from bagwise.tables.encode.survey_weights import are_counts, looks_like_weights
from bagwise.tables.read.values import numbers_of
from bagwise.wording import column_words

SAMPLE = 20_000  # values that quantiles are taken of, and up to twice as many
FEW = 20  # values of which nothing is said about tails
FAR = 10.0  # times the spread from the median
RARE = 0.05  # most of the rows that may be called far
CODES = 3  # different values on a side that may be codes for missing ones,
GAP = 2.0  # if they are so many times as far from the median as the last ordinary value
WIDE_GAP = 5.0  # the same beyond a tail, and for single values to be noted
SKEWED, TAILED = 2.0, 6.0  # skewness and excess kurtosis, those of an exponential distribution
_PIECE = 1 << 20  # numbers that are looked at at a time
_SALT = np.uint64(0x9E3779B97F4A7C15)  # so that row 0 is one like the others
_RANGES = ((25, 75), (10, 90), (5, 95), (1, 99))  # percentiles; their distance is the spread


class NumberLearner:
    """Running mean and spread (the pairwise update of Chan, Golub and LeVeque), and a sample.

    `networks.Standardize` wants all inputs at once and every value known; here rows come batch by
    batch, and cells may be empty.
    """

    def __init__(
        self, name: str, kind: Kind, wanted: bool, of_bags: bool = False, first_row: int = 0
    ) -> None:
        self.name, self.kind, self.row = name, kind, first_row
        self.wanted, self.of_bags = wanted, of_bags
        self.numbering = None if wanted or kind != "numeric" else _Numbering()
        self.infinite: Counter[str] = Counter()
        self.sample = _Sample()
        self.n = self.missing = 0
        self.mean = self.squares = 0.0

    def update(self, values: pa.Array) -> None:
        """Take more rows into account."""
        numbers = numbers_of(values, self.kind, self.name, self.row, infinite=self.infinite)
        there = np.flatnonzero(~np.isnan(numbers))
        known, rows = numbers[there], self.row + there
        self.row += len(numbers)
        self.missing += len(numbers) - len(known)
        if not len(known):
            return
        if self.numbering is not None and not self.numbering.goes_on(known):
            self.numbering = None
        self.sample.add(known, rows)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(known.mean())
            self._add_moments(len(known), mean, float(((known - mean) ** 2).sum()))

    def _add_moments(self, n: int, mean: float, squares: float) -> None:
        total = self.n + n
        with np.errstate(over="ignore", invalid="ignore"):
            step = mean - self.mean
            self.squares += squares
            self.squares += step * step * self.n * n / total
            self.mean += step * n / total
        self.n = total

    def merge(self, later: NumberLearner) -> None:
        """Take the rows into account that another one has seen, which come after these."""
        self.infinite.update(later.infinite)
        self.missing += later.missing
        if self.numbering is not None:
            self.numbering = later.numbering and self.numbering.merged(later.numbering)
        self.sample.merge(later.sample)
        if later.n:
            self._add_moments(later.n, later.mean, later.squares)

    def finish(self) -> Column | LeftOut:
        """The column, or why it is left out."""
        for name, n in self.infinite.items():
            warn_user(f"{name}: {column_words.infinite(n)}")
        if not self.n:
            return LeftOut("empty")
        if self.n >= FEW and not self.missing and self.numbering and self.numbering.numbers_rows():
            return LeftOut("row_number")
        std = math.sqrt(self.squares / self.n) if math.isfinite(self.squares) else math.inf
        column = Column(self.name, self.kind, self.mean, std, missing=self.missing > 0)
        unasked = self.kind == "numeric" and not self.wanted
        if unasked and looks_like_weights(self.name, self.sample.values()):
            whole = are_counts(self.sample.values())
            warn_user(column_words.survey_weights(self.name, whole))
        return number_column(column, self.sample.values(), self.n, self.of_bags)


def number_column(
    column: Column, sample: Floats, n: int, of_bags: bool = False
) -> Column | LeftOut:
    """A column with its limits, codes and log, or why it is left out; what is odd is a warning.

    Args:
        column: with mean and standard deviation of all `n` values.
        sample: of these, or all of them.
        of_bags: whether all rows of a bag have the same one, so that none is odd.
    """
    if column.kind != "boolean" and len(sample) >= FEW:
        far = Far(float(sample.min()), float(sample.max())) if of_bags else far_values(sample)
        if far.codes or far.cut:
            warn_user(_note(column, far, n / len(sample)))
        ordinary = sample[~np.isin(sample, far.codes)]
        near = np.clip(ordinary, far.low, far.high)
        column = replace(column, low=far.low, high=far.high, codes=far.codes)
        if len(near) < len(sample) or (near != ordinary).any():
            missing = column.missing or bool(far.codes)
            mean, std = float(near.mean()), float(near.std())
            column = replace(column, mean=mean, std=std, missing=missing)
        if column.kind == "numeric" and is_heavy(near):
            column = replace(column, log=_log(ordinary))
    if not math.isfinite(column.std):
        raise InputError(
            f"the column {column.name!r} has values too large to compute with; empty them."
        )
    if column.std <= 1e-13 * abs(column.mean):  # rounding errors
        column = replace(column, std=0.0, log=None)
    if column.std == 0 and not column.missing:
        return LeftOut("constant", shown(column, column.mean))
    return column


@dataclass(frozen=True)
class Far:
    """Where the ordinary values of a column end.

    Attributes:
        low: smaller values are taken for this one.
        high: larger values are taken for this one.
        codes: values beyond that stand for "not known", as 99999.
        coded: how many of the sample are codes.
        cut: values of the sample beyond a gap that are none.
    """

    low: float
    high: float
    codes: tuple[float, ...] = ()
    coded: int = 0
    cut: tuple[float, ...] = ()


def far_values(sample: Floats) -> Far:
    """Values farther from the median than ten times the distance of the quartiles.

    Up to three different ones on a side that are repeated, twice as far as all others, are codes
    (five times where some of the others are far too). Others are taken for the last ordinary value.
    Where more than 5% would be, or where the quartiles are the same, wider percentiles take their
    place.

    >>> ages = np.array([*range(20, 80), 99999, 99999])
    >>> far_values(ages.astype(float)).codes
    (99999.0,)
    """
    ordered = np.sort(sample)
    median = float(_percentiles(ordered, 50))
    for width in _widths(ordered):
        above = _beyond(sample, median, FAR * width)
        below = _beyond(-sample, -median, FAR * width)
        if above.cut + below.cut <= RARE * len(sample):
            return Far(
                -below.end,
                above.end,
                (*(-code for code in below.codes[::-1]), *above.codes),
                above.coded + below.coded,
                (*(-value for value in below.apart[::-1]), *above.apart),
            )
    return Far(float(sample.min()), float(sample.max()))


def _percentiles(ordered: Floats, percent: npt.ArrayLike) -> Floats:
    """As `np.percentile` has them, in a tenth of its time for short columns."""
    place = np.asarray(percent) / 100 * (len(ordered) - 1)
    low = place.astype(np.int64)
    below, above = ordered[low], ordered[np.minimum(low + 1, len(ordered) - 1)]
    found: Floats = below + (above - below) * (place - low)
    return found


def _widths(ordered: Floats) -> list[float]:
    """Distances of percentiles of ascending numbers, growing, those that are 0 left out."""
    ends = _percentiles(ordered, _RANGES)
    return [float(width) for width in ends[:, 1] - ends[:, 0] if 0 < width < math.inf]


@dataclass(frozen=True)
class _Side:
    """The upper side of a sample: where it ends, codes, values cut off, those beyond a gap."""

    end: float
    codes: tuple[float, ...] = ()
    coded: int = 0
    cut: int = 0
    apart: tuple[float, ...] = ()


def _beyond(sample: Floats, median: float, reach: float) -> _Side:
    far = sample > median + reach
    if not far.any():
        return _Side(median + reach)
    last = float(sample[~far].max())
    values, counts = np.unique(sample[far], return_counts=True)
    with np.errstate(divide="ignore"):
        gaps = (values - median) / (np.array([max(last, median), *values[:-1]]) - median)
    tail = len(values) - _coded(gaps, counts)  # values that are not codes
    codes, coded = tuple(values[tail:].tolist()), int(counts[tail:].sum())
    if not tail:
        return _Side(median + reach, codes, coded)
    cut = np.repeat(values[:tail], counts[:tail]).tolist()
    return _Side(last, codes, coded, len(cut), tuple(cut) if gaps[0] > WIDE_GAP else ())


def _coded(gaps: Floats, counts: npt.NDArray[np.int64]) -> int:
    """How many of the far values, ascending, are codes: the last ones, each in several rows.

    Args:
        gaps: how many times as far from the median as the value before each is.
        counts: in how many rows each is.
    """
    for n in range(min(CODES, len(gaps)), 0, -1):
        enough = GAP if n == len(gaps) else WIDE_GAP  # beyond a tail the next value is far as well
        if counts[-n:].min() > 1 and gaps[-n] > enough:
            return n
    return 0


def is_heavy(sample: Floats) -> bool:
    """Whether a distribution is as skewed or as heavy-tailed as an exponential one, or more.

    >>> is_heavy(np.random.default_rng(0).normal(size=1000))
    False
    >>> is_heavy(np.random.default_rng(0).lognormal(size=1000))
    True
    """
    # A logarithm of few values says no more. Mostly the first ones tell that there are more.
    few = len(np.unique(sample[:100])) <= 10 and len(np.unique(sample)) <= 10
    if len(sample) < FEW or few:
        return False
    z = (sample - sample.mean()) / max(float(sample.std()), 1e-300)
    squares = z * z
    return bool(abs((squares * z).mean()) > SKEWED or (squares * squares).mean() - 3 > TAILED)


def _log(sample: Floats) -> Log | None:
    ordered = np.sort(sample)
    widths = _widths(ordered)
    if not widths:
        return None
    log = Log(float(_percentiles(ordered, 50)), widths[0])
    found = log(sample)
    return replace(log, mean=float(found.mean()), std=float(found.std()))


def _note(column: Column, far: Far, factor: float) -> str:
    """What stands out, in how many rows, and what to do."""
    notes, estimated = [], factor > 1
    if far.codes:
        codes = [shown(column, code) for code in far.codes]
        notes.append(column_words.codes_of_missing(codes, far.coded * factor, estimated))
    if far.cut:
        median = (far.low + far.high) / 2
        farthest = max(far.cut, key=lambda value: abs(value - median))
        ends = [far.low] * (min(far.cut) < far.low) + [far.high] * (max(far.cut) > far.high)
        at = [shown(column, end) for end in ends]
        n = len(far.cut) * factor
        notes.append(column_words.far_values(shown(column, farthest), at, n, estimated))
    return f"{column.name}: {' '.join(notes)}"


def shown(column: Column, value: float) -> str:
    """A value of a column, for people."""
    if column.kind == "date" and abs(value) < 3e6:
        return str(np.datetime64(round(value), "D"))
    return f"{value:.10g}{column.unit}"


class _Sample:
    """Values of rows drawn by the hash of their number; all of them while they are few.

    So it does not matter in which parts, or by how many processes, rows are read.
    """

    def __init__(self) -> None:
        self.values_, self.rows_ = [np.empty(0)], [np.empty(0, dtype=np.int64)]
        self.size, self.halvings = 0, 0

    def add(self, values: Floats, rows: IntArray) -> None:
        """Values of some rows, after the others."""
        if self.halvings:
            drawn = _drawn(rows, self.halvings)
            values, rows = values[drawn], rows[drawn]
        self.values_.append(values)
        self.rows_.append(rows)
        self.size += len(values)
        while self.size > 2 * SAMPLE:
            self._halve()

    def merge(self, later: _Sample) -> None:
        """The values of later rows."""
        while self.halvings < later.halvings:
            self._halve()
        self.add(later.values(), np.concatenate(later.rows_))

    def _halve(self) -> None:
        self.halvings += 1
        values, rows = self.values(), np.concatenate(self.rows_)
        drawn = _drawn(rows, self.halvings)
        self.values_, self.rows_ = [values[drawn]], [rows[drawn]]
        self.size = len(self.values_[0])

    def values(self) -> Floats:
        """In the order of their rows."""
        return np.concatenate(self.values_)


def _drawn(rows: IntArray, halvings: int) -> npt.NDArray[np.bool_]:
    """Which rows are drawn after so many halvings: those whose hash ends in so many zeros."""
    last = np.uint64((1 << halvings) - 1)
    drawn: npt.NDArray[np.bool_] = _hash(rows.astype(np.uint64) + _SALT) & last == 0
    return drawn


class _Numbering:
    """Whether whole numbers that all differ come in order or without a gap: an id, no feature.

    The values are not kept. Those between the least and the largest are all there, each once, if
    there are as many of them, and if their hashes have the sum that those of all have.
    """

    def __init__(self) -> None:
        self.n = 0
        self.least, self.most = math.inf, -math.inf
        self.ascends = self.descends = True
        self.first: Floats = np.empty(0)
        self.last: Floats = np.empty(0)
        self.hashes = 0

    def goes_on(self, known: Floats) -> bool:
        """Take more values; whether it may still be such a column."""
        steps = np.diff(np.concatenate([self.last, known]))
        self.ascends = self.ascends and bool((steps > 0).all())
        self.descends = self.descends and bool((steps < 0).all())
        self.first = self.first if len(self.first) else known[:1]
        self.last = known[-1:]
        self.n += len(known)
        self.least = min(self.least, float(known.min()))
        self.most = max(self.most, float(known.max()))
        self.hashes = (self.hashes + _hashes(known)) % 2**64
        return bool((known == np.rint(known)).all()) and len(np.unique(known)) == len(known)

    def merged(self, later: _Numbering) -> _Numbering:
        """With those that come after these."""
        if not self.n or not later.n:
            return self if self.n else later
        step = float(later.first[0] - self.last[0])
        self.ascends = self.ascends and later.ascends and step > 0
        self.descends = self.descends and later.descends and step < 0
        self.last = later.last
        self.n += later.n
        self.least, self.most = min(self.least, later.least), max(self.most, later.most)
        self.hashes = (self.hashes + later.hashes) % 2**64
        return self

    def numbers_rows(self) -> bool:
        """Whether it is one."""
        if self.ascends or self.descends:
            return True
        if self.most - self.least != self.n - 1:
            return False
        found = 0
        for start in range(0, self.n, _PIECE):
            end = min(start + _PIECE, self.n)
            found += _hashes(self.least + np.arange(start, end, dtype=np.float64))
        return found % 2**64 == self.hashes


def _hashes(values: Floats) -> int:
    """The sum of the values' hashes, modulo 2^64."""
    return int(_hash((values + 0.0).view(np.uint64)).sum(dtype=np.uint64))  # 0 and -0 are the same


def _hash(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64 of whole numbers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
