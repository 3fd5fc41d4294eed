"""What the top of a model's report says: the columns that matter, and what limits the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import bdtr, ndtri

from bagwise.tables.model.fit_facts import FitFacts
from bagwise.tables.use.effects import Effect
from bagwise.tables.use.importance import Importance

_FEW_BAGS = 30
_FEW_ROWS = 10
_LARGE_BAG = 200
_MUCH_ROUNDING = 0.005


@dataclass(frozen=True)
class Limitations:
    """What keeps one from knowing more.

    Attributes:
        few_bags: whether there are few.
        coefficients: how many, where they are too many for the number of bags; else 0.
        large_bags: whether most are so large that their shares say little about rows.
        rare_classes: those of fewer than ten rows.
        bags_left_out: how many only one of the files has.
        rounding: the largest change of a proportion, where it matters; else 0.
    """

    few_bags: bool
    coefficients: int
    large_bags: bool
    rare_classes: list[str]
    bags_left_out: int
    rounding: float

    def __bool__(self) -> bool:
        return any(vars(self).values())


def limitations(facts: FitFacts, has_effects: bool) -> Limitations:
    """The limitations of a fit; coefficients matter where the report shows their effects."""
    data = facts.data
    coefficients = (data.n_features + 1) * (len(data.classes) - 1)
    shares = zip(data.classes, data.shares, strict=True)
    return Limitations(
        few_bags=data.n_bags < _FEW_BAGS,
        coefficients=coefficients if has_effects and data.n_bags < 2 * coefficients else 0,
        large_bags=data.sizes.median > _LARGE_BAG,
        rare_classes=[name for name, share in shares if 0 < share * data.rows_used < _FEW_ROWS],
        bags_left_out=data.bags_left_out,
        rounding=data.rounding if data.rounding > _MUCH_ROUNDING else 0,
    )


def needed_columns(importances: Sequence[Importance]) -> list[str]:
    """The columns that the model clearly needs, the most important first."""
    most = max((i.fall for i in importances), default=0)
    return [i.column for i in importances if i.low > 0 and i.fall > most / 10]


def excludes_zero(effect: Effect) -> bool:
    """Whether the 95% interval of an effect lies on one side of 0."""
    return effect.low > 0 or effect.high < 0


def clear_effects(effects: Sequence[Effect]) -> list[str]:
    """The columns whose effects are unlikely to be chance, given how many effects there are."""
    clear = [e for e in effects if excludes_zero(e)]
    n = len(effects)
    if n and bdtr(len(clear) - 1, n, 0.05) < 0.975:  # so many may be without an effect
        clear = [e for e in effects if _is_clear_among(len(effects), e)]
    return list(dict.fromkeys(e.column for e in clear))


def _is_clear_among(n: int, effect: Effect) -> bool:
    """Whether chance makes one of n effects this clear in less than 5% of reports (Bonferroni)."""
    half = (effect.high - effect.low) / 2
    needed = ndtri(0.025 / n) / ndtri(0.025)  # in halves of the 95% interval
    return bool(abs(effect.effect) > needed * half)
