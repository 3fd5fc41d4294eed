"""Commands for tables: fit, predict, label, evaluate."""

from __future__ import annotations

import os
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.app import (
    GOES_ON,
    TABLES,
    Force,
    Options,
    app,
    console,
    options_of,
    user_errors,
)


class LabelsAre(StrEnum):
    """What the numbers of the label file are."""

    auto = "auto"
    counts = "counts"
    proportions = "proportions"
    relative = "relative"


Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES...",
        help='CSV, TSV or Parquet; several, or a pattern such as "data/*.parquet". - is standard '
        "input, which is copied to a temporary file first.",
        show_default=False,
    ),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The folder that `bagwise fit` wrote.")
]
Bag = Annotated[
    str, typer.Option(help="Column that says which bag a row is in; several with commas between.")
]
Labels = Annotated[
    str,
    typer.Option(
        help="File with the bag's columns and a column of counts or proportions for each class; "
        "or with the bag, a class and a number in each row."
    ),
]
Numbers = Annotated[
    LabelsAre,
    typer.Option(
        "--labels-are",
        help="What the numbers are: counts sum to the bag's rows, proportions to 1 or 100; "
        "relative: counts of another total. auto tells counts from proportions.",
    ),
]
Skip = Annotated[
    bool,
    typer.Option("--skip-unmatched", help="Leave out bags that only one file has, and say so."),
]
Keep = Annotated[
    str | None,
    typer.Option(help="Columns to copy to the output; if not given, all that are no features."),
]


@app.command(rich_help_panel=TABLES)
def fit(
    data: Files,
    bag: Bag,
    labels: Labels,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    features: Annotated[
        str | None, typer.Option(help="Columns to learn from; if not given, all but the bag's.")
    ] = None,
    exclude: Annotated[str | None, typer.Option(help="Columns not to learn from.")] = None,
    categorical: Annotated[
        str | None, typer.Option(help="Columns of numbers that are categories.")
    ] = None,
    ordered: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=LOW<...<HIGH",
            help='A column of ordered categories, "size=S<M<L" for one; may be repeated.',
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Class columns of the label file; if not given, all but the bag's. yes,no is "
            "right also where the file has numbers of yes alone: no has the rest."
        ),
    ] = None,
    labels_are: Numbers = LabelsAre.auto,
    skip_unmatched: Skip = False,
    model: Annotated[
        str, typer.Option(help="linear, mlp, or auto: the better on held-out bags.")
    ] = "auto",
    method: Annotated[
        str, typer.Option(help="rc, rc_approx, cc, cc_approx, dllp, llpfc, ot, pll.")
    ] = "cc",
    engine: Annotated[
        str, typer.Option(help="Of rc and cc: auto, exact, bethe, multinomial, transport.")
    ] = "auto",
    set_: Options = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate; if not given, chosen on held-out bags.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the bags; if not given, chosen likewise.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
) -> None:
    """Learn to classify rows from the label counts or proportions of their bags.

    No row's label is needed. Model, learning rate and number of epochs are chosen by the
    likelihood of held-out bags. A fit that was stopped goes on when the command is given again.
    """
    from bagwise.cli.showing import show_fit
    from bagwise.storage.model_folder import refuse_other_things
    from bagwise.tabular.fitting import fit_table
    from bagwise.tabular.source import spooled

    with user_errors(GOES_ON), spooled(data, sys.stdin.buffer) as files:
        refuse_other_things(out)
        _refuse_closed_folder(out)
        fitted = fit_table(
            files,
            bag,
            labels,
            features=features,
            exclude=exclude,
            categorical=categorical,
            ordered=ordered,
            classes=classes,
            labels_are=labels_are.value,
            skip_unmatched=skip_unmatched,
            method=method,
            engine=engine,
            method_options=options_of(set_),
            model=model,
            lr=lr,
            epochs=epochs,
            seed=seed,
            command=shlex.join(["bagwise", *sys.argv[1:]]),
            out=out,
            progress=True,
        )
    show_fit(fitted)
    console.print(f"The model is in {out}; `bagwise report {out}` says more.", soft_wrap=True)


@app.command(rich_help_panel=TABLES)
def predict(
    model: Model,
    data: Files,
    out: Annotated[Path, typer.Option(help="File for the predictions: .parquet, .csv or .tsv.")],
    keep: Keep = None,
    force: Force = False,
) -> None:
    """Predict the label of each row, and the probability of each class.

    The output has the rows in their order, the columns that are no features, `label`, and `p_...`
    for each class. The input may be larger than memory. Earlier predictions of such a model are
    replaced, another file only with --force.
    """
    from bagwise.cli.showing import show_doubts, show_written
    from bagwise.tabular.model import TableModel
    from bagwise.tabular.predicting import predict_table
    from bagwise.tabular.source import spooled

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        fitted = TableModel.load(model)
        written = predict_table(fitted, files, out, _names(keep), progress=True, force=force)
    show_doubts(fitted)
    show_written(written, out)


@app.command(rich_help_panel=TABLES)
def label(
    model: Model,
    data: Files,
    bag: Bag,
    labels: Labels,
    out: Annotated[Path, typer.Option(help="File for the labels: .parquet, .csv or .tsv.")],
    keep: Keep = None,
    labels_are: Numbers = LabelsAre.auto,
    skip_unmatched: Skip = False,
    force: Force = False,
) -> None:
    """Label the rows of bags whose counts are known, so that the labels have exactly these counts.

    `label` is that of the most probable labeling with the bag's counts, `p_...` the probability of
    each class given the counts. Earlier labels of such a model are replaced, another file only
    with --force.
    """
    from bagwise.cli.showing import show_written
    from bagwise.tabular.model import TableModel
    from bagwise.tabular.predicting import label_table
    from bagwise.tabular.source import columns_of, spooled

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        fitted = TableModel.load(model)
        written = label_table(
            fitted,
            files,
            columns_of(bag),
            labels,
            out,
            keep=_names(keep),
            labels_are=labels_are.value,
            skip_unmatched=skip_unmatched,
            progress=True,
            force=force,
        )
    show_written(written, out)


@app.command(rich_help_panel=TABLES)
def evaluate(
    model: Model,
    data: Files,
    target: Annotated[str, typer.Option(help="Column with the true label.")],
) -> None:
    """Compare predictions with true labels: accuracy, AUC, classes, calibration, confusion.

    Beside them stands what one gets without a model. Rows without a label are left out and counted.
    """
    from bagwise.cli.showing import show_scores, show_surprises
    from bagwise.tabular.model import TableModel
    from bagwise.tabular.scoring import evaluate_table
    from bagwise.tabular.source import spooled

    with user_errors(), spooled(data, sys.stdin.buffer) as files:
        scores = evaluate_table(TableModel.load(model), files, target, progress=True)
    show_scores(scores)
    show_surprises(scores.surprises)


def _refuse_closed_folder(out: Path) -> None:
    """Better at once than when the work is done."""
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not os.access(parent, os.W_OK):
        raise ValueError(f"{out} cannot be written: Permission denied in {parent}.")


def _names(keep: str | None) -> list[str] | None:
    from bagwise.tabular.source import columns_of

    return None if keep is None else columns_of(keep)
