"""Commands around the paper's experiments: datasets, train, sweep, table, figures, export."""

from __future__ import annotations

import os
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.app import (
    EXPERIMENTS,
    GOES_ON,
    Force,
    Options,
    Ray,
    RayAddress,
    app,
    console,
    on_ray,
    pairs_of,
    user_errors,
)
from bagwise.errors import UsageError
from bagwise.training_options import OPTIONS, TrainingOptions

if TYPE_CHECKING:
    from bagwise.paper.accuracy import Block
    from bagwise.paper.run import RunResult

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of data sets, searched before $BAGWISE_DATA and the user's cache."),
]

Device = Annotated[str, typer.Option(help="Device: cpu, cuda, cuda:1, mps.")]

Runs = Annotated[
    list[Path], typer.Argument(help="Folders with runs: of a sweep, single runs, or exported runs.")
]

_PAIR = "NAME=VALUE"
_PAPER: Any = TrainingOptions  # whose defaults are the paper's


def _setting(name: str, metavar: str | None = None) -> Any:
    """The option of the command line for a training option."""
    return typer.Option(metavar=metavar, help=OPTIONS[name].help)


class Selection(StrEnum):
    """The criterion by which validation chooses epochs and learning rates."""

    accuracy = "accuracy"
    bag_loss = "bag_loss"


class TableFormat(StrEnum):
    """How a table is written."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


@app.command(rich_help_panel=EXPERIMENTS)
def datasets(data_dir: DataDir = None) -> None:
    """Show which data sets are on this machine, and where."""
    from rich.table import Table

    from bagwise.paper.datasets import DATASETS, SOURCES, find, folders, published_name

    table = Table()
    for column in ("data set", "state", "where"):
        table.add_column(column, overflow="fold")
    for name in DATASETS:
        source = published_name(name)
        if source not in SOURCES:
            own = name == "digits"
            table.add_row(name, "embedded" if own else "plugin", "scikit-learn" if own else "")
            continue
        found = find(source, data_dir)
        if found is not None:
            table.add_row(name, "present", str(found))
        else:
            places = "\n".join(str(folder) for folder in folders(source, data_dir))
            table.add_row(name, "absent", f"downloaded on first use, or put into\n{places}")
    console.print(table)


@app.command(rich_help_panel=EXPERIMENTS)
def train(
    dataset: Annotated[
        str,
        typer.Option(
            help="digits, mnist, fashion-mnist, kmnist or cifar10; mnist-raw, fashion-mnist-raw, "
            "kmnist-raw or cifar10-raw: the same with pixels from 0 to 255."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the result and the model.")],
    model: Annotated[
        str,
        typer.Option(
            help="linear, mlp, lenet5, convnet, convnet_authors, resnet32, resnet32_authors or "
            "wrn28_2."
        ),
    ] = "mlp",
    method: Annotated[
        str,
        typer.Option(
            help="rc, rc_approx, cc, cc_approx, dllp, llpfc, ot, pll, supervised; "
            "two_views, pvc, mixbag, pll_cc, cc_then_rc, cc_approx_then_rc_approx."
        ),
    ] = "cc",
    bag_size: Annotated[int, typer.Option(help="Number of instances in a bag, K.")] = 16,
    lr: Annotated[float, _setting("lr")] = _PAPER.lr,
    epochs: Annotated[int, _setting("epochs")] = _PAPER.epochs,
    seed: Annotated[int, _setting("seed")] = _PAPER.seed,
    engine: Annotated[str, typer.Option(help="For rc and cc: auto, exact or bethe.")] = "auto",
    set_: Options = None,
    schedule: Annotated[str, _setting("schedule")] = _PAPER.schedule,
    optimizer: Annotated[str, _setting("optimizer")] = _PAPER.optimizer,
    average: Annotated[float | None, _setting("average")] = _PAPER.average,
    augment: Annotated[str | None, _setting("augment")] = _PAPER.augment,
    batch_instances: Annotated[int, _setting("batch_instances")] = _PAPER.batch_instances,
    weight_decay: Annotated[float, _setting("weight_decay")] = _PAPER.weight_decay,
    clip: Annotated[float | None, _setting("clip")] = _PAPER.clip,
    drop_last: Annotated[
        bool, typer.Option("--drop-last", help=OPTIONS["drop_last"].help)
    ] = _PAPER.drop_last,
    precision: Annotated[str, _setting("precision")] = _PAPER.precision,
    accumulate_batches: Annotated[int, _setting("accumulate_batches")] = _PAPER.accumulate_batches,
    compile: Annotated[
        bool, typer.Option("--compile", help=OPTIONS["compile"].help)
    ] = _PAPER.compile,
    optimizer_set: Annotated[list[str] | None, _setting("optimizer_options", _PAIR)] = None,
    schedule_set: Annotated[list[str] | None, _setting("schedule_options", _PAIR)] = None,
    ray: Ray = False,
    ray_address: RayAddress = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of Ray processes that train together, each with one core and one thread. "
            "Default: one for each core."
        ),
    ] = None,
    device: Device = "cpu",
    data_dir: DataDir = None,
) -> None:
    """Train a network on one data set in random bags, with the paper's protocol.

    An interrupted run resumes when you rerun the command. Several processes can train the model
    together, with the same result: use --ray, which replaces lost processes, or torchrun
    --nproc-per-node 4 -m bagwise train ... (see docs/workers.md).
    """
    from rich.table import Table

    from bagwise.paper.ray_backend import execute_on_ray
    from bagwise.paper.run import execute
    from bagwise.paper.settings import RunSettings
    from bagwise.storage.locks import only_one
    from bagwise.training.devices import DEVICE
    from bagwise.training.distributed import launched

    with user_errors(GOES_ON), launched(device) as (is_first, own_device):
        settings = RunSettings(
            dataset,
            model,
            method,
            bag_size,
            lr,
            epochs,
            seed,
            engine,
            schedule,
            average,
            batch_instances,
            weight_decay,
            optimizer=optimizer,
            clip=clip,
            augment=augment,
            drop_last=drop_last,
            precision=precision,  # type: ignore[arg-type]  # which checks it
            accumulate_batches=accumulate_batches,
            compile=compile,
            method_options=pairs_of(set_),
            optimizer_options=pairs_of(optimizer_set, "--optimizer-set"),
            schedule_options=pairs_of(schedule_set, "--schedule-set"),
        )
        if engine not in ("auto", settings.engine):
            raise UsageError(f"engine is {engine!r}, but the method {method!r} takes none.")
        place = None if data_dir is None else str(data_dir)
        if ray_address is None:  # a cluster has its own
            DEVICE(own_device, "device")
        use_ray = on_ray(ray, ray_address, workers)
        taken = f"another process is training in {out}; wait for it, or choose another folder."
        with only_one(out, taken) if is_first else nullcontext():
            if use_ray:
                result = execute_on_ray(settings, out, place, workers, ray_address, device)
            else:
                result = execute(
                    settings, out, place, keep_model=True, progress=True, device=own_device
                )
        if result.settings != settings:
            raise UsageError(f"{out} holds the result of another run; choose another folder.")
    if not is_first:
        return
    table = Table(title=f"{dataset}, {model}, {method}, bags of {settings.bag_size}")
    for column in ("best epoch chosen by", "epoch", "validation accuracy", "test accuracy"):
        table.add_column(column, justify="right")
    for select in ("accuracy", "bag_loss"):
        row = result.best_row(select)
        accuracies = (f"{row[f'{part}_accuracy']:.2%}" for part in ("val", "test"))
        table.add_row(select, f"{row['epoch']:.0f}", *accuracies)
    console.print(table)
    console.print(f"{result.seconds:.0f} seconds of training; everything else is in {out}")


@app.command(rich_help_panel=EXPERIMENTS)
def sweep(
    file: Annotated[Path, typer.Argument(help="TOML file; see docs/sweeps.md.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs.")],
    processes: Annotated[
        int,
        typer.Option(
            help="Number of runs at the same time, each with one thread. 0: one for each core."
        ),
    ] = 0,
    ray: Ray = False,
    ray_address: RayAddress = None,
    done: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder with results (also exported ones) that need not be run again. Can be "
            "repeated."
        ),
    ] = None,
    device: Device = "cpu",
    data_dir: DataDir = None,
) -> None:
    """Run all runs of a sweep: finished ones are skipped, interrupted ones resume."""
    from bagwise.paper.ray_backend import ray_backend
    from bagwise.paper.sweep import local_backend, run_sweep, take_over
    from bagwise.paper.sweep_file import read_sweep
    from bagwise.training.devices import DEVICE

    with user_errors(GOES_ON):
        plan = read_sweep(file)
        place = None if data_dir is None else str(data_dir)
        if on_ray(ray, ray_address, None):
            backend = ray_backend(ray_address, processes or None, device)
        else:
            DEVICE(device, "device")  # a cluster has its own
            backend = local_backend(processes or os.cpu_count() or 1, device)
        if done:
            taken = take_over(plan, read_some(done), out)
            console.print(f"{taken} runs were done before, in {', '.join(map(str, done))}")
        report = run_sweep(plan, out, place, backend)
    console.print(f"{len(report.done)} runs done, {len(report.failed)} failed, in {out}")
    for run, error in report.failed.items():
        console.print(f"  {run.name}: {error}", highlight=False, soft_wrap=True)
    if report.failed:
        raise typer.Exit(1)


@app.command(rich_help_panel=EXPERIMENTS)
def table(
    runs: Runs,
    format: Annotated[TableFormat, typer.Option(help="Format of the table.")] = TableFormat.text,
    select: Annotated[
        Selection,
        typer.Option(help="Criterion by which validation chooses epochs and learning rates."),
    ] = Selection.accuracy,
    paper: Annotated[bool, typer.Option("--paper", help="Add the paper's figures.")] = False,
    gap: Annotated[
        bool, typer.Option("--gap", help="Show the distance to supervised learning.")
    ] = False,
) -> None:
    """Print results in the paper's layout: test accuracy, mean and standard deviation over seeds.

    The best figure of each column is marked. A filled circle means that the best proposed method is
    significantly better than this baseline, an empty circle that it is worse (paired t-test, 5%).
    """
    from bagwise.paper.accuracy_table import key, render
    from bagwise.paper.datasets import published_name

    with user_errors():
        blocks = _blocks(runs, select)
        shown = [render(block, format.value, paper, gap) for block in blocks]
    for text in shown:
        typer.echo(text)
    if format in (TableFormat.text, TableFormat.markdown):
        raw = any(published_name(block.dataset) != block.dataset for block in blocks)
        typer.echo(key(format.value, paper, select.value, raw, gap))
    for note in (note for block in blocks for note in block.notes()):
        typer.echo(f"Note: {note}", err=True)


@app.command(rich_help_panel=EXPERIMENTS)
def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")],
    select: Annotated[
        Selection, typer.Option(help="Criterion by which validation chooses learning rates.")
    ] = Selection.accuracy,
    force: Force = False,
) -> None:
    """Draw the paper's figures from runs: training, weights and test accuracy by epoch.

    Earlier figures are replaced; other files only with --force.
    """
    from bagwise.paper.figures import draw_figures

    with user_errors():
        for path in draw_figures(_blocks(runs, select), out, force):
            typer.echo(path)


@app.command(rich_help_panel=EXPERIMENTS)
def export(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="Folder for runs.csv and epochs.csv.")],
    force: Force = False,
) -> None:
    """Export runs to two CSV files, which `table` and `figures` can read.

    runs.csv contains settings, chosen epochs, accuracies, seconds and versions; epochs.csv contains
    the histories. Earlier exports are replaced; other files of these names only with --force.
    """
    from bagwise.paper.export import export_runs
    from bagwise.storage.locks import only_one

    with user_errors():
        results = read_some(runs)
        with only_one(out, f"another process is exporting to {out}; wait for it."):
            for path in export_runs(results, out, force):
                typer.echo(path)


def _blocks(runs: list[Path], select: Selection) -> list[Block]:
    from bagwise.paper.accuracy import collect

    return collect(read_some(runs), select.value)


def read_some(runs: list[Path]) -> list[RunResult]:
    """The results below folders; none below one of them is an error."""
    from bagwise.paper.export import read_runs
    from bagwise.paper.run import without_copies

    found = []
    for folder in runs:
        results = read_runs(folder)
        if not results:
            raise UsageError(
                f"there is no result below {folder}; give the --out folder of a sweep."
            )
        found += [(str(folder), result) for result in results]
    return without_copies(found)
