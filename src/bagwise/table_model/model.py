"""A model of a table, as Python has it: predict, label, effects, shares, pictures."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bagwise.errors import InputError, harmless, warn_user
from bagwise.table_model.answers import effect_columns, importance_columns, share_columns
from bagwise.table_model.arguments import OUTPUT, check_arguments
from bagwise.table_model.pictures import Names, Pictures
from bagwise.tables.labels.counts import LabelTables, counts_of
from bagwise.tables.model.fitted_table import FittedTable
from bagwise.tables.read.frames import FrameMaker
from bagwise.tables.read.paths import columns_of
from bagwise.tables.use.prediction_file import LABEL, Collected, Destination, Written
from bagwise.wording import fit_words, share_words, table_words

if TYPE_CHECKING:
    from bagwise.labels.label_spec import LabelsAre
    from bagwise.tables.encode.columns import Surprises
    from bagwise.tables.read.source import Table
    from bagwise.tables.use.evaluate import Scores

_PREDICT = ("bag", "labels", "labels_are", "skip_unmatched", "progress", "out", *OUTPUT)
Out = str | Path | IO[bytes]


class TableModel(Pictures):
    """A model fitted to a table, from `bagwise.fit` or `bagwise.load`.

    Rows may be data frames or paths, as for `bagwise.fit`. What comes back is of the kind that was
    given, with the index of a pandas frame; for paths it is pandas if that is installed, else
    polars or pyarrow.

    Attributes:
        classes: class labels.
        fitted: what the model is made of, see `bagwise.tables`.

    >>> import bagwise, pyarrow as pa
    >>> rows = pa.table({"ward": ["A", "B", "C", "D"] * 4, "age": [20, 60, 30, 65] * 4})
    >>> counts = pa.table({"ward": ["A", "B", "C", "D"], "no": [4, 0, 4, 0], "yes": [0, 4, 0, 4]})
    >>> model = bagwise.fit(rows, bag="ward", labels=counts, model="linear", progress=False)
    >>> model.predict(pa.table({"age": [25, 62]})).to_pylist()
    ['no', 'yes']
    >>> model.estimate(rows, by="ward").column_names
    ['ward', 'class', 'rows', 'share', 'low', 'high', 'robustness']
    """

    def __init__(self, fitted: FittedTable, frames: FrameMaker | None = None) -> None:
        super().__init__(fitted)
        self._frames = frames or FrameMaker.at_hand()

    # --- predictions

    def predict(self, rows: Table, *, out: Out | None = None, **known: Any) -> Any:
        """The most probable class of each row, a series named "label".

        Args:
            rows: with the model's feature columns.
            out: a file for the predictions (.parquet, .csv or .tsv), or a stream of bytes, which
                gets CSV. It has the columns that are not features, `label`, and `p_...` for each
                class; rows may be more than memory holds. What comes back is then a `Written`.
            **known: `bag`, the bag's columns, for models with bag effects whose bags have other
                columns here than in the fit; `bag`, `labels`, `labels_are` and `skip_unmatched`
                where these are new rows of bags whose counts or shares are known. With `out`,
                `keep`, `force`, `escape_formulas` and `progress`, see `bagwise predict --help`.
        """
        if out is not None:
            check_arguments("predict", known, _PREDICT)
            return self._predict(rows, out=out, **known)
        table, written = self._predicted(rows, **known)
        return self._like(rows).series(LABEL, table.column(LABEL), written.places)

    def predict_proba(self, rows: Table, **known: Any) -> Any:
        """The probability of each class, a frame with a column for each.

        Args:
            rows: with the model's feature columns.
            **known: see `predict`.
        """
        table, written = self._predicted(rows, **known)
        columns = {label: table.column(f"p_{label}") for label in self.classes}
        return self._like(rows).frame(columns, written.places)

    def _predicted(self, rows: Table, **known: Any) -> tuple[Any, Written]:
        check_arguments("predict", known, _PREDICT, has_output=False)
        collected = Collected()
        written = self._predict(rows, out=collected, keep=[], **known)
        return collected.table, written

    def _predict(
        self,
        rows: Table,
        *,
        bag: Names | None = None,
        labels: Table | None = None,
        labels_are: LabelsAre = "auto",
        skip_unmatched: bool = False,
        progress: bool = False,
        **place: Any,
    ) -> Written:
        from bagwise.tables.use.predict import predict_table

        names, counts = columns_of(bag), None
        if labels is not None:
            counts = counts_of(bag, labels, labels_are, skip_unmatched)
        to = _destination(**place)
        written = predict_table(self.fitted, rows, to, counts, bag=names, progress=progress)
        _warn_of(written.surprises)
        return written

    def label(
        self,
        rows: Table,
        labels: LabelTables,
        *,
        bag: Names | None = None,
        labels_are: LabelsAre | Mapping[str, LabelsAre] = "auto",
        row_labels: str | None = None,
        weights: str | None = None,
        skip_unmatched: bool = False,
        out: Out | None = None,
        **place: Any,
    ) -> Any:
        """Labels for rows of bags whose counts are known, a frame.

        It has `label`, the most probable labeling of each bag with exactly its counts,
        `most_probable`, each row's likeliest class by itself, and `p_...`, the probability of each
        class given the counts. With several groupings, that is given all counts, and `label` has
        the counts of the first one. For rows with weights, `n_...` takes the place of `label`: how
        many of the rows that a row stands for have each label.

        Args:
            rows: the rows that were counted.
            labels: see `bagwise.fit`, also for the others.
            bag: the bag's columns; those of the fit if not given.
            labels_are: what the numbers in `labels` are.
            row_labels: a column with labels of some rows, which are kept.
            weights: how many identical rows each row stands for; the column of the fit if not
                given, where the rows have it.
            skip_unmatched: leave out bags that only one of the tables has.
            out: a file or stream for the labels, see `predict`; what comes back is then a
                `Written`.
            **place: with `out`, `keep`, `force`, `escape_formulas` and `progress`.
        """
        from bagwise.tables.use.label import label_table

        counts = self._counts(bag, labels, labels_are, skip_unmatched, weights)
        progress = bool(place.pop("progress", False))
        known = [*_PREDICT, "row_labels", "weights"]
        check_arguments("label", place, known, has_output=out is not None)
        collected = Collected()
        to = _destination(collected, keep=[]) if out is None else _destination(out, **place)
        written = label_table(
            self.fitted, rows, counts, to, row_labels=row_labels, progress=progress
        )
        _warn_of(written.surprises)
        if out is not None:
            return written
        table = collected.table
        columns = {name: table.column(name) for name in table.column_names}
        return self._like(rows).frame(columns, written.places)

    def evaluate(
        self, rows: Table, target: str, *, weights: str | None = None, progress: bool = False
    ) -> Scores:
        """How good predictions are for rows whose labels are known.

        Args:
            rows: with the model's feature columns.
            target: the column with the true label.
            weights: see `label`.
            progress: show a bar, on a terminal.
        """
        from bagwise.tables.use.evaluate import evaluate_table

        scores = evaluate_table(self.fitted, rows, target, progress, weights)
        _warn_of(scores.surprises)
        return scores

    # --- what was learned

    def effects(self) -> Any:
        """The effect of each column on the log-odds of a class, a frame, the surest first.

        `effect`, `low` and `high` are for one standard deviation of the column, or for a category;
        `per_unit`, `per_unit_low` and `per_unit_high` for one unit. For two classes they are on the
        log-odds of the second; for more, of each class against the mean of all.
        """
        from bagwise.tables.use.effects import effects

        return self._frames.frame(effect_columns(effects(self.fitted)))

    def conf_int(self, level: float = 0.95) -> Any:
        """Interval of each effect, a frame with `column`, `class`, `low` and `high`."""
        from bagwise.tables.use.effects import effects

        columns = effect_columns(effects(self.fitted, level))
        return self._frames.frame({n: columns[n] for n in ("column", "class", "low", "high")})

    def importance(
        self,
        rows: Table,
        labels: LabelTables,
        *,
        bag: Names | None = None,
        labels_are: LabelsAre | Mapping[str, LabelsAre] = "auto",
        weights: str | None = None,
        skip_unmatched: bool = False,
        memory: str | int | None = None,
        seed: int = 0,
    ) -> Any:
        """How much less likely the counts become when a column is shuffled, a frame.

        `fall` is the fall of the log-likelihood per row, with its 95% interval over bags.

        Args:
            rows: rows in bags whose counts are known.
            labels: see `bagwise.fit`, also for the others.
            bag: the bag's columns; those of the fit if not given.
            labels_are: what the numbers in `labels` are.
            weights: see `label`.
            skip_unmatched: leave out bags that only one of the tables has.
            memory: how much of it may be used for rows in files, see `bagwise.fit`.
            seed: random seed.
        """
        from bagwise.memory_size import bytes_of
        from bagwise.tables.use.importance import importances

        counts = self._counts(bag, labels, labels_are, skip_unmatched, weights)
        budget = None if memory is None else bytes_of(memory)
        found = importances(self.fitted, rows, counts, seed=seed, memory=budget)
        return self._like(rows, all_rows=False).frame(importance_columns(found))

    def estimate(
        self,
        rows: Table,
        by: Names,
        *,
        labels: LabelTables | None = None,
        bag: Names | None = None,
        labels_are: LabelsAre | Mapping[str, LabelsAre] = "auto",
        weights: str | None = None,
        skip_unmatched: bool = False,
        memory: str | int | None = None,
    ) -> Any:
        """The share of each class in groups of rows, a frame with 95% intervals.

        `robustness` says how strong a hidden difference between bags must be to bring a share to
        that of all rows: see `bagwise.likelihood.confounding`.

        Args:
            rows: with the model's feature columns and those of `by`.
            by: columns whose values make the groups.
            labels: counts of the rows' bags; `least` and `most`, the bounds that follow from these
                alone, are then given, too.
            bag: the bag's columns; those of the fit if not given.
            labels_are: what the numbers in `labels` are.
            weights: see `label`.
            skip_unmatched: leave out bags that only one of the tables has.
            memory: how much of it may be used for rows in files, see `bagwise.fit`: rows that were
                counted are sorted by bag into a temporary file.
        """
        from bagwise.memory_size import bytes_of
        from bagwise.tables.encode.columns import Surprises
        from bagwise.tables.use.estimate import estimate_shares

        names, surprises, counts = columns_of(by), Surprises(), None
        if labels is not None:
            counts = self._counts(bag, labels, labels_are, skip_unmatched, weights)
        found = estimate_shares(
            self.fitted,
            rows,
            names,
            counts,
            bag=columns_of(bag) if counts is None else (),
            weights=weights,
            memory=None if memory is None else bytes_of(memory),
            surprises=surprises,
        )
        _warn_of(surprises)
        for line in share_words.notes(found):
            warn_user(line)
        return self._like(rows, all_rows=False).frame(share_columns(found, names))

    # --- for people

    def summary(self) -> Summary:
        """What was learned from, what was left out and chosen, and how far to trust it."""
        text = fit_words.summary(self.facts, self.fitted.columns.left_out)
        return Summary(harmless(text, line_breaks=True))

    def report(self, path: str | Path, *, force: bool = False) -> None:
        """Write an HTML page about the model.

        Args:
            path: of the page. An earlier report is replaced.
            force: replace another file, too.
        """
        from bagwise.reports.model_page import model_report
        from bagwise.reports.page import write_page

        write_page(Path(path), model_report(self.fitted), force)

    def save(self, folder: str | Path) -> None:
        """Write the model's folder, in one step."""
        self.fitted.save(Path(folder))

    def __repr__(self) -> str:
        named = harmless(", ".join(self.classes[:4]))
        classes = named + (", ..." if len(self.classes) > 4 else "")
        try:
            facts = self.facts
        except InputError:  # of a damaged fit.json
            return f"TableModel({classes})"
        return (
            f"TableModel({facts.settings.model}, {len(self.classes)} classes ({classes}), "
            f"{facts.data.rows_used:,} rows in {facts.data.n_bags:,} bags)"
        )

    def _repr_html_(self) -> str:
        """For notebooks: what was left out, verdict, held-out bags, effects."""
        facts = self.facts
        left_out = fit_words.left_out(facts, self.fitted.columns.left_out)
        parts = [
            f"<p><b>{html.escape(repr(self))}</b></p>",
            *(f"<p>{html.escape(text)}</p>" for text in (*left_out, *fit_words.paragraphs(facts))),
            _html_table(fit_words.BY_CLASS, fit_words.by_class(facts)),
        ]
        if self.fitted.of_intervals:
            from bagwise.tables.use.effects import effects

            rows = [
                [e.column, e.label, f"{e.effect:+.2f}", f"{e.low:+.2f} to {e.high:+.2f}"]
                for e in effects(self.fitted)[:8]
            ]
            parts.append(_html_table(("column", "class", "effect", "95% interval"), rows))
        return "".join(parts)

    # --- helpers

    def _like(self, rows: Table, all_rows: bool = True) -> FrameMaker:
        found = FrameMaker.like(rows)
        return found if all_rows else FrameMaker(found.kind)


class Summary(str):
    """Text that a prompt shows as it is."""

    def __repr__(self) -> str:
        return str(self)


def _destination(out: Out | Collected, keep: Names | None = None, **options: bool) -> Destination:
    kept = None if keep is None else columns_of(keep)
    return Destination(Path(out) if isinstance(out, str) else out, kept, **options)


def _warn_of(surprises: Surprises) -> None:
    lines = table_words.surprises(surprises)
    if lines:
        warn_user("\n".join(lines))


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
