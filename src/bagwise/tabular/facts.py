"""What a fit found, for the terminal and the report, and fit.json, which keeps it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, TypeVar

from bagwise.storage.schema import (
    Check,
    any_number,
    anything,
    list_of,
    maybe,
    number,
    record,
    text,
    whole,
    wrong,
)

FORMAT = 1
Made = TypeVar("Made")


@dataclass(frozen=True)
class Histogram:
    """Numbers of bags by size.

    Attributes:
        counts: of the bags in each range.
        edges: of the ranges, one more.
    """

    counts: Sequence[int]
    edges: Sequence[float]


@dataclass(frozen=True)
class BagSizes:
    """How many rows the bags have."""

    smallest: int
    median: float
    largest: int
    histogram: Histogram


@dataclass(frozen=True)
class DataFacts:
    """What was learnt from.

    Attributes:
        files: of the table.
        bag_columns: that say which bag a row is in.
        rows: of the table.
        rows_used: those in a bag whose counts are known.
        n_bags: that were used.
        bags_left_out: how many only one of the files has.
        bags_left_out_names: of the first of these.
        classes: the class labels.
        shares: (C,) of all rows that were used.
        sizes: of the bags.
        rounding: largest difference between a proportion as given and one of the counts.
        n_features: encoded columns.
    """

    files: Sequence[str]
    bag_columns: Sequence[str]
    rows: int
    rows_used: int
    n_bags: int
    bags_left_out: int
    bags_left_out_names: Sequence[str]
    classes: Sequence[str]
    shares: Sequence[float]
    sizes: BagSizes
    rounding: float
    n_features: int


@dataclass(frozen=True)
class FitSettings:
    """What was chosen or given: `lr` and `epochs` where the model was trained by gradient descent,
    `ridge` where it was fitted by maximum likelihood.
    """

    method: str
    engine: str
    model: str
    lr: float | None
    epochs: int | None
    seed: int
    ridge: float | None = None

    def in_words(self) -> str:
        """What was chosen, for people."""
        if self.lr is None:
            return f"{self.model}, by maximum likelihood with ridge {self.ridge:.3g}"
        return f"{self.model}, {self.method}, learning rate {self.lr:g}, {self.epochs} epochs"


class Tried(NamedTuple):
    """A candidate, what was tried in words, and its loss on held-out bags."""

    model: str
    setting: str
    bag_loss: float


@dataclass(frozen=True)
class CurvePoint:
    """An epoch: the training loss, and the loss of held-out bags, where they are known."""

    epoch: float
    train: float | None = None
    held_out: float | None = None


class BinOfBags(NamedTuple):
    """Bags with about the same predicted proportion of a class."""

    predicted: float
    true: float
    instances: int


@dataclass(frozen=True)
class HeldOutBag:
    """A bag with its true and predicted proportions, (C,) each."""

    bag: str
    size: int
    true: Sequence[float]
    predicted: Sequence[float]


@dataclass(frozen=True)
class HeldOutFacts:
    """How well bags are fitted that the model had not seen.

    Attributes:
        n_bags: that were held out.
        n_instances: in these.
        log_likelihood: mean log P(S|X) per instance.
        baseline: the same where every instance has the overall shares.
        gain_error: standard error over bags of the difference of the two.
        correlation: (C,) of predicted and true proportions; None where they do not vary.
        error: (C,) mean absolute difference of these.
        coverage: share of the counts that lie in a central interval of the model, by its name.
        calibration: (C,) bins of bags.
        bags: at most 1000 of them.
    """

    n_bags: int
    n_instances: int
    log_likelihood: float
    baseline: float
    gain_error: float
    correlation: Sequence[float | None]
    error: Sequence[float]
    coverage: dict[str, float]
    calibration: Sequence[Sequence[BinOfBags]]
    bags: Sequence[HeldOutBag]


@dataclass(frozen=True)
class SurprisingBag:
    """A bag whose counts, (C,), are less probable than those that the model expects."""

    bag: str
    size: int
    counts: Sequence[float]
    expected: Sequence[float]
    surprise: float


@dataclass(frozen=True)
class FitFacts:
    """All that a fit says about itself.

    Attributes:
        command: how it was called; empty from Python.
        bagwise: the version.
        data: what was learnt from.
        settings: what was chosen or given.
        tried: the candidates, the chosen one first.
        folds: parts that were held out in turn; 1 where one was held out throughout.
        curve: one point an epoch.
        held_out: how well held-out bags are fitted.
        surprising: bags to look at.
        seconds: that it took.
    """

    command: str
    bagwise: str
    data: DataFacts
    settings: FitSettings
    tried: Sequence[Tried]
    folds: int
    curve: Sequence[CurvePoint]
    held_out: HeldOutFacts
    surprising: Sequence[SurprisingBag]
    seconds: float

    def is_doubtful(self) -> bool:
        """Whether what was learnt may be chance, or probabilities are too sure of themselves."""
        gain = self.held_out.log_likelihood - self.held_out.baseline
        return not gain > 2 * self.held_out.gain_error or self.is_overconfident()

    def verdict(self) -> str:
        """How far the model can be trusted, in a few sentences, judged by the held-out bags."""
        held_out = self.held_out
        gain = held_out.log_likelihood - held_out.baseline
        if gain > 2 * held_out.gain_error:
            found = "The model has learnt something."
        elif gain > 0:
            found = "What the model has learnt may be chance: do not rely on it without more bags."
        else:
            found = (
                "The model does no better than the overall shares: the features say little about "
                "the classes, or there are too few bags, or the bags are too much alike."
            )
        found += (
            f" Unseen bags have a log-likelihood per row of {held_out.log_likelihood:.4f}, "
            f"and {held_out.baseline:.4f} with every class's overall share: a difference of "
            f"{gain:+.4f}, with a standard error of {held_out.gain_error:.4f} over bags."
        )
        covered = held_out.coverage.get("95 %", 1.0)
        if self.is_overconfident():
            found += (
                f" Only {covered:.0%} of the counts lie in their 95 % intervals: bags differ in "
                "more than their rows explain, so that what holds within a bag need not be what "
                "holds between bags. Probabilities are too sure of themselves."
            )
        return found

    def is_overconfident(self) -> bool:
        """Whether clearly fewer counts lie in their 95 % intervals than should.

        By more than chance allows: two standard errors, with as many counts as bags.
        """
        covered, n = self.held_out.coverage.get("95 %", 1.0), self.held_out.n_bags
        return covered < 0.95 - 2 * math.sqrt(0.95 * 0.05 / n) - 0.02

    def by_class(self) -> list[list[str]]:
        """A row for each class: name, overall share, `error` and `correlation`, as text."""
        return [
            [name, f"{share:.1%}", f"{error:.1%}", "-" if r is None else f"{r:.2f}"]
            for name, share, error, r in zip(
                self.data.classes,
                self.data.shares,
                self.held_out.error,
                self.held_out.correlation,
                strict=True,
            )
        ]

    def to_dict(self) -> dict[str, object]:
        """The content of fit.json."""
        content = {"format": FORMAT, **asdict(self)}
        content["curve"] = [
            {name: value for name, value in point.items() if value is not None}
            for point in content["curve"]
        ]
        return content

    @classmethod
    def from_dict(cls, content: object) -> FitFacts:
        """Read the content of fit.json; what lacks or is of another form is a ValueError.

        It names the first such field. What else the file holds does not matter.
        """
        found = _checked(content)
        data, held_out = found["data"], found["held_out"]
        sizes = data["sizes"]
        histogram = _made(Histogram, sizes["histogram"])
        calibration = [[BinOfBags(*point) for point in bins] for bins in held_out["calibration"]]
        return _made(
            cls,
            found,
            data=_made(DataFacts, data, sizes=_made(BagSizes, sizes, histogram=histogram)),
            settings=_made(FitSettings, found["settings"]),
            tried=[Tried(*trial) for trial in found["tried"]],
            curve=[
                CurvePoint(point["epoch"], point.get("train"), point.get("held_out"))
                for point in found["curve"]
            ],
            held_out=_made(
                HeldOutFacts,
                held_out,
                calibration=calibration,
                bags=[_made(HeldOutBag, bag) for bag in held_out["bags"]],
            ),
            surprising=[_made(SurprisingBag, bag) for bag in found["surprising"]],
        )


def _made(kind: type[Made], content: dict[str, Any], **nested: object) -> Made:
    """A dataclass of the values under its fields' names, some of them made before."""
    names = (field.name for field in fields(kind))  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: nested.get(name, content[name]) for name in names})


def _checked(content: Any) -> dict[str, Any]:
    _with({"data": _with({"classes": list_of(text, 2)})})(content, "")
    _schema(len(content["data"]["classes"]))(content, "")
    settings = content["settings"]
    if settings["ridge"] is None:
        for name in ("lr", "epochs"):
            if settings[name] is None:
                raise wrong(None, f"settings.{name}", "a number, or one for settings.ridge")
    histogram = content["data"]["sizes"]["histogram"]
    if len(histogram["edges"]) != len(histogram["counts"]) + 1:
        raise wrong(histogram["edges"], "data.sizes.histogram.edges", "one more than counts")
    if any(b <= a for a, b in zip(histogram["edges"], histogram["edges"][1:], strict=False)):
        raise ValueError("data.sizes.histogram.edges do not grow.")
    facts: dict[str, Any] = content
    return facts


def _schema(C: int) -> Check:
    """What fit.json must hold where there are C classes."""
    share = number(0, 1)
    shares = list_of(share, C, C)
    amounts = list_of(number(0), C, C)
    histogram = _with({"counts": list_of(whole(), 1), "edges": list_of(number(0), 2)})
    data = {
        "files": list_of(text, 1),
        "bag_columns": list_of(text, 1),
        "rows": whole(),
        "rows_used": whole(),
        "n_bags": whole(1),
        "bags_left_out": whole(),
        "bags_left_out_names": list_of(text),
        "shares": shares,
        "sizes": _with(
            {
                "smallest": whole(1),
                "median": number(1),
                "largest": whole(1),
                "histogram": histogram,
            }
        ),
        "rounding": number(0),
        "n_features": whole(1),
    }
    settings = {
        "method": text,
        "engine": text,
        "model": text,
        "lr": maybe(number(0)),
        "epochs": maybe(whole(1)),
        "seed": whole(),
        "ridge": maybe(number(0)),
    }
    held_out = {
        "n_bags": whole(1),
        "n_instances": whole(1),
        "log_likelihood": number(),
        "baseline": number(),
        "gain_error": number(0, math.inf),
        "correlation": list_of(maybe(number(-1.01, 1.01)), C, C),
        "error": shares,
        "coverage": record({}, others=share),
        "calibration": list_of(list_of(list_of(number(0), 3, 3), 1), C, C),
        "bags": list_of(
            _with({"bag": text, "size": whole(1), "true": shares, "predicted": shares}), 1
        ),
    }
    surprising = {
        "bag": text,
        "size": whole(1),
        "counts": amounts,
        "expected": amounts,
        "surprise": number(),
    }
    return _with(
        {
            "command": text,
            "bagwise": text,
            "seconds": number(0),
            "folds": whole(1),
            "data": _with(data),
            "settings": _with(settings),
            "tried": list_of(_trial, 1),
            "curve": list_of(record({"epoch": number(0)}, others=number())),
            "held_out": _with(held_out),
            "surprising": list_of(_with(surprising)),
        }
    )


def _with(needed: dict[str, Check]) -> Check:
    return record(needed, others=anything)


def _trial(value: Any, place: str) -> None:
    list_of(anything, 3, 3)(value, place)
    for index, check in enumerate((text, text, any_number)):
        check(value[index], f"{place}[{index}]")
