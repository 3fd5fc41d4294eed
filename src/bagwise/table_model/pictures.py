"""Pictures of a model of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bagwise.errors import InputError
from bagwise.tables.labels.counts import Counts, LabelTables, counts_of
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.paths import columns_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bagwise.labels.label_spec import LabelsAre
    from bagwise.tables.model.fit_facts import FitFacts
    from bagwise.tables.read.source import Table

Names = str | Iterable[str]


class Pictures:
    """What `TableModel` draws; axes are of matplotlib.

    Attributes:
        fitted: what the model is made of, see `bagwise.tables`.
    """

    def __init__(self, fitted: FittedTable) -> None:
        self.fitted = fitted

    @property
    def classes(self) -> list[str]:
        """The class labels."""
        return self.fitted.classes

    @property
    def facts(self) -> FitFacts:
        """What the fit found, as data: see `bagwise.tables.model.fit_facts`."""
        return self.fitted.facts

    def plot_effects(self, label: str | None = None, axes: Axes | None = None) -> Axes:
        """Draw the effect of each column on the log-odds of a class, with its 95% interval."""
        from bagwise.reports.plots import draw_effects
        from bagwise.tables.use.effects import effects

        return draw_effects(effects(self.fitted), label or self.classes[-1], axes)

    def plot_shares(
        self,
        rows: Table,
        by: Names,
        label: str | None = None,
        *,
        labels: LabelTables | None = None,
        bag: Names | None = None,
        labels_are: LabelsAre | Mapping[str, LabelsAre] = "auto",
        weights: str | None = None,
        skip_unmatched: bool = False,
        axes: Axes | None = None,
    ) -> Axes:
        """Draw the share of a class in groups of rows, with 95% intervals; see `estimate`."""
        from bagwise.reports.plots import draw_shares
        from bagwise.tables.use.estimate import estimate_shares

        counts = None
        if labels is not None:
            counts = self._counts(bag, labels, labels_are, skip_unmatched, weights)
        names = columns_of(bag) if counts is None else []
        found = estimate_shares(
            self.fitted, rows, columns_of(by), counts, bag=names, weights=weights
        )
        return draw_shares(found, label or self.classes[-1], columns_of(by), axes)

    def plot_calibration(self, label: str | None = None, axes: Axes | None = None) -> Axes:
        """Draw mean true against mean predicted proportions of held-out bags."""
        from bagwise.reports.plots import draw_calibration

        return draw_calibration(self.facts, label or self.classes[-1], axes)

    def plot_held_out(self, label: str | None = None, axes: Axes | None = None) -> Axes:
        """Draw true against predicted proportions, a point for each held-out bag."""
        from bagwise.reports.plots import draw_held_out

        return draw_held_out(self.facts, label or self.classes[-1], axes)

    def _counts(
        self,
        bag: Names | None,
        labels: LabelTables,
        labels_are: LabelsAre | Mapping[str, LabelsAre],
        skip_unmatched: bool,
        weights: str | None,
    ) -> Counts:
        """Where counts are; the bag's columns are those of the fit if they are not given."""
        if bag is None and not isinstance(labels, Mapping):
            data = self.facts.data
            if data.groupings:
                names = " or ".join(repr(g.name) for g in data.groupings)
                raise InputError(f"the model has several groupings; say with bag={names} whose.")
            bag = list(data.bag_columns)
        return counts_of(bag, labels, labels_are, skip_unmatched, weights=weights)
