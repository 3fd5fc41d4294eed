"""What is known of bags' label counts where it is not the counts: potentials over them.

A potential f_c(m) >= 0 says how well m instances of class c agree with what is known of the bag.
Sharp counts are potentials with one possible count. With potentials the probability of what is
known, and what every engine computes, is

    P(S|X) = sum over all labelings Y of prod_k p[k, Y_k] * prod_c f_c(N_c(Y))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bagwise.bags.arrays import FloatArray, IntArray, first, shown_row
from bagwise.errors import InputError

_NEWTON_STEPS = 100


@dataclass(frozen=True, eq=False)
class Potentials:
    """Potentials of B bags over the counts of C classes, each over a window of counts.

    Attributes:
        sizes: (B,) instances per bag.
        low: (B, C) the least possible count.
        begins: (B C + 1,) where each window begins in `log_f`; window b C + c is that of class c in
            bag b.
        log_f: log f(low), log f(low + 1), ... of all windows, one after the other.
        given: (B, C) expected counts, where they are known otherwise than from the potentials.
    """

    sizes: IntArray
    low: IntArray
    begins: IntArray
    log_f: FloatArray
    given: FloatArray | None = None

    @property
    def widths(self) -> IntArray:
        """(B, C) possible counts of each class."""
        return np.diff(self.begins).reshape(self.low.shape)

    @property
    def high(self) -> IntArray:
        """(B, C) the largest possible count."""
        return self.low + self.widths - 1

    @cached_property
    def is_sharp(self) -> npt.NDArray[np.bool_]:
        """(B,) whether each class of the bag has one possible count only."""
        sharp: npt.NDArray[np.bool_] = (self.widths == 1).all(axis=1)
        return sharp

    @cached_property
    def expected(self) -> FloatArray:
        """(B, C) expected counts, all counts being equally probable beforehand; rows sum to sizes.

        With a factor x that is the same for all classes of a bag,

            expected_c = sum_m m f_c(m) x^m / sum_m f_c(m) x^m,     sum_c expected_c = K

        That is close to the mean given that the counts sum to K, the closer the larger the bag.
        """
        if self.given is not None:
            return self.given
        B, C = self.low.shape
        starts, cell = self.begins[:-1], np.repeat(np.arange(B * C), np.diff(self.begins))
        m = self.counts_of_windows()
        # No slope of a bag's windows is steeper: beyond it, the least or largest counts are left.
        finite = np.where(np.isfinite(self.log_f), self.log_f, np.inf)
        steepest = 50.0 + np.maximum.reduceat(self.log_f, starts[::C])
        steepest -= np.minimum.reduceat(finite, starts[::C])
        log_x, below, above = np.zeros(B), -steepest, steepest
        mean = self.low.astype(np.float64)
        for _ in range(_NEWTON_STEPS):
            value = self.log_f + m * np.repeat(log_x, C)[cell]
            share = np.exp(value - np.maximum.reduceat(value, starts)[cell])
            total = np.add.reduceat(share, starts)
            mean = (np.add.reduceat(share * m, starts) / total).reshape(B, C)
            square = (m - mean.ravel()[cell]) ** 2
            variance = (np.add.reduceat(share * square, starts) / total).reshape(B, C).sum(axis=1)
            excess = mean.sum(axis=1) - self.sizes
            if np.abs(excess).max() < 1e-9 * self.sizes.max():
                break
            above = np.where(excess > 0, log_x, above)
            below = np.where(excess < 0, log_x, below)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = log_x - excess / variance
            inside = (step > below) & (step < above)
            log_x = np.where(excess == 0, log_x, np.where(inside, step, (below + above) / 2))
        # Potentials that are next to sharp leave steps between neighboring numbers x.
        lacking = (self.sizes - mean.sum(axis=1))[:, None]
        room = np.where(lacking > 0, self.high - mean, mean - self.low)
        mean += lacking * (room / np.maximum(room.sum(axis=1, keepdims=True), 1e-300))
        return mean

    def given_labels(self, known: IntArray) -> Potentials:
        """The same with the counts to be expected where (B, C) instances have a known label."""
        most = known + self.sizes[:, None] - known.sum(axis=1, keepdims=True)
        return replace(self, given=self.expected_within(known, most))

    def expected_within(self, least: IntArray, most: IntArray) -> FloatArray:
        """(B, C) expected counts where instances allow no fewer than `least` and no more than
        `most`, (B, C) both, of each class.
        """
        low, high = np.maximum(self.low, least), np.minimum(self.high, most)
        begins, log_f = self._between(low, high)
        widths = np.diff(begins)
        # What narrower windows leave may lie in a gap, where nothing is possible.
        is_gap = np.maximum.reduceat(log_f, begins[:-1]) == -np.inf
        log_f[np.repeat(is_gap, widths)] = 0.0
        within = Potentials(self.sizes, low, begins, log_f)
        narrower = ((low > self.low) | (high < self.high)).any(axis=1, keepdims=True)
        narrower &= ~is_gap.reshape(low.shape).any(axis=1, keepdims=True)
        return np.where(narrower, within.expected, self.expected)

    def less(self, counts: IntArray) -> Potentials:
        """Those of a bag's other instances, where (B, C) of each class are accounted for."""
        sizes = self.sizes - counts.sum(axis=1)
        low = np.maximum(self.low, counts)
        high = np.minimum(self.high, counts + sizes[:, None])
        if (bad := first((low > high).any(axis=1))) is not None:
            raise InputError(
                f"bag {bad} has counts of at most {shown_row(self.high[bad])}, but bags inside it "
                f"have {shown_row(counts[bad])} together; correct the counts."
            )
        return Potentials(sizes, low - counts, *self._between(low, high))

    def _between(self, low: IntArray, high: IntArray) -> tuple[IntArray, FloatArray]:
        """`begins` and `log_f` of the windows from low to high, (B, C) both, within these."""
        widths = (high - low + 1).ravel()
        begins = begins_of(widths)
        place = np.repeat(self.begins[:-1] + (low - self.low).ravel() - begins[:-1], widths)
        return begins, self.log_f[place + np.arange(begins[-1])]

    def counts_of_windows(self) -> FloatArray:
        """The counts m that the entries of `log_f` are about."""
        widths = np.diff(self.begins)
        shift = np.repeat(self.low.ravel() - self.begins[:-1], widths)
        return (shift + np.arange(len(self.log_f))).astype(np.float64)

    def packed(self) -> FloatArray:
        """`expected`, `begins` and `log_f` one after the other: a PyTorch operator takes the longer
        the more arguments it has, also of bags without potentials.
        """
        return np.concatenate([self.expected.ravel(), self.begins, self.log_f])

    def select(self, index: IntArray) -> Potentials:
        """Those of the bags in `index`, in that order."""
        return self._part(index, np.arange(self.low.shape[1]))

    def of_classes(self, classes: IntArray) -> Potentials:
        """Those of some classes, where the others cannot occur."""
        return self._part(np.arange(len(self.sizes)), classes)

    def _part(self, index: IntArray, classes: IntArray) -> Potentials:
        which = np.ix_(index, classes)
        widths = self.widths[which].ravel()
        begins = begins_of(widths)
        cells = (index[:, None] * self.low.shape[1] + classes).ravel()
        place = np.repeat(self.begins[cells] - begins[:-1], widths) + np.arange(begins[-1])
        return Potentials(
            self.sizes[index],
            np.ascontiguousarray(self.low[which]),
            begins,
            self.log_f[place],
            np.ascontiguousarray(self.expected[which]),
        )


def join(parts: Sequence[Potentials]) -> Potentials:
    """The bags of all parts, one after the other."""
    widths = np.concatenate([np.diff(part.begins) for part in parts])
    return Potentials(
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.low for part in parts]),
        begins_of(widths),
        np.concatenate([part.log_f for part in parts]),
        np.concatenate([part.expected for part in parts]),
    )


def of_counts(counts: IntArray, sizes: IntArray) -> Potentials:
    """Sharp counts."""
    begins = np.arange(counts.size + 1)
    return Potentials(sizes, counts, begins, np.zeros(counts.size), counts.astype(np.float64))


def unpacked(sizes: IntArray, low: IntArray, packed: FloatArray) -> Potentials:
    """Potentials again from what `Potentials.packed` gives."""
    expected, begins, log_f = np.split(packed, [low.size, 2 * low.size + 1])
    return Potentials(sizes, low, begins.astype(np.int64), log_f, expected.reshape(low.shape))


def begins_of(widths: IntArray) -> IntArray:
    """Where windows begin that lie one after the other, and where the last ends."""
    begins = np.zeros(len(widths) + 1, dtype=np.int64)
    np.cumsum(widths, out=begins[1:])
    return begins
