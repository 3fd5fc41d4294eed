"""Tables, label files and effects in English: for the terminal, notebooks and pages alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bagwise.wording import counted

if TYPE_CHECKING:
    from bagwise.tables.encode.columns import LeftOut, Surprises
    from bagwise.tables.use.effects import Effect
    from bagwise.tables.use.evaluate import Scores

_UNITS = {
    "boolean": "true instead of false",
    "date": "a day",
    "log": "1 in the logarithm",
    "level": "this value or a higher one",
    "shared": "one of many values",
}
_NEW = {
    "unseen": "a category not seen in training.",
    "missing": "no value; all training rows had one.",
    "infinite": "an infinite value, which is read as missing.",
    "far": "an extreme value, which is read as the nearest ordinary one.",
}
_KINDS = {
    "counts": "counts, some of which are not known",
    "ranges": "ranges of counts",
    "sample": "counts of larger groups, of which the rows are a random sample",
}


def unit(effect: Effect) -> str:
    """What the effect per unit is of."""
    if effect.unit == "numeric":
        return f"1{effect.sign}"
    return _UNITS.get(effect.unit, "this value")


def left_out(why: LeftOut) -> str:
    """Why a column is left out."""
    return {
        "empty": "no row has a value",
        "constant": f"always {why.value}",
        "row_number": "it numbers the rows; name it among the features to use it",
        "unique_text": "almost every row has a different text",
        "type": f"its type, {why.value}, cannot be used",
        "as_written": why.value,
    }[why.reason]


def proved(n: int, bags: int) -> str:
    """Of how many bags the probabilities given the counts are proved.

    >>> proved(28, 30)
    'Probabilities are proved to within 1e-6 in 28 of 30 bags; in the others they are approximate.'
    """
    which = f"all {counted(bags, 'bag', 'bags')}" if n == bags else f"{n:,} of {bags:,} bags"
    rest = "." if n == bags else "; in the others they are approximate."
    return f"Probabilities are proved to within 1e-6 in {which}{rest}"


def surprises(found: Surprises) -> list[str]:
    """What rows have that training rows did not, a sentence for each column."""
    return [
        f"{name}: {counted(n, 'row has', 'rows have')} {words}"
        for kind, words in _NEW.items()
        for name, n in getattr(found, kind).items()
        if n
    ]


def scores(found: Scores) -> list[str]:
    """How good predictions are, and what is easy to reach."""
    auc = "none" if math.isnan(found.macro_auc) else f"{found.macro_auc:.4f}"
    lines = [
        f"{counted(found.n, 'row', 'rows')}: accuracy {found.accuracy:.2%}, "
        f"log loss {max(found.log_loss, 0.0):.4f}, AUC {auc} (mean of the classes), "
        f"expected calibration error {found.calibration_error:.4f}",
        f"For comparison: always the most frequent class, accuracy {found.most_frequent:.2%}; "
        f"the overall shares for every row, log loss {found.constant_log_loss:.4f}",
    ]
    if found.unlabeled:
        said = counted(found.unlabeled, "row has no label and is", "rows have no label and are")
        lines.append(f"{said} left out.")
    return lines


def label_numbers(spec: Mapping[str, Any]) -> str:
    """What the numbers of a label file are, from the codes of `LabelSpec.to_json`.

    >>> label_numbers({"kind": "noisy", "noise": "discrete-laplace", "width": 4, "clipped": True})
    'noisy counts, discrete Laplace noise of width 4, clipped at 0'
    >>> label_numbers({"kind": "rounded", "decimals": 0, "percent": True})
    'percentages rounded to whole numbers'
    """
    kind = spec.get("kind")
    if kind == "noisy":
        discrete, _, family = str(spec["noise"]).rpartition("-")
        noise = f"{discrete} {family.title()}".strip()
        widths = list(_flat(spec["width"]))
        low, high = min(widths), max(widths)
        width = f"width {low:g}" if low == high else f"widths {low:g} to {high:g}"
        return f"noisy counts, {noise} noise of {width}" + ", clipped at 0" * bool(
            spec.get("clipped")
        )
    if kind == "rounded":
        decimals = spec.get("decimals", 0)
        to = counted(decimals, "decimal", "decimals") if decimals else "whole numbers"
        return f"{'percentages' if spec.get('percent') else 'shares'} rounded to {to}"
    return _KINDS.get(kind or "", "counts, some of which are not known")


def _flat(width: Any) -> list[float]:
    return [x for part in width for x in _flat(part)] if isinstance(width, list) else [width]
