"""What the numbers of a label file are, from the options of the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from bagwise.bags import Noise, PrivacyBudget
from bagwise.errors import InputError, UsageError
from bagwise.labels.label_spec import NOISES, LabelSpec
from bagwise.tables.labels.counts import Counts, counts_of

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


def counts_given(
    bag: Sequence[str] | None,
    labels: Sequence[str] | None,
    labels_are: Sequence[str] | None = None,
    noise: str | None = None,
    clipped: bool = False,
    skip_unmatched: bool = False,
) -> Counts | None:
    """Where the counts of rows' bags are, from the options; None if they are not given.

    --bag and --labels are repeated for several groupings of the same rows.

    >>> counts_given(["ward", "age"], ["wards.csv", "ages.csv"]).others[0].labels
    'ages.csv'
    """
    bags, tables = list(bag or []), list(labels or [])
    if len(bags) != len(tables):
        if not (bags and tables):
            raise UsageError("--bag and --labels are given together, or neither of them is.")
        raise UsageError(
            f"--bag is given {_times(bags)} and --labels {_times(tables)}; give both for each "
            "grouping of the rows. Several columns of one bag have commas between."
        )
    specs = label_specs_of(labels_are, noise, clipped, max(len(bags), 1))
    if not bags:
        return None
    if len(bags) == 1:
        return counts_of(bags[0], tables[0], specs[0], skip_unmatched)
    if repeated := [name for name in bags if bags.count(name) > 1]:
        raise UsageError(f"--bag {repeated[0]} is given twice; give each grouping once.")
    kinds = dict(zip(bags, specs, strict=True))
    return counts_of(None, dict(zip(bags, tables, strict=True)), kinds, skip_unmatched)


def _times(given: Sequence[str]) -> str:
    return "once" if len(given) == 1 else f"{len(given)} times"


def label_specs_of(
    labels_are: Sequence[str] | None, noise: str | None, clipped: bool, n_groupings: int = 1
) -> list[LabelSpec]:
    """What the numbers of each grouping are: --labels-are once for all of them, or once for each.

    >>> [x.kind for x in label_specs_of(["counts", "noisy"], "laplace:4", False, 2)]
    ['counts', 'noisy']
    """
    words = list(labels_are or ["auto"])
    if len(words) not in (1, n_groupings):
        raise UsageError(
            f"--labels-are is given {_times(words)}, and --labels "
            f"{'once' if n_groupings == 1 else f'{n_groupings} times'}; give it once for all, or "
            "once for each."
        )
    words = words * (n_groupings if len(words) == 1 else 1)
    said = "noisy" in words  # which ones the noise is about
    return [
        label_spec_of(word, noise, clipped) if word == "noisy" or not said else label_spec_of(word)
        for word in words
    ]


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
