"""Columns of survey weights, which say how many others a row stands for."""

from __future__ import annotations

import re

import numpy as np

from bagwise.tables.encode.columns import Floats

_SURE = re.compile(
    r"(survey|sampl(e|ing)|design|final|person|pers|household|hh|pop(ulation)?|prob(ability)?"
    r"|inverse_prob(ability)?|case|respondent|replicate|post_?strat(ification)?|raking|p)"
    r"_?(weights?|wei|wghts?|wgts?|wts?)|fnlwgt|perwt|hhwt|wtfinl|w_f[a-z]*wt|wgts?|weighting"
    r"|(expansion|weighting|grossing)_?factors?|factor_?(de_?)?expansi[oó]n|ipw"
)
_MAYBE = re.compile(r"(weights?|wts?|w)")  # of a body, of a car, or of a survey
_FEW = 10


def looks_like_weights(name: str, values: Floats) -> bool:
    """Whether a column has survey weights, by its name and what it holds.

    Weights are positive and differ. Where the name alone could be that of a body's weight, only a
    mean of 1, to which weights are often scaled, tells.

    >>> kilograms = np.linspace(50, 110, 40)
    >>> looks_like_weights("weight", kilograms), looks_like_weights("weight", kilograms / 80)
    (False, True)
    >>> looks_like_weights("Sampling Weight", 10 * kilograms)
    True
    """
    plain = re.sub(r"[^\w]+", "_", name.strip().lower()).strip("_")
    if len(np.unique(values)) <= _FEW or (values < 0).any():
        return False
    if _SURE.fullmatch(plain):
        return True
    return bool(_MAYBE.fullmatch(plain)) and abs(float(values.mean()) - 1) < 0.005


def are_counts(values: Floats) -> bool:
    """Whether such a column may as well say how many identical rows a row stands for.

    >>> are_counts(np.array([1.0, 20.0])), are_counts(np.array([1.5, 20.0]))
    (True, False)
    """
    return bool((values == np.rint(values)).all() and (values >= 1).all())
