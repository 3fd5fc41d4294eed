"""Commands that use a model on the rows of a table: predict, label, evaluate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bagwise.cli.app import (
    TABLES,
    Force,
    Formulas,
    Ray,
    RayAddress,
    app,
    on_ray,
    output,
    user_errors,
)
from bagwise.cli.fit_command import (
    Bag,
    Clipped,
    Files,
    Labels,
    LabelWord,
    Model,
    NoiseOf,
    Numbers,
    RowCounts,
    Skip,
    Workers,
)
from bagwise.cli.quick_start import without_pandas
from bagwise.errors import UsageError

if TYPE_CHECKING:
    from bagwise.labels.label_spec import LabelSpec

Keep = Annotated[
    str | None,
    typer.Option(help="Columns to copy to the output. Default: all that are not features."),
]


@app.command(rich_help_panel=TABLES, has_json=True)
def predict(
    model: Model,
    data: Files,
    out: Annotated[
        Path,
        typer.Option(
            help="File for the predictions: .parquet, .csv or .tsv, or - for CSV on standard "
            "output. With Ray, a folder for one Parquet file per input file."
        ),
    ],
    bag: Annotated[
        str | None,
        typer.Option(
            help="Columns that name the bag. Not needed for a model with bag effects if they have "
            "the same names as in fit."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="File with known counts or shares of the bags of these new rows, in the same form "
            "as for fit."
        ),
    ] = None,
    labels_are: Numbers = None,
    noise: NoiseOf = None,
    clipped: Clipped = False,
    skip_unmatched: Skip = False,
    keep: Keep = None,
    force: Force = False,
    escape_formulas: Formulas = False,
    ray: Ray = False,
    ray_address: RayAddress = None,
    workers: Workers = None,
) -> None:
    """Predict the label of each row, and the probability of each class.

    The output has the rows in the same order, with the columns that are not features, `label`, and
    `p_...` for each class. The input may be larger than memory. Earlier predictions of such a model
    are replaced; other files only with --force.

    If the rows are new but the shares of their bags are known (new pupils of schools with known
    results), use --bag and --labels. If the rows are the same that were counted, use `label`.

    With --ray or --ray-address, several files are read at the same time, and --out is a folder. Its
    Parquet files, sorted by name, have the rows in the order of the input. --force also replaces a
    folder of other files, but not one that contains folders.
    """
    from bagwise.cli.terminal import show_bags_used, show_doubts, show_surprises, show_written
    from bagwise.table_model import load
    from bagwise.tables.read.paths import spooled

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        without_pandas()
        fitted = load(model)
        if on_ray(ray, ray_address, workers):
            if labels is not None or "-" in (*data, str(out)):
                raise UsageError(
                    "with Ray every file is by itself: --labels, which says something of all rows "
                    "of a bag, standard input and standard output are not possible; leave Ray out."
                )
            from bagwise.tables.read.paths import columns_of
            from bagwise.tables.use.predict_on_ray import predict_on_ray

            written = predict_on_ray(
                model,
                files,
                out,
                None if keep is None else columns_of(keep),
                progress=output.for_people,
                key=columns_of(bag),
                address=ray_address,
                workers=workers,
                force=force,
            )
            show_surprises(written.surprises)
        else:
            written = fitted.predict(
                files,
                bag=bag,
                labels=labels,
                labels_are=_kind_of_labels(labels_are, noise, clipped),
                skip_unmatched=skip_unmatched,
                out=output.place(out),
                keep=keep,
                force=force,
                escape_formulas=escape_formulas,
                progress=output.for_people,
            )
    output.result(written)
    show_doubts(fitted.fitted)
    show_bags_used(written)
    show_written(written, out)


@app.command(rich_help_panel=TABLES, has_json=True)
def label(
    model: Model,
    data: Files,
    bag: Bag,
    labels: Labels,
    out: Annotated[
        Path,
        typer.Option(
            help="File for the labels: .parquet, .csv or .tsv, or - for CSV on standard output."
        ),
    ],
    keep: Keep = None,
    labels_are: Numbers = None,
    noise: NoiseOf = None,
    clipped: Clipped = False,
    row_counts: RowCounts = None,
    row_labels: Annotated[
        str | None,
        typer.Option(
            help="Column with the labels of some rows, which are kept; empty cells for the others."
        ),
    ] = None,
    skip_unmatched: Skip = False,
    force: Force = False,
    escape_formulas: Formulas = False,
) -> None:
    """Label rows of bags with known counts, so that the labels have exactly these counts.

    `p_...` is the probability of each class given the bag's counts, and `most_probable` is the most
    probable class: use it if single rows matter. `label` comes from the most probable labeling of
    the whole bag with exactly its counts: use it if totals matter. If counts are not exact (noisy,
    ranges, rounded, sample, unknown), the totals of `label` may differ from the file. Earlier
    labels of such a model are replaced; other files only with --force.

    With several groupings (--bag and --labels for each), the probabilities take the counts of all
    groupings into account, and `label` has the counts of the first. With --row-counts, there is
    `n_...` instead of `label`: how many of the represented rows have each label.
    """
    from bagwise.cli.label_options import counts_given
    from bagwise.cli.terminal import show_label_columns, show_unused_labels, show_written
    from bagwise.table_model import load
    from bagwise.tables.read.paths import spooled

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        without_pandas()
        counts = counts_given(bag, labels, labels_are, noise, clipped)
        assert counts is not None
        fitted = load(model)
        written = fitted.label(
            files,
            **counts.arguments,
            row_labels=row_labels,
            weights=row_counts,
            skip_unmatched=skip_unmatched,
            out=output.place(out),
            keep=keep,
            force=force,
            escape_formulas=escape_formulas,
            progress=output.for_people,
        )
    output.result(written)
    show_written(written, out)
    show_label_columns(written, LabelWord.relative in (labels_are or []))
    if row_labels is None:
        show_unused_labels(fitted.fitted)


@app.command(rich_help_panel=TABLES, has_json=True)
def evaluate(
    model: Model,
    data: Files,
    target: Annotated[str, typer.Option(help="Column with the true label.")],
    row_counts: RowCounts = None,
) -> None:
    """Compare predictions with true labels: accuracy, AUC, classes, calibration, confusion.

    For comparison, it also shows the scores of simple guesses. Rows without a label are left out
    and counted. A model with bag effects uses them if the table has the bag's columns.
    """
    from bagwise.cli.terminal import show_scores
    from bagwise.table_model import load
    from bagwise.tables.read.paths import spooled

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        without_pandas()
        found = load(model)
        scores = found.evaluate(files, target, weights=row_counts, progress=output.for_people)
    output.result(scores)
    show_scores(scores)


def _kind_of_labels(
    labels_are: list[LabelWord] | None, noise: str | None, clipped: bool
) -> LabelSpec | Literal["auto"]:
    """What numbers are; where nothing is said, without importing what computes with them."""
    if labels_are in (None, [], [LabelWord.auto]) and noise is None and not clipped:
        return "auto"
    from bagwise.cli.label_options import label_specs_of

    return label_specs_of(labels_are, noise, clipped)[0]
