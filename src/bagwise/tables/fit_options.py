"""What can be chosen about a fit: the columns, the model, and where the work is done."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from bagwise.checks import flag, one_of, whole
from bagwise.errors import InputError, Option, UsageError
from bagwise.limits import LIMITS, Limits
from bagwise.storage.uris import refuse_uri
from bagwise.tables.encode.learn_columns import Ordered
from bagwise.tables.labels.counts import Counts
from bagwise.tables.read.frames import is_frame
from bagwise.tables.read.source import Table
from bagwise.tables.search.step_by_step import StepByStep

MODELS = ("linear", "mlp")


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of a table are learned from, and how.

    Attributes:
        features: the columns to learn from; empty for all but the bag's.
        exclude: columns not to learn from.
        categorical: columns of numbers that are categories.
        ordered: columns of ordered categories, with their levels.
        row_labels: a column with the labels of some rows, empty where they are not known. A labeled
            row without a bag is a bag of its own. It is not a feature.
        context: columns of bags to learn from, see `tables.labels.bag_context`.
    """

    features: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    ordered: Ordered = field(default_factory=dict)
    row_labels: str | None = None
    context: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ModelOptions:
    """Which models are tried.

    Attributes:
        model: "linear", "mlp", or "auto", the better one on held-out bags.
        bag_effects: fit a linear model with an intercept for each bag, whose variance is fitted
            too, see `bagwise.likelihood.choose_bag_effects`.
        joint: with several groupings, learn from all of them together, see
            `bagwise.likelihood.fit_joint`; None if held-out bags prefer it.
        training: how models are trained step by step, and the random seed.
    """

    model: str = "auto"
    bag_effects: bool = False
    joint: bool | None = None
    training: StepByStep = field(default_factory=StepByStep)

    def __post_init__(self) -> None:
        try:
            one_of("auto", *MODELS)(self.model, Option("model"))
        except InputError as error:
            raise UsageError(*error.args) from None
        whole(0, 2**32 - 1)(self.training.seed, Option("seed"))


@dataclass(frozen=True)
class WorkOptions:
    """Where a fit works, and with what.

    Attributes:
        out: the folder for the model. A hidden folder beside it keeps finished work until the model
            is saved, so that an interrupted fit resumes. None writes nothing.
        memory: bytes that may be used for the rows, which are then sorted by bag into a file and
            read from there; None keeps all rows in memory. Each worker may use as many.
        store: the folder for that file, kept for another fit to the same table; None for a hidden
            one beside `out`, removed when the model is saved. Where workers share the rows, one on
            each machine for those of its workers, which are removed at the end.
        progress: show progress bars, and say where rows are sorted into.
        ray: within it there is Ray, see `bagwise.ray_cluster.cluster`. Its workers share the rows
            of files, see `spreads_rows`. Otherwise candidates that are trained step by step are
            trained there, several at a time. The result is the same.
        workers: how many share the rows; None for one for each core of Ray.
        limits: sizes that decide how the table is read and fitted.
        command: how the fit was called, for the report.
        keep_counts: whether the model keeps the counts of single bags, for its report and its table
            of held-out bags; see `FittedTable.without_counts`.
    """

    out: Path | None = None
    memory: int | None = None
    store: Path | None = None
    progress: bool = False
    ray: AbstractContextManager[int] | None = None
    workers: int | None = None
    limits: Limits = LIMITS
    command: str = ""
    keep_counts: bool = True

    def __post_init__(self) -> None:
        flag(self.keep_counts, "keep_counts")
        for folder in (self.out, self.store):
            if folder is not None:
                refuse_uri(folder)
        if self.workers is not None:
            whole(1, 2**20)(self.workers, Option("workers"))


def spreads_rows(data: Table, model: ModelOptions, work: WorkOptions) -> bool:
    """Whether the workers of Ray share the rows, and none has all of them: where memory is limited,
    and where the model is linear.
    """
    is_linear = model.model == "linear" and not model.training.is_asked_for
    return work.ray is not None and not is_frame(data) and (is_linear or work.memory is not None)


def refuse_when_spread(counts: Counts, columns: ColumnOptions) -> None:
    """Refuse what cannot be learned from rows that workers share."""
    for what, is_given in (
        ((Option("weights"),), counts.weights is not None),
        ((Option("row_labels"),), columns.row_labels is not None),
        ((Option("context"),), bool(columns.context)),
    ):
        if is_given:
            raise InputError(
                "with ",
                Option("ray"),
                ", the rows are spread over workers, and ",
                *what,
                " needs them together. Leave one of the two out.",
            )


def refuse_together(
    counts: Counts, columns: ColumnOptions, model: ModelOptions, work: WorkOptions
) -> None:
    """Refuse what cannot be done with several groupings, weighted rows, or columns of bags."""
    several = len(counts.groupings) > 1
    if columns.context and (several or work.memory is not None):
        what = "several groupings" if several else Option("memory")
        raise InputError(Option("context"), " is not possible with ", what, "; leave one out.")
    if model.joint is not None and not several:
        raise InputError(Option("joint"), " is about several groupings; leave it out.")
    what = "several groupings" if several else "rows with weights"
    for option, is_given in (
        (Option("memory"), work.memory is not None and not counts.is_plain),
        (Option("ray"), work.ray is not None and several),
        (Option("model", "mlp"), model.model == "mlp" and several),
        (Option("bag_effects", True), model.bag_effects and several),
    ):
        if is_given:
            raise InputError(f"{what} cannot be learned from with ", option, "; leave it out.")
    if several and model.training.is_asked_for:
        raise InputError(
            "several groupings are learned from by maximum likelihood; leave out the options of "
            "training step by step (method, engine, lr, epochs)."
        )
