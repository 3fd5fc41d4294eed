"""The columns that matter, for the top of a model's report."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.special import bdtr, ndtri

from bagwise.tables.use.effects import Effect
from bagwise.tables.use.importance import Importance


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
