"""The table of groups and parties, with intervals, and that of every unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bagwise.bags import FloatArray
from bagwise.checks import number
from bagwise.ecological.moments import fit_moments
from bagwise.ecological.unit_counts import UnitCounts, looks_like_a_frame, read_counts
from bagwise.ecological.unit_tables import table_intervals, unit_tables

if TYPE_CHECKING:
    from bagwise.tables.read.frames import FrameMaker


@dataclass(frozen=True, repr=False)
class EcologicalTable:
    """Shares of parties within groups, and the votes of every unit.

    Frames are of the kind that was given: `table`, `low` and `high` have a column `group` and one
    for each party, `units` has the columns `unit` and `group` and one for each party. Of arrays,
    they are arrays (R, C), and `units` (B, R, C).

    Attributes:
        table: the share of each party within each group, of all units together.
        low: the lower ends of the intervals of these shares.
        high: the upper ends.
        units: the expected votes of each group for each party in each unit, given its counts. They
            sum to the unit's counts of groups and of votes.
        level: of the intervals.
        rho: how much the shares of a group differ from unit to unit beyond chance: their variance
            is rho P (1 - P).
        tau: standard deviation by which the logits of all groups of a unit differ together.
        counts: what was given.
        shares: `table`, `low` and `high` as arrays.

    >>> import numpy as np
    >>> groups = np.array([[90, 10], [10, 90], [50, 50], [70, 30]])
    >>> found = ecological_table(groups, votes=np.array([[82, 18], [18, 82], [50, 50], [66, 34]]))
    >>> found.table.round(1), bool(np.allclose(found.units.sum(axis=2), groups))
    (array([[0.9, 0.1],
           [0.1, 0.9]]), True)
    """

    table: Any
    low: Any
    high: Any
    units: Any
    level: float
    rho: float
    tau: float
    counts: UnitCounts
    shares: tuple[FloatArray, FloatArray, FloatArray]

    def summary(self) -> str:
        """The table with its intervals, in percent, and how far units differ."""
        counts, (shares, low, high) = self.counts, self.shares
        cells = [
            [f"{100 * s:.1f} ({100 * a:.1f}-{100 * b:.1f})" for s, a, b in zip(*rows, strict=True)]
            for rows in zip(shares, low, high, strict=True)
        ]
        columns = [["", *counts.group_names]]
        for c, party in enumerate(counts.party_names):
            columns.append([party, *(row[c] for row in cells)])
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(
                text.ljust(width) if place == 0 else text.rjust(width)
                for place, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in zip(*columns, strict=True)
        ]
        people = f"{counts.groups.sum():,.0f}"
        head = f"Share of each party within each group, in percent ({self.level:.0%} intervals)"
        tail = f"{len(counts.units):,} units, {people} people"
        tail += f"; rho {self.rho:.3f}, tau {self.tau:.2f}"
        return "\n".join([head, *lines, tail])

    def __repr__(self) -> str:
        return self.summary()


def ecological_table(
    groups: Any, votes: Any, *, unit: str | None = None, level: float = 0.95
) -> EcologicalTable:
    """Estimate how groups voted from the counts of groups and of votes in units.

    The votes of a unit have the mean sum_g n_g P_g, where P_g are the shares of parties within
    group g. Their covariance allows for shares that differ from unit to unit, of each group by
    itself (rho) and of all groups of a unit together (tau, the bag effects of
    `bagwise.likelihood`); both are fitted, with P, to the counts. A unit's table is what is then to
    be expected of it given its counts, `table` the sum of these. See docs/ecological.md.

    The shares within a group must not go along with its share of the units. If people of a group
    vote otherwise where they are many, no method sees that in the counts.

    Args:
        groups: people of each group in each unit: an array (B, R) or a frame with a column for each
            group.
        votes: votes of each party in each unit: an array (B, C) or a frame with a column for each
            party. Those of a unit sum to its people; those who did not vote are a party, too.
        unit: the column of both frames that names the units; without it, rows belong together by
            position.
        level: of the intervals.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> groups = rng.integers(50, 500, size=(100, 2))
    >>> votes = rng.multinomial(groups[:, 0], [.6, .3, .1])
    >>> votes += rng.multinomial(groups[:, 1], [.2, .3, .5])
    >>> found = ecological_table(groups, votes)
    >>> found.table.round(1)
    array([[0.6, 0.3, 0.1],
           [0.2, 0.3, 0.5]])
    >>> found.units.shape, bool((found.low < found.table).all())
    ((100, 2, 3), True)
    """
    number(above=0, below=1)(level, "level")
    counts = read_counts(groups, votes, unit)
    fit = fit_moments(counts.groups, counts.votes)
    cells = unit_tables(counts.groups, counts.votes, fit)
    shares = cells.sum(axis=0) / counts.groups.sum(axis=0)[:, None]
    low, high = table_intervals(counts.groups, fit, shares, level)
    answers: list[Any] = [shares, low, high, cells]
    if looks_like_a_frame(groups):
        from bagwise.tables.read.frames import FrameMaker  # needs pyarrow

        maker = FrameMaker(FrameMaker.like(groups).kind)
        names, R = counts.group_names, len(counts.group_names)
        answers = [_frame(maker, {"group": names}, counts, part) for part in answers[:3]]
        keys = {
            "unit": [name for name in counts.units for _ in range(R)],
            "group": names * len(counts.units),
        }
        answers.append(_frame(maker, keys, counts, cells.reshape(-1, cells.shape[2])))
    return EcologicalTable(
        table=answers[0],
        low=answers[1],
        high=answers[2],
        units=answers[3],
        level=level,
        rho=fit.rho,
        tau=fit.tau,
        counts=counts,
        shares=(shares, low, high),
    )


def _frame(
    maker: FrameMaker, keys: dict[str, list[Any]], counts: UnitCounts, numbers: FloatArray
) -> Any:
    parties = dict(zip(counts.party_names, numbers.T.copy(), strict=True))
    return maker.frame({**keys, **parties})
