"""What a fit found, for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bagwise.tables.model.bag_differences import IDLE, OFFER, BagsDiffer, log_odds
from bagwise.wording import counted


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
        files: of the table; none of a data frame.
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
        counts_are: how counts that are not exact are known, in words; empty where all are exact.
        inexact_bags: how many bags have such counts.
        labelled_rows: whose label is known.
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
    counts_are: str = ""
    inexact_bags: int = 0
    labelled_rows: int = 0

    def knowledge(self) -> str:
        """How the counts are known, in a few sentences; nothing where they are exact."""
        text = ""
        if self.counts_are:
            some = f" in {self.inexact_bags:,} of {self.n_bags:,} bags"
            text = (
                f"The counts are not exact{some * (self.inexact_bags < self.n_bags)}: known are "
                f"{self.counts_are}. The likelihood is that of what is known."
            )
        if self.labelled_rows:
            text += f" The labels of {counted(self.labelled_rows, 'row', 'rows')} are known."
        return text.strip()


@dataclass(frozen=True)
class FitSettings:
    """What was chosen or given: `lr` and `epochs` where the model was trained by gradient descent,
    `ridge` where it was fitted by maximum likelihood, `bag_effects`, tau, where bags have effects;
    the model's logits are divided by `temperature`, which its weights contain.
    """

    method: str
    engine: str
    model: str
    lr: float | None
    epochs: int | None
    seed: int
    ridge: float | None = None
    temperature: float = 1.0
    bag_effects: float | None = None

    def in_words(self) -> str:
        """What was chosen, for people."""
        if self.lr is None:
            effects = ""
            if self.bag_effects is not None:
                effects = f" with bag effects (log-odds vary by {log_odds(self.bag_effects):.2f})"
            return f"{self.model}{effects}, by maximum likelihood with ridge {self.ridge:.3g}"
        epochs = "epoch" if self.epochs == 1 else "epochs"
        return f"{self.model}, {self.method}, learning rate {self.lr:g}, {self.epochs} {epochs}"

    def temperature_in_words(self) -> str:
        """What the temperature means; nothing if it is 1."""
        if self.temperature == 1:
            return ""
        was = "too sure of itself" if self.temperature > 1 else "not sure enough of itself"
        return (
            f"The model was {was}: its log-odds are divided by {self.temperature:.2f}, under which "
            "held-out bags are clearly more probable."
        )


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
    """Bags with about the same predicted proportion of a class.

    Attributes:
        predicted: mean of the instances.
        true: likewise.
        instances: in these bags.
        error: standard error of `true` if the model is right; None where it is not known.
    """

    predicted: float
    true: float
    instances: int
    error: float | None = None


@dataclass(frozen=True)
class HeldOutBag:
    """A bag with its true and predicted proportions, (C,) each; None where nobody knows it."""

    bag: str
    size: int
    true: Sequence[float | None]
    predicted: Sequence[float]


@dataclass(frozen=True)
class HeldOutFacts:
    """How well bags are fitted that the model had not seen.

    Attributes:
        n_bags: that were held out.
        n_instances: in these.
        log_likelihood: mean log P(S|X) per instance.
        baseline: the same where every instance has the overall shares, and where the model has bag
            effects, with such effects.
        gain_error: standard error over bags of the difference of the two.
        correlation: (C,) of predicted and true proportions; None where they do not vary.
        error: (C,) mean absolute difference of these; None where no bag's proportion is known.
        coverage: share of the counts that lie in a central interval of the model, by its name;
            empty where no counts are exact.
        calibration: (C,) bins of bags.
        bags: at most 1000 of them.
        covered_bags: whose counts are exact, which `coverage` is about; None for all.
    """

    n_bags: int
    n_instances: int
    log_likelihood: float
    baseline: float
    gain_error: float
    correlation: Sequence[float | None]
    error: Sequence[float | None]
    coverage: dict[str, float]
    calibration: Sequence[Sequence[BinOfBags]]
    bags: Sequence[HeldOutBag]
    covered_bags: int | None = None


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
        bags_differ: of a linear model without bag effects, whether it should have them.
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
    bags_differ: BagsDiffer | None = None

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
        alone = "" if self.settings.bag_effects is None else " and bag effects"
        found += (
            f" Unseen bags have a log-likelihood per row of {held_out.log_likelihood:.4f}, "
            f"and {held_out.baseline:.4f} with every class's overall share{alone}: a difference of "
            f"{gain:+.4f}, with a standard error of {held_out.gain_error:.4f} over bags."
        )
        covered = held_out.coverage.get("95 %", 1.0)
        if self.is_overconfident():
            found += (
                f" Only {covered:.0%} of the counts lie in their 95 % intervals: {self._why()} "
                "Probabilities are too sure of themselves."
            )
        return found + self._about_effects()

    def _why(self) -> str:
        """Why counts do not lie in their intervals, as far as that is known."""
        if self.bags_differ is not None and self.bags_differ.clearly():
            return (
                "bags differ in more than their rows explain, so that what holds within a bag need "
                "not be what holds between bags."
            )
        few = "the model has learnt from few bags, or has the wrong form."
        if self.bags_differ is not None or self.settings.bag_effects is not None:
            return few
        return f"bags may differ in more than their rows explain, or {few}"

    def _about_effects(self) -> str:
        """What bag effects do here, or might do."""
        tau, differ = self.settings.bag_effects, self.bags_differ
        if tau is not None:
            return IDLE if log_odds(tau) < 0.05 else ""
        if differ is not None:
            return f" {differ.in_words()}{OFFER}" if differ.clearly() else ""
        return OFFER if self.is_overconfident() and not self.data.counts_are else ""

    def calibration(self) -> str:
        """How far predicted shares and intervals can be believed, in a sentence or two."""
        found = sorted(self.held_out.coverage.items(), reverse=True)
        text = ", ".join(f"{share:.0%} in those of {name}" for name, share in found)
        text = text.replace("in those", "of the held-out counts lie in their intervals", 1)
        text = f"Calibration: {text}." if found else ""
        covered = self.held_out.covered_bags
        if covered == 0:
            text = (
                "Calibration: no counts are exact, so that nobody can see whether they lie in the "
                "model's intervals."
            )
        elif covered is not None and covered < self.held_out.n_bags:
            some = "the one bag" if covered == 1 else f"the {covered:,} bags"
            text += f" That is of {some} of the label file with exact counts."
        return f"{text} {self.settings.temperature_in_words()}".strip()

    def is_overconfident(self) -> bool:
        """Whether clearly fewer counts lie in their 95 % intervals than should.

        By more than chance allows: two standard errors, with as many counts as bags.
        """
        covered, n = self.held_out.coverage.get("95 %", 1.0), self.held_out.n_bags
        n = self.held_out.covered_bags or n
        return covered < 0.95 - 2 * math.sqrt(0.95 * 0.05 / n) - 0.02

    def by_class(self) -> list[list[str]]:
        """A row for each class: name, overall share, `error` and `correlation`, as text."""
        return [
            [
                name,
                f"{share:.1%}",
                "-" if error is None else f"{error:.1%}",
                "-" if r is None else f"{r:.2f}",
            ]
            for name, share, error, r in zip(
                self.data.classes,
                self.data.shares,
                self.held_out.error,
                self.held_out.correlation,
                strict=True,
            )
        ]
