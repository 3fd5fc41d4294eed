"""The command fit, and the arguments that commands for tables share."""

from __future__ import annotations

import os
import shlex
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.app import (
    TABLES,
    Options,
    Ray,
    RayAddress,
    app,
    console,
    on_ray,
    options_of,
    output,
    user_errors,
)
from bagwise.cli.config_file import options_in
from bagwise.errors import UsageError


class LabelWord(StrEnum):
    """What the numbers of the label file are."""

    auto = "auto"
    counts = "counts"
    proportions = "proportions"
    relative = "relative"
    noisy = "noisy"
    ranges = "ranges"
    rounded = "rounded"
    sample = "sample"


Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES...",
        help="CSV, TSV, Parquet or Arrow: one or more files, a folder, or a pattern such as "
        '"data/*.parquet", on this machine or at s3:// or gs://. Folders such as year=2020 add a '
        "column. Or a table or query of a database: warehouse.duckdb::voters, "
        "postgresql://ann@host/polls::voters. Use - for standard input, which is first copied to a "
        "temporary file.",
        show_default=False,
    ),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder of a model from `bagwise fit`.")
]
Bag = Annotated[
    list[str],
    typer.Option(
        help="Column that names the bag of each row, or several columns separated by commas. If "
        "the same rows are counted in several ways, give --bag and --labels for each.",
    ),
]
Labels = Annotated[
    list[str],
    typer.Option(
        help="File with the counts or proportions of each bag: a column for each class, or a bag, "
        "a class and a number in each row."
    ),
]
RowCounts = Annotated[
    str | None,
    typer.Option(
        "--row-counts",
        metavar="COLUMN",
        help="Column with the number of identical rows that each row represents. Default: the "
        "column used in fit, if the table has it.",
    ),
]
Numbers = Annotated[
    list[LabelWord] | None,
    typer.Option(
        "--labels-are",
        help="What the numbers are. auto: counts or proportions. counts: they sum to the "
        "number of rows in the bag (* or empty: unknown). proportions: they sum to 1 or 100. "
        "relative: counts with another total; only their shares are used. noisy: see --noise. "
        "ranges: columns such as yes_low and yes_high, or cells such as 1-4. rounded: rounded "
        "shares. sample: counts of larger groups, of which the rows are a random sample. With "
        "several groupings, give it once for all or once for each. Default: auto.",
    ),
]
NoiseOf = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="KIND:WIDTH",
        help="The noise of the counts: laplace:4 or discrete-laplace:4 (scale), gaussian:2.5 or "
        "discrete-gaussian:2.5 (standard deviation). Or its privacy budget: laplace:epsilon=1, "
        "gaussian:epsilon=1,delta=1e-6,groupings=2.",
    ),
]
Clipped = Annotated[
    bool, typer.Option("--clipped", help="Noisy counts below 0 were published as 0.")
]
Skip = Annotated[
    bool,
    typer.Option(
        "--skip-unmatched", help="Leave out bags that are in only one of the files, and list them."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Number of Ray processes, each with one core and one thread. Default: all cores."
    ),
]


def _read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Options from a file are defaults; those of the command line win."""
    if path is None:
        return None
    with user_errors():
        ctx.default_map = options_in(path, [str(param.name) for param in ctx.command.params])
    return path


@app.command(rich_help_panel=TABLES, has_json=True)
def fit(
    data: Files,
    bag: Bag,
    labels: Labels,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    features: Annotated[
        str | None, typer.Option(help="Columns to use as features. Default: all except the bag's.")
    ] = None,
    exclude: Annotated[str | None, typer.Option(help="Columns not to use as features.")] = None,
    categorical: Annotated[
        str | None, typer.Option(help="Columns of numbers to read as categories.")
    ] = None,
    ordered: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=LOW<...<HIGH",
            help='A column of ordered categories, such as "size=S<M<L". Can be repeated.',
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            help="Features of bags, separated by commas: columns of the label file, or "
            '"mean(age)" for the mean of a column of the rows over each bag.'
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Class columns of the label file. Default: all except the bag's. If the file only "
            "has a column yes, yes,no gives the rest to no."
        ),
    ] = None,
    labels_are: Numbers = None,
    noise: NoiseOf = None,
    clipped: Clipped = False,
    row_counts: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the number of identical rows that each row represents. It is not "
            "used as a feature.",
        ),
    ] = None,
    row_labels: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the labels of some rows, and empty cells for the others. A labeled "
            "row needs no bag.",
        ),
    ] = None,
    skip_unmatched: Skip = False,
    model: Annotated[
        str, typer.Option(help="linear, mlp, or auto: the better one on held-out bags.")
    ] = "auto",
    method: Annotated[
        str,
        typer.Option(
            help="rc, rc_approx, cc, cc_approx, dllp, llpfc, ot, pll, pvc, mixbag, pll_cc, "
            "cc_then_rc, cc_approx_then_rc_approx."
        ),
    ] = "cc",
    engine: Annotated[
        str, typer.Option(help="For rc and cc: auto, exact, bethe, multinomial, transport, device.")
    ] = "auto",
    set_: Options = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate. Default: chosen on held-out bags.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the bags. Default: chosen on held-out bags.")
    ] = None,
    bag_effects: Annotated[
        bool,
        typer.Option(
            "--bag-effects",
            help="Give each bag its own intercept, for bags that differ by more than their rows "
            "explain (linear model).",
        ),
    ] = False,
    joint: Annotated[
        bool | None,
        typer.Option(
            "--joint/--no-joint",
            help="With several groupings: use all counts together, or each grouping separately. "
            "Default: chosen on held-out bags.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="For a table larger than memory: the memory that rows may use, such as 2GB; with "
            "--ray, on each worker. The rows are sorted by bag into a file and read from there.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="Folder for that file, which is kept for later fits to the same table. Default: a "
            "hidden folder beside the model, removed at the end.",
        ),
    ] = None,
    keep_counts: Annotated[
        bool,
        typer.Option(
            help="Store the counts of single bags in the model's folder, for the report. Without "
            "them, the report shows less, and the folder reveals less."
        ),
    ] = True,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            is_eager=True,
            callback=_read_config,
            help='TOML file with options, such as bag = "ward". The command line takes precedence.',
        ),
    ] = None,
    ray: Ray = False,
    ray_address: RayAddress = None,
    workers: Workers = None,
) -> None:
    """Fit a classifier of rows to the label counts or proportions of their bags.

    You need no labels of rows, and counts need not be exact. Model, learning rate and number of
    epochs are chosen by the likelihood of held-out bags. An interrupted fit resumes when you rerun
    the command.

    With Ray (--ray or --ray-address) and --model linear or --memory, the rows are divided among the
    workers of a cluster. Otherwise the perceptrons that are tried are trained at the same time. The
    result is the same.
    """
    from bagwise.cli.label_options import counts_given
    from bagwise.cli.terminal import show_fit
    from bagwise.ray_cluster import cluster
    from bagwise.storage.model_folder import HELD_OUT, refuse_other_things
    from bagwise.storage.uris import masked
    from bagwise.table_model import fit as fit_model
    from bagwise.tables.model.fit_file import to_json
    from bagwise.tables.read.paths import spooled
    from bagwise.wording.fit_words import true_or_given

    stopped = partial(_stopped, out, memory, store)
    with user_errors(stopped), spooled(data, sys.stdin.buffer) as files:
        _refuse_closed_folder(out)
        refuse_other_things(out)
        there_is_ray = on_ray(ray, ray_address, workers)
        counts = counts_given(bag, labels, labels_are, noise, clipped)
        assert counts is not None
        found = fit_model(
            files,
            **counts.arguments,
            classes=classes,
            row_labels=row_labels,
            weights=row_counts,
            features=features,
            exclude=exclude,
            categorical=categorical,
            ordered=ordered,
            context=context,
            skip_unmatched=skip_unmatched,
            model=model,
            bag_effects=bag_effects,
            joint=joint,
            seed=seed,
            out=out,
            memory=memory,
            progress=output.for_people,
            method=method,
            engine=engine,
            method_options=options_of(set_),
            lr=lr,
            epochs=epochs,
            store=store,
            ray=cluster(ray_address, workers) if there_is_ray else None,
            workers=workers,
            keep_counts=keep_counts,
            command=masked(shlex.join(["bagwise", *sys.argv[1:]])),
        )
    fitted = found.fitted
    output.result(to_json(fitted.facts))
    show_fit(fitted)
    said = f"The model is in {out}. `bagwise report {out}` shows more"
    if keep_counts:
        true = true_or_given(fitted.facts.data)
        said += f"; {out / HELD_OUT} has the {true} and predicted counts of every held-out bag"
    console.print(f"{said}.", soft_wrap=True)


def _stopped(out: Path, memory: str | None, store: Path | None) -> str:
    """What is left of a fit after Ctrl-C."""
    from bagwise.storage.journal import kept
    from bagwise.tables.sort.store import has_read, place_of

    home, done = kept(out)
    if not done and memory is not None and has_read(place := place_of(out, store)):
        what = f"What is read and sorted is kept in {place}"
        return f"Stopped. {what}; rerun the command to resume."
    if not done:
        return "Stopped. Nothing was finished yet; the command will start anew."
    what = f"{len(done)} finished parts of the work are" if len(done) > 1 else "What is done is"
    return f"Stopped. {what} kept in {home}; rerun the command to resume."


def _refuse_closed_folder(out: Path) -> None:
    """Better at once than when the work is done. A symbolic link is followed."""
    if str(out) == "-":
        raise UsageError("--out is -; a model is a folder, which standard output cannot hold.")
    place = Path(os.path.realpath(out))
    if place.is_symlink():
        raise UsageError(f"{out} is a symbolic link that leads to itself; choose another folder.")
    parent = next(folder for folder in place.parents if folder.exists())
    if not parent.is_dir():
        raise UsageError(f"{out} cannot be written: {parent} is not a folder.")
    if not os.access(parent, os.W_OK):
        raise UsageError(f"{out} cannot be written: Permission denied in {parent}.")
