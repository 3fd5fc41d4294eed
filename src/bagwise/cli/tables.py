"""Commands for tables: fit, predict, label, evaluate."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from bagwise.cli.app import TABLES, app, console, user_errors
from bagwise.methods import METHODS
from bagwise.posterior import ENGINES
from bagwise.storage.model_folder import refuse_other_things
from bagwise.tabular.columns import Surprises
from bagwise.tabular.fitting import fit_table
from bagwise.tabular.model import TableModel
from bagwise.tabular.predicting import label_table, predict_table
from bagwise.tabular.scoring import Scores, evaluate_table
from bagwise.tabular.source import columns_of

MOST_SHOWN = 15  # classes in a square table of confusions
_METHODS = ", ".join(name for name in METHODS if name != "supervised")


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
        help='CSV, TSV or Parquet; several, or a pattern such as "data/*.parquet".',
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
        help="What the numbers are: counts sum to the bag's rows, proportions to 1; relative: "
        "counts of another total. auto tells counts from proportions.",
    ),
]
Skip = Annotated[
    bool,
    typer.Option("--skip-unmatched", help="Leave out bags that only one of the two files has."),
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
    classes: Annotated[
        str | None,
        typer.Option(help="Class columns of the label file; if not given, all but the bag's."),
    ] = None,
    labels_are: Numbers = LabelsAre.auto,
    skip_unmatched: Skip = False,
    model: Annotated[
        str, typer.Option(help="linear, mlp, or auto: the better on held-out bags.")
    ] = "auto",
    method: Annotated[str, typer.Option(help=f"{_METHODS}.")] = "cc",
    engine: Annotated[str, typer.Option(help=f"Of rc and cc: {', '.join(ENGINES)}.")] = "auto",
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
    with user_errors(), _goes_on():
        refuse_other_things(out)
        _refuse_closed_folder(out)
        fitted = fit_table(
            data,
            bag,
            labels,
            features=features,
            exclude=exclude,
            categorical=categorical,
            classes=classes,
            labels_are=labels_are.value,
            skip_unmatched=skip_unmatched,
            method=method,
            engine=engine,
            model=model,
            lr=lr,
            epochs=epochs,
            seed=seed,
            command=shlex.join(["bagwise", *sys.argv[1:]]),
            out=out,
            progress=True,
        )
    _show_fit(fitted)
    console.print(f"The model is in {out}; `bagwise report {out}` says more.", soft_wrap=True)


@app.command(rich_help_panel=TABLES)
def predict(
    model: Model,
    data: Files,
    out: Annotated[Path, typer.Option(help="File for the predictions: .parquet, .csv or .tsv.")],
    keep: Keep = None,
) -> None:
    """Predict the label of each row, and the probability of each class.

    The output has the rows in their order, the columns that are no features, `label`, and `p_...`
    for each class. The input may be larger than memory.
    """
    with user_errors():
        fitted = TableModel.load(model)
        rows, surprises = predict_table(fitted, data, out, _names(keep), progress=True)
    _show_written(rows, out, surprises)


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
) -> None:
    """Label the rows of bags whose counts are known, so that the labels have exactly these counts.

    `label` is that of the most probable labeling with the bag's counts, `p_...` the probability of
    each class given the counts.
    """
    with user_errors():
        fitted = TableModel.load(model)
        rows, surprises = label_table(
            fitted,
            data,
            columns_of(bag),
            labels,
            out,
            keep=_names(keep),
            labels_are=labels_are.value,
            skip_unmatched=skip_unmatched,
            progress=True,
        )
    _show_written(rows, out, surprises)


@app.command(rich_help_panel=TABLES)
def evaluate(
    model: Model,
    data: Files,
    target: Annotated[str, typer.Option(help="Column with the true label.")],
) -> None:
    """Compare predictions with true labels: accuracy, classes, calibration, confusion."""
    with user_errors():
        scores = evaluate_table(TableModel.load(model), data, target, progress=True)
    _show_scores(scores)
    _show_surprises(scores.surprises)


@contextmanager
def _goes_on() -> Iterator[None]:
    """Ctrl-C ends with a line that says what is lost: nothing."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Stopped. What is done is kept; the same command goes on from there.", err=True)
        raise typer.Exit(130) from None


def _refuse_closed_folder(out: Path) -> None:
    """Better at once than when the work is done."""
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not os.access(parent, os.W_OK):
        raise ValueError(f"{out} cannot be written: Permission denied in {parent}.")


def _names(keep: str | None) -> list[str] | None:
    return None if keep is None else columns_of(keep)


def _show_fit(fitted: TableModel) -> None:
    data, held_out = fitted.facts["data"], fitted.facts["held_out"]
    settings, sizes = fitted.facts["settings"], fitted.facts["data"]["sizes"]
    facts = Table(show_header=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("instances", f"{data['rows_used']:,} of {data['rows']:,} rows")
    facts.add_row(
        "bags",
        f"{data['n_bags']:,}, of {sizes['smallest']:,} to {sizes['largest']:,} rows "
        f"(median {sizes['median']:,.0f})",
    )
    if data["bags_left_out"]:
        names = ", ".join(data["bags_left_out_names"][:8])
        facts.add_row("bags left out", f"{data['bags_left_out']:,}: {names}")
    if data["rounding"] > 0:
        facts.add_row(
            "rounding", f"turns proportions into counts; off by up to {data['rounding']:.2%}"
        )
    facts.add_row("features", f"{data['n_features']} from {len(fitted.columns.columns)} columns")
    for name, why in fitted.columns.left_out.items():
        facts.add_row("", f"{name} is left out: {why}")
    facts.add_row(
        "model",
        f"{settings['model']}, {settings['method']}, learning rate {settings['lr']:g}, "
        f"{settings['epochs']} epochs ({fitted.facts['seconds']:.0f} s in all)",
    )
    facts.add_row(
        "held-out bags",
        f"log-likelihood per row {held_out['log_likelihood']:.4f}; "
        f"with every class's overall share {held_out['baseline']:.4f}",
    )
    console.print(facts)
    table = Table(title="Held-out bags: predicted and true proportions")
    table.add_column("class")
    for name in ("overall share", "mean difference", "correlation"):
        table.add_column(name, justify="right")
    for c, name in enumerate(data["classes"]):
        table.add_row(
            name,
            f"{data['shares'][c]:.1%}",
            f"{held_out['error'][c]:.1%}",
            "-" if held_out["correlation"][c] is None else f"{held_out['correlation'][c]:.2f}",
        )
    console.print(table)
    if held_out["log_likelihood"] <= held_out["baseline"]:
        console.print(
            "The model does not do better than the overall shares: the features say little about "
            "the classes, or there are too few bags, or the bags are too much alike."
        )


def _show_written(rows: int, out: Path, surprises: Surprises) -> None:
    _show_surprises(surprises)
    console.print(f"{rows:,} rows are in {out}", soft_wrap=True)


def _show_surprises(surprises: Surprises) -> None:
    for line in surprises.lines():
        console.print(f"Note: {line}", soft_wrap=True, highlight=False)


def _show_scores(scores: Scores) -> None:
    console.print(
        f"{scores.n:,} rows: accuracy {scores.accuracy:.2%}, log loss {scores.log_loss:.4f}, "
        f"expected calibration error {scores.calibration_error:.4f}"
    )
    table = Table(title="Classes")
    table.add_column("class")
    for name in ("rows", "precision", "recall", "F1"):
        table.add_column(name, justify="right")
    numbers = (scores.support, scores.precision, scores.recall, scores.f1)
    for name, support, *shares in zip(scores.classes, *numbers, strict=True):
        table.add_row(name, f"{support:,}", *(f"{share:.1%}" for share in shares))
    console.print(table)
    if len(scores.classes) > MOST_SHOWN:
        _show_confusions(scores)
        return
    confusion = Table(title="Rows by true (down) and predicted class (across)")
    confusion.add_column("")
    for name in scores.classes:
        confusion.add_column(name, justify="right")
    for name, row in zip(scores.classes, scores.confusion.tolist(), strict=True):
        confusion.add_row(name, *(f"{n:,}" for n in row))
    console.print(confusion)


def _show_confusions(scores: Scores) -> None:
    """The most frequent mistakes, where there are too many classes for a square table."""
    mistakes = scores.confusion - np.diag(np.diag(scores.confusion))
    table = Table(title="Most frequent confusions")
    for name in ("true", "predicted", "rows"):
        table.add_column(name, justify="right" if name == "rows" else "left")
    for place in np.argsort(-mistakes, axis=None, kind="stable")[:MOST_SHOWN]:
        true, predicted = np.unravel_index(place, mistakes.shape)
        if n := mistakes[true, predicted]:
            table.add_row(scores.classes[true], scores.classes[predicted], f"{n:,}")
    console.print(table)
