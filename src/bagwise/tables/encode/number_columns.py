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
_RANGES = ((25, 75), (10, 90), (5, 95), (1, 99))  # percentiles; their distance is the spread


class NumberLearner:
    """Running mean and spread (the pairwise update of Chan, Golub and LeVeque), and a sample.

    `networks.Standardize` wants all inputs at once and every value known; here rows come batch by
    batch, and cells may be empty.
    """

    def __init__(self, name: str, kind: Kind, wanted: bool, of_bags: bool = False) -> None:
        self.name, self.kind = name, kind
        self.wanted, self.of_bags = wanted, of_bags
        self.numbering = None if wanted or kind != "numeric" else _Numbering()
        self.infinite: Counter[str] = Counter()
        self.sample = _Sample()
        self.n = self.missing = 0
        self.mean = self.squares = 0.0

    def update(self, values: pa.Array) -> None:
        """Take more rows into account."""
        numbers = numbers_of(values, self.kind, self.name, infinite=self.infinite)
        known = numbers[~np.isnan(numbers)]
        self.missing += len(numbers) - len(known)
        if not len(known):
            return
        if self.numbering is not None and not self.numbering.goes_on(known):
            self.numbering = None
        self.sample.add(known)
        n = self.n + len(known)
        with np.errstate(over="ignore", invalid="ignore"):
            step = float(known.mean()) - self.mean
            self.squares += float(((known - known.mean()) ** 2).sum())
            self.squares += step * step * self.n * len(known) / n
            self.mean += step * len(known) / n
        self.n = n

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
    """Values drawn at random from all that come by; all of them while they are few."""

    def __init__(self) -> None:
        self.parts: list[Floats] = []
        self.size, self.rate = 0, 1.0
        self.rng = np.random.default_rng(0)

    def add(self, values: Floats) -> None:
        if self.rate < 1:
            n = self.rng.binomial(len(values), self.rate)
            values = values[self.rng.integers(len(values), size=n)]
        self.parts.append(values)
        self.size += len(values)
        while self.size > 2 * SAMPLE:
            kept = self.values()
            kept = kept[self.rng.random(len(kept)) < 0.5]
            self.parts, self.size, self.rate = [kept], len(kept), self.rate / 2

    def values(self) -> Floats:
        return np.concatenate(self.parts) if self.parts else np.empty(0)


class _Numbering:
    """Whether whole numbers that all differ come in order or without a gap: an id, no feature.

    The values are not kept. Those between the least and the largest are all there, each once, if
    there are as many of them, and if their hashes have the sum that those of all have.
    """

    def __init__(self) -> None:
        self.n = 0
        self.least, self.most = math.inf, -math.inf
        self.ascends = self.descends = True
        self.last: Floats = np.empty(0)
        self.hashes = 0

    def goes_on(self, known: Floats) -> bool:
        """Take more values; whether it may still be such a column."""
        steps = np.diff(np.concatenate([self.last, known]))
        self.ascends = self.ascends and bool((steps > 0).all())
        self.descends = self.descends and bool((steps < 0).all())
        self.last = known[-1:]
        self.n += len(known)
        self.least = min(self.least, float(known.min()))
        self.most = max(self.most, float(known.max()))
        self.hashes = (self.hashes + _hashes(known)) % 2**64
        return bool((known == np.rint(known)).all()) and len(np.unique(known)) == len(known)

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
    """The sum of the values' hashes (SplitMix64), modulo 2^64."""
    x = (values + 0.0).view(np.uint64)  # 0 and -0 are the same
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((x ^ (x >> np.uint64(31))).sum(dtype=np.uint64))
