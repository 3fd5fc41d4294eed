"""How counts that are not exact are known, in words."""

from __future__ import annotations

import numpy as np

from bagwise.labels.label_spec import NOISES, LabelSpec


def in_words(spec: LabelSpec) -> str:
    """How counts are known that are not exact.

    >>> in_words(LabelSpec("rounded", decimals=0, percent=True))
    'percentages rounded to whole numbers'
    """
    if spec.noise is not None:
        (kind,) = (name for name, made in NOISES.items() if made is type(spec.noise))
        kind = kind.replace("-", " ").replace("laplace", "Laplace").replace("gaussian", "Gaussian")
        widths = np.asarray(spec.noise.width, dtype=np.float64)
        least, most = widths.min(), widths.max()
        of = f"width {least:g}" if least == most else f"widths {least:g} to {most:g}"
        return f"noisy counts, {kind} noise of {of}" + ", clipped at 0" * spec.noise.clipped
    if spec.kind == "rounded":
        what = "percentages" if spec.percent else "shares"
        decimals = spec.decimals or 0
        to = f"{decimals} decimal{'s' * (decimals > 1)}" if decimals else "whole numbers"
        return f"{what} rounded to {to}"
    if spec.kind == "ranges":
        return "ranges of counts"
    if spec.kind == "sample":
        return "counts of larger groups, of which the rows are a random sample"
    return "counts, some of which are not known"
