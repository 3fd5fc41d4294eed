"""What the numbers of a label file are, from the options of the command line."""

from __future__ import annotations

import math
from contextlib import suppress

from bagwise.errors import UsageError
from bagwise.labels.label_spec import NOISES, LabelSpec

_EXPECTED = "laplace:4, discrete-laplace:4, gaussian:2.5 or discrete-gaussian:2.5"


def label_spec_of(labels_are: str, noise: str | None = None, clipped: bool = False) -> LabelSpec:
    """What numbers are, from the options --labels-are, --noise and --clipped.

    >>> label_spec_of("noisy", "laplace:4").to_json()
    {'kind': 'noisy', 'noise': 'laplace', 'width': 4.0, 'clipped': False}
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
    with suppress(ValueError):
        width = float(text)
        if kind in NOISES and 0 < width < math.inf:
            return LabelSpec.of(NOISES[kind](width, clipped))
    raise UsageError(
        f"--noise is {noise!r}; {_EXPECTED} is expected: the kind, and its scale or standard "
        "deviation, a positive number."
    )
