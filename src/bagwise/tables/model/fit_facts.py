"""What a fit found, in codes and numbers; `bagwise.wording.fit_words` says it in English.

The types say what fit.json may hold: `bagwise.storage.typed_json` checks it by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from bagwise.tables.model.student_t import student_t
from bagwise.tables.model.table_facts import (
    Amount,
    Count,
    DataFacts,
    Number,
    Positive,
    Share,
    Text,
)

Verdict = Literal["learned", "chance", "nothing"]

ROUNDING = 1e-9  # of log-likelihoods per row
FEW_BAGS = 30
IDLE = 0.05  # bag effects that change log-odds by less do nothing
FEW_ROWS = 10
LARGE_BAG = 200
MUCH_ROUNDING = 0.005


@dataclass(frozen=True)
class FitSettings:
    """What was chosen or given.

    `lr` and `epochs` are of models trained by gradient descent, `ridge` of those fitted by maximum
    likelihood, `bag_effects` (tau) of those with bag effects, `joint` of those fitted to several
    groupings together, `averaged` of those that predict by means over draws of their coefficients
    (`ridge` is the most probable one), and `trust` their weight in a mixture with the overall
    shares. The model's logits were divided by `temperature`, which its weights contain.
    """

    method: Text
    engine: Text
    model: Text
    lr: Amount | None
    epochs: Positive | None
    seed: Count
    ridge: Amount | None
    temperature: Annotated[float, Meta(gt=0, lt=100)] = 1.0
    bag_effects: Amount | None = None
    joint: bool = False
    averaged: bool = False
    trust: Share = 1.0

    @property
    def log_odds(self) -> float | None:
        """How much log-odds vary between bags, where they have effects; see `log_odds`."""
        return None if self.bag_effects is None else log_odds(self.bag_effects)


def log_odds(tau: float) -> float:
    """How much the log-odds of two classes vary between bags, the standard deviation of each
    class's effect being tau: they are a difference of two.
    """
    return math.sqrt(2) * tau


@dataclass(frozen=True)
class BagsDiffer:
    """What the test for bag effects found.

    Attributes:
        tau: the standard deviation of an effect of each bag and class.
        p_value: of the likelihood-ratio test that there is none.
    """

    tau: Amount
    p_value: Share

    @property
    def log_odds(self) -> float:
        """See `log_odds`."""
        return log_odds(self.tau)

    @property
    def clearly(self) -> bool:
        """Whether that is more than chance, and large enough to matter."""
        return self.p_value < 0.01 and self.log_odds > 0.2


@dataclass(frozen=True)
class ContextFacts:
    """What columns of bags, beside those of rows, are good for.

    Attributes:
        columns: their names.
        gain: by how much the log-likelihood per row of held-out bags is above that of the same
            model without them; None where that was not tried.
        gain_error: its standard error over bags.
    """

    columns: Sequence[Text]
    gain: Number | None = None
    gain_error: Amount | None = None

    @property
    def helps(self) -> bool | None:
        """Whether held-out bags are more likely with them, by more than chance explains."""
        if self.gain is None or self.gain_error is None:
            return None
        return self.gain > 2 * self.gain_error


@dataclass(frozen=True)
class Tried:
    """A candidate, and its loss on held-out bags.

    Attributes:
        model: its name.
        bag_loss: -log P(S|X) per row of held-out bags; NaN if training diverged.
        ridge: see `FitSettings`, also for the next two.
        lr: learning rate.
        epochs: passes over the bags.
        tau: of bag effects.
        folds: on which it was tried, if fewer than all.
        some_bags: whether it was tried on some of the bags only.
        joint: see `FitSettings`.
    """

    model: Text
    bag_loss: float
    ridge: Amount | None = None
    lr: Amount | None = None
    epochs: Positive | None = None
    tau: Amount | None = None
    folds: Positive | None = None
    some_bags: bool = False
    joint: bool = False


@dataclass(frozen=True)
class CurvePoint:
    """An epoch: the training loss, and the loss of held-out bags, where they are known."""

    epoch: Amount
    train: Number | None = None
    held_out: Number | None = None


class BinOfBags(NamedTuple):
    """Bags with about the same predicted proportion of a class.

    Attributes:
        predicted: mean over rows.
        true: likewise.
        instances: rows in these bags.
        error: standard error of `true` if the model is right; None where it is not known.
    """

    predicted: Amount
    true: Amount
    instances: Amount
    error: Amount | None = None


@dataclass(frozen=True)
class HeldOutBag:
    """A bag with its true and predicted proportions, (C,) each; None where nobody knows it."""

    bag: Text
    size: Positive
    true: Sequence[Share | None]
    predicted: Sequence[Share]


@dataclass(frozen=True)
class Coverage:
    """The share of counts that lie in the model's central intervals of a level."""

    level: Share
    share: Share


@dataclass(frozen=True)
class HeldOutFacts:
    """How well bags are fitted that the model has not seen.

    Attributes:
        n_bags: held out.
        n_instances: rows in these.
        log_likelihood: mean log P(S|X) per row.
        baseline: the same where every row has the overall shares, and where the model has bag
            effects, with such effects.
        gain_error: standard error over bags of the difference of the two.
        correlation: (C,) of predicted and true proportions; None where they do not vary.
        error: (C,) mean absolute difference of these; None where no bag's proportion is known.
        baseline_error: (C,) the same of the overall shares.
        coverage: of intervals of several levels; empty where no counts are exact.
        calibration: (C,) bins of bags; empty where `bags` are.
        bags: at most 1000 of them; none where the counts of single bags were left out.
        covered_bags: with exact counts, which `coverage` is about; None for all.
        degrees: of freedom of `gain_error`: one less than the bags, which count less where they
            share rows; None in old models.
    """

    n_bags: Positive
    n_instances: Positive
    log_likelihood: Number
    baseline: Number
    gain_error: Annotated[float, Meta(ge=0)]
    correlation: Sequence[Annotated[float, Meta(ge=-1.01, le=1.01)] | None]
    error: Sequence[Share | None]
    baseline_error: Sequence[Share | None]
    coverage: Sequence[Coverage]
    calibration: Sequence[Sequence[BinOfBags]]
    bags: Sequence[HeldOutBag]
    covered_bags: Count | None = None
    degrees: Amount | None = None

    @property
    def gain(self) -> float:
        """By how much the log-likelihood per row is above the baseline."""
        return self.log_likelihood - self.baseline

    @property
    def gain_interval(self) -> tuple[float, float]:
        """The 95% interval of `gain`, by Student's t; of two bags, which may agree by chance to the
        last digit, it has no ends.
        """
        degrees = self.n_bags - 1 if self.degrees is None else self.degrees
        reach = math.inf if degrees < 2 else student_t(degrees) * self.gain_error
        return self.gain - reach, self.gain + reach

    def covered(self, level: float) -> float | None:
        """The share of counts in intervals of this level, where it is known."""
        return next((c.share for c in self.coverage if c.level == level), None)


@dataclass(frozen=True)
class SurprisingBag:
    """A bag whose counts, (C,), are less probable than those that the model expects."""

    bag: Text
    size: Positive
    counts: Sequence[Amount]
    expected: Sequence[Amount]
    surprise: Number


@dataclass(frozen=True)
class FitFacts:
    """All that a fit says about itself.

    Attributes:
        command: how it was called; empty from Python.
        bagwise: the version.
        data: what was learned from.
        settings: what was chosen or given.
        tried: the candidates, the chosen one first.
        folds: in which bags were held out in turn; 1 if the same bags were held out throughout.
        curve: one point per epoch.
        held_out: how well held-out bags are fitted.
        surprising: bags to check.
        seconds: it took.
        bags_differ: for a linear model without bag effects, whether it should have them.
        context: the columns of bags that it learned from; None without.
    """

    command: Text
    bagwise: Text
    data: DataFacts
    settings: FitSettings
    tried: Annotated[Sequence[Tried], Meta(min_length=1)]
    folds: Positive
    curve: Sequence[CurvePoint]
    held_out: HeldOutFacts
    surprising: Sequence[SurprisingBag]
    seconds: Amount
    bags_differ: BagsDiffer | None = None
    context: ContextFacts | None = None

    def without_counts(self) -> FitFacts:
        """The same without the counts of single bags: held-out ones, bins of them, odd ones."""
        bins: list[list[BinOfBags]] = [[] for _ in self.data.classes]
        held_out = replace(self.held_out, bags=[], calibration=bins)
        return replace(self, held_out=held_out, surprising=[])

    @property
    def has_counts(self) -> bool:
        """Whether the counts of single bags are there."""
        return bool(self.held_out.bags)

    @property
    def verdict(self) -> Verdict:
        """Whether the model is better than the overall shares: clearly (the 95% interval of the
        gain is above 0), perhaps by chance, or not at all, which is also the verdict of a model
        that had to be pulled toward them.
        """
        if self.held_out.gain_interval[0] > ROUNDING:
            return "learned"
        is_closer = self.held_out.gain > ROUNDING and self.settings.trust == 1
        return "chance" if is_closer else "nothing"

    @property
    def is_overconfident(self) -> bool:
        """Whether clearly fewer counts lie in their 95% intervals than should.

        By more than chance allows: two standard errors, with as many counts as bags.
        """
        covered = self.held_out.covered(0.95)
        n = self.held_out.covered_bags or self.held_out.n_bags
        return covered is not None and covered < 0.95 - 2 * math.sqrt(0.95 * 0.05 / n) - 0.02

    @property
    def is_doubtful(self) -> bool:
        """Whether what was learned may be chance, or probabilities are too sure of themselves."""
        return self.verdict != "learned" or self.is_overconfident

    @property
    def bags_vary(self) -> bool | None:
        """Whether bags differ by more than their rows explain; None where it was not tested."""
        if self.bags_differ is not None:
            return self.bags_differ.clearly
        return None if self.settings.bag_effects is None else False

    @property
    def bag_effects(self) -> Literal["idle", "advised", "possible"] | None:
        """What bag effects do, or might do, if there is something to say about it."""
        if self.settings.log_odds is not None:
            return "idle" if self.settings.log_odds < IDLE else None
        if self.bags_differ is not None:
            return "advised" if self.bags_differ.clearly else None
        if self.data.groupings:
            return None
        return "possible" if self.is_overconfident and not self.data.inexact_bags else None

    @property
    def coefficients(self) -> int | None:
        """How many a linear model by maximum likelihood has; None of other models."""
        if self.settings.ridge is None:
            return None
        return (self.data.n_features + 1) * (len(self.data.classes) - 1)

    @property
    def is_undetermined(self) -> bool:
        """Whether there are as many coefficients as bags (or labeled rows), or more."""
        return (self.coefficients or 0) >= max(self.data.n_bags, self.data.labeled_rows)

    @property
    def limitations(self) -> dict[str, Any]:
        """What keeps one from knowing more, by code, each with its number or names."""
        data = self.data
        coefficients = self.coefficients or 0
        shares = zip(data.classes, data.shares, strict=True)
        found = {
            "few_bags": data.n_bags if data.n_bags < FEW_BAGS else 0,
            "many_coefficients": (coefficients if data.n_bags < 2 * coefficients else 0),
            "large_bags": data.sizes.median if data.sizes.median > LARGE_BAG else 0,
            "rare_classes": [name for name, s in shares if 0 < s * data.rows_used < FEW_ROWS],
            "bags_left_out": data.bags_left_out,
            "rounding": data.rounding if data.rounding > MUCH_ROUNDING else 0,
        }
        return {code: value for code, value in found.items() if value}
