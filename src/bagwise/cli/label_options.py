"""What the numbers of a label file are, from the options of the command line."""

from __future__ import annotations

import math
from contextlib import suppress

from bagwise.bags import Noise, PrivacyBudget
from bagwise.errors import InputError, UsageError
from bagwise.labels.label_spec import NOISES, LabelSpec

_EXPECTED = "laplace:4, discrete-laplace:4, gaussian:2.5 or discrete-gaussian:2.5"
_OF_BUDGET = {
    "laplace": PrivacyBudget.laplace,
    "discrete-laplace": PrivacyBudget.discrete_laplace,
    "gaussian": PrivacyBudget.gaussian,
}
_FIELDS = {
    "epsilon": float,
    "delta": float,
    "change": str,
    "groupings": int,
    "rows_per_person": int,
}


def label_spec_of(labels_are: str, noise: str | None = None, clipped: bool = False) -> LabelSpec:
    """What numbers are, from the options --labels-are, --noise and --clipped.

    >>> label_spec_of("noisy", "laplace:4").to_json()
    {'kind': 'noisy', 'noise': 'laplace', 'width': 4.0, 'clipped': False}
    >>> label_spec_of("auto", "laplace:epsilon=1,groupings=2").noise
    Laplace(4.0)
    """
    if noise is None:
        if labels_are == "noisy":
            raise UsageError(f"--labels-are noisy needs --noise, which says how: {_EXPECTED}.")
        if clipped:
            raise UsageError(
                "--clipped is about noisy counts; say with --noise what noise they have."
            )
        return LabelSpec.of(str(labels_are))  # type: ignore[arg-type]  # one of the words
    if labels_are not in ("auto", "noisy"):
        raise UsageError(
            f"--noise is given, but --labels-are is {labels_are}; noise is in counts "
            "(--labels-are noisy)."
        )
    kind, _, text = noise.strip().lower().partition(":")
    if "=" in text:
        return LabelSpec.of(_noise_of_budget(kind, text, clipped))
    with suppress(ValueError):
        width = float(text)
        if kind in NOISES and 0 < width < math.inf:
            return LabelSpec.of(NOISES[kind](width, clipped))
    raise UsageError(
        f"--noise is {noise!r}; {_EXPECTED} is expected: the kind, and its scale or standard "
        "deviation, a positive number."
    )


def _noise_of_budget(kind: str, text: str, clipped: bool) -> Noise:
    """Noise from a privacy budget such as epsilon=1,delta=1e-6."""
    parts = dict(part.strip().partition("=")[::2] for part in text.split(","))
    fields = {name.replace("-", "_"): value for name, value in parts.items()}
    if kind not in _OF_BUDGET or "epsilon" not in fields or not fields.keys() <= _FIELDS.keys():
        raise UsageError(
            f"--noise is '{kind}:{text}'; {', '.join(_OF_BUDGET)} and a privacy budget such as "
            "epsilon=1,delta=1e-6,groupings=2 are expected. Its fields are "
            f"{', '.join(_FIELDS).replace('_', '-')}."
        )
    try:
        budget = PrivacyBudget(**{name: _FIELDS[name](value) for name, value in fields.items()})
        return _OF_BUDGET[kind](budget, clipped=clipped)
    except ValueError as error:
        what = str(error) if isinstance(error, InputError) else "its fields are numbers."
        raise UsageError(f"--noise is '{kind}:{text}': {what}") from None
